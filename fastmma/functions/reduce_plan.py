"""Share a reduction among threads and blocks, as torch's kernel does (``setReduceConfig`` in ``Reduce.cuh``, PyTorch 2.11)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from fastmma.functions.block import WARP

_THREADS = 512  # of a block
_LEAST, _MOST = 16, 256  # values of a thread, before blocks share an output


class Device(NamedTuple):
    """Hold the sizes of a GPU that the kernel asks for."""

    multiprocessors: int
    threads: int  # of a multiprocessor


H200 = Device(132, 2048)


class View(NamedTuple):
    """Hold a reduction as ``TensorIterator`` does: dimensions of size 1 left out, neighbours merged, the reduced ones first.

    Attributes
    ----------
    sizes, strides : tuple of int
        Of the dimensions, innermost first; strides are in elements.
    reduced : int
        How many of them are reduced.
    outputs, inputs : int
        How many results there are, and of how many elements each.
    order : tuple of int
        The reduced axes, in the order in which their elements are taken: the innermost one last.
    offset : int
        Where the array begins, in elements after an aligned address.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    reduced: int
    outputs: int
    inputs: int
    order: tuple[int, ...] = ()
    offset: int = 0


class Plan(NamedTuple):
    """Hold the division of a reduction among threads.

    Attributes
    ----------
    width, height : int
        Of a block; its threads along x share a result if `along_x`, its rows if `along_y`.
    along_x, along_y : bool
    blocks : int
        How many blocks share a result.
    vector : int
        Elements of a load that runs along the inputs; 1 if loads are of single elements, or run along the outputs.
    """

    width: int
    height: int
    along_x: bool
    along_y: bool
    blocks: int
    vector: int

    @property
    def threads(self) -> int:
        """Count the threads of a block that share a result."""
        return (self.width if self.along_x else 1) * (self.height if self.along_y else 1)


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous array, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _is_after(first: int, second: int, shape: Sequence[int], strides: Sequence[Sequence[int]], output: Sequence[int]) -> int:
    """Tell whether an axis comes after another (1), before it (-1), or nothing says so (0)."""
    if output and (output[first] == 0) != (output[second] == 0):
        return 1 if output[second] == 0 else -1
    for each in (output, *strides) if output else strides:
        one, other = each[first], each[second]
        if one == 0 or other == 0:
            continue
        if one != other:
            return -1 if one < other else 1
        if shape[first] > shape[second]:
            return 1
    return 0


def sort_axes(shape: Sequence[int], strides: Sequence[Sequence[int]], output: Sequence[int] = ()) -> list[int]:
    """Sort axes by insertion, the innermost one first, as the iterator does.

    Parameters
    ----------
    shape : sequence of int
    strides : sequence of sequence of int
        Of the operands.
    output : sequence of int
        Of the result of a reduction, 0 along reduced axes, which come before others.

    Examples
    --------
    >>> sort_axes((4, 5, 6), [(1, 24, 4)])
    [0, 2, 1]
    """
    axes = list(reversed(range(len(shape))))
    for last in range(1, len(axes)):
        place = last
        for before in range(last - 1, -1, -1):
            wanted = _is_after(axes[before], axes[place], shape, strides, output)
            if wanted > 0:
                axes[before], axes[place] = axes[place], axes[before]
                place = before
            elif wanted < 0:
                break
    return axes


def merge_dimensions(shape: Sequence[int], axes: Collection[int], strides: Sequence[int] | None = None, offset: int = 0) -> View:
    """Sort and merge the dimensions of an array that is reduced along axes.

    Parameters
    ----------
    shape : sequence of int
    axes : collection of int
        Those reduced.
    strides : sequence of int, optional
        In elements; by default those of a contiguous array.
    offset : int
        Where the array begins, in elements after an aligned address.

    Examples
    --------
    >>> view = merge_dimensions((16, 33, 65), (0, 1))
    >>> view.sizes, view.strides, view.reduced, view.outputs, view.inputs
    ((528, 65), (65, 1), 1, 65, 528)
    >>> merge_dimensions((16, 33), (0, 1), (1, 16)).order
    (1, 0)
    """
    given = _contiguous(shape) if strides is None else strides
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    output = [0 if axis in axes else stride for axis, stride in enumerate(_contiguous(kept))]
    order = sort_axes(shape, (given,), output)
    merged: list[tuple[int, int, int]] = []  # size, stride of the output, stride of the input
    for axis in order:
        size, out, step = shape[axis], output[axis], given[axis]
        if size == 1:
            continue
        if merged and merged[-1][0] * merged[-1][1] == out and merged[-1][0] * merged[-1][2] == step:
            merged[-1] = merged[-1][0] * size, *merged[-1][1:]
        else:
            merged.append((size, out, step))
    reduced = sum(out == 0 for _, out, _ in merged)
    inputs = math.prod(shape[axis] for axis in axes)
    innermost_last = tuple(axis for axis in reversed(order) if axis in axes)
    sizes, steps = tuple(size for size, _, _ in merged), tuple(step for _, _, step in merged)
    return View(sizes, steps, reduced, math.prod(kept), inputs, innermost_last, offset)


def _power(count: int, most: int) -> int:
    """Round down to a power of two, within bounds."""
    return most if count >= most else 1 << (max(count, 1).bit_length() - 1)


def plan_reduction(view: View, vector: int, device: Device = H200) -> Plan:
    """Choose block and grid of a reduction.

    Parameters
    ----------
    view : View
    vector : int
        Elements of a load that runs along the inputs (``input_vec_size``).
    device : Device

    Examples
    --------
    >>> plan_reduction(merge_dimensions((4, 4096), (1,)), 4)
    Plan(width=128, height=4, along_x=True, along_y=False, blocks=1, vector=4)
    """
    inner, fastest = True, 1
    if view.sizes:
        inner = view.reduced == len(view.sizes) or (view.reduced > 0 and view.strides[0] < view.strides[view.reduced])
        fastest = view.strides[0 if inner else view.reduced]
    first, second = (view.inputs, view.outputs) if inner else (view.outputs, view.inputs)
    along, across = 1, 1
    if fastest == 1 and inner and first >= 128 and view.reduced == 1:
        along = vector
    elif fastest == 1 and not inner:
        others = (stride for index, stride in enumerate(view.strides) if index != view.reduced)
        across = math.gcd(4, view.offset, view.sizes[view.reduced], *others)
    most = _THREADS // across
    columns, rows = _power(first // (along * across), most), _power(second, most)
    height = min(rows, most // min(columns, WARP))
    width = min(columns, most // height)
    step = width if inner else 1
    split = -(-view.inputs // step) >= min(height * _LEAST, _MOST)
    values = -(-view.inputs // (step * height))
    grid = -(-(view.outputs // across) // ((1 if inner else width) * (1 if split else height)))
    wanted = device.multiprocessors * (device.threads // (width * height))
    blocks = 1
    if split and values >= _MOST and grid <= wanted:
        blocks = max(min(-(-wanted // grid), -(-values // _LEAST)), -(-values // _MOST))
    return Plan(width, height, inner, split, blocks, along)
