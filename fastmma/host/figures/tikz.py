"""A drawing as TikZ, for LaTeX documents."""

from __future__ import annotations

import re

from fastmma.host.figures.drawing import DPI, Drawing, Label, Rect

_BOLD = r"\bfseries"
_POINTS = 72 / DPI  # of a pixel
_ANCHORS = {"start": "west", "middle": "center", "end": "east"}
_SPECIAL = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
_SYMBOLS = {"\u22ef": r"$\cdots$", "\u22ee": r"$\vdots$", "<": r"$<$", ">": r"$>$", "|": r"$|$"}


def tikz(drawing: Drawing) -> str:
    """A ``tikzpicture``, to be read with ``\\input`` where ``\\usepackage{tikz}`` is; 100 pixels are an inch."""
    fills = sorted({rect.fill for rect in drawing.rects} | {label.fill for label in drawing.labels} | _outlines(drawing))
    lines = ["% needs \\usepackage{tikz}", f"\\begin{{tikzpicture}}[x={_POINTS}bp, y=-{_POINTS}bp, inner sep=0pt, outer sep=0pt]"]
    lines += [f"\\definecolor{{{_colour(fill)}}}{{HTML}}{{{fill[1:].upper()}}}" for fill in fills]
    lines.append(f"\\useasboundingbox (0,0) rectangle ({drawing.width:g},{drawing.height:g});")
    lines += map(_rect, drawing.rects)
    lines += map(_label, drawing.labels)
    return "\n".join([*lines, "\\end{tikzpicture}\n"])


def _outlines(drawing: Drawing) -> set[str]:
    return {rect.outline for rect in drawing.rects if rect.outline}


def _colour(fill: str) -> str:
    return f"c{fill[1:]}"


def _rect(rect: Rect) -> str:
    line = f", draw={_colour(rect.outline)}, line width=0.8bp" if rect.outline else ""
    return f"\\path[fill={_colour(rect.fill)}{line}] ({rect.x:g},{rect.y:g}) rectangle ({rect.x + rect.width:g},{rect.y + rect.height:g});"


def _label(label: Label) -> str:
    size = label.size * _POINTS
    family = r"\ttfamily" if label.fixed_pitch else r"\sffamily"
    font = f"\\fontsize{{{size:.3g}bp}}{{{1.2 * size:.3g}bp}}{family}{_BOLD if label.bold else ''}\\selectfont"
    style = f"anchor={_ANCHORS[label.anchor]}, text={_colour(label.fill)}, font={font}"
    return f"\\node[{style}] at ({label.x:g},{label.y:g}) {{{_text(label)}}};"


def _text(label: Label) -> str:
    """The text with what TeX reads as commands escaped; spaces of a fixed pitch are kept."""
    text = "".join(_SYMBOLS.get(each) or _SPECIAL.get(each) or re.sub(r"([#$%&_])", r"\\\1", each) for each in label.text)
    return text.replace("  ", "~~") if label.fixed_pitch else text
