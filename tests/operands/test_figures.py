"""Figures of layouts: all operands on one page, names of registers, what repeats, and the formats that pictures come in."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from fastmma.cli import main
from fastmma.isa.table import instruction, instructions
from fastmma.operands.pictures.grid import Grid
from fastmma.operands.pictures.painting import on_paper
from fastmma.operands.pictures.view import Placement
from fastmma.operands.placement import operand_names, placement

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
QUADS = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
SCALED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
BITS = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"
WGMMA = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"
F64 = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
WGMMA_BITS = "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc"
TCGEN05 = "tcgen05.mma.cta_group::1.kind::f16 idesc=0x08400010"
TCGEN05_64 = "tcgen05.mma.cta_group::1.kind::f16 idesc=0x04400010"
_SVG = "{http://www.w3.org/2000/svg}"


def _boxes(grid: Grid) -> list[tuple[str, tuple[int, ...]]]:
    return [(box.tail, tuple(cell.element for cell in box.cells)) for row in grid.boxes for box in row if box is not None]


def _cell_of(name: str, held: Placement) -> tuple[int, range]:
    """The register and the bits that a name like %a1.h0..1 stands for."""
    matched = re.fullmatch(r"(?:%[a-z]+|\+)(\d+)(?:\.\.\d+)?(?:\.([hbnp])(\d+)(?:\.\.(\d+))?)?", name)
    assert matched, name
    register, part, first, last = matched.groups()
    width = {"h": 16, "b": 8, "n": 4, "p": 1, None: held.layout.register_bits}[part]
    return int(register), range(int(first or 0) * width, (int(last or first or 0) + 1) * width)


@pytest.mark.parametrize("opcode", [F16, QUADS, SCALED, BITS, WGMMA, WGMMA_BITS, TCGEN05, TCGEN05_64, "ldmatrix.sync.aligned.m8n8.x4.b16"])
def test_a_block_and_its_repeats_are_the_whole_layout(opcode: str) -> None:
    """Every element is where the block that is drawn, the names in it and the repeats say."""
    for name in operand_names(instruction(opcode)):
        held = placement(opcode, name)
        grids = held.matrices(names="registers", repeats=True)
        seen = np.zeros((held.layout.tiles, *held.layout.shape), dtype=int)
        for grid in grids:
            assert max(len(grid.rows), len(grid.cols)) <= 32
            moves = {each.axis: each for each in grid.repeats}
            assert all(each.count > 1 for each in moves.values())
            axes = [moves.get(axis) for axis in ("computations", "matrices", "rows", "columns")]
            for copy in np.ndindex(*(each.count if each else 1 for each in axes)):
                steps = [(place * (each.size if each else 0), place, each) for place, each in zip(copy, axes, strict=True)]
                tile, row, col = steps[0][0] + steps[1][0], steps[2][0], steps[3][0]
                lanes = sum(place * each.lanes for _, place, each in steps if each)
                registers = sum(place * each.registers for _, place, each in steps if each)
                for box in (box for boxes in grid.boxes for box in boxes if box is not None):
                    register, bits = _cell_of(box.tail, held)
                    covered = set()
                    for cell in box.cells:
                        place = cell.computation + tile, cell.row + row, cell.col + col
                        found = held.at(place[1], place[2], place[0])
                        assert (found.lane, found.register) == (int(box.head[1:]) + lanes, register + registers)
                        covered |= {*range(found.bit, found.bit + found.bits)}
                        seen[place] += 1
                    assert covered == set(bits)
        assert (seen == 1).all()


def test_every_layout_can_be_drawn_in_blocks() -> None:
    """No block of any instruction is larger than 32 x 32 boxes."""
    layouts = {(held.layout, held.name): held for ins in instructions() for held in (placement(ins, name) for name in operand_names(ins))}
    for held in layouts.values():
        for grid in held.matrices(names="registers", repeats=True):
            assert len(grid.rows) <= 32, held
            assert len(grid.cols) <= 32, held


def test_names_of_parts() -> None:
    parts = {
        (F16, "a", "elements"): ("a0", (0,)),
        (F16, "a", "registers"): ("%a0", (0, 1)),
        (QUADS, "c", "registers"): ("%c0", (0,)),
        (SCALED, "scale_a", "registers"): ("%sa0", (0, 1, 2, 3)),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "metadata", "registers"): ("%e0.n0..3", (0, 1, 2, 3)),
        (TCGEN05, "a", "registers"): ("+0", (0, 1)),
    }
    for (opcode, name, names), first in parts.items():
        assert _boxes(placement(opcode, name).matrices(names=names, repeats=True)[0])[0] == first
    byte = placement("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0", "scale_b", byte_id=2)
    assert _boxes(byte.matrices(names="registers")[0])[0] == ("%sb0.b2", (0,))
    transposed = placement("wmma.load.a.sync.aligned.col.m16n16k16.f16", "r").matrices(names="registers")[0]
    assert _boxes(transposed)[0][0].startswith("%r0")


def test_operands_stand_as_on_paper() -> None:
    assert on_paper(["a", "b", "c", "d", "metadata"]) == [[None, "c", "b"], ["metadata", "a", "d"]]
    assert on_paper(["a", "b", "d", "scale_a", "scale_b"]) == [[None, None, "scale_b"], [None, None, "b"], ["scale_a", "a", "d"]]
    assert on_paper(["a", "d"]) == [["a", "d"]]
    assert on_paper(["r"]) == [["r"]]
    for ins in instructions():
        names = [name for row in on_paper(operand_names(ins)) for name in row if name is not None]
        assert sorted(names) == sorted(operand_names(ins))


def test_all_operands_are_one_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", "mma.m16n8k16.f32.f16", "--operand", "all", "--lane", "5", "--format", "svg"]) == 0
    root = ET.fromstring(capsys.readouterr().out)
    texts = [element.text or "" for element in root.iter(f"{_SVG}text")]
    assert {F16, "CuTe     SM80_16x8x16_F32F16F16F32_TN", "a, 16 x 16", "b, 16 x 8", "c and d, 16 x 8", "%a3", "%b1", "%d3"} <= set(texts)
    lit = [rect for rect in root.iter(f"{_SVG}rect") if "stroke" in rect.attrib]
    assert len(lit) == 4 + 2 + 4  # the registers of lane 5
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert 500 < width < 1000
    assert all(float(rect.attrib["y"]) + float(rect.attrib["height"]) <= height for rect in [*root.iter(f"{_SVG}rect")][1:])
    assert main(["layout", F16, "--operand", "all"]) == 0
    shown = capsys.readouterr().out
    assert [line.partition(":")[0] for line in shown.splitlines() if "registers in each" in line] == ["a", "b", "c and d"]


@pytest.mark.parametrize("arguments", [["--element", "1,2"], ["--register", "1"], ["--selector", "1"], ["--format", "pdf"]])
def test_what_all_operands_do_not_take(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", F16, "--operand", "all", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_tikz_compiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every colour is defined, every brace closed, no character is left to TeX; LaTeX says so itself where it is installed."""
    file = tmp_path / "figure.tex"
    assert main(["layout", F64, "--operand", "all", "--lane", "5", "--output", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert main(["layout", F64, "--operand", "all", "--lane", "5", "--format", "tikz"]) == 0
    assert capsys.readouterr().out == text
    assert set(re.findall(r"fill=(c\w+)|text=(c\w+)|draw=(c\w+)", text)) <= {
        triple for name in re.findall(r"\\definecolor\{(c\w+)\}", text) for triple in ((name, "", ""), ("", name, ""), ("", "", name))
    }
    plain = re.sub(r"\\[%_{}#&]", "", text)
    assert plain.count("{") == plain.count("}")
    bodies = "".join(re.findall(r"\) \{(.*)\};$", text, re.MULTILINE))
    assert r"\%d0" in bodies
    assert r"SM80\_8x8x4\_F64F64F64F64\_TN" in bodies
    assert not re.search(r"(?<!\\)[%#&_]", bodies)
    latex = shutil.which("pdflatex")
    if latex is not None:
        document = r"\documentclass{article}\usepackage{tikz}\begin{document}\resizebox{\linewidth}{!}{\input{figure}}\end{document}"
        (tmp_path / "page.tex").write_text(document)
        command = [latex, "-interaction=nonstopmode", "-halt-on-error", "page"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]


def test_pictures_for_print(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for suffix in ("png", "pdf"):
        assert main(["layout", F64, "--operand", "all", "--output", str(tmp_path / f"a.{suffix}")]) == 0
    png, pdf = (tmp_path / "a.png").read_bytes(), (tmp_path / "a.pdf").read_bytes()
    width = int.from_bytes(png[16:20])
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", pdf)
    assert abs(float(box[1]) / 72 * 300 - width) <= 1  # as large in print
    assert re.search(rb"pHYs(.{4})", png, re.DOTALL)[1] == (11811).to_bytes(4)  # dots a metre: 300 an inch
    assert b"CreationDate" not in pdf
