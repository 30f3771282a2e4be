"""The page of one sum: its adder against the reference, and what it shows of two GPUs in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from reference.adder import NODE, differing, drawn, run_in_node, script
from reference.chromium import CHROMIUM, Page, chromium

import fastmma
from fastmma.cli import main
from fastmma.explanation.explorer.rules import KINDS, VENDORS, usual_of
from fastmma.isa.codes import from_codes

COUNT = 2400  # elements, of all rows; `python tests/reference/adder.py` computes more
SIDES = "[...document.querySelectorAll('#steps h2')].map((each) => each.textContent)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, str]]:
    """A browser, and the page's address."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    path = tmp_path_factory.mktemp("sum") / "sum.html"
    assert main(["explorer", "--page", "sum", "-o", str(path)]) == 0
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        opened.look(1300, 1000)
        yield opened, path.as_uri()
        assert opened.said == []


def test_the_adder_has_the_bits_of_the_reference(request: pytest.FixtureRequest) -> None:
    cases = list(drawn(COUNT, seed=3))
    if NODE is not None:
        results = run_in_node(cases)
    else:
        browser, _ = request.getfixturevalue("page")
        results = json.loads(browser.run(f"(() => {{ {script(cases)} return JSON.stringify(results); }})()"))
    assert [f"{case.ins}: {case.arithmetic.family}" for case in differing(cases, results)] == []
    assert len({case.arithmetic.method for case in cases}) == 9


def _show(page: tuple[Page, str], **given: Any) -> Page:
    browser, uri = page
    browser.open(f"{uri}#{urlencode(given)}")
    return browser


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.scale], ids=lambda kind: kind.name)
def test_sums_are_those_of_explain(kind: Any, page: tuple[Page, str]) -> None:
    """Random codes of two GPUs that compute a type, in the address: both results, and all steps of both."""
    usual = usual_of(kind, VENDORS)
    fmt, amd = fastmma.FORMATS[kind.fmt], [target for target in usual if target.startswith("gfx")]
    rng, depth = np.random.default_rng(len(kind.name)), 40
    drawn = rng.integers(1 << (fmt.bits - 2), 3 << (fmt.bits - 3), (2, depth), dtype=np.uint64)
    codes = drawn >> np.uint64(fmt.padding) << np.uint64(fmt.padding)
    places = "_".join(f"{k}.{codes[0, k]:x}.{codes[1, k]:x}" for k in range(depth))
    a, b = (from_codes(each.astype(fmt.code_dtype), fmt) for each in codes)
    for targets in (list(usual)[:: max(len(usual) - 1, 1)], amd[:: max(len(amd) - 1, 1)]):
        browser = _show(page, type=kind.name, gpus=",".join(targets), k=depth, sum=places)
        for target, told in zip(targets, browser.run(SIDES) if targets else (), strict=False):
            ins = usual[target][0]
            found = fastmma.explain(a[None], b[:, None], 0, 0, instruction=ins.opcode, target=target)
            assert re.search(r"0x(\w+)", told)[1] == f"{found.code:x}".zfill(fastmma.FORMATS[found.format].bits // 4), target  # type: ignore[index]
        shown = browser.run("JSON.stringify([...document.querySelectorAll('#steps svg')].map((each) => each.getAttribute('aria-label')))")
        assert len(json.loads(shown)) > 1


def test_numbers_that_are_typed_and_an_image(page: tuple[Page, str]) -> None:
    browser = _show(page)
    assert browser.text("#told").startswith("H100 and V100 have other bits")
    browser.run("$('#a').value = '3, 2^-24, -0.1'; $('#b').value = '1 1'; $('#a').dispatchEvent(new Event('input'))")
    assert browser.text("#refused") == "a has 3 numbers, and b 2"
    browser.run("$('#b').value = '1 x 1'; $('#b').dispatchEvent(new Event('input'))")
    assert browser.text("#refused") == "x is no number"
    browser.run("$('#b').value = '1, 1; 2'; $('#b').dispatchEvent(new Event('input'))")
    assert browser.text("#refused") == ""
    a, b = np.array([[3, 2**-24, -0.1]], np.float16), np.array([[1], [1], [2]], np.float16)
    code = int(fastmma.gemm(a, b, target="H100").view(np.uint32)[0, 0])
    assert f"0x{code:x}" in browser.run(SIDES)[0]
    browser.run("$('#drawn').click()")
    counted = browser.text("#counted")
    image, blur = (
        np.array(json.loads(browser.run(f"JSON.stringify({what})")), np.float64).astype(np.float16)
        for what in (
            "drawnImage()",
            "[...Array(32).keys()].map((k) => [...Array(32).keys()].map((j) => Math.exp(-((k - j) ** 2) / 8) / 5))",
        )
    )
    one, other = (fastmma.gemm(image, blur, target=target) for target in ("H100", "V100"))
    assert counted == f"{np.count_nonzero(one != other)} of 1024 elements have other bits"


def test_an_address_that_says_nothing_sensible(page: tuple[Page, str]) -> None:
    for given in ({"type": "f17"}, {"type": "f16", "gpus": "x,y", "k": 4, "sum": "9.1.1"}, {"k": 1e9, "sum": "0.zz.1"}):
        assert _show(page, **given).run("document.querySelectorAll('#steps svg').length") > 0
