"""Softmax and its logarithm as torch's CUDA kernels compute them (PyTorch 2.11: ``SoftMax.cu``, ``PersistentSoftmax.cuh``).

With e the exponentials of the elements less the row's maximum, the result is e / sum(e), or x - max - log(sum(e)); the gradient is
g - y * sum(g), with g the incoming one times y, or g - exp(y) * sum(g), in one fused multiply-add. Kernels differ in how they sum:

- a warp to a row (at most 2,048 elements; 1,024 of gradients and of halves that become f32): lanes take every 32nd element, and are halved;
- a block to a row: 1,024 threads take every 1,024th element (to 9 each), or vectors of 16 bytes;
- rows along another axis than the last: threads of a block share what lies along the axis, or one takes all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastmma import kernels
from fastmma.functions import libdevice
from fastmma.functions.arithmetic import BITS, F32, Floats, apply, widen
from fastmma.functions.block import WARP, add_block, add_in_sequence, add_strided, add_unaligned, add_vectors, halve
from fastmma.host.addresses import address_of, aligned_empty
from fastmma.host.float_mode import default_floats, in_default_mode
from fastmma.host.threads import parallel_for, thread_count

_THREADS = 1024
_SHARED = 49152  # bytes of a block's shared memory
_REGISTERS = 9  # elements of a thread that it keeps
_LOAD = 16  # bytes
_PART, _PARTS_OF = 1 << 17, 8  # elements and rows that are computed at a time
_FEW = 1 << 14  # elements of all rows, for which memory is kept, and one thread is enough
_LINE = 16  # numbers of a line of the cache
SHORT = 32  # elements of a row, below which a loop over each is slow
_SPATIAL = 64  # threads along the axis share a row where no more lie across it, and no fewer along it


def _warp_sum(values: Floats) -> Floats:
    lanes = min(WARP, 1 << (values.shape[1] - 1).bit_length())
    sums = np.empty(len(values), np.float32)
    if values.shape[1] % WARP or not values.flags.c_contiguous:
        kernels.functions.sums.add_warps(values, lanes, sums)
    else:
        scratch = kernels.matrices.memory.AlignedMemory(WARP // 2 * F32.itemsize)
        kernels.functions.sums.add_whole_warps(address_of(values), *values.shape, scratch.address, address_of(sums))
    return sums


def _fits_shared(count: int, size: int, threads: int) -> bool:
    return count < (_SHARED - threads // WARP * 4) // size and count % (_LOAD // size) == 0


def _is_of_a_warp(count: int, size: int, narrowed: bool) -> bool:
    """Tell whether a warp sums a row of so many exponentials, as `_forward_sum` has them."""
    most = 2 * _THREADS if narrowed else _THREADS
    return count <= most and count * size <= 4 * most


def _forward_sum(values: Floats, size: int, narrowed: bool) -> Floats:
    """Sum exponentials of inputs of `size` bytes, that become f32 if they are not `narrowed`."""
    count = values.shape[1]
    if _is_of_a_warp(count, size, narrowed):
        return _warp_sum(values)
    threads = -(-min(count, _THREADS) // WARP) * WARP
    if narrowed and -(-count // threads) <= _REGISTERS:
        return add_block(add_strided(values, threads))
    if _fits_shared(count, size, threads):
        return add_block(add_vectors(values, threads, _LOAD // size))
    return add_block(add_unaligned(values, threads, _LOAD // size))


def _backward_sum(values: Floats, size: int, result: int) -> Floats:
    """Sum gradients of `size` bytes, for a result of so many."""
    count = values.shape[1]
    if count <= _THREADS and count * result <= 4 * _THREADS:
        return _warp_sum(values)
    vector = _LOAD // size
    threads = max(WARP, 1 << (min(count // vector, _THREADS) // 2 - 1).bit_length())
    if _fits_shared(count, size, threads):
        return add_block(add_vectors(values, threads, vector))
    return add_in_sequence(add_unaligned(values, threads, vector))


def _spatial_sum(values: Floats, inner: int) -> Floats:
    """Sum rows of which `inner` lie side by side."""
    across, along = min(inner, _THREADS), 1
    if across <= _SPATIAL and values.shape[1] >= _SPATIAL:
        while across * along <= _THREADS and along <= values.shape[1]:
            along *= 2
        along //= 2
    return halve(add_strided(values, along))


def _rows(x: NDArray[Any], axis: int) -> tuple[NDArray[Any], int]:
    """Lay rows along the axis; also return how many lie side by side."""
    last = not x.ndim or axis % x.ndim == x.ndim - 1
    inner = 1 if last else math.prod(x.shape[axis % x.ndim + 1 :])
    moved = x if last else np.moveaxis(x, axis, -1)
    return np.ascontiguousarray(moved).reshape(-1, x.shape[axis] if x.ndim else 1), inner


def _back(rows: NDArray[Any], like: NDArray[Any], axis: int) -> NDArray[Any]:
    if not like.ndim or axis % like.ndim == like.ndim - 1:
        return rows.reshape(like.shape)
    shape = np.moveaxis(like, axis, -1).shape
    return np.ascontiguousarray(np.moveaxis(rows.reshape(shape), -1, axis))


def _each_part(compute: Callable[[slice, Floats], None], rows: NDArray[Any]) -> None:
    """Compute parts of rows that fit into a cache, each with memory for as many; a multiple of 8 begins a part, as aligned as row 0 is."""
    size = max(_PART // rows.shape[1], 1)
    size = min(size + -size % _PARTS_OF, len(rows))
    kept: dict[int, Floats] = {}  # of each thread

    def run(first: int, stop: int, worker: int) -> None:
        if worker not in kept:
            kept[worker] = aligned_empty((size, rows.shape[1]), np.float32)
        compute(slice(first, stop), kept[worker][: stop - first])

    parallel_for(run, len(rows), thread_count(None), size)


class _Memory:
    """Memory for exponentials of some rows, for numbers of each of them, and for sums of a warp's lanes."""

    def __init__(self, rows: int, width: int) -> None:
        self.values, self._numbers = aligned_empty((rows, width), np.float32), aligned_empty((3, -(-rows // _LINE) * _LINE), np.float32)
        self._lanes = aligned_empty((WARP,), np.float32)
        self.place, self.lanes, first = map(address_of, (self.values, self._lanes, self._numbers))
        self.largest, self.sums, self.logarithms = (first + row * self._numbers.strides[0] for row in range(3))


class Normalizer:
    """Softmax, or its logarithm, of contiguous rows from and to addresses.

    Parameters
    ----------
    shape : tuple of int
        The number of rows, and the elements of each one.
    dtype, wanted : dtype
        Of operands and of results.
    inner : int
        How many rows lie side by side on the GPU.
    log : bool
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any], wanted: np.dtype[Any], *, inner: int, log: bool) -> None:
        self._number, self._width = shape
        self._sizes, self._inner, self._log = (dtype.itemsize, wanted.itemsize), inner, log
        self._narrowed = wanted == dtype
        size = max(_PART // self._width, 1)
        self._size = min(size + -size % _PARTS_OF, self._number)
        self._is_of_whole_warps = inner == 1 and not self._width % WARP and _is_of_a_warp(self._width, dtype.itemsize, self._narrowed)
        self._free: list[_Memory] = []  # of few rows, that no call uses now
        whole, one = (dtype, (2, self._width)), (F32, (2, 1))  # of two rows: the loops are those of any number
        self._widen = None if dtype == F32 else _applied("rounded", (whole,), F32)
        self._exponential = _applied("exponential_of_difference", (whole, one), F32)
        self._end = _applied("log_softmax", (whole, one, one), wanted) if log else _applied("quotient", ((F32, whole[1]), one), wanted)
        self._logarithm = _applied("logf", ((F32, (2,)),), F32) if log else None

    def run(self, x: int, out: int, threads: int | None) -> None:
        """Compute parts of rows that fit into a cache; a multiple of 8 begins a part, as aligned as row 0 is."""
        if self._number * self._width <= _FEW:
            in_default_mode(self._at_once, x, out)
            return
        kept: dict[int, _Memory] = {}  # of each thread

        def compute(first: int, stop: int, worker: int) -> None:
            if worker not in kept:
                kept[worker] = _Memory(self._size, self._width)
            given, made = (start + first * self._width * size for start, size in zip((x, out), self._sizes, strict=True))
            self._part(stop - first, given, made, kept[worker])

        parallel_for(compute, self._number, thread_count(threads), self._size)

    def _at_once(self, x: int, out: int) -> None:
        """Compute few rows, in memory that is kept for the next ones."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _Memory(self._number, self._width)
        self._part(self._number, x, out, memory)
        self._free.append(memory)

    def _part(self, count: int, x: int, out: int, memory: _Memory) -> None:
        """Compute some rows."""
        width, part = self._width, (0, count, 0, self._width)
        largest, sums, place = memory.largest, memory.sums, memory.place
        wide = x
        if self._widen is not None:
            wide = place
            self._widen(x, width, place, width, *part)
        kernels.functions.sums.find_largest(wide, count, width, largest)
        self._exponential(x, width, largest, 1, place, width, *part)
        if self._is_of_whole_warps:
            kernels.functions.sums.add_whole_warps(place, count, width, memory.lanes, sums)
        else:
            values = memory.values[:count]
            added = _forward_sum(values, self._sizes[0], self._narrowed) if self._inner == 1 else _spatial_sum(values, self._inner)
            sums = address_of(added)
        if self._logarithm is not None:
            self._logarithm(sums, 0, memory.logarithms, 0, 0, 1, 0, count)
            self._end(x, width, largest, 1, memory.logarithms, 1, out, width, *part)
        elif self._sizes[1] != F32.itemsize or not kernels.functions.sums.divide_rows(place, count, width, sums, out):
            self._end(place, width, sums, 1, out, width, *part)


def _applied(name: str, kinds: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...], dtype: np.dtype[Any]) -> Callable[..., None]:
    """Return the loop of a formula over rows, along which operands are whole or have one element."""
    return kernels.functions.apply.applied(name, (), kinds, dtype).loop


def _normalize_short(rows: NDArray[Any], inner: int, log: bool, result: NDArray[Any], memory: Floats) -> None:
    """Compute rows that are too short for loops over each of them."""
    largest = np.empty((len(rows), 1), np.float32)
    wide = widen(rows)
    kernels.functions.sums.find_largest(address_of(wide), *wide.shape, address_of(largest))
    exponentials = apply("exponential_of_difference", rows, largest, out=memory, threads=1)
    narrowed = result.dtype == rows.dtype
    sums = _forward_sum(exponentials, rows.itemsize, narrowed) if inner == 1 else _spatial_sum(exponentials, inner)
    if log:
        apply("log_softmax", rows, largest, libdevice.call("logf", sums, threads=1)[:, None], out=result, threads=1)
    else:
        apply("quotient", exponentials, sums[:, None], out=result, threads=1)


def _differentiate(grad: NDArray[Any], output: NDArray[Any], inner: int, log: bool, result: NDArray[Any], memory: Floats) -> None:
    values = widen(grad) if log else apply("product", grad, output, parameters=(BITS[grad.dtype],), out=memory, threads=1)
    sums = _backward_sum(values, grad.itemsize, result.itemsize) if inner == 1 else _spatial_sum(values, inner)
    apply("log_softmax_backward" if log else "softmax_backward", output, sums[:, None], values, out=result, threads=1)


@default_floats
def softmax(x: NDArray[Any], axis: int, *, log: bool = False, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Compute ``aten::_softmax`` or ``aten::_log_softmax``.

    Parameters
    ----------
    x : float32, float16 or bfloat16 array
        As if contiguous, from an aligned address.
    axis : int
        The axis along which the results sum to one.
    log : bool
        Whether to compute the logarithm.
    dtype : dtype, optional
        The dtype of the result. float32 for a float16 `x` is ``half_to_float``; any other must be that of `x`.

    Examples
    --------
    >>> softmax(np.float32([[0, 1, 2]]), 1).tolist()  # doctest: +SKIP
    [[0.09003056585788727, 0.2447284758090973, 0.6652408838272095]]
    """
    wanted = x.dtype if dtype is None else np.dtype(dtype)
    if not x.size:
        return np.empty(x.shape, wanted)
    rows, inner = _rows(x, axis)
    result = np.empty(rows.shape, wanted)
    if rows.shape[1] < SHORT:
        _each_part(lambda part, memory: _normalize_short(rows[part], inner, log, result[part], memory), rows)
    else:
        normalizer = Normalizer((len(rows), rows.shape[1]), rows.dtype, result.dtype, inner=inner, log=log)
        normalizer.run(address_of(rows), address_of(result), None)
    return _back(result, x, axis)


@default_floats
def softmax_backward(
    grad: NDArray[Any], output: NDArray[Any], axis: int, *, log: bool = False, dtype: DTypeLike | None = None
) -> NDArray[Any]:
    """Compute ``aten::_softmax_backward_data`` or ``aten::_log_softmax_backward_data``.

    Parameters
    ----------
    grad, output : float32, float16 or bfloat16 array
        The incoming gradient, and the result of `softmax`.
    axis : int
        The axis of that `softmax`.
    log : bool
        Whether that `softmax` computed the logarithm.
    dtype : dtype, optional
        The dtype of the input of that `softmax`; with float16, `grad` may be float32.

    Examples
    --------
    >>> y = softmax(np.float32([[0, 1, 2]]), 1)  # doctest: +SKIP
    >>> softmax_backward(np.float32([[1, 0, 0]]), y, 1).tolist()  # doctest: +SKIP
    [[0.08192506432533264, -0.022033043205738068, -0.05989201366901398]]
    """
    wanted = grad.dtype if dtype is None else np.dtype(dtype)
    if not grad.size:
        return np.empty(grad.shape, wanted)
    (grads, inner), (outputs, _) = _rows(grad, axis), _rows(output, axis)
    result = np.empty(grads.shape, wanted)
    _each_part(lambda part, memory: _differentiate(grads[part], outputs[part], inner, log, result[part], memory), grads)
    return _back(result, grad, axis)
