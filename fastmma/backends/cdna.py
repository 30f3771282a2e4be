"""Arithmetics of AMD's matrix cores by compiled kernels, product by product."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.batches import each
from fastmma.backends.call import Codes, Operands, Operation, whole_k
from fastmma.backends.parameters import element_of, in_exact_sums, in_windows
from fastmma.backends.problem import Fallback, Fallbacks, Problem
from fastmma.isa.codes import from_codes
from fastmma.isa.formats import Format
from fastmma.numerics.arithmetic import Arithmetic

if TYPE_CHECKING:
    from fastmma.kernels.fused.window_panels import Steps

Floats = NDArray[np.float32]
_UNIT = 149  # bits of a float32 below 1


@lru_cache(1024)
def in_window_lanes(operation: Operation) -> bool:
    """Tell whether lanes have the steps of an arithmetic whose c joins sums."""
    from fastmma.kernels.fused import window_lanes

    row = operation.arithmetic
    bits = (row.align_bits, row.join_bits) == (window_lanes.ALIGN_BITS, window_lanes.JOIN_BITS)
    return bits and in_windows(operation) and (row.terms, _ways(row)) in window_lanes.WINDOWS


@lru_cache(1024)
def in_exact_lanes(operation: Operation) -> bool:
    """Tell whether lanes have the steps of exact sums."""
    from fastmma.kernels.fused import window_lanes

    return in_exact_sums(operation) and operation.arithmetic.terms in window_lanes.EXACT_TERMS


@lru_cache(1024)
def window_steps(operation: Operation, narrow: bool) -> Steps:
    """Describe the steps whose sums c joins; exponents of products are bytes where `narrow`."""
    from fastmma.kernels.fused import window_panels

    row = operation.arithmetic
    return window_panels.Steps(row.terms // _ways(row), _ways(row), narrow=narrow)


@lru_cache(1024)
def exact_steps(operation: Operation) -> Steps:
    """Describe the steps of exact sums: products are whole numbers of units, as many bits below their exponents as both elements have."""
    from fastmma.kernels.fused import window_panels

    terms, formats = operation.arithmetic.terms, operation.instruction.formats
    below = formats.a.mantissa_bits + formats.b.mantissa_bits
    return window_panels.Steps(terms, exact=True, least=below - _UNIT)


def _ways(row: Arithmetic) -> int:
    """Count the windows of a step."""
    return 2 if row.c_joins == "halves" else 1


def _values(codes: Codes, fmt: Format, dtype: Any) -> NDArray[Any]:
    """Numbers of codes in a wider dtype, which holds them exactly; padding counts for nothing."""
    padding = fmt.code_dtype.type((1 << fmt.padding) - 1)
    with np.errstate(invalid="ignore"):  # signaling NaNs
        if fmt.code_dtype.itemsize == 1:  # a table has them all
            every = np.arange(1 << fmt.bits, dtype=fmt.code_dtype)
            return np.ascontiguousarray(from_codes(every, fmt).astype(dtype)[codes])
        return np.ascontiguousarray(from_codes(codes & ~padding if fmt.padding else codes, fmt).astype(dtype))


def windows(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "fused" where c joins sums."""
    from fastmma.kernels.fused import windows as compiled

    row, formats = operation.arithmetic, operation.instruction.formats
    p = compiled.Windows(row.terms, row.align_bits, row.join_bits, _ways(row))
    for one, out in each(whole_k(operation.instruction, operands), d.view(np.float32)):
        x, y = (compiled.numbers(_values(codes, fmt, np.float64), fmt.emin) for codes, fmt in ((one.a, formats.a), (one.b, formats.b)))
        compiled.multiply(p, x, y, None if one.c is None else one.c.view(np.float32), out, threads)


def _side_by_side(codes: Codes) -> Codes:
    """The codes, those of a row side by side in memory."""
    return codes if codes.strides[1] == codes.itemsize else np.ascontiguousarray(codes)


def steps_in_lanes(problem: Problem, operands: Operands, out: Codes, threads: int, steps: Callable[[Operation], Steps]) -> Fallbacks:
    """Compute "fused" to nearest, but for products that are out of reach, and rows whose sums are not known or are no numbers."""
    operation, fallbacks = problem.operation, list[Fallback]()
    how = steps(operation)
    for index, (one, results) in enumerate(each(whole_k(operation.instruction, operands), out.view(np.float32))):
        rows = _in_lanes(how, operation, one, results, threads)
        if rows is None or len(rows):
            fallbacks.append(Fallback(slice(index, index + 1), slice(None) if rows is None else rows, slice(None)))
    return fallbacks


def _in_lanes(how: Steps, operation: Operation, one: Operands, out: Floats, threads: int) -> NDArray[np.intp] | None:
    """Compute a product, some k after the others; the rows that are not right, None for all."""
    from fastmma.kernels.fused import window_lanes, window_panels
    from fastmma.kernels.matrices import loans

    formats, depth = operation.instruction.formats, one.a.shape[1]
    c = np.zeros(out.shape, np.float32) if one.c is None else one.c.view(np.float32)
    left = window_lanes.far_rows(c)
    for first in range(0, depth, window_lanes.DEPTH):
        some, loan = slice(first, first + window_lanes.DEPTH), loans.Loan()
        x = window_panels.packed_rows(how, _side_by_side(one.a[:, some]), element_of(formats.a), threads, loan)
        y = window_panels.packed_columns(how, _side_by_side(one.b[some]), element_of(formats.b), threads, loan)
        if not window_lanes.reaches(how, x, y, depth):
            return None
        left |= window_lanes.multiply(how, x, y, c, out, threads)
        loan.end()
        c = out
    return np.flatnonzero(left)


def exact(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "fused" where exact sums are rounded to nearest."""
    from fastmma.kernels.fused import exact as compiled

    formats = operation.instruction.formats
    for one, out in each(whole_k(operation.instruction, operands), d.view(np.float32)):
        x, y = _values(one.a, formats.a, np.float64), _values(one.b, formats.b, np.float64)
        compiled.multiply(operation.arithmetic.terms, x, y, None if one.c is None else one.c.view(np.float32), out, threads)


def _without_subnormals(values: NDArray[np.float32], smallest: float) -> NDArray[np.float32]:
    """Operands, +0 in place of subnormals and of -0."""
    values[np.abs(values) < smallest] = 0
    return values


def _tree_operands(
    operation: Operation, one: Operands, shape: tuple[int, ...]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """A, B and c of one product, without subnormals."""
    formats = operation.instruction.formats
    x, y = (_without_subnormals(_values(codes, fmt, np.float32), 2.0**fmt.emin) for codes, fmt in ((one.a, formats.a), (one.b, formats.b)))
    return x, y, np.zeros(shape, np.float32) if one.c is None else _without_subnormals(one.c.view(np.float32).copy(), 2.0**-126)


def trees(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "f32-tree"."""
    from fastmma.kernels.fma import trees as compiled

    for one, out in each(whole_k(operation.instruction, operands), d.view(np.float32)):
        x, y, c = _tree_operands(operation, one, out.shape)
        compiled.multiply(operation.arithmetic.terms, operation.instruction.k, x, y, c, out, threads)


def tree_panels(problem: Problem, operands: Operands, d: Codes, threads: int) -> Fallbacks:
    """Compute "f32-tree" of large products, but for those with sums that may be subnormal."""
    from fastmma.kernels.fma import trees as compiled

    operation, fallbacks, every = problem.operation, list[Fallback](), slice(None)
    for index, (one, out) in enumerate(each(whole_k(operation.instruction, operands), d.view(np.float32))):
        x, y, c = _tree_operands(operation, one, out.shape)
        if compiled.reaches(x, y):
            compiled.by_panels(operation.arithmetic.terms, x, y, c, out, threads)
        else:
            fallbacks.append(Fallback(slice(index, index + 1), every, every))
    return fallbacks
