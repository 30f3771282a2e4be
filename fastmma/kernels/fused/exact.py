"""Steps of few products whose exact sum with c is rounded to nearest once, as matrix cores of CDNA1 have them.

Products are exact in float64, and so are the errors of sums of them. Where only the last addition has an error, the sum is rounded to odd
in float64 and then to float32, which is one rounding; else all parts are added until none overlaps another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.llvm.compilation import compiled, inner, separate
from fastmma.kernels.llvm.simd import bitcast
from fastmma.kernels.macro_tiles import finish_empty
from fastmma.kernels.matrices.accumulators import NAN

_COLUMNS = 256  # at a time
_ROWS = 8  # of a thread at a time
_MOST = 5  # parts of a sum: products and c


@inner
def _error(x: Any, y: Any, total: Any) -> Any:
    """Return what the sum of x and y lacks, exactly."""
    virtual = total - x
    return (x - (total - virtual)) + (y - virtual)


@inner
def _to_odd(total: Any, error: Any) -> Any:
    """A sum and its error, rounded to odd."""
    bits = bitcast(total, np.int64)
    toward_zero = (error < 0) != (total < 0)
    odd = bits - np.int64(toward_zero) | 1
    return bitcast(odd if error != 0 and bits & 1 == 0 else bits, np.float64)


@separate
def _distilled(x: Any, y: Any, i: int, first: int, last: int, column: int, c: Any) -> Any:
    """The exact sum of one element's products and c, rounded to odd in float64."""
    parts = np.zeros(_MOST, np.float64)
    parts[0] = c
    for k in range(first, last):
        parts[1 + k - first] = x[i, k] * y[k, column]
    changing = True
    while changing:
        changing = False
        for at in range(_MOST - 1):
            low, high = parts[at], parts[at + 1]
            total = low + high
            error = _error(low, high, total)
            changing = changing or error != low or total != high
            parts[at], parts[at + 1] = error, total
    rest = 0.0
    for at in range(_MOST - 1):
        if parts[at] != 0:
            rest = parts[at]
    return _to_odd(parts[_MOST - 1], rest)


@separate
def _step(x: Any, y: Any, i: int, first: int, last: int, start: int, work: Any, total: Any) -> None:
    sums, errors = work
    for j in range(len(total)):
        sums[j] = 0.0
        errors[j] = 0.0
    for k in range(first, last):
        value, line = x[i, k], y[k, start : start + len(total)]
        for j in range(len(total)):
            product = value * line[j]
            both = sums[j] + product
            errors[j] += abs(_error(sums[j], product, both))
            sums[j] = both
    for j in range(len(total)):
        c = np.float64(total[j])
        both = sums[j] + c
        error = _error(sums[j], c, both)
        if errors[j] != 0 and abs(both) < np.inf:
            both = _distilled(x, y, i, first, last, start + j, c)
        elif abs(both) < np.inf:
            both = _to_odd(both, error)
        total[j] = np.float32(both + 0.0)


@compiled
def _run(terms: int, x: Any, y: Any, c: Any, out: Any, first_row: int, last_row: int) -> None:
    """Some rows of a product."""
    depth, columns = y.shape
    totals, sums, errors = np.empty(_COLUMNS, np.float32), np.empty(_COLUMNS, np.float64), np.empty(_COLUMNS, np.float64)
    for start in range(0, columns, _COLUMNS):
        count = min(_COLUMNS, columns - start)
        total, work = totals[:count], (sums[:count], errors[:count])
        for i in range(first_row, last_row):
            for j in range(count):
                total[j] = c[i, start + j]
            for first in range(0, depth, terms):
                _step(x, y, i, first, min(first + terms, depth), start, work, total)
            for j in range(count):
                out[i, start + j] = total[j]


def multiply(
    terms: int, x: NDArray[np.float64], y: NDArray[np.float64], c: NDArray[np.float32] | None, out: NDArray[np.float32], threads: int
) -> None:
    """``out = x @ y + c`` (None: +0) of (M, K), (K, N) and (M, N), at most four `terms` a step; NaN is canonical; `out` may be `c`."""
    if finish_empty(x.shape[1], c, out):
        return
    c = np.zeros(out.shape, np.float32) if c is None else np.ascontiguousarray(c)
    results = np.empty(out.shape, np.float32)

    def work(first: int, last: int, _worker: int) -> None:
        _run(terms, x, y, c, results, first, last)

    parallel_for(work, len(out), threads, _ROWS)
    results.view(np.uint32)[np.isnan(results)] = NAN
    out[...] = results
