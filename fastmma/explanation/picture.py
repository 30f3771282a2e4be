"""The steps of a sum as a picture: each term a bar of bits over the window of the alignment, what is dropped dimmed."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from fastmma.explanation.derivation import Derivation
from fastmma.explanation.numbers import decimal, number_text
from fastmma.explanation.steps import Dyadic, Step, Term, dyadic
from fastmma.explanation.text import heading, title, within, zeros_text
from fastmma.host.errors import OperandError
from fastmma.host.figures.drawing import LARGE, LITTLE, MIDDLE, Drawing, Label, Rect
from fastmma.host.figures.files import TEXTS
from fastmma.host.figures.files import save as save_drawing
from fastmma.host.figures.style import BITS, EDGE, MARK
from fastmma.isa.formats import FORMATS

SUFFIXES = {".svg": "svg", ".png": "png", ".pdf": "pdf", ".tex": "tikz"}
_MARGIN, _LINE, _BIT, _SIGN = 18.0, 17.0, 9.0, 14.0
_LETTER = 0.61 * LITTLE  # pixels of a letter of fixed pitch
_HIGHEST = 20000.0  # pixels of a picture that is no SVG
_MOST_BITS = 150  # of a window; what is below is not drawn


class _Bar(NamedTuple):
    """A number to draw: bits at `floor` and above are kept."""

    name: str
    value: Dyadic
    special: str
    floor: int | None
    kind: str
    note: str
    marked: bool = False


def _bars(step: Step, parted: Collection[int]) -> list[_Bar]:
    """A bar for each term that is not zero, for the sum, and for the result."""
    bars = []
    for term in step.terms:
        if not term.significand and not term.special:
            continue
        kind = "term" if term.k or " * " in term.name else "accumulator"
        marked = bool(parted and set(term.k) & set(parted))
        bars.append(
            _Bar(_name(term, step), Dyadic(term.significand, term.last), term.special, step.unit, kind, decimal(term.value), marked)
        )
    if step.total is not None:
        whole = step.total.significand if step.unit is None else step.total.significand << max(0, step.total.last - step.unit)
        last = step.total.last if step.unit is None else min(step.total.last, step.unit)
        bars.append(_Bar("sum", Dyadic(whole, last), "", _floor(step), "sum", number_text(step.code, FORMATS[step.format])))
    return bars


def _floor(step: Step) -> int | None:
    """The power of two of the last bit of the sum that the result has; None where it drops none."""
    found = step.result
    if not step.dropped.significand or found.special:
        return None
    if found.significand:
        return found.last if step.format != "f32" or step.operation != "fused" else max(found.last, _top(step.dropped) + 1)
    return _top(step.dropped) + 1


def _top(value: Dyadic) -> int:
    """The power of two of the leading bit."""
    return abs(value.significand).bit_length() - 1 + value.last


def _name(term: Term, step: Step) -> str:
    if not term.k:
        return term.name
    if len(term.k) > 1:
        return f"k {term.k[0]}..{term.k[-1]}"
    return f"k {term.k[0]}  {term.a[0]:#x} * {term.b[0]:#x}" if step.operation != "sum" else f"k {term.k[0]}"


def _paint(drawing: Drawing, step: Step, bars: Sequence[_Bar], number: int, y: float, left: float) -> float:
    """Add a step below y, its bits at the right of `left`, and return where it ends."""
    drawing.labels.append(Label(_MARGIN, y, heading(step, number), MIDDLE, bold=True, anchor="start"))
    y += _LINE
    finite = [bar.value for bar in bars if bar.value.significand and not bar.special]
    top = max((_top(value) for value in finite), default=0)
    bottom = max(min((min(dyadic(*value).last, value.last) for value in finite), default=0), top - _MOST_BITS + 1)
    if step.unit is not None:
        bottom = min(bottom, max(step.unit, top - _MOST_BITS + 1))
    right = left + (top - bottom + 1) * _BIT
    start = y
    for bar in bars:
        drawing.labels.append(Label(left - _SIGN, y, bar.name, LITTLE, anchor="end", fixed_pitch=True, bold=bar.kind == "sum"))
        if bar.special:
            drawing.labels.append(Label(left, y, bar.special, LITTLE, anchor="start", fixed_pitch=True))
        else:
            _bits(drawing, bar, top, bottom, left, y)
        drawing.labels.append(Label(right + 8, y, bar.note, LITTLE, fill=EDGE, anchor="start", fixed_pitch=True))
        drawing.width = max(drawing.width, right + 8 + len(bar.note) * _LETTER + _MARGIN)
        y += _LINE
    if step.unit is not None and bottom <= step.unit <= top + 1:
        x = left + (top - step.unit + 1) * _BIT
        drawing.rects.append(Rect(x - 1, start - _LINE / 2, 1.6, y - start, MARK, note=f"unit 2^{step.unit}"))
    drawing.labels.append(Label(left, y, f"2^{top}", LITTLE, fill=EDGE, anchor="start"))
    drawing.labels.append(Label(right, y, f"2^{bottom}", LITTLE, fill=EDGE, anchor="end"))
    zeros = zeros_text(step)
    if zeros:
        drawing.labels.append(Label(left - _SIGN, y, zeros, LITTLE, fill=EDGE, anchor="end"))
    return y + 1.6 * _LINE


def _bits(drawing: Drawing, bar: _Bar, top: int, bottom: int, left: float, y: float) -> None:
    """The bits of a magnitude, from its leading one to its last."""
    magnitude, last = abs(bar.value.significand), bar.value.last
    sign = "-" if bar.value.significand < 0 else "+"
    for position in range(_top(bar.value), max(last, bottom) - 1, -1):
        one = magnitude >> (position - last) & 1
        lost = bar.floor is not None and position < bar.floor
        fill = BITS["lost" if lost else bar.kind][0 if one else 1]
        outline = MARK if bar.marked and lost and one else ""
        note = f"{sign}{one} * 2^{position}" + (", dropped" if lost else "")
        drawing.rects.append(Rect(left + (top - position) * _BIT, y - 6, _BIT - 1, 12, fill, outline, note))
    drawing.labels.append(Label(left + (top - _top(bar.value)) * _BIT - 1, y, sign, LITTLE, anchor="end", fixed_pitch=True))


def drawn(shown: Derivation, k: tuple[int, int] | None = None) -> Drawing:
    """Steps of an explanation, one below the other; of two that stand against each other, those of the first difference."""
    drawing = Drawing(width=500.0)
    y = _MARGIN
    difference = shown.difference
    parts: list[tuple[Derivation, Sequence[Step], Collection[int]]] = [(shown, within(shown, k), ())]
    if shown.against is not None and difference is not None:
        parts = [(shown, difference.steps, difference.terms), (shown.against, difference.other_steps, difference.terms)]
    drawn_steps = [[(step, _bars(step, parted)) for step in steps] for _, steps, parted in parts]
    names = (name for steps in drawn_steps for step, bars in steps for name in (zeros_text(step), *(bar.name for bar in bars)))
    left = 2 * _MARGIN + max((len(name) for name in names), default=0) * _LETTER
    for (explanation, _, _), steps in zip(parts, drawn_steps, strict=True):
        places = {id(step): index for index, step in enumerate(explanation.steps)}
        for text, size in ((title(explanation), LARGE), (explanation.label, MIDDLE)):
            drawing.labels.append(Label(_MARGIN, y, text, size, bold=size == LARGE, anchor="start"))
            drawing.width = max(drawing.width, 2 * _MARGIN + len(text) * size * 0.66)
            y += 1.4 * _LINE
        for step, bars in steps:
            y = _paint(drawing, step, bars, places[id(step)], y, left)
    drawing.width, drawing.height = math.ceil(drawing.width), math.ceil(y)
    drawing.labels.sort(key=lambda label: label[3:])
    drawing.rects.sort(key=lambda rect: bool(rect.outline))
    return drawing


def save(shown: Derivation, path: Path, k: tuple[int, int] | None = None) -> None:
    """Write the picture to a file, as its suffix says.

    Raises
    ------
    OperandError
        If it says something else than SVG, PNG, PDF or TikZ, or the steps are too many for one page.
    BackendError
        If matplotlib is needed and not installed.
    """
    if path.suffix not in SUFFIXES:
        raise OperandError(f"explain: a picture is {', '.join(SUFFIXES)}, not {path.name}")
    drawing = drawn(shown, k)
    if SUFFIXES[path.suffix] not in TEXTS and drawing.height > _HIGHEST:
        raise OperandError(f"explain: a picture of {len(within(shown, k))} steps is too high for {path.suffix}; choose some by k")
    save_drawing(drawing, path, SUFFIXES[path.suffix])
