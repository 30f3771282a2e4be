"""``fastmma layout``: which lane, register and bits hold which element of an operand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from fastmma.cli.output import PICTURES, TABLES, chosen_format, grids_text, print_lines, text_table, write, write_drawing
from fastmma.isa.cute import atoms
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.table import instruction
from fastmma.operands.pictures.grid import Cell, Grid
from fastmma.operands.pictures.painting import draw, in_pairs, on_paper
from fastmma.operands.pictures.text import cell_table, described, grid_table, json_text
from fastmma.operands.pictures.view import Placement
from fastmma.operands.placement import operand_names, placement

if TYPE_CHECKING:
    from fastmma.host.figures.drawing import Drawing

ALL = "all"


def element(text: str) -> tuple[int, int]:
    """``3,7`` as row and column."""
    parts = text.split(",")
    try:
        row, col = map(int, parts)
    except ValueError:
        raise click.BadParameter(f"an element is written ROW,COL, for example 3,7, not {text!r}") from None
    return row, col


def _selected(
    held: Placement, lane: int | None, where: tuple[int, int] | None, computation: int | None, register: int | None
) -> list[Cell] | None:
    """The elements that the options ask for; None when they ask for all."""
    if where is not None:
        return held.copies_of(*where, computation or 0)
    if lane is None and register is None and computation is None:
        return None
    cells = held.of_register(register) if register is not None else held.cells()
    if lane is not None:
        of_lane = set(held.of_lane(lane))
        cells = [cell for cell in cells if cell in of_lane]
    if computation is not None:
        if not 0 <= computation < held.layout.tiles:
            raise click.BadParameter(f"there is no {held.tile} {computation}: there are {held.layout.tiles}, counted from 0")
        cells = [cell for cell in cells if cell.computation == computation]
    return cells


def _heading(held: Placement) -> str:
    """A line about an operand."""
    layout = held.layout
    matrix = f"{held.name}: {layout.shape[0]} x {layout.shape[1]} {held.kind}"
    count = (
        f"{held.registers} {layout.register_bits}-bit {held.register}{'s' if held.registers > 1 else ''} in each of {layout.lanes} lanes"
    )
    copies = f", each element held {layout.copies} times" if layout.copies > 1 else ""
    return f"{matrix}, {count}{copies}"


def _formula_lines(held: Placement) -> list[str]:
    lines = ["C, i being the index of an element in its lane:"]
    lines += [f"  {name} = {text}" if name != "holds" else f"  only lanes with {text}" for name, text in held.formulas("c").items()]
    lines += ["", "PTX:"]
    return lines + [f"  {name} = {text}" for name, text in held.formulas("ptx").items()]


def _notes(ins: Instruction | Movement, every: list[Placement]) -> list[str]:
    """Return what stands over a picture: the names that CuTe has for the instruction, and formulas."""
    width = max(4, *(len(held.name) for held in every))
    lines = [f"{'CuTe'.ljust(width)}  {name}" for name in atoms(ins)]
    for held in every:
        found = held.formulas()
        parts = [f"{name} = {found[name]}" for name in (held.tile, "row", "col") if name in found]
        lines.append(f"{held.name.ljust(width)}  {', '.join(parts)}" + (f"; lanes with {found['holds']}" if "holds" in found else ""))
    return lines


def _chosen(ins: Instruction | Movement, operand: str | None, selectors: dict[str, dict[str, int | None]]) -> list[Placement]:
    """The operands asked for, with the selectors; c and d as one where they lie alike."""
    if operand != ALL:
        given = {key: value for each in selectors.values() for key, value in each.items()}
        return [placement(ins, operand or operand_names(ins)[0], **given)]
    names = operand_names(ins)
    if any(value is not None for name, each in selectors.items() if name not in names for value in each.values()):
        raise click.BadParameter(f"{ins.opcode} has no operand that takes these selectors; there are {', '.join(names)}")
    every = {name: placement(ins, name, **selectors.get(name, {})) for name in names}
    if "c" in every and (every["c"].layout, every["c"].kind) == (every["d"].layout, every["d"].kind):
        every["d"] = replace(every["d"], name="c and d")
        del every["c"]
    return list(every.values())


def layout(
    opcode: str,
    operand: str | None,
    fmt: str | None,
    as_json: bool,
    output: Path | None,
    lane: int | None,
    where: str | None,
    register: int | None,
    computation: int | None,
    view: Literal["matrix", "registers"],
    names: Literal["registers", "elements"] | None,
    transpose: bool,
    whole: bool,
    formula: bool,
    selector: int | None,
    byte_id: int | None,
    thread_id: int | None,
) -> None:
    """Show one operand of an instruction: the lane (T), register and bits that hold each element."""
    chosen = "json" if as_json else chosen_format(fmt, output)
    ins = instruction(opcode)
    ids = {"byte_id": byte_id, "thread_id": thread_id}
    every = _chosen(ins, operand, {"metadata": {"selector": selector}, "scale_a": ids, "scale_b": ids})
    if where is not None and (lane is not None or register is not None):
        raise click.BadParameter("--element asks for a lane and a register: give it without --lane and --register")
    if len(every) > 1 and (where, register) != (None, None):
        raise click.BadParameter("--element and --register ask for one operand: name it with --operand")
    place = element(where) if where is not None else None
    selected = [_selected(held, lane, place, computation, register) for held in every]
    if formula:
        _print_formula(ins.opcode, every, chosen, output)
        return
    if chosen in PICTURES:
        write_drawing(_drawn(ins, every, selected, view, transpose, whole, names or "registers"), chosen, output)
        return
    some = any(cells is not None for cells in selected)
    if transpose and (some or chosen in ("csv", "json")):
        raise click.BadParameter("--transpose is for grids, and this is a list of elements")
    tile = every[0].tile if every[0].layout.tiles > 1 else ""
    listed = [(held.name, cell) for held, cells in zip(every, selected, strict=True) for cell in (held.cells() if cells is None else cells)]
    if chosen == "json":
        shown = [{**described(held), "elements": [cell._asdict() for name, cell in listed if name == held.name]} for held in every]
        write(json_text({"opcode": ins.opcode, **(shown[0] if len(shown) == 1 else {"operands": shown})}), output)
    elif chosen in TABLES and (some or chosen == "csv"):
        write(TABLES[chosen](cell_table(listed, tile)), output)
    elif chosen in TABLES:
        grids = [grid for held in every for grid in _grids(held, view, transpose, False, True, names or "elements")]
        write("\n".join(TABLES[chosen](grid_table(grid)) for grid in grids), output)
    elif some:
        heading = [ins.opcode, *map(_heading, every), ""]
        print_lines([*heading, *text_table(cell_table(listed, tile))], output)
    else:
        lines = [ins.opcode]
        for held in every:
            grids = _grids(held, view, transpose, True, whole, names or "elements")
            lines += [_heading(held), "", *grids_text(grids, output), ""]
        print_lines(lines[:-1], output)


def _grids(
    held: Placement, view: str, transpose: bool, fold: bool, whole: bool, names: str, cells: list[Cell] | None = None, repeats: bool = False
) -> list[Grid]:
    if view == "registers":
        return [held.register_file(transpose=transpose, whole=whole, highlight=cells)]
    return held.matrices(transpose=transpose, fold=fold, whole=whole, highlight=cells, names=names, repeats=repeats)


def _drawn(
    ins: Instruction | Movement,
    every: list[Placement],
    selected: list[list[Cell] | None],
    view: str,
    transpose: bool,
    whole: bool,
    names: str,
) -> Drawing:
    """A picture; all operands of a product stand as on paper."""
    grids = {
        held.name.removeprefix("c and "): _grids(held, view, transpose, True, whole, names, cells, not whole)
        for held, cells in zip(every, selected, strict=True)
    }
    placed = in_pairs([grid for found in grids.values() for grid in found])
    if all(len(found) == 1 for found in grids.values()) and not transpose and view == "matrix":
        placed = [[None if name is None else grids[name][0] for name in row] for row in on_paper(grids)]
    return draw(placed, title=ins.opcode, notes=_notes(ins, every))


def _print_formula(opcode: str, every: list[Placement], chosen: str, output: Path | None) -> None:
    if chosen == "json":
        shown: list[dict[str, Any]] = [described(held) for held in every]
        write(json_text({"opcode": opcode, **(shown[0] if len(shown) == 1 else {"operands": shown})}), output)
    elif chosen == "text":
        parts = [[_heading(held), "", *_formula_lines(held), ""] for held in every]
        write("\n".join([opcode, *(line for part in parts for line in part)]), output)
    else:
        raise click.BadParameter(f"formulas come as text or json, not as {chosen}")
