"""The products of instructions in exact Python integers: written to be read, slow, and the oracle of every kernel.

A result is a row of terms that `numerics.reference_steps` adds, in the order that the arithmetic says.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.isa.formats import FORMATS, Format
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.numerics.arithmetic import CANONICAL_NAN, Arithmetic
from fastmma.numerics.methods import METHODS, Chain
from fastmma.numerics.reference_steps import (
    Number,
    Step,
    flushed,
    fma,
    fused_step,
    ieee_add,
    number,
    product,
    record,
    round_to,
    special_sum,
    watched,
)
from fastmma.numerics.reference_sums import multiply

Codes = NDArray[Any]


def _steps(terms: Sequence[Number], c: Number, arithmetic: Arithmetic, fmt: Format) -> int:
    """Steps of `arithmetic.terms` terms each, c being a term of the first and each result one of the next."""
    for start in range(0, len(terms), arithmetic.terms):
        c = number(fused_step([*terms[start : start + arithmetic.terms], c], arithmetic, fmt), fmt)
    return c.code


def _lowered(terms: Sequence[Number], ks: Sequence[int], c: int, arithmetic: Arithmetic, fmt: Format) -> int:
    """The steps of two halves, from zero, then one IEEE add of c; `ks` are the k of the terms."""
    total = 0
    for half in (0, 1):
        total = _steps(
            [term for k, term in zip(ks, terms, strict=True) if k // arithmetic.split % 2 == half],
            number(total, fmt),
            arithmetic,
            fmt,
        )
    return ieee_add(number(total, fmt), number(c, fmt), fmt)


def _in_turns(terms: Sequence[Number], ks: Sequence[int], arithmetic: Arithmetic) -> list[Number]:
    """Products in the order of their steps, which take turns; `ks` are their k."""
    if not arithmetic.interleave:
        return list(terms)
    steps = len(terms) // (arithmetic.terms * arithmetic.group)
    return [term for step in range(steps) for k, term in zip(ks, terms, strict=True) if k // arithmetic.interleave % steps == step]


def _grouped(terms: Sequence[Number], size: int) -> list[Number]:
    """Exact sums of `size` terms each, whose exponent is the largest of what is not zero.

    A sum that cancels to zero has one, too; a sum of nothing but zeros has none.
    """
    groups = []
    for start in range(0, len(terms), size):
        members = terms[start : start + size]
        specials = {"nan" if each.special == "nan" else each.negative for each in members if each.special}
        ks = tuple(k for term in members for k in term.ks)
        if specials:
            nan = "nan" in specials or len(specials) == 2
            groups.append(Number(negative=specials == {True}, special="nan" if nan else "inf", ks=ks))
            continue
        last = min(term.last for term in members)
        total = sum(term.significand << (term.last - last) for term in members)
        exponent = max((term.exponent for term in members if term.significand), default=0)
        cancelled = total == 0 and any(term.significand for term in members)
        groups.append(Number(total, last, exponent, total < 0, cancelled=cancelled, ks=ks))
    return groups


def _scaled(terms: Sequence[Number], scales_a: Sequence[Number], scales_b: Sequence[Number]) -> list[Number]:
    """Terms times their scales: significands multiply, exponents add. Each scale serves an equal share of the terms."""
    share = len(terms) // len(scales_a)
    return [product(product(term, scales_a[i // share]), scales_b[i // share]) for i, term in enumerate(terms)]


def _links(a: Sequence[Number], b: Sequence[Number], total: int, fmt: Format, mode: str) -> int:
    """One chain of fma, from a code on."""
    for x, y in zip(a, b, strict=True):
        total = fma(x, y, number(total, fmt), fmt, mode)
    return total


def _convert(code: int, source: Format, result: Format) -> int:
    """Round a float code to another float format, to nearest even; NaN is canonical."""
    value = number(code, source)
    return record(Step("convert", (value,), _converted(value, result), result, "rn"))


def _converted(value: Number, result: Format) -> int:
    if value.special:
        return special_sum([value], CANONICAL_NAN[result.name], result)
    rounded = round_to(value.significand, value.last, result, "rn")
    return rounded | 1 << (result.bits - 1) if rounded == 0 and value.negative else rounded


def _chained(chain: Chain, a: Sequence[Number], b: Sequence[Number], c: int, ins: Instruction) -> int:
    """Chains of fma over k: one from c, or several that are added to it one after the other."""
    cfmt, dfmt, fmt = ins.formats.c, ins.formats.d, FORMATS[chain.format]
    total = c if cfmt is fmt else _convert(c, cfmt, fmt)
    if chain.products:
        for first in range(0, len(a), chain.products):
            part = slice(first, first + chain.products)
            total = ieee_add(number(total, fmt), number(_links(a[part], b[part], chain.start, fmt, "rn"), fmt), fmt)
    else:
        total = _links(a, b, total, fmt, ins.rounding or "rn")
    return total if dfmt is fmt else _convert(total, fmt, dfmt)


def _without_subnormal(value: Number, fmt: Format) -> Number:
    """An operand, +0 in place of a subnormal and of -0."""
    lowest = 0 < abs(value.significand) < 1 << fmt.mantissa_bits
    return number(0, fmt)._replace(ks=value.ks) if not value.special and (lowest or not value.significand) else value


def _result(code: int) -> Number:
    """A result in f32, without a subnormal."""
    f32 = FORMATS["f32"]
    return number(flushed(code, f32), f32)


def _paired(a: Sequence[Number], b: Sequence[Number], c: int, terms: int, ins: Instruction) -> int:
    """IEEE products of `terms` k, added in pairs and then to the sum so far; neither operands nor results are subnormal."""
    f32 = FORMATS["f32"]
    total = _without_subnormal(number(c, f32), f32)
    rows, columns = ([_without_subnormal(each, fmt) for each in side] for side, fmt in ((a, ins.formats.a), (b, ins.formats.b)))
    for start in range(0, len(rows), terms):
        pairs = zip(rows[start : start + terms], columns[start : start + terms], strict=True)
        sums = [_result(multiply(x, y, f32)) for x, y in pairs]
        while len(sums) > 1:
            sums = [_result(ieee_add(x, y, f32)) for x, y in zip(sums[::2], sums[1::2], strict=True)]
        total = _result(ieee_add(total, sums[0], f32))
    return total.code


def integer_sum(products: Sequence[Number], c: int, saturate: bool) -> int:
    """The sum of products and c; c and the result are s32 codes."""
    s32 = FORMATS["s32"]
    start = _integer(c, s32)
    total = start + sum(each.significand for each in products)
    if saturate:
        total = min(max(total, -(1 << 31)), (1 << 31) - 1)
    mode = "saturate" if saturate else "wrap"
    return record(Step("sum", (*products, Number(start, code=c)), total & 0xFFFFFFFF, s32, mode))


def _integer_products(a: Sequence[int], b: Sequence[int], ks: Sequence[int], bit_op: str) -> list[Number]:
    """Products of integers, or what `bit_op` gives of two bits."""
    multiply = {"": operator.mul, "xor": operator.xor, "and": operator.and_}[bit_op]
    return [Number(multiply(x, y), ks=(k,)) for x, y, k in zip(a, b, ks, strict=True)]


def _integer(code: int, fmt: Format) -> int:
    code &= (1 << fmt.bits) - 1
    return code - (code >> (fmt.bits - 1) << fmt.bits) if fmt.kind == "signed" else code


def _widened(code: int, source: Format, wide: Format) -> Number:
    return number(_converted(number(code, source), wide), wide)


def _decoded(codes: Codes, fmt: Format, arithmetic: Arithmetic, flush: bool = False) -> list[list[Any]]:
    if flush:
        codes = np.array([flushed(int(code), fmt) for code in codes.flat], codes.dtype).reshape(codes.shape)
    if arithmetic.widened:
        return [[_widened(int(code), fmt, FORMATS[arithmetic.widened]) for code in line] for line in codes]
    read = number if fmt.kind == "float" else _integer
    return [[read(int(code), fmt) for code in line] for line in codes]


def columns_of_stored(ins: Instruction, words: Codes | None) -> list[list[int]]:
    """For each row of A, the k of each stored element."""
    if words is None:
        return [list(range(ins.k))]
    rule = pattern_of(ins)
    table = rule.table(ins.ordered_metadata)
    return [[j * rule.chunk + int(place) for j, word in enumerate(line) for place in table[word]] for line in words]


def tile(
    ins: Instruction,
    arithmetic: Arithmetic,
    a: Codes,
    b: Codes,
    c: Codes,
    *,
    metadata: Codes | None = None,
    scale_a: Codes | None = None,
    scale_b: Codes | None = None,
    shift: int = 0,
) -> Codes:
    """One execution of an instruction on one set of matrices of codes.

    Parameters
    ----------
    a, b, c : (m, stored k), (k, n) and (m, n) arrays of codes
    arithmetic : Arithmetic
        What `fastmma.arithmetic` returns, so that `terms` is the number of products a step.
    metadata : (m, k / chunk) array of 4-bit words, for sparse A
    scale_a, scale_b : (m, scales) and (scales, n) arrays of codes, for block scaling
    shift : int
        Fused steps only: c counts as c * 2**-shift, its exponent as so much less, without a rounding.

    Returns
    -------
    (m, n) array of codes of d
    """
    afmt, bfmt, dfmt = ins.formats.a, ins.formats.b, ins.formats.d
    rows, columns = (_decoded(codes, fmt, arithmetic, arithmetic.flush_inputs) for codes, fmt in ((a, afmt), (b.T, bfmt)))
    stored = columns_of_stored(ins, metadata)
    scales_a, scales_b = (
        None if scales is None else _decoded(scales, FORMATS[ins.stype], arithmetic)
        for scales in (scale_a, None if scale_b is None else scale_b.T)
    )
    d = np.empty(c.shape, dtype=dfmt.code_dtype)
    for i, row in enumerate(rows):
        ks = stored[min(i, len(stored) - 1)]
        for j, whole_column in enumerate(columns):
            column = [whole_column[k] for k in ks] if metadata is not None else whole_column
            scales = None if scales_a is None or scales_b is None else (scales_a[i], scales_b[j])
            d[i, j] = _element(ins, arithmetic, row, column, int(c[i, j]), ks, scales, shift)
    return d


def _element(
    ins: Instruction,
    arithmetic: Arithmetic,
    row: list[Any],
    column: list[Any],
    c: int,
    ks: Sequence[int],
    scales: tuple[list[Number], list[Number]] | None,
    shift: int,
) -> int:
    """The code of one element of d: decoded elements of a row of A and of B's column that meet it, and the k where they do."""
    if watched() and row and isinstance(row[0], Number):
        row = [x._replace(ks=(k,)) for x, k in zip(row, ks, strict=True)]
    method = METHODS[arithmetic.method]
    if method.chain is not None:
        return _chained(method.chain, row, column, c, ins)
    if method.sums == "trees":
        return _paired(row, column, c, arithmetic.terms, ins)
    if method.exact:
        return integer_sum(_integer_products(row, column, ks, ins.bit_op), c, ins.satfinite)
    cfmt, dfmt, sums = ins.formats.c, ins.formats.d, ins.formats.sums
    c = flushed(c, cfmt) if arithmetic.flush_inputs else c
    start = c if cfmt is sums else _convert(c, cfmt, sums)
    terms = _in_turns([product(x, y) for x, y in zip(row, column, strict=True)], ks, arithmetic)
    if arithmetic.group > 1:
        terms = _grouped(terms, arithmetic.group)
    if method.by_scales:
        terms = [term._replace(exponent=0) for term in terms]  # theirs is that of the scales alone
    if scales is not None:
        terms = _scaled(terms, *scales)
    if arithmetic.split:
        total = _lowered(terms, ks, start, arithmetic, sums)
    else:
        first = number(c, cfmt) if arithmetic.native_c else number(start, sums)
        first = first._replace(last=first.last - shift, exponent=first.exponent - shift) if shift else first
        total = _steps(terms, first, arithmetic, sums)
    return total if dfmt is sums else _convert(total, sums, dfmt)
