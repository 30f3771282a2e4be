"""Pages that are generated: verdicts about GPUs, whose links have numbers on which they differ, and pictures of what is lost."""

from __future__ import annotations

import html
import re
import zlib
from urllib.parse import parse_qs

import numpy as np
import pytest

import fastmma
from fastmma.explanation.explorer.rules import KINDS, gpus, usual_of
from fastmma.isa.codes import from_codes
from tools import forgotten
from tools.gpu_table import PAGE

TEXT = PAGE.read_text(encoding="utf-8")
LINKS = sorted({html.unescape(each) for each in re.findall(r'href="\.\./sum\.html#([^"]+)"', TEXT)})


def test_links_have_numbers_on_which_two_gpus_differ() -> None:
    by_name = {kind.name: kind for kind in KINDS}
    for link in LINKS:
        given = {name: values[0] for name, values in parse_qs(link).items()}
        kind, targets = by_name[given["type"]], given["gpus"].split(",")
        fmt, places = fastmma.FORMATS[kind.fmt], [each.split(".") for each in given["sum"].split("_")]
        assert 2 * len(places) <= 16
        codes = np.zeros((2, int(given["k"])), fmt.code_dtype)
        for k, *pair in places:
            codes[:, int(k)] = [int(code, 16) for code in pair]
        a, b = (from_codes(each, fmt) for each in codes)
        usual = usual_of(kind)
        results = {fastmma.gemm(a[None], b[:, None], target=each, instruction=usual[each][0].opcode).tobytes() for each in targets}
        assert len(results) == 2, link
    assert len(LINKS) > 100


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_cells_are_what_is_decided(kind: fastmma.explanation.explorer.rules.Kind) -> None:
    """Equal cells are proved again; all GPUs that compute a type are there."""
    section = TEXT.partition(f"## {kind.title}\n")[2].partition("\n## ")[0]
    usual, names = usual_of(kind), gpus()
    rows = re.findall(r"<tr><th title=[^>]*>([^<]*) <small>.*?</th>(.*?)</tr>", section)
    assert [name for name, _ in rows] == [names[target] for target in usual]
    for (p, (one, _)), (_, cells) in zip(usual.items(), rows, strict=True):
        found = re.findall(r'<td class="(\w+)"', cells)
        for (q, (other, _)), cell in zip(usual.items(), found, strict=True):
            if cell == "same":
                assert fastmma.same_bits(fastmma.GemmPlan(p, one.opcode), fastmma.GemmPlan(q, other.opcode)).equal is True
            assert (cell == "own") == (p == q)


def test_pictures_are_up_to_date() -> None:
    """A PNG file is compared by its pixels: libraries compress them otherwise."""
    folder = PAGE.parent / "pictures"
    assert (folder / "forgotten.svg").read_text(encoding="utf-8") == forgotten.forgotten()
    drawn, found = (forgotten.png(forgotten.formats()), (folder / "image_in_formats.png").read_bytes())
    pixels = [zlib.decompress(each[each.index(b"IDAT") + 4 : each.index(b"IEND") - 8]) for each in (drawn, found)]
    assert pixels[0] == pixels[1]
