"""A heat map of layers and formats: which layers lose more than others under each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastmma.host.figures.panels import Part, inches, pages, panels, title
from fastmma.host.figures.style import EDGE, INK, LESS, MORE, PAPER, SMALL, WIDTH, in_style
from fastmma.study.conclusion import percent
from fastmma.study.layered import Layered, layered
from fastmma.study.records import Record

_ROW, _AROUND = 0.142, 1.0  # inches
_CELL = 1.1
_LEAST_RANGE = 1.25  # a factor beside the median that has full colour, at least
_SIZE = 6.0


def _ratio(record: Record | None, middle: float | None) -> float:
    """The logarithm of an error over the median; 0 where one of them is nothing."""
    if record is None or not record["relative_error"] or not middle:
        return 0.0
    return math.log2(record["relative_error"] / middle)


def _panel(panel: Any, table: Layered, part: Part, colours: Any) -> None:
    ranked = table.ranked()
    middles = {name: table.middle(name) for name in ranked}
    shades = [[_ratio(table.cells.get((layer, name)), middles[name]) for name in ranked] for layer in table.layers]
    reach = max(math.log2(_LEAST_RANGE), *(abs(shade) for row in shades for shade in row))
    layers = table.layers[part.first : part.last]
    image = panel.imshow(shades[part.first : part.last], cmap=colours, vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")
    for row, layer in enumerate(layers):
        for column, name in enumerate(ranked):
            record = table.cells.get((layer, name))
            text = percent(record["relative_error"]) if record else ""
            panel.text(column, row, text, fontsize=_SIZE, ha="center", va="center_baseline", color=INK)
    panel.set_yticks(range(len(layers)), layers, fontsize=SMALL, parse_math=False)
    headings = [name.replace(",", ",\n") + f"\nmedian {percent(middles[name])}" for name in ranked]
    panel.set_xticks(range(len(ranked)), headings, fontsize=SMALL)
    panel.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    panel.spines[:].set_visible(False)
    panel.set_xticks([place - 0.5 for place in range(1, len(ranked))], minor=True)
    panel.set_yticks([place - 0.5 for place in range(1, len(layers))], minor=True)
    panel.grid(which="minor", color=PAPER, linewidth=1.2)
    panel.tick_params(which="minor", length=0)
    bar = panel.figure.colorbar(image, ax=panel, fraction=0.025, pad=0.02, aspect=40)
    ticks = [-reach, 0.0, reach]
    bar.set_ticks(ticks, labels=[f"{2**tick:.2f} x" for tick in ticks])
    bar.ax.tick_params(labelsize=SMALL)
    bar.set_label("error over its format's median", fontsize=SMALL, color=EDGE)
    bar.outline.set_visible(False)
    left, width = max(inches(layer, SMALL) for layer in table.layers), panel.figure.get_figwidth()
    told = [f"Relative error ‖d - x‖ / ‖x‖: {table.title}", table.common, f"layers {part}" if str(part) else ""]
    title(panel, "; ".join(filter(None, told)), left, width)


@in_style
def heat_map(records: Sequence[Record]) -> list[Any]:
    """Layers in rows, formats in columns: numbers are relative errors, colours compare a layer with the others under the same format."""
    tables = layered(records)
    if not tables:
        return []
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("less to more", [LESS, PAPER, MORE])
    widths = [max(inches(layer, SMALL) for layer in table.layers) + _CELL * len(table.series) + 1.2 for table in tables]
    figures = []
    for page in pages([len(table.layers) for table in tables], _ROW, _AROUND):
        figure, axes = panels([_ROW * (part.last - part.first) + _AROUND for part in page], min(WIDTH, max(4.0, *widths)))
        figures.append(figure)
        for panel, part in zip(axes, page, strict=True):
            _panel(panel, tables[part.panel], part, colours)
    return figures
