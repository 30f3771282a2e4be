"""Trees of IEEE f32 additions without subnormals, as matrix cores of CDNA2 have them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.fma.chains import config_of
from fastmma.kernels.fma.f32 import multiply_whole
from fastmma.kernels.llvm.compilation import compiled, inner, separate
from fastmma.kernels.macro_tiles import finish_empty
from fastmma.kernels.matrices.accumulators import NAN

_COLUMNS = 512  # at a time
_ROWS = 8  # of a thread at a time
_FRACTION = 20  # bits that a product of f16 elements has below its exponent; one of bf16 has fewer
_LOWEST, _HIGHEST = -101, 125  # of the last bit of products, and of their exponents
SMALLEST = np.float32(float.fromhex("0x1p-126"))


@inner
def _flushed(value: Any) -> Any:
    """A result, a zero of its sign in place of a subnormal."""
    return value * np.float32(0) if abs(value) < SMALLEST else value


@inner
def _product(x: Any, y: Any) -> Any:
    return _flushed(np.float32(x * y))


@inner
def _sum(x: Any, y: Any) -> Any:
    return _flushed(np.float32(x + y))


@separate
def _add_pair(x: Any, y: Any, i: int, k: int, start: int, total: Any) -> None:
    first, second, one, two = x[i, k], x[i, k + 1], y[k, start:], y[k + 1, start:]
    for j in range(len(total)):
        total[j] = _sum(total[j], _sum(_product(first, one[j]), _product(second, two[j])))


@separate
def _add_four(x: Any, y: Any, i: int, k: int, start: int, total: Any) -> None:
    a, b, c, d = x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3]
    one, two, three, four = y[k, start:], y[k + 1, start:], y[k + 2, start:], y[k + 3, start:]
    for j in range(len(total)):
        low = _sum(_product(a, one[j]), _product(b, two[j]))
        high = _sum(_product(c, three[j]), _product(d, four[j]))
        total[j] = _sum(total[j], _sum(low, high))


@compiled
def _run(terms: int, depth: int, x: Any, y: Any, c: Any, out: Any, first_row: int, last_row: int) -> None:
    """Some rows of a product."""
    totals = np.empty(_COLUMNS, np.float32)
    for start in range(0, y.shape[1], _COLUMNS):
        count = min(_COLUMNS, y.shape[1] - start)
        total = totals[:count]
        for i in range(first_row, last_row):
            for j in range(count):
                total[j] = c[i, start + j]
            for k in range(0, x.shape[1], terms):
                if k % depth == 0:
                    for j in range(count):
                        total[j] += np.float32(0)  # an instruction takes its c, -0, as +0
                if terms == 2:
                    _add_pair(x, y, i, k, start, total)
                else:
                    _add_four(x, y, i, k, start, total)
            for j in range(count):
                out[i, start + j] = total[j]


def reaches(x: NDArray[np.float32], y: NDArray[np.float32]) -> bool:
    """Tell whether every product is exact, and no sum subnormal, of operands without subnormals.

    Where all products are multiples of one number, so are their sums; c is normal, or as far below as it joins none of them.
    """
    fields = [each.view(np.uint32) >> np.uint32(23) & np.uint32(255) for each in (x, y)]
    low = sum(int(field[field > 0].min(initial=255)) for field in fields)
    high = sum(int(field.max(initial=0)) for field in fields)
    return low - 2 * 127 - _FRACTION >= _LOWEST and high - 2 * 127 <= _HIGHEST


def by_panels(
    terms: int, x: NDArray[np.float32], y: NDArray[np.float32], c: NDArray[np.float32], out: NDArray[np.float32], threads: int
) -> None:
    """``out = x @ y + c`` as `multiply` has it, of operands that it `reaches`: pairs of products are chains of fma, as they are exact."""
    multiply_whole(config_of(32, 2, joined=terms // 2), x, y, c, out, threads)


def multiply(
    terms: int, depth: int, x: NDArray[np.float32], y: NDArray[np.float32], c: NDArray[np.float32], out: NDArray[np.float32], threads: int
) -> None:
    """``out = x @ y + c`` of (M, K), (K, N) and (M, N), `terms` (2 or 4) products at a time; no operand is subnormal or -0.

    K is a multiple of `depth`, the k of an instruction; NaN is canonical; `out` may be `c`.
    """
    if finish_empty(x.shape[1], c, out):
        return
    results = np.empty(out.shape, np.float32)

    def work(first: int, last: int, _worker: int) -> None:
        _run(terms, depth, x, y, c, results, first, last)

    parallel_for(work, len(out), threads, _ROWS)
    results.view(np.uint32)[np.isnan(results)] = NAN
    out[...] = results
