"""AMD's instructions: layouts against the formulas of the ISA documents, and against AMD's calculator where its folder is named."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import math
import os
import re
import sys
import types
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmma
from fastmma import Instruction, InstructionError, TargetError
from fastmma.isa.amd.table import every
from fastmma.operands.placement import placement

CDNA = [ins for ins in every() if ins.op in ("v_mfma", "v_smfmac") and "f8f6f4" not in ins.opcode]
_CALCULATOR = os.environ.get("FASTMMA_AMD_CALCULATOR")


def named(ins: Instruction) -> str:
    return ins.opcode.replace(" ", "-")


def held(ins: Instruction, name: str) -> dict[tuple[int, int, int], set[tuple[int, int, int]]]:
    """Of each row, column and block: lanes, registers and lowest bits."""
    found: dict[tuple[int, int, int], set[tuple[int, int, int]]] = {}
    for cell in placement(ins, name).cells():
        found.setdefault((cell.row, cell.col, cell.computation), set()).add((cell.lane, cell.register, cell.bit))
    return found


def place_of_input(rows: int, k: int, blocks: int, bits: int, i: int, at: int, block: int) -> tuple[int, int, int]:
    """CDNA3 ISA, Dense Matrix Multiplication: K_L = K / (64 / (M B)); item = k % K_L; lane = i + M (b + B (k / K_L))."""
    held_k = k // (64 // (rows * blocks))
    item, lane = at % held_k, i + rows * (block + blocks * (at // held_k))
    wide = max(32, bits)
    return lane, item * bits // wide, item * bits % wide


def place_of_output(m: int, n: int, bits: int, i: int, j: int, b: int) -> tuple[int, int, int]:
    """The same section: H rows of an item each, B_I blocks side by side, M_I groups of H rows in a register, G such registers."""
    h = 1 if bits == 64 else 4
    b_i = math.ceil(64 / (n * m / h))
    m_i = (64 // b_i) // n
    g = m // (h * m_i)
    lane = j + n * (b % b_i) + n * b_i * (i // h % m_i)
    return lane, i % h + h * (i // (h * m_i) % g) + h * g * (b // b_i), 0


@pytest.mark.parametrize("ins", CDNA, ids=named)
def test_operands_of_cdna_lie_as_the_documents_say(ins: Instruction) -> None:
    a, b, c, d = (held(ins, name) for name in "abcd")
    assert ins.operands["a"].layout.lanes == ins.lanes == 64
    for (i, k, block), places in a.items():
        assert places == {place_of_input(ins.m, ins.stored_k, ins.blocks, ins.formats.a.bits, i, k, block)}
    for (k, j, block), places in b.items():
        assert places == {place_of_input(ins.n, ins.k, ins.blocks, ins.formats.b.bits, j, k, block)}
    for (i, j, block), places in d.items():
        assert places == {place_of_output(ins.m, ins.n, ins.formats.d.bits, i, j, block)}
    assert c == d
    assert len(d) == ins.m * ins.n * ins.blocks


def test_operands_of_bytes_are_two_runs_of_sixteen() -> None:
    """AMD's post on matrix cores of CDNA3 and CDNA4 loads 8-bit operands so, and 4-bit ones as 32 neighbours."""
    a = fastmma.instruction("v_mfma_scale_f32_32x32x64_f8f6f4")
    assert isinstance(a, Instruction)
    for (i, k, _), places in held(a, "a").items():
        assert places == {(i + 32 * (k % 32 // 16), k // 32 * 4 + k % 16 // 4, k % 4 * 8)}
    for (i, k, _), places in held(fastmma.instruction("v_mfma_f32_16x16x128_f8f6f4 cbsz:4 blgp:4"), "a").items():
        assert places == {(i + 16 * (k // 32), k % 32 // 8, k % 8 * 4)}
    for (i, block, _), places in held(a, "scale_a").items():
        assert places == {(i + 32 * block, 0, 0)}


def test_names() -> None:
    whole = fastmma.instruction("v_mfma_f32_32x32x8_f16")
    assert fastmma.instruction("v_mfma_f32_32x32x8f16") is whole
    assert fastmma.instruction(" v_mfma_f32_32x32x4bf16_1k;").opcode == "v_mfma_f32_32x32x4_2b_bf16"
    first = fastmma.instruction("v_mfma_f32_32x32x4bf16")
    assert isinstance(first, Instruction)
    assert isinstance(whole, Instruction)
    assert (first.blocks, first.k, first.targets) == (1, 4, ("gfx908", "gfx90a"))
    assert whole.targets == ("gfx908", "gfx90a", "gfx942", "gfx950")
    with pytest.raises(InstructionError, match="The nearest are v_mfma_f32_32x32x8_f16"):
        fastmma.instruction("v_mfma_f32_32x32x8_f17")
    with pytest.raises(TargetError, match="illegal on gfx90a; it needs one of gfx942"):
        fastmma.arithmetic("v_mfma_f32_16x16x32_fp8_fp8", "MI250X")
    assert len({ins.opcode for ins in every()}) == len(every())
    listed = fastmma.instructions("MI300X")
    assert len(listed) == 46
    assert whole in listed
    assert not any(ins in fastmma.instructions() for ins in every())


def calculator() -> Any:
    """AMD's matrix_calculator.py, which prints tables by a package that need not be installed."""
    assert _CALCULATOR is not None
    stand_in = types.ModuleType("tabulate")
    stand_in.tabulate = lambda rows, **_: "\n".join("\t".join(row) for row in rows)  # type: ignore[attr-defined]
    sys.modules.setdefault("tabulate", stand_in)
    spec = importlib.util.spec_from_file_location("matrix_calculator", Path(_CALCULATOR) / "matrix_calculator.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_CELL = re.compile(r"v(?:\[\d+:(?P<pair>\d+)\]|(?P<one>\d+))\{(?P<lane>\d+)\}(?:\.\[\d+:(?P<bit>\d+)\])?")
_GENERATIONS = {"cdna1": "gfx908", "cdna2": "gfx90a", "cdna3": "gfx942", "rdna3": "gfx1100", "rdna4": "gfx1200"}


def table_of(calculated: Any, matrix: str) -> list[list[list[set[tuple[int, int, int]]]]]:
    """Its table of where a matrix lies: blocks, rows and columns."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        calculated.calculate_register_layout(matrix, "csv", defaultdict(bool), 0, 0, 0, 0, False)
    blocks: list[list[list[set[tuple[int, int, int]]]]] = []
    for line in printed.getvalue().splitlines():
        first, *cells = line.split(",")
        if "[" in first and cells and "{" not in cells[0]:
            blocks.append([])
        elif first.isdigit():
            found = [[match.groupdict() for match in _CELL.finditer(cell)] for cell in cells]
            rows = [{(int(e["lane"]), int(e["one"] or int(e["pair"] or 0) // 2), int(e["bit"] or 0)) for e in cell} for cell in found]
            blocks[-1].append(rows)
    return blocks


@pytest.mark.skipif(_CALCULATOR is None, reason="FASTMMA_AMD_CALCULATOR names no folder of amd_matrix_instruction_calculator")
def test_layouts_are_those_of_the_calculator() -> None:
    module = calculator()
    kinds = {"cdna": module.InstCalcGfx9, "rdna3": module.InstCalcGfx11, "rdna4": module.InstCalcGfx12}
    compared = 0
    for generation, rows in module.dict_insts.items():
        target, lanes = _GENERATIONS[generation], 64 if generation.startswith("cdna") else 32
        for opcode, row in rows.items():
            ins = fastmma.isa.amd.table.namesake(fastmma.instruction(opcode), target)  # type: ignore[attr-defined]
            assert target in ins.targets
            calculated = kinds.get(generation, kinds["cdna"])(opcode, row, lanes)
            for name in ("a", "b", "d", *(("metadata",) if ins.sparse else ())):
                ours, theirs = held(ins, name), np.array(table_of(calculated, {"metadata": "k"}.get(name, name)))
                per = {"metadata": 4}.get(name, ins.k // ins.stored_k if name == "a" else 1)
                for (i, j, block), places in ours.items():
                    whole = theirs[block, i, j * per]
                    if name == "a" and ins.sparse:  # it does not tell the two stored elements of four apart
                        bits = 2 * ins.formats.a.bits
                        places = {(lane, register, bit // bits * bits) for lane, register, bit in places}
                    assert places == whole, (opcode, name, i, j, block, places, whole)
                compared += len(ours)
    assert compared > 80_000


def offset_of(layout: Any, lane: int, item: int) -> int:
    """Where tensor-layouts has an item of a lane; its modes are read as its documentation does: lanes of a block first."""
    (_, lanes), (of_block, of_lane) = layout.shape[0], layout.stride[0]
    rows, of_row = layout.shape[1], layout.stride[1]
    (_, rows), (of_group, of_row) = (rows, of_row) if isinstance(rows, tuple) else ((1, rows), (0, of_row))
    return int(lane % lanes * of_lane + lane // lanes * of_block + item % rows * of_row + item // rows * of_group)


def agrees(ins: Instruction, name: str, layout: Any, rows: int, lanes: int) -> bool:
    """Whether the items of an operand's first block in the first lanes are tensor-layouts's; it has 16 blocks as more columns."""
    operand = ins.operands[name]
    items = max(1, 8 * operand.layout.register_dtype.itemsize // operand.format.bits)
    for (i, j, block), places in held(ins, name).items():
        row, column = (j + block * ins.n, i) if name == "b" else (i, j + block * ins.n)
        for lane, register, bit in places:
            item = register * items + bit // operand.format.bits
            if lane < lanes and (block == 0 or ins.blocks == 16) and offset_of(layout, lane, item) != row + column * rows:
                return False
    return True


def test_operands_lie_as_tensor_layouts_says() -> None:
    """Results of all its instructions; A and B of bytes and less for WMMA, and for MFMA those in the lanes of the first k.

    It gives all other lanes the same k, and lanes of WMMA 16-bit elements without gaps, which neither AMD's documents nor its calculator
    do. Its WMMA of RDNA3 lies as that of RDNA4; AMD's documents do not have the longer ones.
    """
    atoms_amd = pytest.importorskip("tensor_layouts.atoms_amd", reason="tensor-layouts is not installed")
    atoms = {atom.ptx: atom for name, atom in vars(atoms_amd).items() if name.endswith(("_MFMA", "_WMMA"))}
    compared, absent = defaultdict[str, int](int), 0
    for opcode, atom in atoms.items():
        try:
            ins = fastmma.instruction(opcode)
        except InstructionError:
            absent += 1
            continue
        assert isinstance(ins, Instruction)
        if ins.op == "v_wmma":
            ins = fastmma.isa.amd.table.namesake(ins, "gfx1200")  # type: ignore[attr-defined]
        m, n, _ = atom.shape_mnk
        assert agrees(ins, "d", atom.c_layout, m, 64), opcode
        if ins.op == "v_mfma" or ins.formats.a.bits <= 8:
            for name, layout, rows in (("a", atom.a_layout, m), ("b", atom.b_layout, n)):
                assert agrees(ins, name, layout, rows, rows if ins.op == "v_mfma" else ins.lanes), (opcode, name)
        compared[ins.op] += 1
    assert (dict(compared), absent) == ({"v_mfma": 32, "v_wmma": 6}, 8)
