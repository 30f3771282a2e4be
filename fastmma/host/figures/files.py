"""Drawings as files: SVG and TikZ are text, PNG and PDF are matplotlib's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fastmma.host.figures.drawing import Drawing
from fastmma.host.figures.figure import figure
from fastmma.host.figures.style import write
from fastmma.host.figures.tikz import tikz
from fastmma.host.files import write_text, written

TEXTS: dict[str, Callable[[Drawing], str]] = {"svg": Drawing.svg, "tikz": tikz}
BINARIES = ("png", "pdf")


def save(drawing: Drawing, path: Path, fmt: str) -> None:
    """Write a drawing to a file in one of the formats; PNG at 300 dots an inch.

    Raises
    ------
    OperandError
        If the file cannot be written.
    BackendError
        If matplotlib is needed and not installed.
    """
    if fmt in TEXTS:
        write_text(path, TEXTS[fmt](drawing))
        return
    made = figure(drawing)
    with written(path) as file:
        write(made, file, f".{fmt}")
