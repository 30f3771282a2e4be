"""Share a reduction among threads and blocks, as torch's kernel does (``setReduceConfig`` in ``Reduce.cuh``, PyTorch 2.11)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from fastmma.functions.block import WARP

_THREADS = 512  # of a block
_LEAST, _MOST = 16, 256  # values of a thread, before blocks share an output


class Device(NamedTuple):
    """Hold what the kernel asks about a GPU."""

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
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    reduced: int
    outputs: int
    inputs: int


class Plan(NamedTuple):
    """Hold which threads add what.

    Attributes
    ----------
    width, height : int
        Of a block; its threads along x share a result if `along_x`, its rows if `along_y`.
    along_x, along_y : bool
    blocks : int
        How many share a result.
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


def merge_dimensions(shape: Sequence[int], axes: Collection[int]) -> View:
    """Merge the dimensions of a contiguous array, reduced along axes.

    Examples
    --------
    >>> merge_dimensions((16, 33, 65), (0, 1))
    View(sizes=(528, 65), strides=(65, 1), reduced=1, outputs=65, inputs=528)
    """
    groups: tuple[list[tuple[int, int]], ...] = ([], [])  # of those that are reduced, and of others
    stride = 1
    for axis in reversed(range(len(shape))):
        merged = groups[axis not in axes]
        if shape[axis] != 1:
            if merged and math.prod(merged[-1]) == stride:
                merged[-1] = merged[-1][0] * shape[axis], merged[-1][1]
            else:
                merged.append((shape[axis], stride))
        stride *= shape[axis]
    both = groups[0] + groups[1]
    inputs, outputs = (math.prod(size for size, _ in group) for group in groups)
    return View(tuple(size for size, _ in both), tuple(each for _, each in both), len(groups[0]), outputs, inputs)


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
        across = math.gcd(4, view.sizes[view.reduced], *others)
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
