"""The epilogue of a product: scales, addends and roundings applied to f32 sums in a given order, by IEEE operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.simd import bitcast, convert, extract, fma, inner, load_scalar, select, splat, store
from fastmma.kernels.matrices.accumulators import MAGNITUDE, NAN, SIGN, half_narrowed, half_rounded
from fastmma.kernels.matrices.addresses import LINES, NOWHERE, Matrix, load_codes, matrix
from fastmma.kernels.params import OPERATIONS, Step

_MULTIPLY, _ADD, _FMA, _ACCUMULATE, _RELU, _BF16, _F16, _FROM_S32 = range(len(OPERATIONS))
_AT_ONCE = 1 << 16  # sums
_SEGMENT = 1 << 10  # of a row, which stays in a core's nearest cache from one step to the next


@inner
def _operand(source: Matrix, row: int, column: int, count: int) -> Any:
    """Lanes of an operand, one for all columns where its stride is 0."""
    place = source.address + row * source.row_stride + column * source.column_stride
    if source.address == 0:
        return splat(np.float32(0), LINES)
    if source.column_stride == 0:
        return splat(load_scalar(place, np.float32), LINES)
    return bitcast(load_codes(place, source.column_stride, 4, count), np.float32)


@inner
def _rounded_to_bf16(bits: Any) -> Any:
    return (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000


@inner
def _store_lanes(lanes: Any, address: int, stride: int, itemsize: int, count: int) -> None:
    """The first lanes, contiguous or not."""
    if count == LINES and stride == itemsize:
        store(lanes, address)
    else:
        for lane in range(count):
            store(extract(lanes, lane), address + lane * stride)


@inner
def _step(operation: int, sums: Matrix, first: Matrix, second: Matrix, row: int, column: int, count: int) -> None:
    """One operation on 8 sums, in place; NaN is canonical."""
    place = sums.address + row * sums.row_stride + 4 * column
    bits = load_codes(place, 4, 4, count)
    x = bitcast(bits, np.float32)
    if operation == _MULTIPLY:
        x = x * _operand(first, row, column, count)
    elif operation == _ADD:
        x = x + _operand(first, row, column, count)
    elif operation == _FMA:
        x = fma(x, _operand(first, row, column, count), _operand(second, row, column, count))
    elif operation == _ACCUMULATE:
        x = fma(_operand(first, row, column, count), _operand(second, row, column, count), x)
    elif operation == _RELU:
        x = select(x <= np.float32(0), np.float32(0), x)
    elif operation == _FROM_S32:
        x = convert(bits, np.float32)
    elif operation == _BF16:
        x = select(x != x, x, bitcast(_rounded_to_bf16(bits), np.float32))
    else:
        x = select(x != x, x, bitcast(half_rounded(bits & MAGNITUDE) | (bits & SIGN), np.float32))
    result = bitcast(x, np.int32)
    _store_lanes(select(x != x, NAN, result), place, 4, 4, count)


@compiled
def _run(program: NDArray[np.int64], sums: Matrix, out: Matrix, half: bool, start: int, stop: int, columns: int) -> None:
    """All operations on rows start to stop, in place, and what comes of it as 16-bit codes where there is an `out`."""
    for row in range(start, stop):
        for left in range(0, columns, _SEGMENT):
            right = min(left + _SEGMENT, columns)
            for step in range(program.shape[0]):
                operation = program[step, 0]
                first = Matrix(program[step, 1], program[step, 2], program[step, 3], 4)
                second = Matrix(program[step, 4], program[step, 5], program[step, 6], 4)
                for column in range(left, right, LINES):
                    _step(operation, sums, first, second, row, column, min(right - column, LINES))
            if out.address != 0:
                for column in range(left, right, LINES):
                    count = min(right - column, LINES)
                    bits = load_codes(sums.address + row * sums.row_stride + 4 * column, 4, 4, count)
                    codes = half_narrowed(bits) if half else bits >> 16
                    place = out.address + row * out.row_stride + column * out.column_stride
                    _store_lanes(convert(codes, np.uint16), place, out.column_stride, 2, count)


def _place(operand: NDArray[Any] | None) -> tuple[int, int, int]:
    found = NOWHERE if operand is None else matrix(operand)
    return found.address, found.row_stride, found.column_stride


def apply(sums: NDArray[Any], steps: Sequence[Step], threads: int, out: NDArray[Any] | None = None, half: bool = False) -> None:
    """Take the steps one after the other on f32 sums (M, N) with contiguous rows, in place.

    `out` is given the sums, which must have been rounded to bf16, or to f16 where `half`, as codes of that format.
    """
    rows, columns = sums.shape
    program = [(OPERATIONS.index(step.operation), *_place(step.first), *_place(step.second)) for step in steps]
    table = np.array(program, np.int64).reshape(len(program), 7)
    source, place = matrix(sums), NOWHERE if out is None else matrix(out)

    def work(start: int, stop: int, _worker: int) -> None:
        _run(table, source, place, half, start, stop, columns)

    parallel_for(work, rows, threads, max(1, _AT_ONCE // max(columns, 1)))


def narrow(sums: NDArray[Any], out: NDArray[Any], half: bool, threads: int) -> None:
    """f32 sums that have been rounded to bf16, or to f16 where `half`, as codes of that format."""
    apply(sums, (), threads, out, half)
