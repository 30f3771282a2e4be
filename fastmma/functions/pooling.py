"""Average and largest values of windows, and gradients, as torch's CUDA kernels compute them (PyTorch 2.11).

A thread adds the numbers of a window in float32, row by row, and divides the sum: by the number of places (``AveragePool2d.cu``), or by
rows and then by columns (``AdaptiveAveragePooling.cu``; where channels lie side by side, it multiplies by the reciprocal of the number).
Gradients are gathered: of each place, a thread adds what the windows that hold it give, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.functions.arithmetic import Floats, round_to, widen
from fastmma.host.errors import NotEmulatedError
from fastmma.host.float_mode import default_floats

Integers = NDArray[np.int64]
_IMAGE = 2  # dimensions of an image
_OVERLAP = "gradients of windows that overlap are not known where channels lie side by side"


class Windows(NamedTuple):
    """Windows along one dimension: where each begins and ends, and the size that it counts."""

    begins: Integers
    ends: Integers
    sizes: Integers

    @property
    def spans(self) -> Integers:
        """Numbers of places."""
        found: Integers = self.ends - self.begins
        return found


class Sliding(NamedTuple):
    """The options of a pool along one dimension."""

    kernel: int
    stride: int
    padding: int


def slide(size: int, count: int, how: Sliding) -> Windows:
    """Find `count` windows over `size` places."""
    begins = np.arange(count, dtype=np.int64) * how.stride - how.padding
    ends = np.minimum(begins + how.kernel, size + how.padding)
    return Windows(np.maximum(begins, 0), np.minimum(ends, size), ends - begins)


def divide_up(size: int, count: int) -> Windows:
    """Find the windows of an adaptive pool."""
    steps = np.arange(count, dtype=np.int64)
    begins, ends = steps * size // count, -(-(steps + 1) * size // count)
    return Windows(begins, ends, ends - begins)


def holders(windows: Windows, size: int) -> Windows:
    """Find which windows hold each of `size` places."""
    places = np.arange(size, dtype=np.int64)
    begins = np.searchsorted(windows.ends, places, side="right")
    ends = np.searchsorted(windows.begins, places, side="right")
    return Windows(begins, ends, ends - begins)


def _steps(x: Floats, windows: Sequence[Windows]) -> Iterator[tuple[Any, NDArray[np.bool_]]]:
    """Yield where the first places of all windows lie, then the second ones and so on, and which windows have one."""
    for offsets in product(*(range(int(each.spans.max(initial=0))) for each in windows)):
        places = [each.begins + offset for each, offset in zip(windows, offsets, strict=True)]
        inside = np.ones((), np.bool_)
        for place, each in zip(places, windows, strict=True):
            inside = inside[..., None] & (place < each.ends)
        yield np.ix_(*(np.minimum(place, size - 1) for place, size in zip(places, x.shape[-len(windows) :], strict=True))), inside


def _zeros(x: Floats, windows: Sequence[Windows]) -> Floats:
    return np.zeros((*x.shape[: -len(windows)], *(len(each.begins) for each in windows)), np.float32)


def add_windows(x: Floats, windows: Sequence[Windows]) -> Floats:
    """Add the numbers of windows over the last dimensions, row by row."""
    sums = _zeros(x, windows)
    for places, inside in _steps(x, windows):
        sums += np.where(inside, x[(..., *places)], np.float32(0))
    return sums


def _areas(sizes: Sequence[Integers]) -> Floats:
    """Multiply the sizes of windows along all dimensions."""
    area = np.ones((), np.int64)
    for each in sizes:
        area = area[..., None] * each
    return area.astype(np.float32)


def _factors(windows: Sequence[Windows], dtype: Any) -> Floats:
    """Return reciprocals of numbers of places in a format."""
    return widen(round_to(np.float32(1) / _areas([each.spans for each in windows]), dtype))


def _most(held: Sequence[Windows]) -> int:
    """Find by how many windows a place is held at most."""
    return int(np.prod([int(each.spans.max(initial=0)) for each in held]))


def _divisors(windows: Sequence[Windows], divisor: int | None, count_padding: bool) -> Floats:
    if divisor is not None:
        return np.float32(divisor) + np.zeros([len(each.begins) for each in windows], np.float32)
    return _areas([each.sizes if count_padding else each.spans for each in windows])


@default_floats
def average(x: NDArray[Any], windows: Sequence[Windows], *, divisor: int | None = None, count_padding: bool = True) -> NDArray[Any]:
    """Compute ``aten::avg_pool2d`` or ``avg_pool3d``.

    Parameters
    ----------
    x : float32, float16 or bfloat16 array (..., rows, columns)
    windows : sequence of Windows
        Along the last dimensions.
    divisor : int, optional
        Divides the sums, instead of the numbers of places.
    count_padding : bool
        Whether these numbers count padding.

    Examples
    --------
    >>> average(np.float32([[1, 2, 3, 4]]), [slide(1, 1, Sliding(1, 1, 0)), slide(4, 2, Sliding(2, 2, 0))]).tolist()
    [[1.5, 3.5]]
    """
    with np.errstate(all="ignore"):
        return round_to(add_windows(widen(x), windows) / _divisors(windows, divisor, count_padding), x.dtype)


@default_floats
def average_backward(
    grad: NDArray[Any],
    windows: Sequence[Windows],
    shape: Sequence[int],
    *,
    divisor: int | None = None,
    count_padding: bool = True,
    channels_last: bool = False,
) -> NDArray[Any]:
    """Compute ``aten::avg_pool2d_backward``: `shape` has the sizes of the dimensions that windows lie over.

    Raises
    ------
    NotEmulatedError
        If windows overlap where channels lie side by side.

    Examples
    --------
    >>> windows = [slide(1, 1, Sliding(1, 1, 0)), slide(4, 2, Sliding(2, 2, 0))]
    >>> average_backward(np.float32([[1, 2]]), windows, (1, 4)).tolist()
    [[0.5, 0.5, 1.0, 1.0]]
    """
    held = [holders(each, size) for each, size in zip(windows, shape, strict=True)]
    if channels_last and _most(held) > 1:
        raise NotEmulatedError(_OVERLAP)
    with np.errstate(all="ignore"):
        parts = round_to(widen(grad) / _divisors(windows, divisor, count_padding), grad.dtype)
        return round_to(add_windows(widen(parts), held), grad.dtype)


@default_floats
def adaptive_average(x: NDArray[Any], counts: Sequence[int], *, channels_last: bool = False) -> NDArray[Any]:
    """Compute ``aten::_adaptive_avg_pool2d``, or ``_adaptive_avg_pool3d``, which divides once.

    Parameters
    ----------
    x : float32, float16 or bfloat16 array (..., rows, columns)
    counts : sequence of int
        Numbers of windows along the last dimensions.
    channels_last : bool
        Whether channels lie side by side in memory.

    Examples
    --------
    >>> adaptive_average(np.float32([[1, 2, 3]]), (1, 2)).tolist()
    [[1.5, 2.5]]
    """
    windows = [divide_up(size, count) for size, count in zip(x.shape[-len(counts) :], counts, strict=True)]
    sums = add_windows(widen(x), windows)
    with np.errstate(all="ignore"):
        if channels_last:
            return round_to(sums * _factors(windows, x.dtype), x.dtype)
        if len(windows) != _IMAGE:
            return round_to(sums / _areas([each.spans for each in windows]), x.dtype)
        rows, columns = (each.spans.astype(np.float32) for each in windows)
        return round_to(sums / rows[:, None] / columns, x.dtype)


@default_floats
def adaptive_average_backward(grad: NDArray[Any], shape: Sequence[int], *, channels_last: bool = False) -> NDArray[Any]:
    """Compute ``aten::_adaptive_avg_pool2d_backward``: `shape` has the sizes of the last dimensions of the averaged array.

    Raises
    ------
    NotEmulatedError
        If more than two windows hold a place, because a GPU adds their gradients in no fixed order; if channels lie side by side, more than
        one.

    Examples
    --------
    >>> adaptive_average_backward(np.float32([[1, 2]]), (1, 3)).tolist()
    [[0.5, 1.5, 1.0]]
    """
    windows = [divide_up(size, count) for size, count in zip(shape, grad.shape[-len(shape) :], strict=True)]
    held = [holders(each, size) for each, size in zip(windows, shape, strict=True)]
    if _most(held) > (1 if channels_last else 2):
        raise NotEmulatedError(_OVERLAP if channels_last else "gradients of more than two windows are added in any order")
    with np.errstate(all="ignore"):
        if channels_last:
            return round_to(add_windows(widen(round_to(widen(grad) * _factors(windows, grad.dtype), grad.dtype)), held), grad.dtype)
        rows, columns = (each.spans.astype(np.float32) for each in windows)
        parts = round_to(widen(round_to(widen(grad) / columns, grad.dtype)) / rows[:, None], grad.dtype)
        return round_to(add_windows(widen(parts), held), grad.dtype)


@default_floats
def largest_backward(grad: NDArray[Any], places: Integers, shape: Sequence[int]) -> NDArray[Any]:
    """Compute ``aten::max_pool2d_with_indices_backward``.

    Parameters
    ----------
    grad : float32, float16 or bfloat16 array (..., rows, columns)
    places : int64 array
        Places of the largest numbers, counted row after row.
    shape : sequence of int
        Rows and columns of the pool's input.

    Examples
    --------
    >>> largest_backward(np.float32([[1, 2, 3]]), np.array([[1, 1, 2]]), (1, 4)).tolist()
    [[0.0, 3.0, 3.0, 0.0]]
    """
    outer, size = grad.shape[: -len(shape)], int(np.prod(shape))
    planes = int(np.prod(outer))
    sums = np.zeros(planes * size, np.float32)
    offsets = np.arange(planes, dtype=np.int64)[:, None] * size
    with np.errstate(all="ignore"):
        np.add.at(sums, (places.reshape(planes, -1) + offsets).reshape(-1), widen(grad).reshape(-1))
    return round_to(sums, grad.dtype).reshape(*outer, *shape)


def nearest(size: int, count: int, scale: float | None) -> Windows:
    """Find which of `count` places are copies of each of `size` ones, as ``aten::upsample_nearest2d_backward`` does."""
    step = np.float32(1.0 / scale) if scale is not None and scale > 0 else np.float32(size) / np.float32(count)
    edges = np.minimum(np.ceil(np.arange(size + 1, dtype=np.float32) / step), np.float32(count)).astype(np.int64)
    return Windows(edges[:-1], edges[1:], np.diff(edges))


@default_floats
def nearest_backward(grad: NDArray[Any], windows: Sequence[Windows]) -> NDArray[Any]:
    """Compute ``aten::upsample_nearest2d_backward``: add the gradients of all copies.

    Examples
    --------
    >>> nearest_backward(np.float32([[1, 2, 3, 4]]), [nearest(1, 1, None), nearest(2, 4, 2.0)]).tolist()
    [[3.0, 7.0]]
    """
    with np.errstate(all="ignore"):
        return round_to(add_windows(widen(grad), windows), grad.dtype)
