"""A heat map of layers and formats: which layers lose more than others under each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastmma.figures.style import EDGE, INK, PAPER, SMALL, WIDTH, in_style, inches, panels, title
from fastmma.study.conclusion import percent
from fastmma.study.layered import Layered, layered
from fastmma.study.records import Record

_ROW, _AROUND = 0.142, 1.0  # inches
_CELL, _WIDEST_CELL = 0.5, 1.1
_LEAST_RANGE = 1.25  # a factor beside the median that has full colour, at least
_LESS, _MORE = "#4b9cd3", "#e07b39"
_SIZE = 6.0


def _ratio(record: Record | None, middle: float | None) -> float:
    """The logarithm of an error over the median; 0 where one of them is nothing."""
    if record is None or not record["relative_error"] or not middle:
        return 0.0
    return math.log2(record["relative_error"] / middle)


def _panel(panel: Any, table: Layered, colours: Any) -> None:
    ranked = table.ranked()
    middles = {name: table.middle(name) for name in ranked}
    shades = [[_ratio(table.cells.get((layer, name)), middles[name]) for name in ranked] for layer in table.layers]
    reach = max(math.log2(_LEAST_RANGE), *(abs(shade) for row in shades for shade in row))
    image = panel.imshow(shades, cmap=colours, vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")
    for row, layer in enumerate(table.layers):
        for column, name in enumerate(ranked):
            record = table.cells.get((layer, name))
            text = percent(record["relative_error"]) if record else ""
            panel.text(column, row, text, fontsize=_SIZE, ha="center", va="center_baseline", color=INK)
    panel.set_yticks(range(len(table.layers)), table.layers, fontsize=SMALL, parse_math=False)
    headings = [name.replace(",", ",\n") + f"\nmedian {percent(middles[name])}" for name in ranked]
    panel.set_xticks(range(len(ranked)), headings, fontsize=SMALL)
    panel.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    panel.spines[:].set_visible(False)
    panel.set_xticks([place - 0.5 for place in range(1, len(ranked))], minor=True)
    panel.set_yticks([place - 0.5 for place in range(1, len(table.layers))], minor=True)
    panel.grid(which="minor", color=PAPER, linewidth=1.2)
    panel.tick_params(which="minor", length=0)
    bar = panel.figure.colorbar(image, ax=panel, fraction=0.025, pad=0.02, aspect=40)
    ticks = [-reach, 0.0, reach]
    bar.set_ticks(ticks, labels=[f"{2**tick:.2f} x" for tick in ticks])
    bar.ax.tick_params(labelsize=SMALL)
    bar.set_label("error over its format's median", fontsize=SMALL, color=EDGE)
    bar.outline.set_visible(False)
    left, width = max(inches(layer, SMALL) for layer in table.layers), panel.figure.get_figwidth()
    title(panel, f"Relative error ‖d - x‖ / ‖x‖: {table.title}" + (f"; {table.common}" if table.common else ""), left, width)


@in_style
def heat_map(records: Sequence[Record]) -> Any:
    """Layers in rows, formats in columns: numbers are relative errors, colours compare a layer with the others under the same format."""
    tables = layered(records)
    if not tables:
        return None
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("less to more", [_LESS, PAPER, _MORE])
    widths = [max(inches(layer, SMALL) for layer in table.layers) + _WIDEST_CELL * len(table.series) + 1.2 for table in tables]
    heights = [_ROW * len(table.layers) + _AROUND for table in tables]
    figure, axes = panels(heights, min(WIDTH, max(4.0, *widths)))
    for panel, table in zip(axes, tables, strict=True):
        _panel(panel, table, colours)
    return figure
