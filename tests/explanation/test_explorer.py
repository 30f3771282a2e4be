"""The explorer: its data against the tables, and the page in a browser."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from reference.chromium import CHROMIUM, Page, chromium

import fastmma
from fastmma.cli import main
from fastmma.explanation.explorer.sums import EXAMPLES
from fastmma.explanation.text import heading
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import instruction
from fastmma.operands.placement import operand_names, placement
from fastmma.operands.trace import trace

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
QUADS = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SCALED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
WGMMA = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"
TCGEN05 = "tcgen05.mma.cta_group::1.kind::f16 idesc=0x08400010"
# of each kind of operand
OPCODES = [
    F16,
    QUADS,
    SPARSE,
    SCALED,
    WGMMA,
    TCGEN05,
    "ldmatrix.sync.aligned.m8n8.x4.b16",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, as the command writes it."""
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    assert main(["explorer", "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def data(file: Path) -> dict[str, Any]:
    """What the page knows of layouts."""
    found = re.search(r'id="layouts-data">(.*?)</script>', file.read_text(encoding="utf-8"))
    return json.loads(found[1])


@pytest.fixture(scope="module")
def page(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, str]]:
    """A browser, and the page's address."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        opened.look(1300, 1000)
        yield opened, file.as_uri()
        assert opened.said == []


def test_the_page_is_one_small_file_that_asks_nobody(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link(?! rel=\"icon\" href=\"data:,\">)|img|iframe)|src=|import\(|fetch\(|XMLHttpRequest|<!-- ", text)


def test_every_instruction_is_there_once(data: dict[str, Any]) -> None:
    opcodes = [opcode for opcode, *_ in data["instructions"]]
    assert len(opcodes) == len(set(opcodes))
    assert {ins.opcode for ins in fastmma.instructions()} <= set(opcodes)
    for opcode, operands, told, _ in random.Random(0).sample(data["instructions"], 100):
        ins = instruction(opcode)
        held = [data["operands"][number] for number in operands]
        assert {each["name"] for each in held if "places" in each} == set(operand_names(ins))
        for each in held:
            shape = each["shape"] if "memory" in each else data["layouts"][each["places"][0][1]]["shape"]
            if isinstance(ins, Instruction) and each["name"] in "bd":
                assert shape == {"b": [ins.k, ins.n], "d": [ins.m, ins.n]}[each["name"]]
        assert (told >= 0) == isinstance(ins, Instruction)


def _facts(page: Page) -> dict[str, str]:
    """What the panel says of a cell: of a name that is there twice, the first."""
    script = "JSON.stringify([...document.querySelectorAll('#cell dt')].map((e) => [e.textContent, e.nextSibling.textContent]))"
    return dict(reversed(json.loads(page.run(script))))


def _show(page: tuple[Page, str], **given: object) -> Page:
    """The page at an address; once it is loaded, only the part behind the # changes."""
    browser, uri = page
    address = f"#{urlencode(given)}"
    if browser.run("location.href.split('#')[0]") != uri:
        browser.open(uri)
    browser.run(f"history.replaceState(null, '', {address!r}); fromAddress()")
    return browser


@pytest.mark.parametrize("opcode", OPCODES)
def test_a_cell_is_where_the_table_has_it(opcode: str, page: tuple[Page, str]) -> None:
    """Lane, register, bits and element of places of every operand, as the page computes them from the modes."""
    draw = random.Random(opcode)
    for name in operand_names(instruction(opcode)):
        held = placement(opcode, name)
        rows, cols = held.layout.shape
        for _ in range(3):
            row, col, tile = draw.randrange(rows), draw.randrange(cols), draw.randrange(held.layout.tiles)
            browser = _show(page, opcode=opcode, operand=name, cell=f"{name},{row},{col}", matrix=tile)
            found, cell = _facts(browser), held.at(row, col, tile)
            assert browser.text("#cell strong") == f"{name}[{row}][{col}]"
            lane = found.get("TMEM lane") or found["lane"]
            assert lane.split(",")[0] == str(cell.lane)
            sigil = held.sigil or f"%{held.letter}"
            shown = found["TMEM column" if held.sigil else "register"]
            assert shown == f"{sigil}{cell.register}, bits {cell.bit + cell.bits - 1}:{cell.bit}"
            assert found["element"] == f"i = {cell.element}"
            assert found["row"] == f"= {held.formulas()['row']}"


@pytest.mark.parametrize(("opcode", "cell"), [(F16, (9, 3)), (SPARSE, (4, 5)), (SCALED, (4, 5)), (WGMMA, (40, 100))])
def test_an_output_lights_what_feeds_it(opcode: str, cell: tuple[int, int], page: tuple[Page, str]) -> None:
    browser = _show(page, opcode=opcode, cell=f"d,{cell[0]},{cell[1]}")
    script = """JSON.stringify(Object.fromEntries(halves.layouts.grids.map((grid) => {
        const places = [];
        for (let row = 0; row < grid.operand.rows; row += 1) {
            for (let col = 0; col < grid.operand.cols; col += 1) if (grid.isLit(row, col)) places.push([row, col]);
        }
        return [grid.name, places];
    })))"""
    lit = {name: {tuple(place) for place in places} for name, places in json.loads(browser.run(script)).items()}
    found = trace(opcode, *cell)
    expected = {name: {(each.row, each.col) for each in cells} for name, cells in found.sources.items() if name != "c"}
    expected.setdefault("b", {(k, cell[1]) for k in range(found.instruction.k)})  # of wgmma, in shared memory
    assert lit == {**expected, "d": {cell}}
    assert _facts(browser)["fed by"] == found.equation


def _middle(browser: Page, operand: str, row: int, col: int) -> tuple[float, float]:
    """Where a cell of an operand is in the window."""
    where = f"""(() => {{
        const grid = halves.layouts.grids.find((each) => each.name === {operand!r});
        grid.element.scrollIntoView({{block: "center"}});
        const box = grid.canvas.getBoundingClientRect();
        const x = box.left + HEAD.width + ({col} + 0.5) * grid.cell.width, y = box.top + HEAD.height + ({row} + 0.5) * grid.cell.height;
        return JSON.stringify([x, y]);
    }})()"""
    x, y = json.loads(browser.run(where))
    return x, y


def test_pointing_and_choosing(page: tuple[Page, str]) -> None:
    """The pointer shows a cell; a click keeps it and puts it into the address; the address alone brings it back."""
    browser = _show(page, opcode=F16)
    browser.move(*_middle(browser, "a", 3, 7))
    browser.wait("document.querySelector('#cell strong')?.textContent === 'a[3][7]'")
    assert _facts(browser)["register"] == "%a0, bits 31:16"
    where = _middle(browser, "d", 9, 3)
    browser.click(*where)
    browser.wait("location.hash.includes('cell')")
    shared = browser.run("location.href")
    browser.click(*where)
    browser.wait("!location.hash.includes('cell')")
    browser.open(shared)
    assert browser.text("#cell strong") == "d[9][3]"


def test_keys_go_where_the_pointer_goes(page: tuple[Page, str]) -> None:
    """Tab comes to each operand, arrows to a cell, Enter keeps it and lets it go."""
    browser = _show(page, opcode=F16)
    met: list[str] = []
    for _ in range(40):
        browser.press("Tab")
        if browser.run("document.activeElement.getAttribute('role')") == "grid":
            met.append(browser.run("document.activeElement.getAttribute('aria-label')").split(",")[0])
            assert browser.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if len(met) == 3:
            break
    assert sorted(met) == ["a", "b", "c and d"]
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowUp"):  # the first comes to [0][0]
        browser.press(key)
    last = met[-1].split()[-1]
    browser.wait(f"document.querySelector('#cell strong')?.textContent === '{last}[2][0]'")
    browser.press("Enter")
    browser.wait(f"decodeURIComponent(location.hash).includes('cell={last},2,0')")
    browser.press("Enter")
    browser.wait("!location.hash.includes('cell')")


def test_choosing_an_instruction_and_an_operand(page: tuple[Page, str]) -> None:
    browser, uri = page
    browser.open(uri)
    browser.run("(() => { const e = $('#filter'); e.value = 'sm90 64x256x16 f16f16f16'; e.dispatchEvent(new Event('input')); })()")
    assert browser.run("halves.layouts.choices.values") == [WGMMA.replace("f32.f16", "f16.f16")]
    browser.run("$('#instruction').children[0].click()")
    assert browser.text("#opcode") == WGMMA.replace("f32.f16", "f16.f16")
    browser.run("[...$('#operands').children].find((each) => each.textContent === 'a').click()")
    assert browser.run("halves.layouts.grids.map((each) => each.name)") == ["a"]
    assert "operand=a" in browser.run("location.hash")


def test_keys_choose_an_instruction(page: tuple[Page, str]) -> None:
    """The list begins at its top and shows opcodes whole; Enter in the filter takes the first, arrows and End the others."""
    browser, uri = page
    browser.open(f"{uri}?anew")
    assert browser.run("$('#instruction').scrollTop") == 0
    assert browser.run("[...$('#instruction').children].filter((each) => each.scrollWidth > each.clientWidth).length") == 0
    shown = browser.run("[...$('#instruction').children].map((each) => each.textContent.replaceAll('\u200b', ''))")
    assert shown == [opcode.replace(".sync.aligned", "") for opcode in browser.run("halves.layouts.choices.values")]
    browser.run("(() => { const e = $('#filter'); e.focus(); e.value = 'wgmma m64n256k16'; e.dispatchEvent(new Event('input')); })()")
    values = browser.run("halves.layouts.choices.values")
    for key, place in (("Enter", 0), ("ArrowDown", 0), ("ArrowDown", 1), ("End", -1), ("ArrowUp", -2)):
        browser.press(key)
        browser.wait(f"$('#opcode').textContent === {values[place]!r}")
    assert browser.run("$('#instruction [aria-selected]').textContent.replaceAll('\u200b', '')") in values[-2].replace(".sync.aligned", "")
    browser.open(f"{uri}#{urlencode({'opcode': WGMMA})}")
    browser.wait("$('#instruction').scrollTop > 0")


@pytest.mark.parametrize(
    "given", ["opcode=nothing&cell=d,1,1", "operand=z", "cell=d,99,99", "cell=%27", "matrix=7&choice=9", "sum=nothing"]
)
def test_an_address_that_says_nothing_sensible(given: str, page: tuple[Page, str]) -> None:
    browser, uri = page
    browser.open(f"{uri}#{given}")
    assert browser.run("halves.layouts.grids?.length || document.querySelectorAll('#steps svg').length") >= 1


def _bits(browser: Page) -> list[list[tuple[str, int]]]:
    """Of each step that is drawn, its bits that are one: sign and power of two, and whether they are dropped."""
    titles = "[...each.querySelectorAll('rect title')].map((title) => title.textContent)"
    script = f"JSON.stringify([...document.querySelectorAll('#steps svg')].map((each) => {titles}))"
    steps = json.loads(browser.run(script))
    return [[note for note in notes if re.match(r"[+-]1 ", note)] for notes in steps]


def _drawn(step: Any) -> list[str]:
    """The bits of a step that are one, told as the page tells them."""
    notes = []
    numbers = [(term.significand, term.last, step.unit) for term in step.terms]
    if step.total is not None:
        dropped = step.dropped.significand
        floor = abs(dropped).bit_length() + step.dropped.last if dropped else None
        numbers.append((*step.total, floor))
    for significand, last, floor in numbers:
        for bit in reversed(range(abs(significand).bit_length())):
            if abs(significand) >> bit & 1:
                place = bit + last
                lost = ", dropped" if floor is not None and place < floor else ""
                notes.append(f"{'-' if significand < 0 else '+'}1 \u00b7 2^{place}{lost}")
    return notes


def test_sums_are_drawn_bit_for_bit(page: tuple[Page, str]) -> None:
    for example in EXAMPLES:
        browser = _show(page, sum=example.name)
        found = example.explained()
        parts = [found.steps] if found.difference is None else [found.difference.steps, found.difference.other_steps]
        assert _bits(browser) == [_drawn(step) for steps in parts for step in steps], example.name
        assert browser.text("#told") == example.told
        wholes = [found.steps] if found.against is None else [found.steps, found.against.steps]
        told = [heading(step, whole.index(step)) for whole, steps in zip(wholes, parts, strict=True) for step in steps]
        assert browser.run("[...document.querySelectorAll('#steps svg')].map((each) => each.getAttribute('aria-label'))") == told


def test_a_product_that_is_pasted(page: tuple[Page, str]) -> None:
    """The exact product of two doubles has more bits than a number of JavaScript."""
    browser = _show(page, sum="doubles")
    a, b = np.full((1, 4), 1 + 2.0**-50), np.full((4, 1), 1 + 2.0**-51)
    found = fastmma.explain(a, b, 0, 0, target="sm_80")
    browser.run(f"halves.sums.paste({found.json()!r})")
    assert _bits(browser) == [_drawn(step) for step in found.steps]
    for refused, why in (("{", "JSON"), ("[]", "it has no steps"), ('{"steps": 3}', "it has no steps"), ("", "JSON")):
        browser.run(f"halves.sums.paste({refused!r})")
        assert why in browser.run("$('#refused').textContent")


@pytest.mark.parametrize(("width", "dark"), [(400, False), (1300, True)])
def test_nothing_is_wider_than_the_window(width: int, dark: bool, page: tuple[Page, str]) -> None:
    browser, _ = page
    browser.look(width, 900, dark=dark)
    try:
        for given in ({"opcode": F16, "cell": "d,9,3"}, {"opcode": WGMMA}, {"sum": "one-more-bit"}):
            _show(page, **given)
            assert browser.run("document.documentElement.scrollWidth") <= width
        paper = browser.run("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") != dark
    finally:
        browser.look(1300, 1000)
