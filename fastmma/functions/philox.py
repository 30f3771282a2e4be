"""CUDA's generator of random numbers: which words each element of a tensor gets (``DistributionTemplates.h``, PyTorch 2.11).

A kernel has a thread an element, up to all that the GPU holds, in blocks of 256; each call of a thread draws four words of 32 bits. An
element belongs to the thread of its number, modulo all threads, and the elements of one thread take the words of its calls in turn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma import kernels
from fastmma.host import forks
from fastmma.host.threads import parallel_for, thread_count

MULTIPROCESSORS = 132  # of an H100 SXM and an H200
WORDS = 4  # of a call
_BLOCK, _THREADS = 256, 2048  # threads of a block, and of a multiprocessor
_GRAIN = 4096  # threads of a GPU that a thread of this machine takes at a time
_SEED = 67280421310721  # of a generator that nobody has seeded
_lock = forks.shared_lock()

Words = NDArray[np.uint32]


class Generator:
    """A generator of a GPU.

    Parameters
    ----------
    seed : int
        As ``torch.manual_seed`` takes it.
    offset : int
        How many numbers were drawn, a multiple of 4.

    Attributes
    ----------
    seed, offset : int
    lost : bool
        Whether a kernel drew an unknown count of numbers from it.

    Examples
    --------
    >>> generator = Generator(7)
    >>> generator.take(4), generator.take(10), generator.take(1)
    ((7, 0), (7, 4), (7, 16))
    """

    def __init__(self, seed: int = _SEED, offset: int = 0) -> None:
        self.seed, self.offset, self.lost = seed, offset, False

    def move(self, seed: int, offset: int = 0) -> None:
        """Go to another place, or to another sequence."""
        self.seed, self.offset, self.lost = seed, offset, False

    def take(self, count: int) -> tuple[int, int]:
        """Return the seed and the offset, which then grows by a multiple of 4 that is at least `count`."""
        with _lock:
            offset = self.offset
            self.offset += -(-count // WORDS) * WORDS
        return self.seed, offset


class Launch(NamedTuple):
    """The division of a tensor among the threads of a kernel.

    Attributes
    ----------
    threads : int
    calls : int
        Of each thread.
    """

    threads: int
    calls: int


def launch_of(count: int, taken: int = WORDS) -> Launch:
    """Find how a kernel divides elements among threads, if a call makes `taken` of them.

    Examples
    --------
    >>> launch_of(1000), launch_of(1_500_000)
    (Launch(threads=1024, calls=1), Launch(threads=270336, calls=2))
    """
    threads = min(-(-count // _BLOCK), MULTIPROCESSORS * _THREADS // _BLOCK) * _BLOCK
    return Launch(threads, -(-count // (threads * taken)) if count else 0)


def draw_words(seed: int, offset: int, launch: Launch, *, threads: int | None = None) -> Words:
    """Draw the words of all calls.

    Parameters
    ----------
    seed, offset : int
        Of the generator; the offset is a multiple of 4.
    launch : Launch
    threads : int, optional
        Of this machine.

    Returns
    -------
    words : uint32 array (calls, 4, threads)

    Examples
    --------
    >>> draw_words(0, 0, Launch(256, 1))[0, :, 0].tolist()
    [1713891541, 3781805453, 3159862348, 2600524760]
    """
    words = np.empty((launch.calls, WORDS, launch.threads), np.uint32)
    key, call = np.uint64(seed % (1 << 64)), np.uint64(offset // WORDS)
    draw = kernels.functions.philox.draw
    parallel_for(lambda start, stop, _: draw(key, call, words, start, stop), launch.threads, thread_count(threads), _GRAIN)
    return words


def take_words(generator: Generator, count: int, taken: int = WORDS) -> Words:
    """Draw the words of `draw_words` for elements, if a call makes `taken` of them, and advance the generator."""
    launch = launch_of(count, taken)
    seed, offset = generator.take(launch.calls * WORDS)
    return draw_words(seed, offset, launch)
