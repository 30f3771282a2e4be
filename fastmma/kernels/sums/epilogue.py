"""The epilogue of a product: scales, addends and roundings applied to f32 sums in a given order, by IEEE operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.addresses import address_of
from fastmma.host.threads import parallel_for
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.direct import emitted
from fastmma.kernels.llvm.simd import bitcast, convert, extract, fma, load, load_scalar, select, splat, store, zeros
from fastmma.kernels.matrices.accumulators import MAGNITUDE, NAN, SIGN, half_narrowed, half_rounded, half_widened
from fastmma.kernels.matrices.addresses import LINES, NOWHERE, Matrix, load_code, load_codes, matrix
from fastmma.kernels.params import ADDENDS, FORMULAS, OPERATIONS, Step

_MULTIPLY, _ADD, _FMA, _ACCUMULATE, _RELU, _BF16, _F16, _FROM_S32 = range(len(OPERATIONS))
_F32_ADDEND, _BF16_ADDEND, _F16_ADDEND = range(len(ADDENDS))
SUMS, OUT, ROWS, ROW, FIRST, SECOND = 0, 2, 8, 9, 1, 5  # places of addresses in the numbers; FIRST and SECOND in a row
_AT_ONCE = 1 << 16  # sums
_CODES = 32  # that are written together, where they are adjacent
_SEGMENT = 1 << 10  # of a row, which stays in a core's nearest cache from one step to the next


class Operand(NamedTuple):
    """An operand of a step: its address, the format of its elements by position in `ADDENDS`, and strides in bytes."""

    address: int
    row_stride: int
    column_stride: int
    format: int = 0


NO_OPERAND = Operand(0, 0, 0)  # is zero


class Row(NamedTuple):
    """An operation of `OPERATIONS`, by position, with its operands; a kernel reads the numbers one after the other."""

    operation: int
    first: Operand = NO_OPERAND
    second: Operand = NO_OPERAND


class EpilogueForm(NamedTuple):
    """The steps after the sums of a product.

    Attributes
    ----------
    rows : sequence of Row
        Operations; an operand whose address is not known has 0 for it.
    addends : sequence of int
        Where in the numbers of `run_steps` the address of the addend goes.
    out : {"f32", "bf16", "f16"}
        The format of the results.
    kept : object
        What holds the memory of the other operands.
    """

    rows: Sequence[Row]
    addends: Sequence[int]
    out: str
    kept: object = None

    @property
    def rounds_alone(self) -> bool:
        """Tell whether nothing is done but to round to bf16."""
        return self.out == "bf16" and [row.operation for row in self.rows] == [_BF16]


@inner
def _operand(source: Operand, row: int, column: int, count: int) -> Any:
    """Lanes of an operand, one for all columns where its stride is 0."""
    place = source.address + row * source.row_stride + column * source.column_stride
    itemsize = 4 if source.format == _F32_ADDEND else 2
    bits = zeros(np.int32, LINES)
    if source.address != 0:
        if source.column_stride == 0:
            bits = splat(load_code(place, itemsize), LINES)
        else:
            bits = load_codes(place, source.column_stride, itemsize, count)
        if source.format == _BF16_ADDEND:
            bits = bits << 16
        elif source.format == _F16_ADDEND:
            bits = half_widened(bits)
    return bitcast(bits, np.float32)


@inner
def rounded_to_bf16(bits: Any) -> Any:
    """f32 bits of no NaN, rounded to nearest even among the values of bf16."""
    return (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000


@inner
def _rounded_to_half(bits: Any) -> Any:
    return half_rounded(bits & MAGNITUDE) | (bits & SIGN)


@inner
def _codes_of(bits: Any, half: int, rounds: bool) -> Any:
    """The 16-bit codes of sums, which have been rounded or are to be; NaN is canonical."""
    if rounds:
        x = bitcast(bits, np.float32)
        rounded = _rounded_to_half(bits) if half else rounded_to_bf16(bits)
        bits = select(x != x, NAN, rounded)
    return convert(half_narrowed(bits) if half else bits >> 16, np.uint16)


@inner
def _store_lanes(lanes: Any, address: int, stride: int, itemsize: int, count: int) -> None:
    """The first lanes, contiguous or not."""
    if count == LINES and stride == itemsize:
        store(lanes, address)
    else:
        for lane in range(count):
            store(extract(lanes, lane), address + lane * stride)


@inner
def _step(operation: int, sums: Matrix, left: Operand, right: Operand, row: int, column: int, count: int) -> None:
    """One operation on 8 sums, in place; NaN is canonical."""
    place = sums.address + row * sums.row_stride + 4 * column
    bits = load_codes(place, 4, 4, count)
    x = bitcast(bits, np.float32)
    first, second = _operand(left, row, column, count), _operand(right, row, column, count)
    if operation == _MULTIPLY:
        x = x * first
    elif operation == _ADD:
        x = x + first
    elif operation == _FMA:
        x = fma(x, first, second)
    elif operation == _ACCUMULATE:
        x = fma(first, second, x)
    elif operation == _RELU:
        x = select(x <= np.float32(0), np.float32(0), x)
    elif operation == _FROM_S32:
        x = convert(bits, np.float32)
    elif operation == _BF16:
        x = select(x != x, x, bitcast(rounded_to_bf16(bits), np.float32))
    else:
        x = select(x != x, x, bitcast(_rounded_to_half(bits), np.float32))
    result = bitcast(x, np.int32)
    _store_lanes(select(x != x, NAN, result), place, 4, 4, count)


@inner
def _number(numbers: int, place: int) -> int:
    number: int = load_scalar(numbers + 8 * place, np.int64)
    return number


@inner
def _operand_at(numbers: int, place: int) -> Operand:
    return Operand(_number(numbers, place), _number(numbers, place + 1), _number(numbers, place + 2), _number(numbers, place + 3))


@compiled
def run_steps(numbers: int, start: int, stop: int) -> None:
    """All operations on rows start to stop, in place, and what comes of it as 16-bit codes where there is an `out`; see `numbers_of`."""
    sums = Matrix(_number(numbers, SUMS), _number(numbers, SUMS + 1), 4, 4)
    out = Matrix(_number(numbers, OUT), _number(numbers, OUT + 1), _number(numbers, OUT + 2), 2)
    half, columns, steps = _number(numbers, 5), _number(numbers, 6), _number(numbers, 7)
    rounds = False
    if out.address != 0 and steps > 0:
        last = _number(numbers, ROWS + (steps - 1) * ROW)
        rounds = last == (_F16 if half else _BF16)  # in the pass that writes codes
        steps -= int(rounds)
    for row in range(start, stop):
        for left in range(0, columns, _SEGMENT):
            right = min(left + _SEGMENT, columns)
            for step in range(steps):
                place = ROWS + step * ROW
                operation = _number(numbers, place)
                first, second = _operand_at(numbers, place + FIRST), _operand_at(numbers, place + SECOND)
                for column in range(left, right, LINES):
                    _step(operation, sums, first, second, row, column, min(right - column, LINES))
            if out.address != 0:
                many = left
                if out.column_stride == 2:
                    many = right - (right - left) % _CODES
                for column in range(left, many, _CODES):
                    lanes = load(sums.address + row * sums.row_stride + 4 * column, np.int32, _CODES)
                    store(_codes_of(lanes, half, rounds), out.address + row * out.row_stride + 2 * column)
                for column in range(many, right, LINES):
                    count = min(right - column, LINES)
                    bits = load_codes(sums.address + row * sums.row_stride + 4 * column, 4, 4, count)
                    place = out.address + row * out.row_stride + column * out.column_stride
                    _store_lanes(_codes_of(bits, half, rounds), place, out.column_stride, 2, count)


@cache
def steps_runner() -> Callable[[int, int, int], None]:
    """`run_steps`, compiled."""
    return emitted(run_steps, kinds.int64, kinds.int64, kinds.int64)


def numbers_of(sums: Matrix, out: Matrix, half: bool, columns: int, rows: Sequence[Row]) -> NDArray[np.int64]:
    """The numbers that `run_steps` reads; places in it are `SUMS`, `OUT`, and `ROWS` with a `ROW` for each operation."""
    head = (sums.address, sums.row_stride, out.address, out.row_stride, out.column_stride, half, columns, len(rows))
    return np.array([*head, *(number for row in rows for number in (row.operation, *row.first, *row.second))], np.int64)


def operation_of(step: Step, *operands: Operand) -> Row:
    """A step's operation with these operands in place of its own."""
    return Row(OPERATIONS.index(step.operation), *operands)


def operand_of(values: NDArray[Any] | None) -> Operand:
    """An array of float32 as an operand."""
    return NO_OPERAND if values is None else Operand(address_of(values), values.strides[-2], values.strides[-1])


def apply(sums: NDArray[Any], steps: Sequence[Step], threads: int, out: NDArray[Any] | None = None, half: bool = False) -> None:
    """Take the steps one after the other on f32 sums (M, N) with contiguous rows, in place.

    `out` is given the sums, which must have been rounded to bf16, or to f16 where `half`, as codes of that format.
    """
    place = next((place for place, step in enumerate(steps) if step.operation in FORMULAS), None)
    if place is not None:
        apply(sums, steps[:place], threads)
        apply_formula(steps[place].operation, sums, threads)
        apply(sums, steps[place + 1 :], threads, out, half)
        return
    rows, columns = sums.shape
    table = [operation_of(step, operand_of(step.first), operand_of(step.second)) for step in steps]
    numbers = numbers_of(matrix(sums), NOWHERE if out is None else matrix(out), half, columns, table)
    run, place = steps_runner(), address_of(numbers)

    def work(start: int, stop: int, _worker: int) -> None:
        run(place, start, stop)

    parallel_for(work, rows, threads, max(1, _AT_ONCE // max(columns, 1)))


def apply_formula(operation: str, sums: NDArray[Any], threads: int) -> None:
    """Take a step of `FORMULAS` on f32 sums, in place; NaN is canonical."""
    from fastmma.kernels.functions.apply import apply as apply_to_each

    found = apply_to_each(FORMULAS[operation], sums.view(np.float32), threads=threads)
    sums[...] = np.where(np.isnan(found), np.uint32(NAN), found.view(np.uint32)).view(sums.dtype)


def narrow(sums: NDArray[Any], out: NDArray[Any], half: bool, threads: int) -> None:
    """f32 sums that have been rounded to bf16, or to f16 where `half`, as codes of that format."""
    apply(sums, (), threads, out, half)
