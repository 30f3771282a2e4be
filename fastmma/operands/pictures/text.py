"""Layouts as text: grids and lists of elements in Markdown, AsciiDoc, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from fastmma.operands.pictures.grid import Cell, Grid
from fastmma.operands.pictures.view import Placement

Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def grid_table(grid: Grid) -> Table:
    """Headings and rows of a grid; a cell reads ``T5:a2``."""
    rows = [
        [heading or "...", *("..." if box is None else box.head + (f":{box.tail}" if box.tail else "") for box in boxes)]
        for heading, boxes in zip(grid.rows, grid.boxes, strict=True)
    ]
    return ["", *(heading or "..." for heading in grid.cols)], rows


def cell_table(cells: Iterable[tuple[str, Cell]], tile: str = "") -> Table:
    """Headings and rows of a list of (operand, element), one element a row; `tile` is what one of several matrices is called."""
    headings = ["operand", "row", "col", *([tile] if tile else []), "lane", "element", "register", "bits"]
    rows = []
    for name, cell in cells:
        where = [cell.row, cell.col, *([cell.computation] if tile else []), cell.lane, cell.element, cell.register]
        rows.append([name, *map(str, where), f"{cell.bit + cell.bits - 1}:{cell.bit}"])
    return headings, rows


def markdown(table: Table) -> str:
    """A Markdown table."""
    headings, rows = table
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, ["---"] * len(headings), *rows))


def asciidoc(table: Table) -> str:
    """An AsciiDoc table."""
    headings, rows = table
    body = "\n".join("".join(f"|{cell} " for cell in row).rstrip() for row in rows)
    return f'[cols="{len(headings)}*",options="header"]\n|===\n{"".join(f"|{heading} " for heading in headings).rstrip()}\n\n{body}\n|===\n'


def csv_text(table: Table) -> str:
    """CSV with a line of headings."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table[0])
    writer.writerows(table[1])
    return file.getvalue()


def described(held: Placement) -> dict[str, Any]:
    """Return what an operand is, for JSON."""
    layout = held.layout
    return {
        "operand": held.name,
        "type": held.kind,
        "shape": list(layout.shape),
        "tiles": layout.tiles,
        "lanes": [int(lane) for lane in held.lanes],
        "registers": held.registers,
        "register_bits": layout.register_bits,
        "element_bits": layout.bits,
        "formulas": {dialect: held.formulas(dialect) for dialect in ("c", "ptx")},
    }


def json_text(value: Any) -> str:
    """JSON; lists of elements have one element a line."""
    if isinstance(value, dict):
        lists = {key: each for key, each in value.items() if key == "elements"}
        head = json.dumps({key: each for key, each in value.items() if key not in lists}, indent=2)
        if lists:
            lines = ",\n    ".join(json.dumps(each) for each in lists["elements"])
            return f'{head[:-2]},\n  "elements": [\n    {lines}\n  ]\n}}\n'
        return head + "\n"
    return json.dumps(value, indent=2) + "\n"
