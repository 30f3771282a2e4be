"""A row for each format and accumulator: its SQNR, and how its errors are distributed in ULP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastmma.figures.style import RULE, SMALL, in_style, inches, looks, panels, title
from fastmma.study.conclusion import percent
from fastmma.study.layered import layered, series_names
from fastmma.study.metrics import ULP_EDGES
from fastmma.study.records import Record
from fastmma.study.report import deepest, grouped

_AROUND = 0.8  # inches of a panel that are no rows
_BAR, _HISTOGRAM = 0.19, 0.36  # inches of a row


def _titled(source: str, common: str, found: Sequence[Record]) -> str:
    return f"{common}; {source}, K = {found[0]['k']}" if common else f"{source}, K = {found[0]['k']}"


def _rows(panel: Any, names: Sequence[str]) -> None:
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.tick_params(axis="y", length=0)


@in_style
def sqnr(records: Sequence[Record]) -> Any:
    """The SQNR at the largest K, and the relative error that it stands for."""
    if layered(records):
        return None
    groups = {source: deepest(found) for source, found in grouped(records).items()}
    common, name_of = series_names(records)
    style = looks([name_of(record) for record in records])
    figure, axes = panels([_BAR * len(found) + _AROUND for found in groups.values()])
    most = max((record["sqnr_db"] or 0.0 for record in records), default=0.0)
    for panel, (source, found) in zip(axes, groups.items(), strict=True):
        heights = [record["sqnr_db"] or 0.0 for record in found]
        panel.barh(range(len(found)), heights, height=0.7, color=[style[name_of(record)].color for record in found])
        for row, record in enumerate(found):
            text = "no error" if record["relative_error"] == 0 else "nothing to compare"
            if record["sqnr_db"] is not None:
                text = f"{record['sqnr_db']:.1f} dB, {percent(record['relative_error'])}"
            panel.text(max(heights[row], 0.0), row, f" {text}", fontsize=SMALL, va="center_baseline")
        _rows(panel, [name_of(record) for record in found])
        panel.set_xlim(min(0.0, *heights), (most or 1.0) * 1.22)
        panel.set_xlabel("SQNR in dB, -20 log₁₀ of the relative error  ‖d - x‖ / ‖x‖")
        title(panel, _titled(source, common, found), max(inches(name_of(record), SMALL) for record in found))
    return figure


@in_style
def ulp_histogram(records: Sequence[Record]) -> Any:
    """How many results at the largest K are how many ULP away from the exact product of the rounded operands: a histogram a row."""
    if layered(records):
        return None
    groups = {source: deepest(found) for source, found in grouped(records).items()}
    common, name_of = series_names(records)
    style = looks([name_of(record) for record in records])
    labels = [f"≤ {edge:g}" for edge in ULP_EDGES[:4]] + [f"≤ 2$^{{{power}}}$" for power in range(3, len(ULP_EDGES) - 1)] + ["more"]
    figure, axes = panels([_HISTOGRAM * len(found) + _AROUND + 0.2 for found in groups.values()])
    for panel, (source, found) in zip(axes, groups.items(), strict=True):
        for row, record in enumerate(found):
            shares = [count / max(record["compared"], 1) for count in record["ulp_histogram"] or [0] * len(labels)]
            # rows go down, so that bars are negative; the highest of a row nearly reaches the row above
            heights = [-0.85 * share / (max(shares) or 1) for share in shares]
            panel.bar(range(len(labels)), heights, width=0.92, bottom=row + 0.5, color=style[name_of(record)].color)
            panel.axhline(row + 0.5, color=RULE, linewidth=0.5)
        _rows(panel, [name_of(record) for record in found])
        panel.set_xlim(-0.5, len(labels) - 0.5)
        panel.set_xticks(range(len(labels)), labels, rotation=90)
        panel.set_xlabel("error  |d - q|  in ULP of f32; every row has its own height")
        title(panel, _titled(source, common, found), max(inches(name_of(record), SMALL) for record in found))
    return figure
