"""Memory of large results is taken again when it is free, and by one array at a time."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fastmma.host import kept_memory

WORDS = np.dtype(np.uint32)
LARGE = (kept_memory.LEAST // 16, 4)


def test_memory_comes_again_when_no_array_lies_in_it() -> None:
    first = kept_memory.empty(LARGE, WORDS)
    assert first.shape == LARGE
    assert first.dtype == WORDS
    assert first.flags.c_contiguous
    assert first.flags.writeable
    place = first.ctypes.data
    first[-1] = 7
    last = first[-1:].view(np.float32)
    del first
    other = kept_memory.empty(LARGE, WORDS)
    other[...] = 1
    assert last.view(WORDS).tolist() == [[7, 7, 7, 7]]
    assert other.ctypes.data != place
    del last
    gc.collect()
    again = kept_memory.empty((LARGE[0], 2), np.dtype(np.uint64))
    assert again.ctypes.data == place
    del other, again


def test_what_is_kept_is_bounded() -> None:
    for size in (kept_memory.LEAST - 4, kept_memory.MOST + 4):
        assert kept_memory.empty((size // 4,), WORDS).flags.owndata
    held = [kept_memory.empty(LARGE, WORDS) for _ in range(3)]
    assert len({array.ctypes.data for array in held}) == 3
    del held
    gc.collect()
    assert len(kept_memory._kept) == 1
    much = kept_memory.empty((LARGE[0] * 3, 4), WORDS)
    much[...] = 3
    assert len(kept_memory._kept) == 0


def test_threads_have_memory_of_their_own() -> None:
    def use(number: int) -> bool:
        array = kept_memory.empty((LARGE[0], 4), WORDS)
        array[::4096] = number
        return bool((array[::4096] == number).all())

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(use, range(40)))
