"""The pictures of a study, with matplotlib, which is imported only when one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastmma.host.calls import public_call
from fastmma.host.errors import BackendError
from fastmma.host.files import written
from fastmma.numerics.changes import changes
from fastmma.study.metrics import ULP_EDGES
from fastmma.study.records import Record
from fastmma.study.report import deepest, grouped, series

_STYLES = ("-", "--", ":", "-.")
_MARKERS = "os^Dvx"
_WIDTH, _HEIGHT = 6.0, 4.2
_LINE = 0.17  # inches of a line of a legend
_BAR = 0.25  # and of a row with a name
_COLOURS = 10
_LONGEST = 70  # characters of a title


def _panels(rows: int, columns: int, height: float = _HEIGHT) -> tuple[Any, Any]:
    """A figure with a grid of axes, outside pyplot's registry, and room for a legend on the right."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BackendError("pictures need matplotlib: pip install 'fastmma[plots]'") from None
    figure = Figure(figsize=(_WIDTH * columns + 2, height * rows), dpi=100, facecolor="white", layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _panel_each(count: int, height: float = _HEIGHT) -> tuple[Any, Any]:
    """A figure with that many axes, at most two next to each other."""
    columns = min(count, 2)
    figure, axes = _panels(-(-count // columns), columns, height)
    for empty in axes.flat[count:]:
        empty.set_axis_off()
    return figure, axes


def _style(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A look for each name: lines that coincide are told apart by their markers."""
    looks = ((f"C{i % _COLOURS}", _STYLES[i // _COLOURS % len(_STYLES)], _MARKERS[i % len(_MARKERS)]) for i in range(len(names)))
    return {
        name: {"color": colour, "linestyle": style, "marker": marker} for name, (colour, style, marker) in zip(names, looks, strict=True)
    }


def _legend(figure: Any, axes: Any) -> None:
    entries: dict[str, Any] = {}
    for each in axes.flat:
        handles, labels = each.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside right upper", fontsize=7, frameon=False, handlelength=4)


def _title(panel: Any, text: str) -> None:
    """A title that stays within its panel; names of files are no formulas."""
    panel.set_title(text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}", fontsize=10, parse_math=False)


def _names(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(map(series, records)))


def error_against_depth(records: Sequence[Record]) -> Any:
    """Accumulation error and whole error against K, a line for each format and accumulator."""
    groups = grouped(records)
    style = _style(_names(records))
    figure, axes = _panels(len(groups), 2, max(_HEIGHT, (_LINE * len(style) + 0.2) / len(groups)))
    for row, (source, found) in enumerate(groups.items()):
        for column, metric in enumerate(("accumulation_error", "relative_error")):
            panel = axes[row, column]
            for name in _names(found):
                points = sorted((record["k"], record[metric]) for record in found if series(record) == name and record[metric])
                panel.plot(*zip(*points, strict=True) if points else ((), ()), label=name, markersize=5, fillstyle="none", **style[name])
            _title(panel, source)
            panel.set(xlabel="K", ylabel=metric.replace("_", " "))
            panel.set_xscale("log", base=2)
            if any(record[metric] for record in found):
                panel.set_yscale("log")
            panel.grid(alpha=0.3)
    _legend(figure, axes)
    return figure


def sqnr(records: Sequence[Record]) -> Any:
    """The SQNR at the largest K, a bar for each format and accumulator."""
    groups = grouped(records)
    bars = max(len(deepest(found)) for found in groups.values())
    figure, axes = _panel_each(len(groups), max(_HEIGHT, _BAR * bars + 1))
    style = _style(_names(records))
    for panel, (source, found) in zip(axes.flat, groups.items(), strict=False):
        shown = deepest(found)
        heights = [record["sqnr_db"] or 0.0 for record in shown]
        drawn = panel.barh(range(len(shown)), heights, color=[style[series(record)]["color"] for record in shown])
        panel.bar_label(drawn, labels=["" if record["sqnr_db"] is None else f"{record['sqnr_db']:.1f}" for record in shown], fontsize=7)
        panel.set_yticks(range(len(shown)), [series(record) for record in shown], fontsize=7)
        panel.set_ylim(len(shown) - 0.5, -0.5)
        panel.margins(x=0.1)
        _title(panel, f"{source}, K = {shown[0]['k']}")
        panel.set_xlabel("SQNR, dB")
    return figure


def ulp_histogram(records: Sequence[Record]) -> Any:
    """How many results at the largest K are how many ULP away from the exact product of the rounded operands: a histogram a row."""
    groups = grouped(records)
    rows = max(len(deepest(found)) for found in groups.values())
    figure, axes = _panel_each(len(groups), max(_HEIGHT, 1.5 * _BAR * rows + 1.2))
    style = _style(_names(records))
    labels = [f"≤ {edge:g}" for edge in ULP_EDGES[:4]] + [f"≤ 2^{power}" for power in range(3, len(ULP_EDGES) - 1)] + ["more"]
    for panel, (source, found) in zip(axes.flat, groups.items(), strict=False):
        shown = deepest(found)
        for row, record in enumerate(shown):
            shares = [count / max(record["compared"], 1) for count in record["ulp_histogram"] or [0] * len(labels)]
            # rows go down, so that bars are negative; the highest of a row nearly reaches the row above
            heights = [-0.9 * share / (max(shares) or 1) for share in shares]
            panel.bar(range(len(labels)), heights, width=1, bottom=row + 0.5, color=style[series(record)]["color"])
            panel.axhline(row + 0.5, color="0.8", linewidth=0.5)
        panel.set_yticks(range(len(shown)), [series(record) for record in shown], fontsize=7)
        panel.set_ylim(len(shown) - 0.5, -0.5)
        panel.set_xlim(-0.5, len(labels) - 0.5)
        panel.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
        _title(panel, f"{source}, K = {shown[0]['k']}")
        panel.set_xlabel("ULP of f32; every row has its own scale")
    return figure


def _without_bits(record: Record) -> str:
    """What a record is compared by where alignment bits vary: everything else."""
    others = {name: value for name, value in changes(record["arithmetic"]).items() if name != "align_bits"}
    return series({**record, "arithmetic": ",".join(f"{name}={value}" for name, value in others.items())})


def error_against_align_bits(records: Sequence[Record]) -> Any:
    """Accumulation error against alignment bits at the largest K, a line for each other choice, level where they are not changed."""
    if not any("align_bits" in changes(record["arithmetic"]) for record in records):
        return None
    groups = grouped(records)
    style = _style(list(dict.fromkeys(map(_without_bits, records))))
    figure, axes = _panel_each(len(groups))
    for panel, (source, found) in zip(axes.flat, groups.items(), strict=False):
        lines: dict[str, list[tuple[int | None, float]]] = {}
        for record in deepest(found):
            if record["accumulation_error"]:
                point = changes(record["arithmetic"]).get("align_bits"), record["accumulation_error"]
                lines.setdefault(_without_bits(record), []).append(point)
        for name, points in lines.items():
            varied = sorted((bits, error) for bits, error in points if bits is not None)
            if varied:
                panel.plot(*zip(*varied, strict=True), label=name, markersize=5, fillstyle="none", **style[name])
            for error in (error for bits, error in points if bits is None):
                level = {"color": style[name]["color"], "linestyle": "--" if varied else style[name]["linestyle"]}
                panel.axhline(error, linewidth=1, label=None if varied else name, **level)
        _title(panel, f"{source}, K = {deepest(found)[0]['k']}")
        panel.set(xlabel="alignment bits", ylabel="accumulation error", yscale="log")
        panel.grid(alpha=0.3)
    _legend(figure, axes)
    return figure


# a picture that has nothing to show is None
PICTURES: dict[str, tuple[str, Callable[[Sequence[Record]], Any]]] = {
    "error_against_k.png": ("Error against K", error_against_depth),
    "sqnr.png": ("Signal to quantisation noise", sqnr),
    "ulp_histogram.png": ("Errors in units of the last place", ulp_histogram),
    "error_against_align_bits.png": ("Error against alignment bits", error_against_align_bits),
}


@public_call
def save(records: Sequence[Record], folder: Path) -> list[tuple[str, str]]:
    """Write all pictures as PNG, but those that have nothing to show, and return their titles and file names.

    Raises
    ------
    BackendError
        If matplotlib is not installed.
    """
    drawn = []
    for file, (title, draw) in PICTURES.items():
        figure = draw(records)
        if figure is not None:
            with written(folder / file) as output:
                figure.savefig(output, format="png")
            drawn.append((title, file))
    return drawn
