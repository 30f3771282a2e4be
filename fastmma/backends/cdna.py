"""Arithmetics of AMD's matrix cores by compiled kernels, product by product."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.batches import each
from fastmma.backends.call import Codes, Operands, Operation, whole_k
from fastmma.backends.problem import Fallback, Fallbacks, Problem
from fastmma.isa.codes import from_codes
from fastmma.isa.formats import Format


def _values(codes: Codes, fmt: Format, dtype: Any) -> NDArray[Any]:
    """Numbers of codes in a wider dtype, which holds them exactly; padding counts for nothing."""
    padding = fmt.code_dtype.type((1 << fmt.padding) - 1)
    with np.errstate(invalid="ignore"):  # signaling NaNs
        return np.ascontiguousarray(from_codes(codes & ~padding if fmt.padding else codes, fmt).astype(dtype))


def windows(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "fused" where c joins sums."""
    from fastmma.kernels.fused import windows as compiled

    row, formats = operation.arithmetic, operation.instruction.formats
    p = compiled.Windows(row.terms, row.align_bits, row.join_bits, 2 if row.c_joins == "halves" else 1)
    for one, out in each(operands, d.view(np.float32)):
        x, y = (compiled.numbers(_values(codes, fmt, np.float64), fmt.emin) for codes, fmt in ((one.a, formats.a), (one.b, formats.b)))
        compiled.multiply(p, x, y, None if one.c is None else one.c.view(np.float32), out, threads)


def windows_in_lanes(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Compute "fused" where c joins sums of 8 products, but for products that are out of reach, and rows with infinities or NaNs."""
    from fastmma.kernels.fused import window_lanes
    from fastmma.kernels.fused import windows as compiled

    formats, fallbacks = problem.operation.instruction.formats, list[Fallback]()
    for index, (one, results) in enumerate(each(operands, out.view(np.float32))):
        x, y = (compiled.numbers(_values(codes, fmt, np.float64), fmt.emin) for codes, fmt in ((one.a, formats.a), (one.b, formats.b)))
        rows: slice | NDArray[np.intp] = slice(None)
        if window_lanes.reaches(x, y):
            results[...] = window_lanes.multiply(x, y, None if one.c is None else one.c.view(np.float32), threads)
            rows = np.flatnonzero(~np.isfinite(results).all(axis=1))
        if isinstance(rows, slice) or len(rows):
            fallbacks.append(Fallback(slice(index, index + 1), rows, slice(None)))
    return fallbacks


def exact(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "fused" where exact sums are rounded to nearest."""
    from fastmma.kernels.fused import exact as compiled

    formats = operation.instruction.formats
    for one, out in each(operands, d.view(np.float32)):
        x, y = _values(one.a, formats.a, np.float64), _values(one.b, formats.b, np.float64)
        compiled.multiply(operation.arithmetic.terms, x, y, None if one.c is None else one.c.view(np.float32), out, threads)


def _without_subnormals(values: NDArray[np.float32], smallest: float) -> NDArray[np.float32]:
    """Operands, +0 in place of subnormals and of -0."""
    values[np.abs(values) < smallest] = 0
    return values


def trees(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "f32-tree"."""
    from fastmma.kernels.fma import trees as compiled

    formats = operation.instruction.formats
    for one, out in each(whole_k(operation.instruction, operands), d.view(np.float32)):
        x, y = (
            _without_subnormals(_values(codes, fmt, np.float32), 2.0**fmt.emin) for codes, fmt in ((one.a, formats.a), (one.b, formats.b))
        )
        c = np.zeros(out.shape, np.float32) if one.c is None else _without_subnormals(one.c.view(np.float32).copy(), 2.0**-126)
        compiled.multiply(operation.arithmetic.terms, x, y, c, out, threads)
