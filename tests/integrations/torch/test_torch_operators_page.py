"""The page of torch's operators is what ``python -m tools.operators`` writes: all names, and some rows, which are computed anew."""

from __future__ import annotations

import re
from typing import Any

import pytest
from reference.cases import cases

from fastmma.functions import libdevice

pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("expecttest", reason="torch's list of operators imports it")

from tools import operators

SOME = ["abs", "add", "addr", "arange", "cumsum", "kthvalue", "lerp", "logcumsumexp", "nn_functional_hardswish", "prod", "sum"]


def _page() -> str:
    text = operators.PAGE.read_text(encoding="utf-8")
    found = re.search(r"^Of (\d+) operators of PyTorch ([\d.]+) (\d+) are", text, re.M)
    assert found, "'python -m tools.operators' prints the page anew"
    if found[2] != operators.version():
        pytest.skip(f"the page has the samples of PyTorch {found[2]}")
    return text[found.start() :]


def _names(page: str) -> tuple[list[str], list[str]]:
    """The operators without a note, and the others."""
    known, _, others = page.partition("the report has a note")
    return re.findall(r"`([\w-]+)`", known), re.findall(r"^\| `([\w-]+)` \|", others, re.M)


def test_a_page_has_the_operators_of_torch_and_counts_them() -> None:
    page = _page()
    known, others = _names(page)
    counts = [int(each) for each in re.findall(r"^(?:Of|For) (\d+) ", page, re.M)]
    assert counts == [len(known) + len(others), len(others)]
    assert f" {len(known)} are emulated" in page
    assert sorted({*known, *others}) == sorted({op.formatted_name for op in operators.listed() if _has_samples(op)})


def _has_samples(op: Any) -> bool:
    return any(True for dtype in operators.dtypes_of(op) for _ in operators.samples(op, dtype))


@pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")
@cases("name", SOME)
def test_a_row_is_what_the_command_writes(name: str) -> None:
    page = _page()
    known, _ = _names(page)
    (op,) = (each for each in operators.listed() if each.formatted_name == name)
    counts = operators.told(op)
    assert name in known if set(counts) == {""} else operators.row(name, counts) in page, "'python -m tools.operators' prints the page anew"
