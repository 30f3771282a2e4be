"""Formats in order, with the relative error of every layer as a mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastmma.figures.style import EDGE, INK, SMALL, in_style, inches, looks, panels, title
from fastmma.figures.zero import scale_of, set_scale
from fastmma.study.conclusion import percent
from fastmma.study.layered import layered
from fastmma.study.pictures.lines import RELATIVE
from fastmma.study.records import Record

_ROW, _AROUND = 0.38, 0.75  # inches


@in_style
def strips(records: Sequence[Record]) -> Any:
    """A row for each format, those first that lose least: a mark for each layer, the median, and the name of the layer that loses most."""
    tables = layered(records)
    if not tables:
        return None
    style = looks(list(dict.fromkeys(name for table in tables for name in table.series)))
    figure, axes = panels([_ROW * len(table.series) + _AROUND for table in tables])
    for panel, table in zip(axes, tables, strict=True):
        ranked = table.ranked()
        scale = scale_of(record["relative_error"] for record in table.cells.values() if record["relative_error"] is not None)
        set_scale(panel.xaxis, scale._replace(high=scale.high * 1.05))
        for row, name in enumerate(ranked):
            errors = {layer: record["relative_error"] for layer, record in table.of_series(name) if record["relative_error"] is not None}
            places = [scale.place(value) for value in errors.values()]
            panel.plot(places, [row] * len(places), "|", color=style[name].color, markersize=8, markeredgewidth=0.9, alpha=0.8)
            middle = table.middle(name)
            if middle is not None:
                worst = max(errors, key=lambda layer: errors[layer])
                panel.plot([scale.place(middle)], [row], "D", color=INK, markersize=3.2)
                note = f"median {percent(middle)}; most {percent(errors[worst])}, in {worst}"
                place = panel.get_yaxis_transform()
                panel.text(0.008, row - 0.36, note, transform=place, fontsize=SMALL, color=EDGE, va="center_baseline", parse_math=False)
        panel.set_yticks(range(len(ranked)), ranked)
        panel.set_ylim(len(ranked) - 0.6, -0.65)
        panel.tick_params(axis="y", length=0)
        panel.set_xlabel(f"{RELATIVE};  a stroke is a layer, the diamond their median")
        title(panel, f"{table.title}; {table.common}" if table.common else table.title, max(inches(name, SMALL) for name in ranked))
    return figure
