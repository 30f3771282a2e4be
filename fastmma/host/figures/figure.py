"""Drawings with matplotlib, which is imported only when one is asked for."""

from __future__ import annotations

from typing import Any

from fastmma.host.figures.drawing import DPI, Drawing
from fastmma.host.figures.style import PAPER, in_style

_FONTS = {True: "DejaVu Sans Mono", False: "DejaVu Sans"}
_ALIGNMENTS = {"start": "left", "middle": "center", "end": "right"}


@in_style
def figure(drawing: Drawing) -> Any:
    """A drawing as a matplotlib figure, outside pyplot's registry.

    Raises
    ------
    BackendError
        If matplotlib is not installed.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    shown = Figure(figsize=(drawing.width / DPI, drawing.height / DPI), dpi=DPI, facecolor=PAPER)
    axes = shown.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
    axes.set_axis_off()
    corners = [
        ((rect.x, rect.y), (rect.x + rect.width, rect.y), (rect.x + rect.width, rect.y + rect.height), (rect.x, rect.y + rect.height))
        for rect in drawing.rects
    ]
    outlines = [rect.outline or "none" for rect in drawing.rects]
    fills = [rect.fill for rect in drawing.rects]
    axes.add_collection(PolyCollection(corners, facecolors=fills, edgecolors=outlines, linewidths=1.1, antialiaseds=False))
    for label in drawing.labels:
        axes.text(
            label.x,
            label.y,
            label.text,
            parse_math=False,
            fontsize=label.size * 72 / DPI,
            fontweight="bold" if label.bold else "normal",
            color=label.fill,
            family=_FONTS[label.fixed_pitch],
            ha=_ALIGNMENTS[label.anchor],
            va="center_baseline",
        )
    return shown
