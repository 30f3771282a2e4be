"""The pictures of the three usual journeys: what one has, the call, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import NamedTuple

from fastmma.host.figures.style import BAND, COLOURS, EDGE, INK, PAPER

_WIDTH, _ROW, _LINE, _GAP, _TITLE = 280, 26, 15, 22, 26
_MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Journey(NamedTuple):
    """A picture: a title, and boxes of lines, of which the second is code."""

    title: str
    have: tuple[str, ...]
    call: tuple[str, ...]
    get: tuple[str, ...]


JOURNEYS = {
    "numpy": Journey(
        "NumPy",
        ("arrays a and b",),
        ('d = fastmma.gemm(a, b, target="H100")',),
        ("d, with the bits of an H100", "fastmma.explain: why they are so"),
    ),
    "torch": Journey(
        "PyTorch",
        ("your model, unchanged, on CPU tensors",),
        ('with fastmma.torch.emulate("H100"):', "    loss = model(x).sum()", "    loss.backward()"),
        ("outputs and gradients, with the bits of an H100", "a report: what was emulated, what was not"),
    ),
    "triton": Journey(
        "Triton",
        ("your kernel, on a machine without a GPU",),
        ('with fastmma.triton.interpret("H100"):', "    kernel[grid](a, b, c, n)"),
        ("what it stores, with the bits of an H100", "tests of kernels in CI"),
    ),
}


def _box(top: int, lines: tuple[str, ...], code: bool) -> tuple[list[str], int]:
    """Write a box of lines, and where it ends."""
    height = _ROW + _LINE * (len(lines) - 1)
    fill, edge = (BAND, COLOURS[0]) if code else (PAPER, EDGE)
    family = f' font-family="{_MONO}" font-size="10.5"' if code else ""
    parts = [f'<rect x="1" y="{top}" width="{_WIDTH - 2}" height="{height}" rx="5" fill="{fill}" stroke="{edge}"/>']
    for number, line in enumerate(lines):
        y = top + 17 + _LINE * number
        parts.append(f'<text x="10" y="{y}" xml:space="preserve"{family}>{escape(line, quote=False)}</text>')
    return parts, top + height


def _arrow(top: int) -> str:
    middle, end = _WIDTH // 2, top + _GAP
    return f'<path d="M{middle} {top + 3}V{end - 3}m-4 -5l4 5l4 -5" fill="none" stroke="{EDGE}"/>'


def draw(name: str) -> Callable[[Path], None]:
    """A function that writes the picture of a journey."""
    journey = JOURNEYS[name]

    def write(path: Path) -> None:
        parts = [f'<text x="1" y="17" font-size="15" font-weight="bold">{journey.title}</text>']
        top = _TITLE
        for lines in (journey.have, journey.call, journey.get):
            if top > _TITLE:
                parts.append(_arrow(top))
                top += _GAP
            box, top = _box(top, lines, lines is journey.call)
            parts += box
        size = f'width="{_WIDTH}" height="{top + 1}" viewBox="0 0 {_WIDTH} {top + 1}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" font-size="11" fill="{INK}">'
        path.write_text("\n".join([head, *parts, "</svg>", ""]), encoding="utf-8")

    return write
