"""How torch's reduction kernel (``Reduce.cuh`` of 2.11) shares a reduction among threads and blocks, as a function of the shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_WARP = 32
_MAX_THREADS = 512
_LEAST_VALUES, _MOST_VALUES = 16, 256  # of a thread, before blocks share an output


class Device(NamedTuple):
    """Give what the kernel asks of a GPU."""

    multiprocessors: int
    threads: int  # of a multiprocessor


H200 = Device(132, 2048)


@dataclass(frozen=True)
class View:
    """Hold a reduction as torch iterates over it: sizes and strides in elements, reduced dimensions first, neighbours merged."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    reduced: int  # how many of the dimensions are

    @property
    def outputs(self) -> int:
        """Count the results."""
        return math.prod(self.sizes[self.reduced :])

    @property
    def inputs(self) -> int:
        """Count the elements of a result."""
        return math.prod(self.sizes[: self.reduced])


@dataclass(frozen=True)
class Plan:
    """Hold which threads add what: a thread takes every `step`-th vector or element of a result's inputs."""

    width: int  # blockDim.x
    height: int  # blockDim.y
    along_x: bool  # threads of a row of the block share a result
    along_y: bool  # rows of the block share a result
    blocks: int  # that share a result
    vector: int  # elements of a load, in as many sums; 1 if loads are of single elements
    sums: int  # that a thread keeps where loads are of single elements


def view(shape: Sequence[int], axes: Sequence[int]) -> View:
    """Merge the dimensions of a contiguous array as ``TensorIterator`` does.

    Examples
    --------
    >>> view((16, 33, 65), (0, 1))
    View(sizes=(528, 65), strides=(65, 1), reduced=1)
    """
    strides = [math.prod(shape[index + 1 :]) for index in range(len(shape))]
    groups: list[list[tuple[int, int]]] = [[], []]
    for index in reversed(range(len(shape))):
        if shape[index] != 1:
            merged = groups[index not in axes]
            if merged and merged[-1][0] * merged[-1][1] == strides[index]:
                merged[-1] = merged[-1][0] * shape[index], merged[-1][1]
            else:
                merged.append((shape[index], strides[index]))
    both = groups[0] + groups[1]
    return View(tuple(size for size, _ in both), tuple(stride for _, stride in both), len(groups[0]))


def _power(count: int, most: int) -> int:
    """Round down to a power of two, within bounds."""
    return most if count >= most else 1 << (max(count, 1).bit_length() - 1)


def _output_vector(found: View) -> int:
    sizes = [found.sizes[found.reduced], *(stride for index, stride in enumerate(found.strides) if index != found.reduced)]
    return math.gcd(4, *sizes)


def plan(found: View, sums: int, vector: int, device: Device = H200) -> Plan:
    """Choose block and grid as ``setReduceConfig`` does.

    Parameters
    ----------
    found : View
        Of which reduction.
    sums : int
        How many sums a thread keeps (``vt0``).
    vector : int
        How many elements a load takes that runs along the inputs (``input_vec_size``).
    device : Device
        For which GPU.
    """
    outputs, inputs = found.outputs, found.inputs
    inner = True
    fastest = 1
    if found.sizes:
        inner = found.reduced == len(found.sizes) or (found.reduced > 0 and found.strides[0] < found.strides[found.reduced])
        fastest = found.strides[0 if inner else found.reduced]
    first, second = (inputs, outputs) if inner else (outputs, inputs)
    along, across = 1, 1
    if fastest == 1 and inner and first >= 128 and found.reduced == 1:
        along = vector
        first //= vector
    elif fastest == 1 and not inner:
        across = _output_vector(found)
        first //= across
    most = _MAX_THREADS // across
    columns, rows = _power(first, most), _power(second, most)
    width = min(columns, _WARP)
    height = min(rows, most // width)
    width = min(columns, most // height)
    step, step_output = (width, 1) if inner else (1, width)
    split = -(-inputs // step) >= min(height * 16, _MOST_VALUES)
    if split:
        step *= height
    else:
        step_output *= height
    grid = -(-(outputs // across) // step_output)
    wanted = device.multiprocessors * (device.threads // (width * height))
    values = -(-inputs // step)
    blocks = 1
    if split and values >= _MOST_VALUES and grid <= wanted:
        blocks = max(min(-(-wanted // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    return Plan(width, height, inner, split, blocks, along, sums)
