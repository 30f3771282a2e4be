"""``fastmma trace``: the registers and lanes that feed one output."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from fastmma.cli.layout import element
from fastmma.cli.output import PICTURES, TABLES, chosen_format, print_lines, text_table, write, write_drawing
from fastmma.isa.table import multiply
from fastmma.operands.pictures.grid import Cell
from fastmma.operands.pictures.painting import draw, on_paper
from fastmma.operands.pictures.text import cell_table, json_text
from fastmma.operands.trace import Trace, placements
from fastmma.operands.trace import trace as trace_output


def _sides(cells: list[Cell], axis: int) -> str:
    numbers = sorted({cell[axis] for cell in cells})
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}..{numbers[-1]}"


def _rows(found: Trace) -> list[list[str]]:
    """One row a register: the elements in it that are wanted."""
    rows = []
    for name, cells in {"d": (found.d,), **found.sources}.items():
        for (lane, register), group in groupby(cells, key=lambda cell: (cell.lane, cell.register)):
            held = sorted(group, key=lambda cell: cell.bit)
            bits = f"{held[-1].bit + held[-1].bits - 1}:{held[0].bit}"
            if held[-1].bit - held[0].bit != (len(held) - 1) * held[0].bits:
                bits = " ".join(f"{cell.bit + cell.bits - 1}:{cell.bit}" for cell in held)
            rows.append([f"{name}[{_sides(held, 0)}][{_sides(held, 1)}]", f"T{lane}", str(register), bits])
    return rows


def trace(
    opcode: str,
    where: str,
    computation: int,
    fmt: str | None,
    as_json: bool,
    output: Path | None,
    selector: int,
    byte_id_a: int,
    thread_id_a: int,
    byte_id_b: int,
    thread_id_b: int,
) -> None:
    """Show one output of an instruction: the lanes (T), registers and bits that feed it, and where it lies."""
    chosen = "json" if as_json else chosen_format(fmt, output)
    ids = {"byte_id_a": byte_id_a, "thread_id_a": thread_id_a, "byte_id_b": byte_id_b, "thread_id_b": thread_id_b}
    found = trace_output(multiply(opcode), *element(where), computation, selector=selector, **ids)
    wanted = {"d": (found.d,), **found.sources}
    several = found.instruction.tiles > 1
    if chosen in PICTURES:
        held = placements(found.instruction, selector=selector, **ids)
        grids = [
            [None if name is None else held[name].matrices(highlight=wanted[name], names="registers")[computation] for name in row]
            for row in on_paper(wanted)
        ]
        write_drawing(draw(grids, title=found.instruction.opcode, notes=[found.equation, *_memory(found)]), chosen, output)
    elif chosen == "json":
        listed = [{"operand": name, **cell._asdict()} for name, cells in wanted.items() for cell in cells]
        about = {"opcode": found.instruction.opcode, "equation": found.equation, "memory": list(found.memory)}
        write(json_text({**about, "elements": listed}), output)
    elif chosen in TABLES:
        write(
            TABLES[chosen](
                cell_table([(name, cell) for name, cells in wanted.items() for cell in cells], "computation" if several else "")
            ),
            output,
        )
    else:
        head = [found.instruction.opcode, found.equation, *([f"computation {computation}"] if several else []), ""]
        table = text_table((("elements", "lane", "register", "bits"), _rows(found)))
        print_lines([*head, *table, *_memory(found)], output)


def _memory_of(source: str) -> str:
    return "Tensor Memory" if source.startswith("scale") else "shared memory"


def _memory(found: Trace) -> list[str]:
    return [f"{source} is read from {_memory_of(source)}" for source in found.memory]
