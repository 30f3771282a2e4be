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


def test_kernels_are_compiled_once() -> None:
    times, compiled = iter([100.0, 112.0]), iter([3.0, 13.0])  # 10 of 12 seconds
    clock = progress.Clock(lambda: next(times), lambda: next(compiled))
    assert clock.left(clock.spent(), 2, 10) == "about 8 s left"


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_watched(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    console = progress.Console(file=file, force_terminal=terminal, width=100)
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=file))
    with progress.watched("fastmma study") as show:
        for done in range(3):
            show(done, 3, "[red]x[/red]")
    assert "[red]x[/red]" in file.getvalue()
    assert ("\x1b" in file.getvalue()) == terminal
