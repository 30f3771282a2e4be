"""Formats in order, with the relative error of every layer as a mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastmma.host.figures.panels import inches, pages, panels, title
from fastmma.host.figures.style import EDGE, INK, SMALL, in_style, looks
from fastmma.host.figures.zero import scale_of, set_scale
from fastmma.study.conclusion import percent
from fastmma.study.layered import layered
from fastmma.study.pictures.lines import RELATIVE
from fastmma.study.records import Record

_ROW, _AROUND = 0.38, 0.75  # inches


@in_style
def strips(records: Sequence[Record]) -> list[Any]:
    """A row for each format, those first that lose least: a mark for each layer, the median, and the name of the layer that loses most."""
    tables = layered(records)
    style = looks(list(dict.fromkeys(name for table in tables for name in table.series)))
    found = pages([len(table.series) for table in tables], _ROW, _AROUND)
    drawn = [panels([_ROW * (part.last - part.first) + _AROUND for part in page]) for page in found]
    for panel, part in zip((panel for _, axes in drawn for panel in axes), (part for page in found for part in page), strict=True):
        table = tables[part.panel]
        ranked = table.ranked()[part.first : part.last]
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
        told = [table.title, table.common, f"formats {part}" if str(part) else ""]
        title(panel, "; ".join(filter(None, told)), max(inches(name, SMALL) for name in ranked))
    return [figure for figure, _ in drawn]
