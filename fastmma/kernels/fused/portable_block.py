"""The loops of the portable kernel over 8 rows by 8 columns, in vectors of 16 lanes: two rows by 8 columns.

Products are exact in the panels' dtype; scaled by 2**(align_bits - emax), their integer parts are the truncated terms. The exact sum of a
group of products is one such term.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastmma.kernels.fused.step_end import accumulator_exponent, ieee_sum, narrow_step_end, wide_step_end
from fastmma.kernels.llvm.compilation import inner
from fastmma.kernels.llvm.simd import (
    convert,
    integer_part,
    itemsize_of,
    load,
    load_pair,
    load_scalar,
    load_twice,
    maximum,
    power_of_two,
    select,
    splat,
    store,
    truncated,
    zeros,
)
from fastmma.kernels.matrices.accumulators import load_rows, store_rows
from fastmma.kernels.matrices.addresses import GROUP_BYTES, LANES, LINES, ZERO_EXPONENT, LineScales, Matrix, matrix_part
from fastmma.kernels.params import Fused

PAIRS = LINES // 2  # of rows in a block
INT32_TERMS = 16  # that many products below 2**27 sum up within int32
LOWEST = -100  # the lowest exponent of elements and of products that float32 panels can hold
LOWEST_FLOOR = -512  # far below every exponent, and 2**(align_bits - emax) is still finite

# a block's work memory, in bytes: PAIRS vectors of each kind
VECTOR = 4 * LANES
MOST_GROUPS = 8  # of a step
ACCUMULATOR = 0
ADDEND = ACCUMULATOR + PAIRS * VECTOR
EMAX = ADDEND + PAIRS * VECTOR
SCALE = EMAX + PAIRS * VECTOR
TOTAL = SCALE + 2 * PAIRS * VECTOR
SIZES = TOTAL + 2 * PAIRS * VECTOR
DOTS = SIZES + PAIRS * VECTOR  # of every group of a step
WORK = DOTS + MOST_GROUPS * PAIRS * VECTOR


class Block(NamedTuple):
    """Addresses of the packed 8 rows of A and 8 columns of B, and of the work memory; of groups, scales are in place of exponents."""

    a_values: int
    a_exponents: int
    b_values: int
    b_exponents: int
    work: int


class PortableArguments(NamedTuple):
    """A multiplication: how, of what, and how large; of a batch, its first one."""

    p: Fused
    group: int  # products of a term
    order: int
    a: Matrix
    b: Matrix
    c: Matrix
    out: Matrix
    scale_a: LineScales | None
    scale_b: LineScales | None
    rows: int
    columns: int
    depth: int
    padded_depth: int  # the k extent of panels


@inner
def _align(p: Fused, order: int, start: int, block: Block, dtype: Any) -> None:
    """Find the emax of every result of a step, and what it scales products by."""
    high0 = splat(np.int16(p.emax_floor), LANES)
    high1 = high0
    high2 = high0
    high3 = high0
    for term in range(p.terms):
        k = start + load_scalar(order + 4 * term, np.int32)
        a = block.a_exponents + 2 * LINES * k
        b = load_twice(block.b_exponents + 2 * LINES * k, np.int16, LANES)
        high0 = maximum(high0, b + load_pair(a, np.int16, LANES))
        high1 = maximum(high1, b + load_pair(a + 4, np.int16, LANES))
        high2 = maximum(high2, b + load_pair(a + 8, np.int16, LANES))
        high3 = maximum(high3, b + load_pair(a + 12, np.int16, LANES))
    store(convert(high0, np.int32), block.work + EMAX)
    store(convert(high1, np.int32), block.work + EMAX + VECTOR)
    store(convert(high2, np.int32), block.work + EMAX + 2 * VECTOR)
    store(convert(high3, np.int32), block.work + EMAX + 3 * VECTOR)
    _scale(p, block, dtype)


@inner
def _scale(p: Fused, block: Block, dtype: Any) -> None:
    """Let emax, which products have, count the accumulators, and tell what it scales products by."""
    size = itemsize_of(dtype)
    for place in range(0, PAIRS * VECTOR, VECTOR):
        accumulator = load(block.work + ACCUMULATOR + place, np.int32, LANES)
        emax = maximum(load(block.work + EMAX + place, np.int32, LANES), accumulator_exponent(p, accumulator))
        store(emax, block.work + EMAX + place)
        # below the lowest exponent of float32 panels all products are zero: any finite scale will do
        scale = power_of_two(p.align_bits - maximum(emax, LOWEST if size == 4 else LOWEST_FLOOR), dtype)
        store(scale, block.work + SCALE + place * size // 4)


@inner
def _add_products(order: int, terms: int, start: int, block: Block, first: bool, narrow: bool, dtype: Any) -> None:
    """Add sums of truncated products to the totals, or put the `first` ones there; `narrow` totals are int32, others float64."""
    size = itemsize_of(dtype)
    scale0 = load(block.work + SCALE, dtype, LANES)
    scale1 = load(block.work + SCALE + LANES * size, dtype, LANES)
    scale2 = load(block.work + SCALE + 2 * LANES * size, dtype, LANES)
    scale3 = load(block.work + SCALE + 3 * LANES * size, dtype, LANES)
    sum0 = integer_part(zeros(dtype, LANES))
    sum1 = sum0
    sum2 = sum0
    sum3 = sum0
    for term in range(terms):
        k = start + load_scalar(order + 4 * term, np.int32)
        a = block.a_values + LINES * size * k
        b = load_twice(block.b_values + LINES * size * k, dtype, LANES)
        sum0 += integer_part(load_pair(a, dtype, LANES) * b * scale0)
        sum1 += integer_part(load_pair(a + 2 * size, dtype, LANES) * b * scale1)
        sum2 += integer_part(load_pair(a + 4 * size, dtype, LANES) * b * scale2)
        sum3 += integer_part(load_pair(a + 6 * size, dtype, LANES) * b * scale3)
    total = block.work + TOTAL
    if narrow:
        store(convert(sum0, np.int32), total)
        store(convert(sum1, np.int32), total + VECTOR)
        store(convert(sum2, np.int32), total + 2 * VECTOR)
        store(convert(sum3, np.int32), total + 3 * VECTOR)
        return
    if first:
        for place in range(0, 2 * PAIRS * VECTOR, VECTOR):
            store(zeros(np.int32, LANES), total + place)
    store(load(total, np.float64, LANES) + convert(sum0, np.float64), total)
    store(load(total + 2 * VECTOR, np.float64, LANES) + convert(sum1, np.float64), total + 2 * VECTOR)
    store(load(total + 4 * VECTOR, np.float64, LANES) + convert(sum2, np.float64), total + 4 * VECTOR)
    store(load(total + 6 * VECTOR, np.float64, LANES) + convert(sum3, np.float64), total + 6 * VECTOR)


@inner
def _add_dots(group: int, start: int, block: Block, dots: int) -> None:
    """Put the sums of a group of products at `dots`, and let its exponents count where any product is not zero."""
    dot0 = zeros(np.float32, LANES)
    dot1 = dot0
    dot2 = dot0
    dot3 = dot0
    size0 = dot0
    size1 = dot0
    size2 = dot0
    size3 = dot0
    for k in range(start, start + group):
        a = block.a_values + 4 * LINES * k
        b = load_twice(block.b_values + 4 * LINES * k, np.float32, LANES)
        product0 = load_pair(a, np.float32, LANES) * b
        product1 = load_pair(a + 8, np.float32, LANES) * b
        product2 = load_pair(a + 16, np.float32, LANES) * b
        product3 = load_pair(a + 24, np.float32, LANES) * b
        dot0 += product0
        dot1 += product1
        dot2 += product2
        dot3 += product3
        size0 += product0 * product0
        size1 += product1 * product1
        size2 += product2 * product2
        size3 += product3 * product3
    store(dot0, dots)
    store(dot1, dots + VECTOR)
    store(dot2, dots + 2 * VECTOR)
    store(dot3, dots + 3 * VECTOR)
    store(size0, block.work + SIZES)
    store(size1, block.work + SIZES + VECTOR)
    store(size2, block.work + SIZES + 2 * VECTOR)
    store(size3, block.work + SIZES + 3 * VECTOR)
    scales = start // group * GROUP_BYTES
    b_exponents = load_twice(block.b_exponents + scales, np.int32, LANES)
    for place in range(0, PAIRS * VECTOR, VECTOR):
        exponents = load_pair(block.a_exponents + scales + place * 8 // VECTOR, np.int32, LANES) + b_exponents
        exponents = select(load(block.work + SIZES + place, np.float32, LANES) == 0.0, ZERO_EXPONENT, exponents)
        store(maximum(load(block.work + EMAX + place, np.int32, LANES), exponents), block.work + EMAX + place)


@inner
def _add_groups(p: Fused, group: int, start: int, block: Block) -> None:
    """Find emax, and put the sums of truncated terms to the totals; a term is the exact sum of a group times two scales."""
    for place in range(0, PAIRS * VECTOR, VECTOR):
        store(splat(np.int32(p.emax_floor), LANES), block.work + EMAX + place)
        store(zeros(np.float64, LANES), block.work + TOTAL + 2 * place)
    for term in range(p.terms // group):
        _add_dots(group, start + term * group, block, block.work + DOTS + term * PAIRS * VECTOR)
    _scale(p, block, np.float64)
    for term in range(p.terms // group):
        scales = (start // group + term) * GROUP_BYTES + 4 * LINES
        b_scales = load_twice(block.b_exponents + scales, np.float64, LANES)
        for place in range(0, PAIRS * VECTOR, VECTOR):
            factors = load_pair(block.a_exponents + scales + place * 16 // VECTOR, np.float64, LANES) * b_scales
            dots = convert(load(block.work + DOTS + term * PAIRS * VECTOR + place, np.float32, LANES), np.float64)
            terms = truncated(dots * factors * load(block.work + SCALE + 2 * place, np.float64, LANES))
            store(load(block.work + TOTAL + 2 * place, np.float64, LANES) + terms, block.work + TOTAL + 2 * place)


@inner
def _add_terms(
    problem: PortableArguments, scales: LineScales | None, order: int, start: int, block: Block, narrow: bool, dtype: Any
) -> None:
    """Find emax, and put the sums of truncated terms to the totals; Numba compiles no groups where there are no scales."""
    p = problem.p
    if scales is not None:  # noqa: SIM102 - Numba prunes a branch on None alone
        if problem.group > 1:
            _add_groups(p, problem.group, start, block)
            return
    _align(p, order, start, block, dtype)
    at_once = p.terms if narrow else INT32_TERMS
    for first in range(0, p.terms, at_once):
        _add_products(order + 4 * first, min(at_once, p.terms - first), start, block, first == 0, narrow, dtype)


@inner
def multiply_block(problem: PortableArguments, block: Block, row: int, column: int, dtype: Any) -> None:
    """All steps of 8 rows by 8 columns."""
    p = problem.p
    period = p.terms * max(p.split, 1)
    # 2**(align_bits + 2) is above every product
    narrow = problem.group == 1 and itemsize_of(dtype) == 4 and p.align_bits <= 25 and p.terms << (p.align_bits + 2) <= 1 << 31
    c = matrix_part(problem.c, 0, column)
    columns = problem.columns - column
    for place in range(0, PAIRS * VECTOR, VECTOR):
        store(load_rows(c, row + 2 * place // VECTOR, problem.rows, columns), block.work + ACCUMULATOR + place)
    for start in range(0, problem.depth, period):
        if p.split != 0:
            for place in range(0, PAIRS * VECTOR, VECTOR):
                store(load(block.work + ACCUMULATOR + place, np.int32, LANES), block.work + ADDEND + place)
                store(zeros(np.int32, LANES), block.work + ACCUMULATOR + place)
        for position in range(0, period, p.terms):
            order = problem.order + 4 * position
            _add_terms(problem, problem.scale_a, order, start, block, narrow, dtype)
            for place in range(0, PAIRS * VECTOR, VECTOR):
                accumulator = load(block.work + ACCUMULATOR + place, np.int32, LANES)
                emax = load(block.work + EMAX + place, np.int32, LANES)
                if narrow:
                    result = narrow_step_end(p, load(block.work + TOTAL + place, np.int32, LANES), accumulator, emax)
                else:
                    result = wide_step_end(p, load(block.work + TOTAL + 2 * place, np.float64, LANES), accumulator, emax)
                store(result, block.work + ACCUMULATOR + place)
        if p.split != 0:
            for place in range(0, PAIRS * VECTOR, VECTOR):
                accumulator = load(block.work + ACCUMULATOR + place, np.int32, LANES)
                addend = load(block.work + ADDEND + place, np.int32, LANES)
                store(ieee_sum(p, accumulator, addend), block.work + ACCUMULATOR + place)
    out = matrix_part(problem.out, 0, column)
    for place in range(0, PAIRS * VECTOR, VECTOR):
        result = load(block.work + ACCUMULATOR + place, np.int32, LANES)
        store_rows(result, out, row + 2 * place // VECTOR, problem.rows, columns)
