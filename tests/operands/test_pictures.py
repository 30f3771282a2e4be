"""The layout tool: formulas, lookups, grids, pictures and traces, of every instruction with register operands."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmma
from fastmma import warp
from fastmma.cli import main
from fastmma.isa.scales import scale_lanes
from fastmma.isa.sparsity import selectors
from fastmma.isa.table import multiplications, multiply
from fastmma.operands.pictures.colours import lane_colour
from fastmma.operands.pictures.painting import draw
from fastmma.operands.pictures.view import Placement
from fastmma.operands.placement import operand_names, placement, selections
from fastmma.operands.scales import pack_scales
from fastmma.operands.sparse import pack_metadata
from fastmma.operands.trace import trace

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
QUADS = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SCALED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
WGMMA = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"
WGMMA_SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16"


@cache
def _distinct() -> list[Placement]:
    """Every way in which an operand of any instruction is held, once."""
    found = {}
    for ins in fastmma.instructions():
        for name in operand_names(ins):
            for choice in selections(ins, name):
                held = placement(ins, name, **choice)
                found.setdefault((held.layout, held.digits, held.base, held.first_bit, held.tile), held)
    return list(found.values())


def _evaluate(text: str, **values: Any) -> Any:
    """A C expression of non-negative integers."""
    assert re.fullmatch(r"[\w %*/+()&>=]+", text)
    return eval(text.replace("/", "//"), {"__builtins__": {}}, values)


def test_formulas() -> None:
    """Forward and inverse, for every lane and element of every layout there is."""
    kinds = _distinct()
    assert len(kinds) > 100
    for held in kinds:
        layout = held.layout
        index, i = np.indices((layout.lanes, layout.elements))
        lane = held.lanes[index]
        found = held.formulas()
        row, col = _evaluate(found["row"], lane=lane, i=i), _evaluate(found["col"], lane=lane, i=i)
        tile = _evaluate(found.get(held.tile, "0"), lane=lane, i=i)
        np.testing.assert_array_equal(np.broadcast_to(row, lane.shape), layout.rows)
        np.testing.assert_array_equal(np.broadcast_to(col, lane.shape), layout.cols)
        np.testing.assert_array_equal(np.broadcast_to(tile, lane.shape), layout.tile)
        where = {"row": layout.rows, "col": layout.cols, held.tile: layout.tile}
        first = np.broadcast_to(_evaluate(found.get("copy", "0"), i=i), lane.shape) == 0
        assert (_evaluate(found["lane"], **where) == lane).all()
        assert ((_evaluate(found["element"], **where) == i) | ~first).all()
        cells = held.cells()
        assert [cell.bit for cell in cells] == np.broadcast_to(_evaluate(found["bit"], i=i), lane.shape).ravel().tolist()
        assert [cell.register for cell in cells] == np.broadcast_to(_evaluate(found["register"], i=i), lane.shape).ravel().tolist()
        words = held.formulas("ptx")
        parts = {"i": i, "groupID": lane % 32 >> 2, "threadID_in_group": lane % 4, "warp": lane // 32}
        assert ("warp" in words) == (held.lanes[-1] >= 32)
        for name, expected in where.items():
            if name in words:
                assert (_evaluate(words[name], **parts) == expected).all()
        if "holds" in found:
            lanes = np.arange(-(-int(held.lanes[-1] + 1) // 32) * 32)
            holders = np.flatnonzero(_evaluate(found["holds"], lane=lanes))
            assert holders.tolist() == held.lanes.tolist()


def test_formulas_read_as_in_ptx() -> None:
    held = placement(F16, "a")
    assert held.formulas("ptx") == {
        "groupID": "%laneid >> 2",
        "threadID_in_group": "%laneid % 4",
        "row": "groupID + ((i & 0x2) * 4)",
        "col": "(threadID_in_group * 2) + (i & 0x1) + ((i >> 2) * 8)",
    }
    with pytest.raises(fastmma.FastmmaError, match="dialect"):
        held.formulas("fortran")


def test_lookups_agree() -> None:
    for held in _distinct():
        if held.layout.lanes * held.layout.elements > 2048:
            continue
        cells = held.cells()
        assert [cell for lane in held.lanes for cell in held.of_lane(int(lane))] == cells
        assert sorted(cell for register in range(held.registers) for cell in held.of_register(register)) == sorted(cells)
        assert all(cell in held.copies_of(cell.row, cell.col, cell.computation) for cell in cells)
        assert all(held.at(*cell[:3])[:3] == cell[:3] for cell in cells)


@pytest.mark.parametrize(("opcode", "name", "row", "col"), [(F16, "a", 9, 11), (F16, "b", 13, 5), (F16, "d", 12, 3), (SPARSE, "a", 3, 14)])
def test_bits_are_those_that_registers_have(opcode: str, name: str, row: int, col: int) -> None:
    operand = multiply(opcode).operands[name]
    registers = np.zeros((32, operand.registers), dtype=np.uint32)
    cell = placement(opcode, name).at(row, col)
    registers[cell.lane, cell.register] = np.uint32(1) << np.uint32(cell.bit)
    assert np.argwhere(fastmma.gather(registers, operand)).tolist() == [[row, col]]


@pytest.mark.parametrize("opcode", [SPARSE, SPARSE.replace("m16n8k32", "m16n8k16"), WGMMA_SPARSE])
def test_metadata_lies_where_it_is_packed(opcode: str) -> None:
    for selector in selectors(multiply(opcode)):
        held = placement(opcode, "metadata", selector=selector)
        for cell in held.cells():
            words = np.full(held.layout.shape, 0b0100, dtype=np.uint8)
            base = pack_metadata(opcode, words, selector=selector)
            words[cell.row, cell.col] = 0b1110
            changed = base ^ pack_metadata(opcode, words, selector=selector)
            assert changed.nonzero()[0].tolist() == [cell.lane]
            assert changed[cell.lane] == 0b1010 << cell.bit


def test_ldmatrix_puts_elements_where_the_layout_says() -> None:
    opcode = "ldmatrix.sync.aligned.m8n8.x4.b16"
    registers = warp.ldmatrix(opcode, np.arange(256, dtype=np.uint16).view(np.uint8), np.arange(32) * 16)
    held = placement(opcode, "r")
    assert held.formulas()["matrix"] == "i / 2"
    for cell in held.cells():
        assert registers[cell.lane, cell.register] >> cell.bit & 0xFFFF == cell.computation * 64 + cell.row * 8 + cell.col


def test_scales_lie_where_they_are_packed() -> None:
    for opcode in (SCALED, SCALED.replace("4X", "2X").replace("ue4m3", "ue8m0")):
        ins = multiply(opcode)
        for name in ("scale_a", "scale_b"):
            for choice in selections(ins, name):
                held = placement(ins, name, **choice)
                for cell in held.cells():
                    outer, scale = (cell.row, cell.col) if name == "scale_a" else (cell.col, cell.row)
                    codes = np.zeros((ins.m if name == "scale_a" else ins.n, ins.scale_vec_size), dtype=np.uint8)
                    codes[outer, scale] = 0x55
                    registers = pack_scales(ins, codes, name[-1], **choice)
                    assert registers[cell.lane] == 0x55 << cell.bit
                    assert cell.lane == scale_lanes(ins, name[-1], choice["thread_id"])[outer]


def test_trace_names_what_the_output_depends_on() -> None:
    """Change each element that the trace names, and each that it does not: only the former move d."""
    ones = {name: np.full((32, count), 0x3C003C00, dtype=np.uint32) for name, count in (("a", 4), ("b", 2))}
    ones["c"] = np.zeros((32, 4), dtype=np.uint32)
    cells = [(name, cell) for name in "abc" for cell in placement(F16, name).cells()]
    warps = {name: np.repeat(registers[None], len(cells), axis=0) for name, registers in ones.items()}
    for number, (name, cell) in enumerate(cells):
        value = 0x41100000 if name == "c" else 0x7C00
        mask = (1 << cell.bits) - 1 << cell.bit
        word = int(warps[name][number, cell.lane, cell.register])
        warps[name][number, cell.lane, cell.register] = word & ~mask | value << cell.bit
    d = warp.mma(F16, warps["a"], warps["b"], warps["c"], target="sm_90a", backend="reference")
    for row, col in ((4, 5), (15, 0)):
        found = trace(F16, row, col)
        named = {name: {(cell.lane, cell.register, cell.bit) for cell in cells} for name, cells in found.sources.items()}
        moved = d[:, found.d.lane, found.d.register].view(np.float32) != 16.0
        expected = [(cell.lane, cell.register, cell.bit) in named[name] for name, cell in cells]
        assert moved.tolist() == expected, (row, col)


def test_trace_of_other_kinds() -> None:
    assert {name: len(cells) for name, cells in trace(SPARSE, 4, 5, selector=1).sources.items()} == {
        "a": 16,
        "b": 32,
        "c": 1,
        "metadata": 8,
    }
    scaled = trace(SCALED, 4, 5, thread_id_a=1).sources
    assert [cell.lane for cell in scaled["scale_a"]] == [18] * 4
    assert [cell.bit for cell in scaled["scale_b"]] == [0, 8, 16, 24]
    wide = trace(WGMMA, 40, 100)
    assert wide.memory == ("b[0..15][100]",)
    assert set(wide.sources) == {"a"}
    sparse = trace(WGMMA_SPARSE, 40, 100, selector=1)
    assert sorted({cell.lane for cell in sparse.sources["metadata"]}) == [66, 67]
    quads = trace(QUADS, 4, 5, 2)
    assert {cell.lane // 4 % 4 for cells in (*quads.sources.values(), (quads.d,)) for cell in cells} == {2}
    for ins in multiplications():
        assert trace(ins, ins.m - 1, ins.n - 1).equation.startswith(f"d[{ins.m - 1}][{ins.n - 1}] = ")


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_csv_and_json_hold_the_whole_layout(capsys: pytest.CaptureFixture[str]) -> None:
    layout = multiply(WGMMA).operands["d"].layout
    lines = list(csv.DictReader(io.StringIO(_run(capsys, "layout", WGMMA, "--operand", "d", "--format", "csv"))))
    shown = json.loads(_run(capsys, "layout", WGMMA, "--operand", "d", "--format", "json"))
    assert shown["shape"] == [64, 256]
    assert len(lines) == len(shown["elements"]) == 64 * 256
    for line, cell in zip(lines, shown["elements"], strict=True):
        assert (int(line["row"]), int(line["lane"]), int(line["element"])) == (cell["row"], cell["lane"], cell["element"])
        assert layout.cols[cell["lane"], cell["element"]] == cell["col"] == int(line["col"])


def test_text_grid(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _run(capsys, "layout", F16, "--operand", "c").splitlines()
    assert lines[-7].split() == ["9", "T4:c2", "T4:c3", "T5:c2", "T5:c3", "T6:c2", "T6:c3", "T7:c2", "T7:c3"]
    lines = _run(capsys, "layout", F16, "--operand", "b", "--transpose").splitlines()
    assert lines[-1].split()[:4] == ["7", "T28:b0", "T28:b1", "T29:b0"]
    lines = _run(capsys, "layout", F16, "--view", "registers").splitlines()
    assert lines[-27].split() == ["T5", "1,2", "1,3", "9,2", "9,3", "1,10", "1,11", "9,10", "9,11"]
    assert _run(capsys, "layout", QUADS, "--operand", "c").count("computation") == 4


def test_large_grids_leave_out_what_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    short = _run(capsys, "layout", WGMMA, "--operand", "d")
    whole = _run(capsys, "layout", WGMMA, "--operand", "d", "--whole")
    assert "..." in short
    assert "T127:d126..127" in short
    assert whole.count(":d") == 64 * 128
    # what is highlighted is never left out
    assert "T66:d50..51" not in short
    assert ">%d50<" in _run(capsys, "layout", WGMMA, "--operand", "d", "--element", "40,100", "--format", "svg")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--lane", "5"], [["a", "1", "2", "5", "0", "0", "15:0"], ["a", "1", "3", "5", "1", "0", "31:16"]]),
        (["--element", "3,7"], [["a", "3", "7", "15", "1", "0", "31:16"]]),
        (["--register", "2"], [["a", "0", "8", "0", "4", "2", "15:0"], ["a", "0", "9", "0", "5", "2", "31:16"]]),
        (["--register", "2", "--lane", "31"], [["a", "7", "14", "31", "4", "2", "15:0"], ["a", "7", "15", "31", "5", "2", "31:16"]]),
    ],
)
def test_lookups(capsys: pytest.CaptureFixture[str], options: list[str], expected: list[list[str]]) -> None:
    text = [line.split() for line in _run(capsys, "layout", F16, *options).splitlines()]
    assert text[4 : 4 + len(expected)] == expected
    for fmt, separator in (("csv", ","), ("markdown", " | ")):
        lines = _run(capsys, "layout", F16, *options, "--format", fmt).splitlines()
        assert any(separator.join(expected[0]) in line for line in lines)
    first = json.loads(_run(capsys, "layout", F16, *options, "--format", "json"))["elements"][0]
    assert [str(first[key]) for key in ("row", "col", "lane", "element", "register")] == expected[0][1:-1]


@pytest.mark.parametrize(
    ("opcode", "name"), [(F16, "a"), (QUADS, "b"), (SPARSE, "metadata"), (SCALED, "scale_a"), (WGMMA, "d"), (WGMMA_SPARSE, "metadata")]
)
def test_svg_is_well_formed_and_names_every_lane(opcode: str, name: str) -> None:
    held = placement(opcode, name)
    root = ET.fromstring(draw([held.matrices()], title="<title> & more").svg())
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {f"T{lane}" for lane in held.lanes} <= texts
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert width < 2000
    assert height < 2400
    for rect in list(root.iter("{http://www.w3.org/2000/svg}rect"))[1:]:
        assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= width
        assert float(rect.attrib["y"]) + float(rect.attrib["height"]) <= height


def test_notebooks_show_a_layout() -> None:
    held = placement(F16, "c")
    ET.fromstring(held._repr_svg_())
    assert ">%c3<" in held._repr_svg_()


def test_lanes_have_colours_of_their_own_on_which_text_is_readable() -> None:
    colours = [lane_colour(lane) for lane in range(32)]
    assert len(set(colours)) == 32
    for colour in colours:
        red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        assert 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.3


def test_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "a.png"
    assert main(["layout", F16, "--lane", "5", "--output", str(file)]) == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert placement(F16, "c").plot().get_size_inches()[0] > 2


@pytest.mark.parametrize("name", ["a.svg", "a.csv", "a.md", "a.adoc", "a.json", "a.txt"])
def test_the_suffix_tells_the_format(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    formats = {"svg": "svg", "csv": "csv", "md": "markdown", "adoc": "asciidoc", "json": "json", "txt": "text"}
    for command in (["layout", F16], ["trace", F16, "--d", "4,5"]):
        assert main([*command, "--output", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text(encoding="utf-8") == _run(capsys, *command, "--format", formats[name.split(".")[1]])


@pytest.mark.parametrize(
    "arguments",
    [
        ["layout", "mma.nonsense"],
        ["layout", F16, "--operand", "metadata"],
        ["layout", F16, "--lane", "32"],
        ["layout", F16, "--element", "16,0"],
        ["layout", F16, "--element", "3"],
        ["layout", F16, "--element", "3,7", "--lane", "1"],
        ["layout", F16, "--register", "4"],
        ["layout", F16, "--computation", "1"],
        ["layout", F16, "--selector", "1"],
        ["layout", F16, "--byte-id", "1"],
        ["layout", F16, "--format", "gif"],
        ["layout", F16, "--format", "png"],
        ["layout", F16, "--format", "csv", "--transpose"],
        ["layout", F16, "--formula", "--format", "svg"],
        ["layout", F16, "--output", "a.unknown"],
        ["layout", F16, "--output", "/nonexistent/a.svg"],
        ["layout", WGMMA, "--operand", "b"],
        ["layout", SPARSE, "--operand", "metadata", "--selector", "2"],
        ["layout", SCALED, "--operand", "scale_a", "--byte-id", "1"],
        ["layout", SCALED, "--operand", "scale_b", "--thread-id", "4"],
        ["layout", "ldmatrix.sync.aligned.m8n8.x4.b16", "--operand", "a"],
        ["trace", "ldmatrix.sync.aligned.m8n8.x4.b16", "--d", "4,5"],
        ["trace", F16, "--d", "4"],
        ["trace", F16, "--d", "16,0"],
        ["trace", F16, "--d", "4,5", "--computation", "1"],
        ["trace", SPARSE, "--d", "4,5", "--selector", "2"],
    ],
)
def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
