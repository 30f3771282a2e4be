"""The site in a browser, on a phone, a laptop and a desk: nothing scrolls sideways, numbers stay whole, tables are filtered."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from reference.chromium import CHROMIUM, Page, chromium

from fastmma.isa.targets import TARGETS

ROOT = Path(__file__).parents[1]
FAMILIES = tuple(f"instruction_tables/{path.stem}" for path in sorted((ROOT / "docs/instruction_tables").glob("*.md")))
PAGES = ("index", "instruction_tables", *FAMILIES, "studies", "reference/index", "reference/torch", "cublas")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
# widths of words that consist of digits alone, of which the browser draws some on two lines
BROKEN_NUMBERS = """
(() => { let broken = 0;
  for (const cell of document.querySelectorAll(".wide td:not(:first-child)")) {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode());)
      for (const found of node.data.matchAll(/\\d+/g)) {
        const range = document.createRange();
        range.setStart(node, found.index); range.setEnd(node, found.index + found[0].length);
        broken += new Set([...range.getClientRects()].map((each) => Math.round(each.top))).size > 1;
      }
  }
  return broken; })()
"""
SHOWN = "[...document.querySelectorAll('.wide tbody tr')].filter((row) => !row.hidden).map((row) => row.textContent)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--no-directory-urls", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


# elements that scroll sideways in themselves, and paragraphs that are too wide to read
SIDEWAYS = """
[...document.querySelectorAll(".md-content *")].filter((each) => each.scrollWidth > each.clientWidth + 1
  && ["auto", "scroll"].includes(getComputedStyle(each).overflowX)).map((each) => each.outerHTML.slice(0, 80))
"""
BROAD = """
[...document.querySelectorAll(".md-content :is(p, li, dd):not(td *, .journeys *)")]
  .filter((each) => each.getBoundingClientRect().width > 761).map((each) => each.textContent.slice(0, 80))
"""


def test_nothing_scrolls_sideways_on_a_phone(site: Path, page: Page) -> None:
    page.look(390, 900)
    for path in sorted(site.rglob("*.html")):
        if path.name != "404.html":
            page.open(path.as_uri())
            assert page.run("document.documentElement.scrollWidth") <= 390, path
            assert page.run(SIDEWAYS) == [], path
            assert page.run(BROKEN_NUMBERS) == 0, path


@pytest.mark.parametrize("width", [1280, 1400])
@pytest.mark.parametrize("name", PAGES)
def test_pages_fit(name: str, width: int, site: Path, page: Page) -> None:
    page.look(width, 900)
    page.open((site / f"{name}.html").as_uri())
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run(BROAD) == []
    wide = "[...document.querySelectorAll('.wide, .wide .md-typeset__scrollwrap')].filter((each) => each.scrollWidth > each.clientWidth)"
    assert page.run(f"{wide}.length") == 0
    assert page.run(BROKEN_NUMBERS) == 0
    if name in FAMILIES:
        assert page.run("document.documentElement.scrollHeight") < 10_000
        headings = "[...document.querySelectorAll('.wide thead th')].map((each) => getComputedStyle(each).position)"
        assert set(page.run(headings)) == {"sticky"}
        assert page.run("document.querySelectorAll('.md-content p a[href^=\"#\"]').length") == page.run(
            "document.querySelectorAll('h2').length"
        )


def test_tables_are_filtered_by_target_and_type(site: Path, page: Page) -> None:
    page.look(1280, 900)
    page.open((site / "instruction_tables/mma.html").as_uri())
    offered = page.run("[...document.querySelectorAll('.table-filter option')].map((each) => each.value)")
    assert offered == ["", *(target for target in TARGETS if target.startswith("sm_"))]
    everything = page.run(f"{SHOWN}.length")
    page.run("document.querySelector('.table-filter select').value = 'sm_70'")
    page.run("document.querySelector('.table-filter select').dispatchEvent(new Event('change'))")
    old = page.run(SHOWN)
    assert 0 < len(old) < everything / 4
    page.run("document.querySelector('.table-filter select').value = 'sm_90a'")
    page.run("document.querySelector('.table-filter input').value = 'e4m3'")
    page.run("document.querySelector('.table-filter input').dispatchEvent(new Event('input'))")
    hopper = page.run(SHOWN)
    assert hopper
    assert all("e4m3" in row for row in hopper)


def test_the_explorer_is_in_the_navigation_and_leads_back(site: Path, page: Page) -> None:
    page.look(1280, 900)
    page.open((site / "studies.html").as_uri())
    page.run("[...document.querySelectorAll('.md-tabs__link')].find((each) => each.textContent.trim() === 'Explorer').click()")
    page.wait("document.title === 'fastmma explorer' && document.readyState === 'complete'")
    page.run("document.querySelector('header a').click()")
    page.wait("document.title === 'fastmma'")


def test_pages_name_the_ones_before_and_after(site: Path, page: Page) -> None:
    page.open((site / "studies.html").as_uri())
    links = page.run("[...document.querySelectorAll('.md-footer__link')].map((each) => each.getAttribute('aria-label'))")
    assert links == ["Previous: Explain", "Next: Own arithmetic"]


def test_code_is_copied_without_prompts_and_outputs(site: Path, page: Page) -> None:
    page.look(1280, 900)
    page.open((site / "gpus.html").as_uri())
    page.run("document.querySelector('.highlight code').setAttribute('data-md-copying', '')")
    copied = page.text(".highlight code")
    assert copied.startswith("import numpy as np\nimport fastmma\n")
    assert ">>>" not in copied
    assert "'sm_90a'" not in copied
