"""Dropout as torch's CUDA kernels compute it (``Dropout.cu``, PyTorch 2.11)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.functions.arithmetic import round_to
from fastmma.functions.philox import WORDS, Generator, Launch, draw_words, launch_of

_UNIT = np.float32(float.fromhex("0x1p-32"))
_VECTOR = 16  # bytes that a thread loads


def _width(count: int, itemsize: int, address: int | None) -> int:
    """Find how many neighbours a thread takes: those of a vector of an aligned address, if no element is left."""
    if address is None:
        return 1
    width = _VECTOR // itemsize
    while width > 1 and (count % width or address % (width * itemsize)):
        width //= 2
    return width


def _words(seed: int, offset: int, count: int, width: int, threads: int) -> NDArray[np.uint32]:
    """Draw a word for each element: a thread calls once for up to 4 neighbours, and of 2 leaves half a call."""
    calls, used = -(-width // WORDS), min(width, WORDS)
    if width == 1:
        return draw_words(seed, offset, Launch(threads, launch_of(count).calls)).reshape(-1)[:count]
    rounds = -(-count // (threads * width))
    words = draw_words(seed, offset, Launch(threads, rounds * calls))[:, :used]
    return words.reshape(rounds, calls, used, threads).transpose(0, 3, 1, 2).reshape(-1)[:count]


def drop(generator: Generator, x: NDArray[Any], probability: float, address: int | None = 0) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Compute ``aten::native_dropout``.

    Parameters
    ----------
    generator : Generator
    x : float32, float16, bfloat16 or float64 array
        In the order of its memory, or of its elements if they are not dense.
    probability : float
        The probability that an element becomes zero, between 0 and 1.
    address : int or None
        Where `x` begins, in bytes; None if it is not dense.

    Returns
    -------
    out, mask : array
        Of the shape of `x`.

    Examples
    --------
    >>> drop(Generator(0), np.ones(4, np.float32), 0.5)[0].tolist()
    [2.0, 0.0, 0.0, 0.0]
    """
    launch = launch_of(x.size)
    seed, offset = generator.take(launch.calls * WORDS)
    words = _words(seed, offset, x.size, _width(x.size, x.itemsize, address), launch.threads)
    wide = np.float64 if x.dtype == np.float64 else np.float32
    kept = wide(1 - probability)
    mask = (words.astype(np.float32) * _UNIT + _UNIT / 2 < kept).reshape(x.shape)
    return _scaled(x, mask, wide(1) / kept, wide), mask


def drop_backward(gradient: NDArray[Any], mask: NDArray[np.bool_], scale: float) -> NDArray[Any]:
    """Compute ``aten::native_dropout_backward``.

    Examples
    --------
    >>> drop_backward(np.float32([3, 4]), np.array([True, False]), 2.0).tolist()
    [6.0, 0.0]
    """
    wide = np.float64 if gradient.dtype == np.float64 else np.float32
    return _scaled(gradient, mask, wide(scale), wide)


def _scaled(x: NDArray[Any], mask: NDArray[np.bool_], scale: Any, wide: type) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        out = x.astype(wide) * mask.astype(wide) * scale
    return out if wide is np.float64 else round_to(out, x.dtype)
