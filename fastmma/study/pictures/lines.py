"""Errors as lines: against K, and against the alignment bits of an arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastmma.host.figures.panels import label_ends, line_height, pages, panels, title
from fastmma.host.figures.style import SMALL, in_style, looks
from fastmma.host.figures.zero import scale_of, set_scale
from fastmma.numerics.changes import changes
from fastmma.study.groups import deepest, grouped, series
from fastmma.study.layered import layered, series_names
from fastmma.study.records import Record

RELATIVE, ACCUMULATION = "relative error  ‖d - x‖ / ‖x‖", "accumulation error  ‖d - q‖ / ‖x‖"
_LABELS = {"relative_error": RELATIVE, "accumulation_error": ACCUMULATION}
_HEIGHT, _AROUND = 2.1, 0.75  # inches of a panel's frame at least, and of what is around it
Points = dict[str, list[tuple[float, float]]]


def draw_lines(groups: dict[str, Points], xlabel: str, metric: str, ticks: Mapping[int, str], base: int | None) -> list[Any]:
    """A panel for each source: lines through points, named where they end; `ticks` are places and what is written there."""
    names = list(dict.fromkeys(name for found in groups.values() for name in found))
    style = looks(names)
    frame = max(_HEIGHT, line_height(SMALL) * (len(names) + 1))
    drawn = [panels([frame + _AROUND] * len(page)) for page in pages([1] * len(groups), frame, _AROUND)]
    for panel, (source, found) in zip((panel for _, axes in drawn for panel in axes), groups.items(), strict=True):
        scale = scale_of(value for points in found.values() for _, value in points)
        set_scale(panel.yaxis, scale)
        if base:
            panel.set_xscale("log", base=base)
        ends = []
        for name, points in found.items():
            across, up = zip(*((place, scale.place(value)) for place, value in sorted(points)), strict=True)
            panel.plot(across, up, label=name, fillstyle="none", clip_on=False, **style[name]._asdict())
            ends.append((name, across[-1], up[-1], style[name]))
        panel.set_xticks(list(ticks), list(ticks.values()))
        panel.minorticks_off()
        panel.set_xlabel(xlabel)
        panel.set_ylabel(_LABELS[metric])
        title(panel, source)
        panel.margins(x=0.02)
        label_ends(panel, ends, frame)
    return [figure for figure, _ in drawn]


def _against_depth(records: Sequence[Record], metric: str) -> list[Any]:
    """A metric against K, where there are several of them."""
    if layered(records):
        return []
    groups: dict[str, Points] = {}
    depths: set[int] = set()
    common, name_of = series_names(records)
    for source, found in grouped(records).items():
        lines: Points = {}
        for record in found:
            if record[metric] is not None:
                lines.setdefault(name_of(record), []).append((record["k"], record[metric]))
        if len({record["k"] for record in found}) > 1 and lines:
            groups[f"{common}, {source}" if common else source] = lines
            depths |= {record["k"] for record in found}
    return draw_lines(groups, "K", metric, {depth: str(depth) for depth in sorted(depths)}, 2) if groups else []


@in_style
def error_against_depth(records: Sequence[Record]) -> list[Any]:
    """The relative error against K, a line for each format and accumulator."""
    return _against_depth(records, "relative_error")


@in_style
def accumulation_against_depth(records: Sequence[Record]) -> list[Any]:
    """The accumulation error against K, a line for each format and accumulator."""
    return _against_depth(records, "accumulation_error")


def _without_bits(record: Record) -> str:
    """Return what a record is compared by where alignment bits vary: everything else."""
    others = {name: value for name, value in changes(record["arithmetic"]).items() if name != "align_bits"}
    return series({**record, "arithmetic": ",".join(f"{name}={value}" for name, value in others.items())})


@in_style
def error_against_align_bits(records: Sequence[Record]) -> list[Any]:
    """Accumulation error against alignment bits at the largest K, a line for each other choice, level where they are not changed."""
    varied = sorted({bits for record in records if (bits := changes(record["arithmetic"]).get("align_bits")) is not None})
    if len(varied) < 2 or layered(records):
        return []
    groups: dict[str, Points] = {}
    for source, found in grouped(records).items():
        lines: Points = {}
        for record in deepest(found):
            if record["accumulation_error"] is not None:
                bits = changes(record["arithmetic"]).get("align_bits")
                name = _without_bits(record) if bits is not None else f"{_without_bits(record)}, unchanged"
                lines.setdefault(name, []).extend((each, record["accumulation_error"]) for each in ([bits] if bits is not None else varied))
        groups[f"{source}, K = {deepest(found)[0]['k']}"] = lines
    return draw_lines(groups, "alignment bits", "accumulation_error", {bits: str(bits) for bits in varied}, None)
