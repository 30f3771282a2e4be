"""Pictures with matplotlib, which is imported only when one is asked for."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from fastmma.host.errors import BackendError

if TYPE_CHECKING:
    from fastmma.operands.pictures.drawing import Drawing

_DPI = 100
_PRINTED_DPI = 300


def _figure(width: float, height: float) -> Any:
    """A figure of that many pixels at 100 dots an inch, outside pyplot's registry."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BackendError("pictures other than SVG need matplotlib: pip install 'fastmma[plots]'") from None
    return Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor="white")


def figure(drawing: Drawing) -> Any:
    """A drawing as a matplotlib figure.

    Raises
    ------
    BackendError
        If matplotlib is not installed.
    """
    shown = _figure(drawing.width, drawing.height)
    from matplotlib.collections import PolyCollection

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
            label.text.replace("$", r"\$"),
            fontsize=label.size * 72 / _DPI,
            fontweight="bold" if label.bold else "normal",
            color=label.fill,
            family="DejaVu Sans Mono" if label.fixed_pitch else "DejaVu Sans",
            ha={"start": "left", "middle": "center", "end": "right"}[label.anchor],
            va="center_baseline",
        )
    return shown


def save(drawing: Drawing, file: IO[bytes], fmt: str) -> None:
    """Write a drawing as PNG of 300 dots an inch or as PDF, 100 of its pixels an inch.

    Raises
    ------
    BackendError
        If matplotlib is not installed.
    """
    made = figure(drawing)
    from matplotlib import rc_context

    # text that stays text, and no date, so that equal pictures are equal files
    with rc_context({"pdf.fonttype": 42}):
        made.savefig(file, format=fmt, dpi=_PRINTED_DPI, metadata={"CreationDate": None} if fmt == "pdf" else None)
