"""The instructions that inline assembly may contain: each has the bits that an H200 computed, and stands in docs/triton.md."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.reference.ptx_forms import FAMILIES, FORMS, KEPT, choose, draw, execute, expand, tabulate
from tools.pages import FOLDER


@pytest.mark.parametrize("family", FAMILIES)
def test_forms_have_the_bits_of_an_h200(family: str) -> None:
    with np.load(KEPT) as recorded:
        given = choose(draw(int(recorded["seed"])))
        names = [opcode for pattern in FAMILIES[family] for opcode in expand(pattern)]
        different = [name for name in names if (execute(FORMS[name], given) != recorded[name]).any()]
    assert not different


def test_the_page_has_the_table() -> None:
    assert tabulate() in (FOLDER / "triton.md").read_text(encoding="utf-8")
