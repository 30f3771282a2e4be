"""Steps whose sum c joins: products in one window of bits, and their sum and c in another, as matrix cores of CDNA3 have them.

Plain loops over columns in float64, where every sum is exact: a truncated product has at most 26 bits, and a step's sum 31.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.llvm.compilation import compiled, inner, separate
from fastmma.kernels.llvm.simd import bitcast
from fastmma.kernels.macro_tiles import finish_empty
from fastmma.kernels.matrices.accumulators import NAN

_COLUMNS = 256  # at a time, so that what a step works with is in the nearest cache
_ROWS = 8  # of a thread at a time
NONE, SPECIAL = -4000, 4000  # exponents of zeros, and of infinities and NaNs
_FARTHEST = 900  # of powers of two that are float64, and beyond every shift
_LOWEST = -126  # exponent of f32
_INFINITE = float.fromhex("0x1p128")


class Windows(NamedTuple):
    """The numbers of such an arithmetic.

    Attributes
    ----------
    terms : int
        Products a step.
    align_bits, join_bits : int
        Fraction bits of products, and of what they and c add up to.
    ways : int
        2 where products of even and odd k are summed apart, else 1.
    """

    terms: int
    align_bits: int
    join_bits: int
    ways: int


class Numbers(NamedTuple):
    """A matrix of numbers, with the exponent of each: that of its field, `NONE` of zeros and `SPECIAL` of infinities and NaNs."""

    values: NDArray[np.float64]
    exponents: NDArray[np.int32]


def numbers(values: NDArray[np.float64], emin: int) -> Numbers:
    """Numbers of a format whose smallest normal exponent is `emin`."""
    values = np.ascontiguousarray(values)
    field = (values.view(np.int64) >> 52).astype(np.int32) & 0x7FF
    exponents = np.maximum(field - 1023, np.int32(emin))
    exponents[values == 0] = NONE
    exponents[field == 0x7FF] = SPECIAL
    return Numbers(values, exponents)


@inner
def _power(exponent: Any) -> Any:
    """2**exponent; of one that is far below, a number that takes every sum below a unit."""
    near = min(max(exponent, -_FARTHEST), _FARTHEST)
    return bitcast(np.int64(near + 1023) << 52, np.float64)


@separate
def _sum(x: Any, y: Any, i: int, first: int, last: int, by: int, start: int, align_bits: int, emax: Any, sums: Any) -> None:
    """Sums of truncated products of a row with some columns, in units of ``2**(emax - align_bits)``."""
    for j in range(len(emax)):
        emax[j] = NONE
        sums[j] = 0.0
    for k in range(first, last, by):
        exponent = x.exponents[i, k]
        if exponent != NONE:
            line = y.exponents[k, start : start + len(emax)]
            for j in range(len(emax)):
                emax[j] = max(emax[j], exponent + line[j])
    for k in range(first, last, by):
        if x.exponents[i, k] != NONE:
            value, column = x.values[i, k], y.values[k, start : start + len(emax)]
            for j in range(len(emax)):
                sums[j] += np.trunc(value * column[j] * _power(align_bits - emax[j]))


@separate
def _joined(p: Any, emax: Any, sums: Any, others: Any, other_sums: Any, total: Any) -> None:
    """Let what was summed so far join the sums of a step."""
    above = p.join_bits + 1 - p.align_bits
    for j in range(len(emax)):
        top, products = emax[j], sums[j]
        if p.ways == 2:
            top = max(top, others[j])
            products = np.floor(products * _power(emax[j] - top)) + np.floor(other_sums[j] * _power(others[j] - top))
        exponent = max((bitcast(total[j], np.int32) >> 23) & 255, 1) - 127
        largest = max(top, exponent)
        c = np.floor(np.float64(total[j]) * _power(p.align_bits - largest))
        c = 0.0 if p.ways == 2 and exponent < largest - p.align_bits - 1 else c
        both = np.floor(products * _power(top - largest + above)) + c * _power(above)
        leading = ((bitcast(both, np.int64) >> 52) & 0x7FF) - 1023 + largest - p.join_bits - 1
        dropped = max(max(leading, _LOWEST) - largest + 1, 0)
        kept = np.floor(both * _power(-dropped)) * _power(dropped)
        total[j] = np.float32(kept * _power(largest - p.join_bits - 1))


@separate
def _plain(x: Any, y: Any, i: int, first: int, last: int, start: int, found: Any) -> None:
    """Sums of products that are not finite, or that f32 cannot hold; else numbers that do not matter."""
    for j in range(len(found)):
        found[j] = 0.0
    for k in range(first, last):
        value = x.values[i, k]
        for j in range(len(found)):
            product = value * y.values[k, start + j]
            if not abs(product) < _INFINITE:
                found[j] += product * np.inf


@compiled
def _run(p: Any, x: Any, y: Any, c: Any, out: Any, specials: bool, first_row: int, last_row: int) -> None:
    """Some rows of a product."""
    depth = x.values.shape[1]
    columns = y.values.shape[1]
    emaxes, sums = np.empty((2, _COLUMNS), np.int32), np.empty((2, _COLUMNS), np.float64)
    totals, before, infinite = np.empty(_COLUMNS, np.float32), np.empty(_COLUMNS, np.float32), np.zeros(_COLUMNS, np.float64)
    for start in range(0, columns, _COLUMNS):
        count = min(_COLUMNS, columns - start)
        emax, others, total = emaxes[0, :count], emaxes[1, :count], totals[:count]
        for i in range(first_row, last_row):
            for j in range(count):
                total[j] = c[i, start + j]
            for first in range(0, depth, p.terms):
                last = min(first + p.terms, depth)
                for j in range(count):
                    before[j] = total[j]
                _sum(x, y, i, first, last, p.ways, start, p.align_bits, emax, sums[0, :count])
                if p.ways == 2:
                    _sum(x, y, i, first + 1, last, p.ways, start, p.align_bits, others, sums[1, :count])
                _joined(p, emax, sums[0, :count], others, sums[1, :count], total)
                if specials:
                    _plain(x, y, i, first, last, start, infinite[:count])
                for j in range(count):
                    if not abs(before[j]) + abs(infinite[j]) < np.inf:
                        total[j] = np.float32(before[j] + infinite[j])
            for j in range(count):
                out[i, start + j] = total[j]


def multiply(p: Windows, x: Numbers, y: Numbers, c: NDArray[np.float32] | None, out: NDArray[np.float32], threads: int) -> None:
    """``out = x @ y + c`` (None: +0) of (M, K), (K, N) and (M, N); NaN is canonical; `out` may be `c`."""
    if finish_empty(x.values.shape[1], c, out):
        return
    c = np.zeros(out.shape, np.float32) if c is None else np.ascontiguousarray(c)
    results = np.empty(out.shape, np.float32)
    highest = int(x.exponents.max()), int(y.exponents.max())
    specials = SPECIAL in highest or sum(highest) >= 126

    def work(first: int, last: int, _worker: int) -> None:
        _run(p, x, y, c, results, specials, first, last)

    parallel_for(work, len(out), threads, _ROWS)
    results.view(np.uint32)[np.isnan(results)] = NAN
    out[...] = results
