"""The report that all integrations share: five statuses, and what fails its assertion."""

from __future__ import annotations

import pytest

from fastmma.host.caller import Libraries, find_caller, folders_of
from fastmma.products.report import ASSUMED, EMULATED, NEUTRAL, PASSED, STATUSES, UNSEEN, ClosedReport, Line, NotAllEmulatedError, Report


def report_of(*statuses: str) -> Report:
    report = Report("sm_90a")
    for status in statuses:
        report.count(Line(f"aten.{status}", status, "bf16 (8, 8)", "how"), "model.py:3")
    return report


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("assumed", [False, True])
def test_what_the_assertion_tolerates(status: str, assumed: bool) -> None:
    report = report_of(EMULATED, status)
    if status in (EMULATED, NEUTRAL) or (assumed and status == ASSUMED):
        report.assert_all_emulated(assumed=assumed)
    else:
        with pytest.raises(NotAllEmulatedError, match=rf"aten\.{status} .*model\.py:3"):
            report.assert_all_emulated(assumed=assumed)


@pytest.mark.parametrize("statuses", [(), (NEUTRAL,)])
def test_nothing_proves_nothing(statuses: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError, match="nothing was emulated"):
        report_of(*statuses).assert_all_emulated()


def test_a_report_without_products_may_be_wanted() -> None:
    class Kernels(ClosedReport):
        wants_product = False

    report = Kernels("sm_90a")
    with pytest.raises(AssertionError, match="no operation"):
        report.assert_all_emulated()
    report.count(Line("add", NEUTRAL, "", ""))
    report.assert_all_emulated()


def test_numbers() -> None:
    report = report_of(EMULATED, EMULATED, ASSUMED, PASSED, UNSEEN, UNSEEN, UNSEEN)
    assert (report.emulated, report.assumed, report.passed, report.neutral, report.unseen) == (2, 1, 1, 0, 3)
    assert report.to_dict()["unseen"] == 3
    assert [line.where for line, _ in report.lines()] == ["model.py:3"] * 4
    assert "3 unseen" in str(report)
    report.clear()
    assert not report.lines()


def test_the_caller_is_who_called_a_library() -> None:
    found = []
    sorted([1], key=lambda _: found.append(find_caller(Libraries(folders_of()))))
    assert found[0].file == __file__
    assert str(found[0]).startswith(f"{__file__}:")
