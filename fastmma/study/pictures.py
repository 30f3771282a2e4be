"""The pictures of a study, with matplotlib, which is imported only when one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastmma.errors import BackendError
from fastmma.study.metrics import ULP_EDGES
from fastmma.study.records import Record
from fastmma.study.report import deepest, grouped, series

_STYLES = ("-", "--", ":", "-.")
_WIDTH, _HEIGHT = 6.0, 4.2
_COLOURS = 10


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
    return {name: {"color": f"C{i % _COLOURS}", "linestyle": _STYLES[i // _COLOURS % len(_STYLES)]} for i, name in enumerate(names)}


def _legend(figure: Any, axes: Any) -> None:
    entries: dict[str, Any] = {}
    for each in axes.flat:
        handles, labels = each.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside right upper", fontsize=7, frameon=False)


def _names(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(map(series, records)))


def error_against_depth(records: Sequence[Record]) -> Any:
    """Accumulation error and whole error against K, a line for each format and accumulator."""
    groups = grouped(records)
    figure, axes = _panels(len(groups), 2)
    style = _style(_names(records))
    for row, (source, found) in enumerate(groups.items()):
        for column, metric in enumerate(("accumulation_error", "relative_error")):
            panel = axes[row, column]
            for name in _names(found):
                points = sorted((record["k"], record[metric]) for record in found if series(record) == name and record[metric])
                panel.plot(*zip(*points, strict=True) if points else ((), ()), marker=".", label=name, **style[name])
            panel.set(title=source, xlabel="K", ylabel=metric.replace("_", " "))
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
    figure, axes = _panel_each(len(groups), max(_HEIGHT, 0.25 * bars + 1))
    style = _style(_names(records))
    for panel, (source, found) in zip(axes.flat, groups.items(), strict=False):
        shown = deepest(found)
        heights = [record["sqnr_db"] or 0.0 for record in shown]
        drawn = panel.barh(range(len(shown)), heights, color=[style[series(record)]["color"] for record in shown])
        panel.bar_label(drawn, labels=["" if record["sqnr_db"] is None else f"{record['sqnr_db']:.1f}" for record in shown], fontsize=7)
        panel.set_yticks(range(len(shown)), [series(record) for record in shown], fontsize=7)
        panel.set_ylim(len(shown) - 0.5, -0.5)
        panel.margins(x=0.1)
        panel.set(title=f"{source}, K = {shown[0]['k']}", xlabel="SQNR, dB")
    return figure


def ulp_histogram(records: Sequence[Record]) -> Any:
    """How many results at the largest K are how many ULP away from the exact product of the rounded operands."""
    groups = grouped(records)
    figure, axes = _panel_each(len(groups))
    style = _style(_names(records))
    labels = [f"≤ {edge:g}" for edge in ULP_EDGES[:4]] + [f"≤ 2^{power}" for power in range(3, len(ULP_EDGES) - 1)] + ["more"]
    for panel, (source, found) in zip(axes.flat, groups.items(), strict=False):
        for record in deepest(found):
            counts = record["ulp_histogram"] or [0] * len(labels)
            share = [count / max(record["compared"], 1) for count in counts]
            panel.step(range(len(share)), share, where="mid", label=series(record), **style[series(record)])
        panel.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
        panel.set(title=f"{source}, K = {deepest(found)[0]['k']}", xlabel="ULP of f32", ylabel="share of the results")
    _legend(figure, axes)
    return figure


PICTURES: dict[str, tuple[str, Callable[[Sequence[Record]], Any]]] = {
    "error_against_k.png": ("Error against K", error_against_depth),
    "sqnr.png": ("Signal to quantisation noise", sqnr),
    "ulp_histogram.png": ("Errors in units of the last place", ulp_histogram),
}


def save(records: Sequence[Record], folder: Path) -> list[tuple[str, str]]:
    """Write all pictures as PNG and return their titles and file names.

    Raises
    ------
    BackendError
        If matplotlib is not installed.
    """
    drawn = []
    for file, (title, draw) in PICTURES.items():
        draw(records).savefig(folder / file, format="png")
        drawn.append((title, file))
    return drawn
