"""Layouts of AMD's matrix instructions over the lanes of a wave, as the ISA documents of CDNA and RDNA have them.

A lane of CDNA holds neighbours along k of one row of A, or column of B; groups of lanes follow each other along k, or take one block each.
C and D lie in groups of four rows (one with f64). Waves have 64 lanes on CDNA, and 32 on RDNA.
"""

from __future__ import annotations

from typing import Any

from fastmma.isa.layout import Layout, Mode

WAVE64, WAVE32 = 64, 32
_SCALED_BLOCK = 32  # k that share a scale
_BYTES = 16  # k of an 8-bit operand of f8f6f4 that a lane holds side by side


def _modes(*modes: Mode) -> tuple[Mode, ...]:
    return tuple(mode for mode in modes if mode.size > 1)


def _turned(layout: Layout) -> Layout:
    """B is laid out as A of the transposed product."""
    lane, element = (tuple(Mode(mode.size, mode.col, mode.row, mode.tile) for mode in modes) for modes in (layout.lane, layout.element))
    return Layout(layout.shape[::-1], lane, element, layout.bits, layout.tiles)


def _input(rows: int, k: int, bits: int, blocks: int = 1) -> Layout:
    """A: lanes down the rows of each block, then along k."""
    groups = WAVE64 // (rows * blocks)
    held = k // groups
    lane = _modes(Mode(rows, 1, 0), Mode(blocks, 0, 0, 1), Mode(groups, 0, held))
    return Layout((rows, k), lane, _modes(Mode(held, 0, 1)), bits, blocks)


def _input_of_mixed_widths(rows: int, k: int, bits: int) -> Layout:
    """A of f8f6f4: 32 neighbours along k, or twice 16 where elements are bytes."""
    if bits != 8:
        return _input(rows, k, bits)
    groups = WAVE64 // rows
    element = _modes(Mode(_BYTES, 0, 1), Mode(k // (groups * _BYTES), 0, groups * _BYTES))
    return Layout((rows, k), _modes(Mode(rows, 1, 0), Mode(groups, 0, _BYTES)), element, bits)


def _output(m: int, n: int, bits: int, blocks: int) -> Layout:
    """C and D: columns along lanes, and rows in groups of `height` registers, which blocks and further lanes hold in turns."""
    height = 1 if bits == 64 else 4
    side = min(blocks, max(1, WAVE64 * height // (m * n)))  # blocks that lie side by side in lanes
    groups = WAVE64 // (n * side)
    lane = _modes(Mode(n, 0, 1), Mode(side, 0, 0, 1), Mode(groups, height, 0))
    element = _modes(Mode(height, 1, 0), Mode(m // (height * groups), height * groups, 0), Mode(blocks // side, 0, 0, side))
    return Layout((m, n), lane, element, bits, blocks)


def _accumulators(ins: Any, blocks: int) -> dict[str, Layout]:
    return {name: _output(ins.m, ins.n, getattr(ins.formats, name).bits, blocks) for name in "cd"}


def mfma(ins: Any) -> dict[str, Layout]:
    """Dense products of CDNA, several blocks at once where the instruction has them."""
    a, b = ins.formats.a.bits, ins.formats.b.bits
    found = {"a": _input(ins.m, ins.k, a, ins.blocks), "b": _turned(_input(ins.n, ins.k, b, ins.blocks))}
    return found | _accumulators(ins, ins.blocks)


def smfmac(ins: Any) -> dict[str, Layout]:
    """Products of CDNA with sparse A: as dense ones, A with the k that are stored, and its indices in the lanes that hold it."""
    a = _input(ins.m, ins.stored_k, ins.formats.a.bits)
    words = Layout((ins.m, ins.k // 4), a.lane[:1] + _modes(Mode(a.lane[1].size, 0, a.lane[1].col // 2)), _words(a), 4)
    b = _turned(_input(ins.n, ins.k, ins.formats.b.bits))
    return {"a": a, "b": b, **_accumulators(ins, 1), "metadata": words}


def _words(a: Layout) -> tuple[Mode, ...]:
    """The 4-bit words of a lane: one for two stored elements."""
    return _modes(Mode(a.elements // 2, 0, 1))


def mixed(ins: Any) -> dict[str, Layout]:
    """Products of CDNA4 whose operands have elements of 8, 6 or 4 bits, and a scale for 32 of them where they are scaled."""
    a = _input_of_mixed_widths(ins.m, ins.k, ins.formats.a.bits)
    b = _turned(_input_of_mixed_widths(ins.n, ins.k, ins.formats.b.bits))
    found = {"a": a, "b": b, **_accumulators(ins, 1)}
    if ins.stype:
        scales = {"scale_a": ins.m, "scale_b": ins.n}
        lines = {name: _input(rows, ins.k // _SCALED_BLOCK, 8) for name, rows in scales.items()}
        found |= {"scale_a": lines["scale_a"], "scale_b": _turned(lines["scale_b"])}
    return found


def wmma_of_rdna3(ins: Any) -> dict[str, Layout]:
    """Products of gfx11: both halves of a wave hold A and B whole; rows of C and D alternate between them, one a register."""
    lane, copies = Mode(16, 1, 0), Mode(2, 0, 0)
    multiplicands = {name: Layout((16, ins.k), (lane, copies), (Mode(ins.k, 0, 1),), getattr(ins.formats, name).bits) for name in "ab"}
    rows = Layout((16, 16), (Mode(16, 0, 1), Mode(2, 1, 0)), (Mode(8, 2, 0),), 32)
    return {"a": multiplicands["a"], "b": _turned(multiplicands["b"]), "c": rows, "d": rows}


def _halves(rows: int, columns: int, bits: int, *, wide: bool) -> Layout:
    """A of gfx12, or its indices: halves of a wave share the columns, and take turns twice where elements have 16 bits."""
    runs = 2 if wide else 1
    held = columns // (2 * runs)
    element = _modes(Mode(held, 0, 1), Mode(runs, 0, 2 * held))
    return Layout((rows, columns), (Mode(rows, 1, 0), Mode(2, 0, held)), element, bits)


def wmma_of_rdna4(ins: Any) -> dict[str, Layout]:
    """Products of gfx12, dense and sparse: halves of a wave share k, and hold eight rows of C and D each."""
    wide = ins.formats.a.bits == 16
    found = {
        "a": _halves(16, ins.stored_k, ins.formats.a.bits, wide=wide),
        "b": _turned(_halves(16, ins.k, ins.formats.b.bits, wide=wide)),
    }
    for name in "cd":
        found[name] = Layout((16, 16), (Mode(16, 0, 1), Mode(2, 8, 0)), (Mode(8, 1, 0),), getattr(ins.formats, name).bits)
    return found | ({"metadata": _halves(16, ins.k // 4, 4, wide=wide)} if ins.sparse else {})
