"""The table of docs/triton.md of the libraries' kernels against the cases, and, where a library is installed, against their runs."""

from __future__ import annotations

import pytest

from tests.reference.triton_libraries import CASES, HEAD, Case, installed, row, run, total
from tools.pages import FOLDER

pytestmark = pytest.mark.filterwarnings("ignore::Warning")  # of the libraries, where they are imported
_TEXT = (FOLDER / "triton.md").read_text(encoding="utf-8")
_ROWS = _TEXT.partition(HEAD)[2].partition("\n\n")[0].splitlines()


def test_the_page_has_a_row_for_each_case() -> None:
    assert [tuple(cell.strip() for cell in one.split("|")[1:3]) for one in _ROWS] == [(case.library, case.name) for case in CASES]
    assert total(_ROWS) in _TEXT


@pytest.mark.parametrize("case", list(installed([])), ids=lambda case: f"{case.library}-{case.name}".replace(" ", "-"))
def test_a_row_is_what_a_run_says(case: Case) -> None:
    assert row(run(case)) in _ROWS
