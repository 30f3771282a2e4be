"""Operands drawn together, so that their sums meet an edge of the arithmetic: every alignment, ties, carries, overflow, what vanishes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.isa.codes import encode
from fastmma.isa.formats import Format, format_of
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.verification.stream import Stream

Codes = NDArray[Any]
_NOTHING, _LARGE, _SMALL, _DUST = range(4)


@dataclass(frozen=True)
class Scene:
    """The relation of the terms of a sum to each other.

    Each k is one of: nothing (zero), large, small or dust. The products of a kind have one exponent in each element of d.

    Attributes
    ----------
    large : tuple of int
        Exponents of the large products, relative to the highest that the formats have; one is drawn for each warp.
    small, dust : str
        How far below the large ones: ``"ladder"``: another distance in every element of d; ``"half"``, ``"ulp"`` or ``"below"``: half a
        unit in the last place of the accumulator at the large exponent, a whole one, or less than half.
    c : str
        ``"zero"``, ``"ladder"``, ``"ones"`` (all fraction bits set, at the large exponent), ``"odd"`` (the last fraction bit set), or
        ``"largest"`` (the largest finite number).
    edges : bool
        Multiplicands are powers of two, so that products are as well; else their fractions are drawn.
    """

    large: tuple[int, ...]
    small: str
    dust: str
    c: str
    edges: bool


SCENES: dict[str, Scene] = {
    "ladder": Scene((-1, -4), "ladder", "ladder", "zero", edges=False),
    "ladder with c": Scene((-2, -9), "ladder", "below", "ladder", edges=False),
    "ladder of powers": Scene((0, -3), "ladder", "ladder", "ladder", edges=True),
    "tie": Scene((-3, -6), "half", "below", "odd", edges=True),
    "carry": Scene((-2, -5), "ulp", "half", "ones", edges=True),
    "vanishing": Scene((-200, -230, -255), "ladder", "ladder", "ladder", edges=False),
    "overflow edge": Scene((0, -1), "half", "below", "largest", edges=True),
}


def _lowest(fmt: Format) -> int:
    """Exponent of the smallest subnormal."""
    return fmt.emin - fmt.mantissa_bits


def _ladder(rows: int, columns: int, reach: tuple[int, int], stream: Stream, count: int) -> tuple[Codes, Codes]:
    """Distances (count, rows) and (count, columns) whose sums take as many values as the formats reach."""
    start = stream.integers(0, 1 << 16, (count, 2))
    down = (start[:, :1] + columns * np.arange(rows)) % (reach[0] + 1)
    across = (start[:, 1:] + np.arange(columns)) % (min(columns, reach[1]) + 1)
    return down, across


@lru_cache(64)
def _magnitudes(name: str) -> Codes:
    """Codes of the numbers ``(1 + fraction) * 2**exponent``, for every exponent from the smallest subnormal's and every fraction."""
    fmt = format_of(name)
    exponents = np.arange(_lowest(fmt), fmt.emax + (fmt.first_special % (1 << fmt.mantissa_bits) == 0))  # of binades without a NaN
    fractions = np.arange(1 << fmt.mantissa_bits) / (1 << fmt.mantissa_bits)
    return encode(np.ldexp(1.0 + fractions, exponents[:, None]), fmt, saturate=True).ravel()


def _codes(exponents: Codes, present: NDArray[np.bool_], fmt: Format, edges: bool, stream: Stream) -> Codes:
    """Numbers with these exponents, as far as the format has them, of both signs; zeros of both signs where none is present."""
    size, table = exponents.shape, _magnitudes(fmt.name)
    index = np.clip(exponents - np.int32(_lowest(fmt)), 0, (len(table) >> fmt.mantissa_bits) - 1) << np.int32(fmt.mantissa_bits)
    if not edges:
        index |= stream.integers(0, 1 << fmt.mantissa_bits, size, np.int32)
    sign = stream.integers(0, 2, size, fmt.code_dtype) << fmt.code_dtype.type(fmt.exponent_bits + fmt.mantissa_bits + fmt.padding)
    return np.asarray(table[index] * present | sign)


def _distance(kind: str, fraction_bits: int, stream: Stream, count: int) -> NDArray[np.int64]:
    if kind == "ladder":
        return np.zeros(count, np.int64)
    extra = {"half": 1, "ulp": 0, "below": 2}[kind]
    return np.full(count, fraction_bits + extra) + (stream.integers(0, 4, count) if kind == "below" else 0)


def _accumulators(scene: Scene, fmt: Format, large: Codes, shape: tuple[int, int], stream: Stream) -> Codes:
    count = len(large)
    sign = stream.integers(0, 2, (count, *shape)).astype(np.uint64) << np.uint64(fmt.bits - 1)
    if scene.c == "zero":
        return sign.astype(fmt.code_dtype)
    if scene.c == "largest":
        magnitude = fmt.first_special - 1 - stream.integers(0, 3, sign.shape)
        return np.asarray((sign | magnitude.astype(np.uint64)).astype(fmt.code_dtype))
    exponent = np.broadcast_to(large[:, None, None], sign.shape)
    if scene.c == "ladder":
        exponent = exponent + stream.integers(-40, 30, sign.shape)
    field = np.clip(exponent + fmt.bias, 0, fmt.emax + fmt.bias).astype(np.uint64) << np.uint64(fmt.mantissa_bits)
    drawn = stream.bits(sign.size).reshape(sign.shape) & np.uint64((1 << fmt.mantissa_bits) - 1)
    fraction = {"ladder": drawn, "odd": drawn | np.uint64(1), "ones": np.full_like(drawn, (1 << fmt.mantissa_bits) - 1)}[scene.c]
    return np.asarray((sign | field | fraction).astype(fmt.code_dtype))


def matrices(ins: Instruction, name: str, count: int, stream: Stream) -> dict[str, Codes]:
    """Codes of a (count, m, stored k), b (count, k, n) and c (count, m, n) of an instruction on floats.

    Examples
    --------
    >>> from fastmma.isa.table import multiply
    >>> ins = multiply("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> {operand: codes.shape for operand, codes in matrices(ins, "tie", 3, Stream(0)).items()}
    {'a': (3, 16, 16), 'b': (3, 16, 8), 'c': (3, 16, 8)}
    """
    scene = SCENES[name]
    afmt, bfmt, cfmt = ins.formats[:3]
    chunk, stored = (pattern_of(ins).chunk, pattern_of(ins).stored) if ins.sparse else (1, 1)
    top = afmt.emax + bfmt.emax - 2
    floor = _lowest(afmt) + _lowest(bfmt)
    large = np.maximum(top + stream.choice(np.array(scene.large), count), floor)
    # the share of a: half of the exponent, within its range
    share = np.clip(large // 2, _lowest(afmt) // 2, afmt.emax - 1)
    kinds = stream.choice(np.array([_NOTHING, _LARGE, _SMALL, _DUST, _SMALL]), (count, ins.k // chunk))
    ea = np.empty((count, ins.m, ins.k // chunk), np.int32)
    eb = np.empty((count, ins.k // chunk, ins.n), np.int32)
    ea[...] = share[:, None, None]
    eb[...] = (large - share)[:, None, None]
    fraction_bits = ins.formats.sums.mantissa_bits
    for kind, rule in ((_SMALL, scene.small), (_DUST, scene.dust)):
        distance = _distance(rule, fraction_bits, stream, count)
        down, across = np.repeat((distance // 2)[:, None], ins.m, 1), np.repeat((distance - distance // 2)[:, None], ins.n, 1)
        if rule == "ladder":
            reach = tuple(max(1, fmt.emax - _lowest(fmt) - 2) for fmt in (afmt, bfmt))
            down, across = _ladder(ins.m, ins.n, (reach[0], reach[1]), stream, count)
        chosen = kinds == kind
        ea -= chosen[:, None, :] * down.astype(np.int32)[:, :, None]
        eb -= chosen[:, :, None] * across.astype(np.int32)[:, None, :]
    present = kinds != _NOTHING
    a_present, b_present = np.repeat(present, stored, axis=1)[:, None, :], np.repeat(present, chunk, axis=1)[:, :, None]
    return {
        "a": _codes(np.repeat(ea, stored, axis=2), a_present, afmt, scene.edges, stream),
        "b": _codes(np.repeat(eb, chunk, axis=1), b_present, bfmt, scene.edges, stream),
        "c": _accumulators(scene, cfmt, large, (ins.m, ins.n), stream),
    }
