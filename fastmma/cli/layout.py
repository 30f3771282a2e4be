"""``fastmma layout``: which lane, register and bits hold which element of an operand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from fastmma.cli.output import TABLES, chosen_format, grids_text, print_lines, text_table, write, write_drawing
from fastmma.isa.table import instruction
from fastmma.operands.pictures.drawing import draw
from fastmma.operands.pictures.grid import Cell, Grid
from fastmma.operands.pictures.text import cell_table, described, grid_table, json_text
from fastmma.operands.pictures.view import Placement
from fastmma.operands.placement import operand_names, placement

EXAMPLES = """
Examples:

\b
fastmma layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --operand b
fastmma layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --lane 5
fastmma layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --element 3,7
fastmma layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --register 2 --format csv
fastmma layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --formula
fastmma layout mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 --operand metadata --selector 1
fastmma layout ldmatrix.sync.aligned.m8n8.x4.b16 --register 2
fastmma layout wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 --operand d --output d.svg
"""


def element(text: str) -> tuple[int, int]:
    """``3,7`` as row and column."""
    parts = text.split(",")
    try:
        row, col = map(int, parts)
    except ValueError:
        raise typer.BadParameter(f"an element is written ROW,COL, for example 3,7, not {text!r}") from None
    return row, col


def _selected(
    held: Placement, lane: int | None, where: tuple[int, int] | None, computation: int | None, register: int | None
) -> list[Cell] | None:
    """The elements that the options ask for; None when they ask for all."""
    if where is not None:
        if lane is not None or register is not None:
            raise typer.BadParameter("--element asks for a lane and a register: give it without --lane and --register")
        return held.copies_of(*where, computation or 0)
    if lane is None and register is None and computation is None:
        return None
    cells = held.of_register(register) if register is not None else held.cells()
    if lane is not None:
        of_lane = set(held.of_lane(lane))
        cells = [cell for cell in cells if cell in of_lane]
    if computation is not None:
        if not 0 <= computation < held.layout.tiles:
            raise typer.BadParameter(f"there is no {held.tile} {computation}: there are {held.layout.tiles}, counted from 0")
        cells = [cell for cell in cells if cell.computation == computation]
    return cells


def _heading(opcode: str, held: Placement) -> list[str]:
    """Two lines about an operand."""
    layout = held.layout
    matrix = f"{held.name}: {layout.shape[0]} x {layout.shape[1]} {held.kind}"
    count = f"{held.registers} {layout.register_bits}-bit register{'s' if held.registers > 1 else ''} in each of {layout.lanes} lanes"
    copies = f", each element held {layout.copies} times" if layout.copies > 1 else ""
    return [opcode, f"{matrix}, {count}{copies}"]


def _formula_lines(held: Placement) -> list[str]:
    lines = ["C, i being the index of an element in its lane:"]
    lines += [f"  {name} = {text}" if name != "holds" else f"  only lanes with {text}" for name, text in held.formulas("c").items()]
    lines += ["", "PTX:"]
    return lines + [f"  {name} = {text}" for name, text in held.formulas("ptx").items()]


def _notes(held: Placement) -> list[str]:
    found = held.formulas()
    lines = [f"{name} = {found[name]}" for name in ("row", "col", held.tile) if name in found]
    return lines + ([f"lanes with {found['holds']}"] if "holds" in found else [])


def layout(
    opcode: Annotated[str, typer.Argument(help="For example mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")],
    operand: Annotated[
        str | None, typer.Option(help="a, b, c, d, metadata, scale_a or scale_b; r of what loads or stores. [default: the first]")
    ] = None,
    fmt: Annotated[str | None, typer.Option("--format", help="text, csv, markdown, asciidoc, json, svg or png.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file; its suffix tells the format where --format does not.")] = None,
    lane: Annotated[int | None, typer.Option(help="Everything that this lane holds.")] = None,
    where: Annotated[str | None, typer.Option("--element", help="ROW,COL: the lane, register and bits that hold this element.")] = None,
    register: Annotated[int | None, typer.Option(help="What this register of every lane holds.")] = None,
    computation: Annotated[int | None, typer.Option(help="Only this computation of m8n8k4, or this matrix of ldmatrix.")] = None,
    view: Annotated[Literal["matrix", "registers"], typer.Option(help="Who holds each element, or what each lane holds.")] = "matrix",
    transpose: Annotated[bool, typer.Option("--transpose", help="Swap the rows and the columns of the grid.")] = False,
    whole: Annotated[bool, typer.Option("--whole", help="Leave nothing out of large grids in text, svg and png.")] = False,
    formula: Annotated[bool, typer.Option("--formula", help="The closed formulas, in C and in PTX's words.")] = False,
    selector: Annotated[int | None, typer.Option(help="Sparsity selector, for metadata.")] = None,
    byte_id: Annotated[int | None, typer.Option(help="Byte selector, for scales.")] = None,
    thread_id: Annotated[int | None, typer.Option(help="Thread selector, for scales.")] = None,
) -> None:
    """Show which lane (T), register and bits hold each element of an operand."""
    chosen = chosen_format(fmt, output)
    ins = instruction(opcode)
    held = placement(ins, operand or operand_names(ins)[0], selector=selector, byte_id=byte_id, thread_id=thread_id)
    cells = _selected(held, lane, element(where) if where is not None else None, computation, register)
    if formula:
        _print_formula(ins.opcode, held, chosen, output)
        return
    if chosen in ("svg", "png"):
        grids = _grids(held, view, transpose, True, whole, cells)
        write_drawing(draw(grids, title=ins.opcode, notes=_notes(held)), chosen, output)
        return
    if transpose and (cells is not None or chosen in ("csv", "json")):
        raise typer.BadParameter("--transpose is for grids, and this is a list of elements")
    tile = held.tile if held.layout.tiles > 1 else ""
    listed = [(held.name, cell) for cell in (held.cells() if cells is None else cells)]
    if chosen == "json":
        elements = [cell._asdict() for _, cell in listed]
        write(json_text({"opcode": ins.opcode, **described(held), "elements": elements}), output)
    elif chosen in TABLES and (cells is not None or chosen == "csv"):
        write(TABLES[chosen](cell_table(listed, tile)), output)
    elif chosen in TABLES:
        grids = _grids(held, view, transpose, False, True, None)
        write("\n".join(TABLES[chosen](grid_table(grid)) for grid in grids), output)
    elif cells is None:
        heading = [*map(Text, _heading(ins.opcode, held)), Text()]
        print_lines([*heading, *grids_text(_grids(held, view, transpose, True, whole, None), output)], output)
    else:
        heading = [*map(Text, _heading(ins.opcode, held)), Text()]
        print_lines([*heading, *text_table(cell_table(listed, tile))], output)


layout.__doc__ = f"{layout.__doc__}\n{EXAMPLES}"


def _grids(held: Placement, view: str, transpose: bool, fold: bool, whole: bool, cells: list[Cell] | None) -> list[Grid]:
    if view == "registers":
        return [held.register_file(transpose=transpose, whole=whole, highlight=cells)]
    return held.matrices(transpose=transpose, fold=fold, whole=whole, highlight=cells)


def _print_formula(opcode: str, held: Placement, chosen: str, output: Path | None) -> None:
    if chosen == "json":
        shown: dict[str, Any] = {"opcode": opcode, **described(held)}
        write(json_text(shown), output)
    elif chosen == "text":
        write("\n".join([*_heading(opcode, held), "", *_formula_lines(held), ""]), output)
    else:
        raise typer.BadParameter(f"formulas come as text or json, not as {chosen}")
