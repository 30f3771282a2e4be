"""Philox 4x32 with 10 rounds: the words that its authors publish, and the places that threads of a GPU give them."""

from __future__ import annotations

import numpy as np

from fastmma.functions.philox import Launch, draw_words, launch_of


def test_words_are_those_of_the_authors() -> None:
    """`kat_vectors` of Random123 has them for a key and a counter of zeros."""
    assert draw_words(0, 0, Launch(256, 1))[0, :, 0].tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_calls_and_threads_count_on() -> None:
    far = draw_words(-3, (1 << 34) - 4, Launch(256, 3), threads=1)
    assert np.array_equal(far[1:], draw_words((1 << 64) - 3, 1 << 34, Launch(256, 2), threads=2))
    assert len(np.unique(far)) == far.size
    assert [launch_of(count).calls for count in (0, 1, 4 * 270336, 4 * 270336 + 1)] == [0, 1, 1, 2]
    assert launch_of(300000, 2) == Launch(270336, 1)
