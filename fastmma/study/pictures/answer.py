"""The picture with which a report begins: it answers what the study asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from fastmma.host.figures.panels import inches, panels, title
from fastmma.host.figures.style import RULE, SMALL, in_style, looks
from fastmma.host.figures.zero import scale_of, set_scale
from fastmma.study.answers import compares_formats, promotions
from fastmma.study.groups import deepest, grouped
from fastmma.study.layered import layered, series_names
from fastmma.study.pictures.lines import ACCUMULATION, RELATIVE, Points, accumulation_against_depth, draw_lines, error_against_align_bits
from fastmma.study.records import Record

_ROW, _AROUND = 0.2, 1.1  # inches
_MOST_ROWS = 36


def _against_promotion(records: Sequence[Record]) -> list[Any]:
    """The accumulation error against the interval of promotion, a line for each target and kind of operands."""
    lines: Points = {}
    depth = max(record["k"] for record in records)
    for source, found in grouped(records).items():
        for (fmt, target), every in promotions(deepest(found)).items():
            lines[f"{fmt}, {target}, {source.removeprefix('operands drawn ')}"] = [
                (interval, record["accumulation_error"]) for interval, record in every.items()
            ]
    intervals = sorted({int(interval) for points in lines.values() for interval, _ in points})
    ticks = {interval: "never" if interval == depth else str(interval) for interval in intervals}
    return draw_lines({f"K = {depth}": lines}, "promoted every so many of K", "accumulation_error", ticks, 2) if lines else []


def _dots(records: Sequence[Record]) -> list[Any]:
    """A row for each format, or each accumulator, with a mark for each kind of operands: those first that lose least."""
    metric, label = ("relative_error", RELATIVE) if compares_formats(records) else ("accumulation_error", ACCUMULATION)
    common, name_of = series_names(records)
    found: dict[str, dict[str, float]] = {}
    for source, every in grouped(records).items():
        for record in deepest(every):
            if record[metric] is not None:
                name = record["format"] if compares_formats(records) else name_of(record)
                found.setdefault(name, {})[source] = record[metric]
    names = sorted(found, key=lambda name: median(found[name].values()))
    if not 1 < len(names) <= _MOST_ROWS:
        return []
    style = looks([source for every in found.values() for source in every])
    figure, (panel,) = panels([_ROW * len(names) + _AROUND])
    scale = scale_of(value for every in found.values() for value in every.values())
    set_scale(panel.xaxis, scale)
    for source, look in style.items():
        rows = [row for row, name in enumerate(names) if source in found[name]]
        places = [scale.place(found[names[row]][source]) for row in rows]
        panel.plot(places, rows, linestyle="", marker=look.marker, color=look.color, fillstyle="none", label=source)
    for row in range(len(names)):
        panel.axhline(row, color=RULE, linewidth=0.5, zorder=0)
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel(label)
    told = [common] if not compares_formats(records) and common else []
    title(panel, ", ".join([*told, f"K = {deepest(records)[0]['k']}"]), max(inches(name, SMALL) for name in names))
    figure.legend(loc="outside lower right", ncols=len(style) if len(style) < 5 else 1, prop={"size": SMALL})
    return [figure]


def _against_depth(records: Sequence[Record]) -> list[Any]:
    """The accumulation error of the first format against K."""
    first = records[0]["format"]
    return accumulation_against_depth([record for record in records if record["format"] == first])


_PICTURES: tuple[Callable[[Sequence[Record]], list[Any]], ...] = (error_against_align_bits, _against_promotion, _against_depth, _dots)


@in_style
def draw_answer(records: Sequence[Record]) -> list[Any]:
    """Draw the first picture that has something to show, of formats or of sums; none of layers, which have pictures of their own."""
    if layered(records):
        return []
    drawings = (_dots,) if compares_formats(records) else _PICTURES
    return next((figures for draw in drawings if (figures := draw(records))), [])[:1]
