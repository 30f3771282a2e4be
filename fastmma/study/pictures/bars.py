"""A row for each format and accumulator: its SQNR, and how its errors are distributed in ULP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastmma.host.figures.panels import inches, pages, panels, title
from fastmma.host.figures.style import RULE, SMALL, in_style, looks
from fastmma.study.conclusion import percent
from fastmma.study.groups import deepest, grouped
from fastmma.study.layered import layered, series_names
from fastmma.study.metrics import ULP_EDGES
from fastmma.study.records import Record

_BAR, _AROUND_BARS = 0.19, 0.8  # inches of a row, and of what is around the rows
_HISTOGRAM, _AROUND_HISTOGRAMS = 0.36, 1.0
Rows = Callable[[Any, Sequence[Record], Sequence[str]], None]


def _draw(records: Sequence[Record], row: float, around: float, draw: Rows) -> list[Any]:
    """Figures of a panel for each source, which `draw` fills with rows of some colours, at the largest K."""
    if layered(records):
        return []
    groups = [(source, deepest(found)) for source, found in grouped(records).items()]
    common, name_of = series_names(records)
    style = looks([name_of(record) for record in records])
    figures = []
    for page in pages([len(found) for _, found in groups], row, around):
        figure, axes = panels([row * (part.last - part.first) + around for part in page])
        figures.append(figure)
        for panel, part in zip(axes, page, strict=True):
            source, every = groups[part.panel]
            found = every[part.first : part.last]
            names = [name_of(record) for record in found]
            draw(panel, found, [style[name].color for name in names])
            panel.set_yticks(range(len(names)), names)
            panel.set_ylim(len(names) - 0.5, -0.5)
            panel.tick_params(axis="y", length=0)
            told = [common, source, f"K = {found[0]['k']}", f"rows {part}" if str(part) else ""]
            title(panel, ", ".join(filter(None, told)), max(inches(name, SMALL) for name in names))
    return figures


@in_style
def sqnr(records: Sequence[Record]) -> list[Any]:
    """The SQNR at the largest K, and the relative error that it stands for."""
    most = max((record["sqnr_db"] or 0.0 for record in records), default=0.0)

    def draw(panel: Any, found: Sequence[Record], colours: Sequence[str]) -> None:
        heights = [record["sqnr_db"] or 0.0 for record in found]
        panel.barh(range(len(found)), heights, height=0.7, color=colours)
        for row, record in enumerate(found):
            text = "no error" if record["relative_error"] == 0 else "nothing to compare"
            if record["sqnr_db"] is not None:
                text = f"{record['sqnr_db']:.1f} dB, {percent(record['relative_error'])}"
            panel.text(max(heights[row], 0.0), row, f" {text}", fontsize=SMALL, va="center_baseline")
        panel.set_xlim(min(0.0, *heights), (most or 1.0) * 1.22)
        panel.set_xlabel("SQNR in dB, -20 log₁₀ of the relative error  ‖d - x‖ / ‖x‖")

    return _draw(records, _BAR, _AROUND_BARS, draw)


@in_style
def ulp_histogram(records: Sequence[Record]) -> list[Any]:
    """Return how many results at the largest K are how many ULP away from the exact product of the rounded operands: a histogram a row."""
    labels = [f"≤ {edge:g}" for edge in ULP_EDGES[:4]] + [f"≤ 2$^{{{power}}}$" for power in range(3, len(ULP_EDGES) - 1)] + ["more"]

    def draw(panel: Any, found: Sequence[Record], colours: Sequence[str]) -> None:
        for row, (record, colour) in enumerate(zip(found, colours, strict=True)):
            shares = [count / max(record["compared"], 1) for count in record["ulp_histogram"] or [0] * len(labels)]
            # rows go down, so that bars are negative; the highest of a row nearly reaches the row above
            heights = {place: -0.85 * share / max(shares) for place, share in enumerate(shares) if share}  # none is drawn as a line in PDF
            panel.bar(list(heights), list(heights.values()), width=0.92, bottom=row + 0.5, color=colour)
            panel.axhline(row + 0.5, color=RULE, linewidth=0.5)
        panel.set_xlim(-0.5, len(labels) - 0.5)
        panel.set_xticks(range(len(labels)), labels, rotation=90)
        panel.set_xlabel("error  |d - q|  in ULP of f32; every row has its own height")

    return _draw(records, _HISTOGRAM, _AROUND_HISTOGRAMS, draw)
