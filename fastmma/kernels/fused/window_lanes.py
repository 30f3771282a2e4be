"""Steps whose sum c joins, in float64 lanes of AVX-512, whose instructions name a rounding.

B is packed as b (1 + 2**-30). A sum starts at 1.5 * 2**52 units, plus the number of negative products, and every fma rounds toward zero,
which floors the product: docs/kernels.md says why. Then c and the sum are added to such a start of the second window, rounded down.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.fused.windows import NONE, Numbers
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.simd import add_down, bitcast, convert, fma_toward_zero, load, load_scalar, maximum, ones, splat, store

TERMS, ALIGN_BITS, JOIN_BITS = 8, 24, 31  # of the arithmetic
_LANES, _PANEL = 8, 32
_DEEP = 128  # k at a time, whose panel of B lies in the nearest cache
_ROWS = 32  # of a thread at a time
_TINY = 2.0**-900  # in place of zero: its product with any element is less than a unit
_MORE = float.fromhex("0x1.00000004p+0")  # 1 + 2^-30
_NO_PRODUCT = -300  # emax of zeros, below that of every product
_LOWEST, _HIGHEST = -94, 125  # exponents of products whose sums are normal numbers
_FIELD = 52
_HALF = 1 << 51
_SIGN_BIT = 63
_ONE = 1 << 52
_EXPONENT = 0x7FF << 52
# the bits of 1.5 * 2**52 units: of products by their emax, and where c joins by the field of an exponent, and the least of these
_APART = (JOIN_BITS + 1 - ALIGN_BITS) * _ONE
_PRODUCTS = (1023 + _FIELD - ALIGN_BITS) * _ONE + _HALF
_SUMS = (_FIELD - JOIN_BITS - 1) * _ONE + _HALF
_LOWEST_SUMS = (1023 - 126) * _ONE + _SUMS
_CUT = (1 << 21) - 1  # what a float64 has below 31 fraction bits


class Packed(NamedTuple):
    """One operand: values and exponents (lines, k) or (panels, k, 32), and signs, a byte a step."""

    values: NDArray[np.float64]
    exponents: NDArray[np.int16]
    signs: NDArray[np.uint8]


@inner
def _end(start: Any, summed: Any, c: Any) -> Any:
    """Let c join the sum of a step; all are numbers."""
    exponents = (bitcast(c, np.int64) & splat(np.int64(_EXPONENT), _LANES)) + splat(np.int64(_SUMS), _LANES)
    join = maximum(maximum(bitcast(start, np.int64) - splat(np.int64(_APART), _LANES), exponents), splat(np.int64(_LOWEST_SUMS), _LANES))
    first, second = bitcast(join, np.float64), bitcast(join + splat(np.int64(_APART), _LANES), np.float64)
    both = (add_down(summed - start, first) + (add_down(c, second) - second)) - first
    bits = bitcast(both, np.int64)
    bits = (bits + ((bits >> splat(np.int64(_SIGN_BIT), _LANES)) & splat(np.int64(_CUT), _LANES))) & splat(np.int64(~_CUT), _LANES)
    return convert(convert(bitcast(bits, np.float64), np.float32), np.float64)


@inner
def _start(scratch: int, number: int) -> Any:
    """The start of a vector's sum, from emax in memory."""
    emax = convert(load(scratch + 2 * _LANES * number, np.int16, _LANES), np.int64)
    return bitcast((emax << splat(np.int64(_FIELD), _LANES)) + splat(np.int64(_PRODUCTS), _LANES), np.float64)


@inner
def _counted(start: Any, scratch: int, number: int) -> Any:
    """The start of a vector's sum with the number of negative products, which memory has."""
    negative = convert(load(scratch + 2 * _PANEL + _LANES * number, np.uint8, _LANES), np.int64)
    return bitcast(bitcast(start, np.int64) + negative, np.float64)


@inner
def _row(x: int, exponents_x: int, signs_x: int, y: int, exponents_y: int, signs_y: int, c: int, scratch: int, steps: int) -> None:
    """Some steps of a row and a panel; all are addresses."""
    c0, c1 = convert(load(c, np.float32, _LANES), np.float64), convert(load(c + 32, np.float32, _LANES), np.float64)
    c2, c3 = convert(load(c + 64, np.float32, _LANES), np.float64), convert(load(c + 96, np.float32, _LANES), np.float64)
    for _ in range(steps):
        emax = splat(np.int16(_NO_PRODUCT), _PANEL)
        for k in range(TERMS):
            column = load(exponents_y + 2 * _PANEL * k, np.int16, _PANEL)
            emax = maximum(emax, column + splat(load_scalar(exponents_x + 2 * k, np.int16), _PANEL))
        store(emax, scratch)
        signs = load(signs_y, np.uint8, _PANEL) ^ splat(load_scalar(signs_x, np.uint8), _PANEL)
        store(ones(signs), scratch + 2 * _PANEL)
        z0, z1 = _start(scratch, 0), _start(scratch, 1)
        z2, z3 = _start(scratch, 2), _start(scratch, 3)
        s0, s1, s2, s3 = _counted(z0, scratch, 0), _counted(z1, scratch, 1), _counted(z2, scratch, 2), _counted(z3, scratch, 3)
        for k in range(TERMS):
            element, line = splat(load_scalar(x + 8 * k, np.float64), _LANES), y + 8 * _PANEL * k
            s0 = fma_toward_zero(element, load(line, np.float64, _LANES), s0)
            s1 = fma_toward_zero(element, load(line + 64, np.float64, _LANES), s1)
            s2 = fma_toward_zero(element, load(line + 128, np.float64, _LANES), s2)
            s3 = fma_toward_zero(element, load(line + 192, np.float64, _LANES), s3)
        c0, c1 = _end(z0, s0, c0), _end(z1, s1, c1)
        c2, c3 = _end(z2, s2, c2), _end(z3, s3, c3)
        x += 8 * TERMS
        exponents_x += 2 * TERMS
        signs_x += 1
        y += 8 * TERMS * _PANEL
        exponents_y += 2 * TERMS * _PANEL
        signs_y += _PANEL
    store(convert(c0, np.float32), c)
    store(convert(c1, np.float32), c + 32)
    store(convert(c2, np.float32), c + 64)
    store(convert(c3, np.float32), c + 96)


@compiled
def _run(x: Any, y: Any, out: Any, first_row: int, last_row: int) -> None:
    """Some rows of a product, whose results are c before; operands and results fill panels, and steps."""
    scratch = np.empty(3 * _PANEL, np.uint8)
    depth, lines = x.values.shape[1], y.values.shape[0]
    steps = depth // TERMS
    deep = _DEEP // TERMS
    for panel in range(lines):
        for step in range(0, steps, deep):
            k = step * TERMS
            values, exponents = y.values[panel, k:], y.exponents[panel, k:]
            for i in range(first_row, last_row):
                _row(
                    x.values[i, k:].ctypes.data,
                    x.exponents[i, k:].ctypes.data,
                    x.signs[i, step:].ctypes.data,
                    values.ctypes.data,
                    exponents.ctypes.data,
                    y.signs[panel, step:].ctypes.data,
                    out[i, panel * _PANEL :].ctypes.data,
                    scratch.ctypes.data,
                    min(deep, steps - step),
                )


def _packed(lines: Numbers, more: float) -> Packed:
    """Lines (..., k) of one operand; zeros are tiny."""
    values, exponents = lines
    missing = -values.shape[1] % TERMS
    values = np.pad(np.where(exponents == NONE, _TINY, values) * more, ((0, 0), (0, missing)), constant_values=_TINY * more)
    words = np.pad(exponents, ((0, 0), (0, missing)), constant_values=NONE).astype(np.int16)
    signs = np.packbits((values < 0).reshape(len(values), -1, TERMS), axis=2)[:, :, 0]
    return Packed(values, words, signs)


def _panels(packed: Packed) -> Packed:
    """Lines of k as panels (panels, k, 32)."""
    count = -len(packed.values) % _PANEL

    def cut(array: NDArray[Any], filling: float) -> NDArray[Any]:
        filled = np.pad(array, ((0, count), (0, 0)), constant_values=filling)
        return np.ascontiguousarray(filled.reshape(-1, _PANEL, array.shape[1]).swapaxes(1, 2))

    return Packed(cut(packed.values, _TINY), cut(packed.exponents, NONE), cut(packed.signs, 0))


def reaches(x: Numbers, y: Numbers) -> bool:
    """Tell whether no product is infinite, and no sum subnormal."""
    low, high = 0, 0
    for each in (x, y):
        real = each.exponents[each.exponents != NONE]
        low += int(real.min(initial=0))
        high += int(real.max(initial=0))
    return low >= _LOWEST and high <= _HIGHEST


def multiply(x: Numbers, y: Numbers, c: NDArray[np.float32] | None, threads: int) -> NDArray[np.float32]:
    """``x @ y + c`` (None: +0) of (M, K), (K, N) and (M, N) that `reaches`; rows with infinities or NaNs in c or results are not right."""
    rows, columns = len(x.values), y.values.shape[1]
    left = _packed(x, 1.0)
    right = _panels(_packed(Numbers(np.ascontiguousarray(y.values.T), np.ascontiguousarray(y.exponents.T)), _MORE))
    out = np.zeros((rows, len(right.values) * _PANEL), np.float32)
    if c is not None:
        out[:, :columns] = c

    def work(first: int, last: int, _worker: int) -> None:
        _run(left, right, out, first, last)

    parallel_for(work, rows, threads, _ROWS)
    return out[:, :columns]
