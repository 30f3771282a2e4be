"""Reductions as torch's CUDA kernel computes them (``reduce_kernel`` in ``Reduce.cuh``, PyTorch 2.11), of arrays of any strides.

With t the number of a thread among all those that share a result, and T how many these are, thread t takes the elements t, t + T, t + 2T
and so on in turn into `sums` sums (4; 2 for variances), or vectors of V elements, each place into a sum of its own (V is 4, of halves 8
for sums and means; 2 for variances). Where rows are no whole vectors, a row's first elements up to an aligned address and its last ones
join the first sum of the first threads. A thread then joins its sums one after another; threads along x are halved, then those along y.
Blocks that share a result leave theirs in memory: the last block's threads take these in turn, and are halved along y, then along x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastmma import kernels
from fastmma.functions.arithmetic import F32, Floats, apply, round_to, widen
from fastmma.functions.block import start_sums
from fastmma.functions.moments import Moments, join_by_quotient, start_moments
from fastmma.functions.reduce_plan import Plan, View, merge_dimensions, plan_reduction
from fastmma.host.threads import parallel_for, thread_count

State = tuple[Floats, ...]
_TOGETHER = 512  # threads whose sums are kept in a cache
_PART = 1 << 17  # elements that are widened at a time, and stay in a cache


class Reduction(NamedTuple):
    """Hold an operation: what threads begin with, how they take values from a first to a last one, and how two join."""

    start: Callable[[int, int], State]
    take: Callable[[Floats, State, int, int], None]
    join: Callable[[State, State], State]
    sums: int = 4  # of a thread
    vector: int = 4  # elements of a load
    vector_of_halves: int = 4


def _start_sum(rows: int, threads: int) -> State:
    return (start_sums(rows, threads),)


def _take_sum(values: Floats, state: State, start: int, stop: int) -> None:
    kernels.functions.sums.add_vectors(values, *state, start, stop, 1)


def _take_squares(values: Floats, state: State, start: int, stop: int) -> None:
    kernels.functions.sums.add_products(values, values, *state, start, stop)


def _take_magnitudes(values: Floats, state: State, start: int, stop: int) -> None:
    kernels.functions.sums.add_vectors(np.abs(values), *state, start, stop, 1)


def _take_product(values: Floats, state: State, start: int, stop: int) -> None:
    kernels.functions.sums.multiply_strided(values, *state, start, stop)


def _take_largest(values: Floats, state: State, start: int, stop: int) -> None:
    kernels.functions.sums.keep_largest(values, *state, start, stop)


def _take_smallest(values: Floats, state: State, start: int, stop: int) -> None:
    kernels.functions.sums.keep_smallest(values, *state, start, stop)


def _take_moments(values: Floats, state: State, start: int, stop: int) -> None:
    kernels.functions.moments.join_values(values, *state, start, stop)


def _add(first: State, second: State) -> State:
    return (first[0] + second[0],)


def _start_at(number: float) -> Callable[[int, int], State]:
    return lambda rows, threads: (np.full((rows, threads), number, np.float32),)


def _larger(first: State, second: State) -> State:
    return (np.where(np.isnan(first[0]) | (first[0] > second[0]), first[0], second[0]),)


def _smaller(first: State, second: State) -> State:
    return (np.where(np.isnan(first[0]) | (first[0] < second[0]), first[0], second[0]),)


def _multiply(first: State, second: State) -> State:
    return (first[0] * second[0],)


def _join_moments(first: State, second: State) -> State:
    return join_by_quotient(Moments(*first), Moments(*second))


SUM = Reduction(_start_sum, _take_sum, _add, vector_of_halves=8)
PLAIN_SUM = Reduction(_start_sum, _take_sum, _add)  # whose loads of halves are no longer than those of float32
SQUARES = Reduction(_start_sum, _take_squares, _add)
MAGNITUDES = Reduction(_start_sum, _take_magnitudes, _add)
PRODUCT = Reduction(_start_at(1), _take_product, _multiply)
LARGEST = Reduction(_start_at(-np.inf), _take_largest, _larger)
LARGEST_MAGNITUDE = Reduction(_start_at(0), _take_largest, _larger)
SMALLEST_MAGNITUDE = Reduction(_start_at(np.inf), _take_smallest, _smaller)
MOMENTS = Reduction(start_moments, _take_moments, _join_moments, sums=2, vector=2, vector_of_halves=2)


def _part(state: State, key: Any) -> State:
    return tuple(each[key] for each in state)


def _fold(state: State, operation: Reduction) -> State:
    """Join the sums of a thread (last axis), one after another."""
    total = _part(state, (..., 0))
    for index in range(1, state[0].shape[-1]):
        total = operation.join(total, _part(state, (..., index)))
    return total


def _halve(state: State, axis: int, operation: Reduction) -> State:
    """Join the upper half of an axis to the lower one until one is left."""
    if axis < state[0].ndim - 1:
        state = tuple(np.moveaxis(each, axis, -1) for each in state)
    while state[0].shape[-1] > 1:
        half = state[0].shape[-1] // 2
        state = operation.join(_part(state, (..., slice(None, half))), _part(state, (..., slice(half, None))))
    return _part(state, (..., 0))


def _fold_elements(state: State, threads: int, operation: Reduction) -> State:
    return _fold(tuple(each.reshape(len(each), -1, threads).swapaxes(1, 2) for each in state), operation)


def _take_elements(rows: Floats, threads: int, operation: Reduction) -> State:
    state = operation.start(len(rows), operation.sums * threads)
    operation.take(rows, state, 0, rows.shape[1])
    return _fold_elements(state, threads, operation)


def _has_columns(x: NDArray[Any], view: View) -> bool:
    """Tell whether columns of matrices are reduced, which lie one after another."""
    return x.flags.c_contiguous and view.reduced == 1 and view.strides[1:2] == (1,) and view.strides[0] == view.sizes[1]


def _add_columns(matrices: NDArray[Any], threads: int) -> State:
    """Add the columns of matrices (matrix, row, column) as `_take_elements` adds rows."""
    count, rows, columns = matrices.shape
    state = np.zeros((count, SUM.sums * threads, columns), np.float32)
    step = max(_PART // (count * state.shape[1] * columns), 1) * state.shape[1]
    for first in range(0, rows, step):
        kernels.functions.sums.add_rows(widen(matrices[:, first : first + step]), state)
    total = _fold((np.moveaxis(state.reshape(count, SUM.sums, threads, columns), 1, -1),), SUM)
    return (total[0].swapaxes(1, 2).reshape(count * columns, threads),)


def _add_vectors(rows: Floats, threads: int, vector: int) -> State:
    """Add rows of whole vectors as `_take_vectors` does."""
    out = np.empty((len(rows), threads), np.float32)
    kernels.functions.sums.add_thread_vectors(rows, vector, min(threads, _TOGETHER), out)
    return (out,)


def _take_vectors(rows: Floats, threads: int, shift: int, vector: int, operation: Reduction) -> State:
    """Take rows that begin `shift` elements after an aligned address."""
    if operation in (SUM, PLAIN_SUM) and not shift and not rows.shape[1] % vector:
        return _add_vectors(rows, threads, vector)
    state = operation.start(len(rows), threads * vector)
    firsts = tuple(each[:, ::vector] for each in state)  # the first sums of the threads
    head = -shift % vector
    if head:
        operation.take(rows, _part(firsts, (slice(None), slice(shift, None))), 0, head)
    tail = rows.shape[1] - (rows.shape[1] - head) % vector
    operation.take(rows[:, head:], state, 0, tail - head)
    operation.take(rows, firsts, tail, rows.shape[1])
    return _fold(tuple(each.reshape(len(rows), threads, vector) for each in state), operation)


def _take(rows: Floats, starts: NDArray[np.int64], plan: Plan, operation: Reduction) -> State:
    """Have all threads take their values, of rows that begin at some places: one state for each result and thread."""
    threads = plan.threads * plan.blocks
    if plan.vector == 1:
        return _take_elements(rows, threads, operation)
    shifts = starts % plan.vector
    if (shifts == shifts[0]).all():
        return _take_vectors(rows, threads, int(shifts[0]), plan.vector, operation)
    state = operation.start(len(rows), threads)
    for shift in np.unique(shifts):
        where = np.flatnonzero(shifts == shift)
        found = _take_vectors(np.ascontiguousarray(rows[where]), threads, int(shift), plan.vector, operation)
        for each, part in zip(state, found, strict=True):
            each[where] = part
    return state


def _block(plan: Plan) -> tuple[int, int, int, int]:
    """Return the threads of a block, the elements and the sums of one, and how many are halved together, as `add_block_rows` takes them."""
    return plan.threads, plan.vector, plan.vector if plan.vector > 1 else SUM.sums, plan.width if plan.along_x else 1


def _add_rows(rows: NDArray[Any], starts: NDArray[np.int64], plan: Plan) -> Floats:
    """Add rows, each of which a block of its own adds, as `_take` does and the halving after it."""
    out = np.empty(len(rows), np.float32)
    shifts, block = np.broadcast_to(starts % plan.vector, len(rows)), _block(plan)

    def add(first: int, stop: int, _: int) -> None:
        part = slice(first, stop)
        values = rows[part] if rows.dtype == F32 else apply("rounded", rows[part], out_dtype=F32, threads=1)
        kernels.functions.sums.add_block_rows(values, shifts[part], *block, out[part])

    parallel_for(add, len(rows), thread_count(None), max(_PART // rows.shape[1], 1))
    return out


def _join_blocks(state: State, plan: Plan, operation: Reduction) -> State:
    """Join what blocks left in memory (last axis), as the last of them does."""
    across = plan.width if plan.along_x else 1
    total = operation.start(len(state[0]), across * plan.height)
    for first in range(0, plan.blocks, total[0].shape[1]):
        found = _part(state, (slice(None), slice(first, first + total[0].shape[1])))
        some = (slice(None), slice(found[0].shape[1]))
        for each, part in zip(total, operation.join(_part(total, some), found), strict=True):
            each[some] = part
    block = tuple(each.reshape(len(each), plan.height, across) for each in total)
    return _halve(_halve(block, 1, operation), 1, operation)


def _starts(x: NDArray[Any], kept: Sequence[int], offset: int) -> NDArray[np.int64]:
    """Find where rows begin, in elements after an aligned address."""
    found = np.full((), offset, np.int64)
    for axis in kept:
        found = found[..., None] + np.arange(x.shape[axis]) * (x.strides[axis] // x.itemsize)
    return found.reshape(-1)


@lru_cache(1024)
def _planned(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, axes: tuple[int, ...] | None, vector: int, offset: int
) -> tuple[tuple[int, ...], View, Plan, tuple[int, ...]]:
    """The axes that are kept, what is merged, block and grid, and the shape of results, of an array by its strides in bytes."""
    count = len(shape)
    reduced = sorted({axis % count for axis in (range(count) if axes is None else axes)}) if count else []
    kept = tuple(axis for axis in range(count) if axis not in reduced)
    view = merge_dimensions(shape, reduced, [step // itemsize for step in strides], offset)
    results = tuple(1 if axis in reduced else size for axis, size in enumerate(shape))
    return kept, view, plan_reduction(view, vector), results


def reduce_array(
    x: NDArray[Any], axes: Sequence[int] | int | None, operation: Reduction, offset: int = 0, values: Floats | None = None
) -> tuple[State, View, tuple[int, ...]]:
    """Reduce an array, or float32 values in the place of its elements.

    Also return what was merged, and the shape of the results with axes of size 1 in place of the reduced ones.
    """
    taken: NDArray[Any] = x if values is None else values
    given = None if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    vector = operation.vector if x.itemsize == F32.itemsize else operation.vector_of_halves
    kept, view, plan, shape = _planned(x.shape, x.strides, x.itemsize, given, vector, offset)
    if operation is SUM and _has_columns(x, view):
        state = _add_columns(np.ascontiguousarray(taken).reshape(-1, view.inputs, view.sizes[1]), plan.threads * plan.blocks)
    else:
        rows = np.ascontiguousarray(taken.transpose(*kept, *view.order)).reshape(view.outputs, view.inputs)
        if plan.blocks == 1 and operation in (SUM, PLAIN_SUM):
            return (_add_rows(rows, _starts(x, kept, offset), plan),), view, shape
        state = _take(widen(rows), _starts(x, kept, offset), plan, operation)
    block = (view.outputs, plan.blocks, plan.height if plan.along_y else 1, plan.width if plan.along_x else 1)
    state = _halve(_halve(tuple(each.reshape(block) for each in state), 3, operation), 2, operation)
    joined = _join_blocks(state, plan, operation) if plan.blocks > 1 else _part(state, (slice(None), 0))
    return joined, view, shape


class RowSums(NamedTuple):
    """Describe sums of rows that lie one after another, and fit into a cache: what `kernels.functions.sums.add_block_rows` takes of them.

    Attributes
    ----------
    rows, columns : int
    shifts : array
        How many elements after an aligned address a row begins.
    block : tuple of int
        Threads, elements and sums of each, and how many are halved together.
    """

    rows: int
    columns: int
    shifts: NDArray[np.int64]
    block: tuple[int, int, int, int]


def row_sums(x: NDArray[Any], axes: Sequence[int] | None, offset: int) -> RowSums | None:
    """Describe the sums of an array as `reduce_array` adds them; None where they are no sums of such rows."""
    vector = SUM.vector if x.itemsize == F32.itemsize else SUM.vector_of_halves
    kept, view, plan, _ = _planned(x.shape, x.strides, x.itemsize, None if axes is None else tuple(axes), vector, offset)
    in_order = x.flags.c_contiguous and [*kept, *view.order] == list(range(x.ndim))
    if not in_order or plan.blocks != 1 or _has_columns(x, view) or x.size > _PART:
        return None
    shifts = np.broadcast_to(_starts(x, kept, offset) % plan.vector, view.outputs)
    return RowSums(view.outputs, view.inputs, shifts, _block(plan))


def finish(values: Any, shape: tuple[int, ...], x: NDArray[Any], axes: Any, keepdims: bool, dtype: DTypeLike | None) -> NDArray[Any]:
    """Round results, and give them their shape."""
    result = round_to(values, x.dtype if dtype is None else dtype).reshape(shape)
    given = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    return result if keepdims or not x.ndim else result.squeeze(tuple({axis % x.ndim for axis in given}))
