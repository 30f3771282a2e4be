"""Progress of commands: lines for a log, a bar on a terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from fastmma.cli import progress


def test_a_line_every_few_seconds() -> None:
    written: list[str] = []
    times = iter([0.0, 1.0, 6.0, 7.0, 12.0, 30.0])
    lines = progress.Lines("fastmma study", written.append, progress.Clock(lambda: next(times), lambda: 0.0))
    for done in range(5):
        lines.show(done, 10, "nvfp4")
    assert written == [
        "fastmma study: 1 of 10, 6 s, about 54 s left: nvfp4\n",
        "fastmma study: 3 of 10, 12 s, about 28 s left: nvfp4\n",
        "fastmma study: 4 of 10, 30 s, about 45 s left: nvfp4\n",
    ]


def test_parts_that_take_longer_count_more() -> None:
    clock = progress.Clock(lambda: 0.0, lambda: 0.0, work=[1.0, 1.0, 8.0])
    assert clock.told(6.0, 2, 3) == "2 of 3, 6 s, about 24 s left"


def test_kernels_are_compiled_once() -> None:
    times, compiled = iter([100.0, 112.0]), iter([3.0, 13.0])  # 10 of 12 seconds
    clock = progress.Clock(lambda: next(times), lambda: next(compiled))
    assert clock.told(clock.spent(), 2, 10) == "2 of 10, 12 s, about 8 s left"


class Terminal(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: terminal  # type: ignore[method-assign]


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_watched(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    monkeypatch.setattr(progress, "_STATES", 1 << 60)
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=Terminal(terminal)))
    monkeypatch.setenv("COLUMNS", "60")
    with progress.watched("fastmma study") as show:
        for done in range(3):
            show(done, 3, "[red]x[/red]")
    *states, end = progress.sys.stderr.getvalue().split("\r" if terminal else "\n")
    assert end == ""
    if terminal:
        *drawn, erased = filter(None, states)
        assert [len(each) for each in (*drawn, erased)] == [59] * 4
        assert [each[: 13 + 1 + 24 + 1 + 6] for each in drawn] == [f"fastmma study {'#' * (8 * n):-<24} {n} of 3" for n in range(3)]
        assert erased.isspace()
    else:
        assert [each.partition(",")[0] for each in states] == [f"fastmma study: {n} of 3" for n in range(3)]
        assert all(each.endswith(": [red]x[/red]") for each in states)
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=Terminal(terminal)))
    with progress.bar("trials") as show:
        show(1, 2)
    assert bool(progress.sys.stderr.getvalue()) == terminal
