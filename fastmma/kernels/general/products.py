"""Products by the general kernels: operands decoded, cut into macro tiles for threads, and the kernel that holds their sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.decode.tables import FINITE
from fastmma.kernels.general.digits import LOWEST, Reach
from fastmma.kernels.general.limbs import DEPTH
from fastmma.kernels.general.lines import DecodedLines, decoded, scaled
from fastmma.kernels.general.steps import run_macro_tile
from fastmma.kernels.general.window import SPARE
from fastmma.kernels.macro_tiles import MacroTile, MacroTiles, OfWorkers, finish_empty
from fastmma.kernels.params import ROUNDINGS, Element, General

Codes = NDArray[Any]
Scales = tuple[Element, Codes, Codes]  # their format, and a code for every element of a and of b

_WINDOW = 62  # bits of a sum
_SIGNIFICAND = 31  # bits of an element
_PRODUCT_BITS = 24  # of any product of two elements
_EXACT = ROUNDINGS.index("exact")
_ROWS, _COLUMNS = 64, 512  # of a macro tile
_DEEPEST = 1 << 10  # k decoded at a time
_CODES = 1 << 22  # of an operand, decoded at a time
_TILE_PRODUCTS = 1 << 18  # of elements, of a thread at a time


def _exponent_bits(element: Element) -> int:
    """Places from the last bit of the smallest element to the first of the largest."""
    return element.highest_exponent - (1 - element.bias) + element.mantissa_bits + 1


def _in_words(p: General, a: Element, b: Element) -> bool:
    """Tell whether a group's exact sum is a word, of fixed-point elements."""
    widths = _exponent_bits(a), _exponent_bits(b)
    return p.group == 1 or (max(widths) <= _SIGNIFICAND and sum(widths) + p.group.bit_length() <= _WINDOW)


def _growth(p: General, a: Element, b: Element) -> int:
    """Bits of a step's sum above emax."""
    of_term = 2 + a.highest_exponent + b.highest_exponent + 2 if p.by_scales else 2
    return of_term + (p.terms + 1).bit_length() + p.group.bit_length()


def fits_window(p: General, a: Element, b: Element) -> bool:
    """Tell whether aligned terms and their sum are integers of 64 bits, with three bits to spare."""
    return bool(p.align_rounding != _EXACT and p.align_bits + _growth(p, a, b) <= _WINDOW - SPARE)


def _lines(element: Element, codes: Codes, scale: Element | None, scales: Codes | None, p: General, fixed: bool) -> DecodedLines:
    found = decoded(element, codes, fixed)
    return found if scale is None or scales is None else scaled(found, scale, scales, bool(p.by_scales))


def _based(element: Element, lines: DecodedLines, fixed: bool) -> tuple[DecodedLines, int, int]:
    """Lines whose elements all have a base, zeros any that others have; the lowest and the highest base."""
    bases = lines.bases if fixed else lines.exponents - np.int32(element.mantissa_bits)
    real = lines.significands != 0
    if not real.any():
        return lines._replace(bases=np.zeros_like(bases)), 0, 0
    lowest, highest = int(bases.min(where=real, initial=1 << 20)), int(bases.max(where=real, initial=-(1 << 20)))
    return lines._replace(bases=np.where(real, bases, np.int32(lowest))), lowest, highest


def multiply(
    p: General,
    a: Element,
    b: Element,
    x: Codes,
    y: Codes,
    c: Codes | None,
    out: Codes,
    threads: int,
    window: bool,
    scales: Scales | None = None,
) -> None:
    """Write the accumulation of ``x @ y`` onto `c` (None: +0) to `out`, for every product of a batch; in a `window` where it fits.

    `x` (T, M, K) and `y` (T, K, N) are codes of whole instructions, `c` and `out` (T, M, N) f32 or f16 bits; `out` may be `c`.
    """
    if finish_empty(x.shape[2], c, out):
        return
    at_once = max(1, _CODES // max(1, x[0].size, y[0].size, out[0].size))
    if len(x) > at_once:
        for first in range(0, len(x), at_once):
            part = slice(first, first + at_once)
            some = None if scales is None else (scales[0], scales[1][part], scales[2][part])
            multiply(p, a, b, x[part], y[part], None if c is None else c[part], out[part], threads, window, some)
        return
    fixed = bool(p.by_scales) or (window and p.group > 1 and _in_words(p, a, b))
    state = np.zeros(out.shape, np.uint32) if c is None else np.ascontiguousarray(c.astype(np.uint32))
    whole = p.unit * max(p.split, 1)
    deep = max(_DEEPEST // whole, 1) * whole
    how = p._replace(limbs=int(window and p.group > 1 and not fixed))
    offset = a.mantissa_bits + b.mantissa_bits
    if how.limbs or not window:
        offset = DEPTH - _growth(p, a, b)
        if not window and p.align_rounding != _EXACT:
            offset = min(offset, p.align_bits)  # terms are rounded there
    tiles, rows, columns = out.shape
    for start in range(0, x.shape[2], deep):
        part = slice(start, start + deep)
        scale, left_scales, right_scales = (None, None, None) if scales is None else (scales[0], scales[1][:, :, part], scales[2][:, part])
        left = _lines(a, x[:, :, part], scale, left_scales, p, fixed)
        right = _lines(b, y[:, part], scale, right_scales, p, fixed)
        reach = Reach(0, 0)
        if not window or how.limbs:
            left, *ends_a = _based(a, left, fixed)
            right, *ends_b = _based(b, right, fixed)
            lowest, highest = ends_a[0] + ends_b[0], ends_a[1] + ends_b[1] + _PRODUCT_BITS + p.unit.bit_length()
            reach = Reach((lowest - LOWEST) >> 5, ((highest - LOWEST) >> 5) + 1)
        special = bool((left.kinds != FINITE).any() or (right.kinds != FINITE).any())

        def work(macro_tile: MacroTile, _memory: None) -> None:
            run_macro_tile(how, left, right, offset, reach, special, window, (0, tiles), macro_tile[:2], macro_tile[2:], state)  # noqa: B023

        def work_tiles(first: int, last: int, _worker: int) -> None:
            run_macro_tile(how, left, right, offset, reach, special, window, (first, last), (0, rows), (0, columns), state)  # noqa: B023

        if tiles == 1:
            MacroTiles(rows, columns, _ROWS, _COLUMNS).run(threads, OfWorkers(lambda: None), work)
        else:
            parallel_for(work_tiles, tiles, threads, max(1, _TILE_PRODUCTS // (rows * columns * x.shape[2])))
    out[...] = state
