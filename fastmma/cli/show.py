"""``fastmma show``: one instruction, from its types to the evidence for its arithmetic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from fastmma.cli.table import print_json, print_table
from fastmma.errors import TargetError
from fastmma.isa.model import Instruction, Operand
from fastmma.isa.table import instruction
from fastmma.layout import Layout, Mode
from fastmma.numerics import arithmetic


def _digits(variable: str, modes: Iterable[Mode], axis: int, total: int) -> list[str]:
    """The summands of a coordinate that come from one mixed-radix number."""
    summands = []
    place = 1
    for mode in modes:
        if mode[axis]:
            digit = variable if place == 1 else f"{variable} / {place}"
            if place * mode.size < total:
                digit = f"{digit} % {mode.size}" if place == 1 else f"({digit}) % {mode.size}"
            step = f" * {mode[axis]}" if mode[axis] > 1 else ""
            summands.append(f"({digit}){step}" if step and digit != variable else f"{digit}{step}")
        place *= mode.size
    return summands


def formula(layout: Layout, axis: int) -> str:
    """A coordinate of a layout (1 row, 2 column, 3 computation) as a formula of ``lane`` and element ``i``, in integer division."""
    summands = [*_digits("lane", layout.lane, axis, layout.lanes), *_digits("i", layout.element, axis, layout.elements)]
    return " + ".join(summands) or "0"


def _operand(operand: Operand) -> dict[str, Any]:
    layout = operand.layout
    described: dict[str, Any] = {
        "type": operand.format.name,
        "shape": list(layout.shape),
        "registers": layout.registers,
        "register_bits": layout.register_bits,
        "elements": layout.elements,
        "row": formula(layout, 1),
        "col": formula(layout, 2),
    }
    return described | ({"computation": formula(layout, 3)} if layout.tiles > 1 else {})


def _target(ins: Instruction, target: str) -> dict[str, Any]:
    try:
        row = arithmetic(ins, target, strict=False)
    except TargetError:
        return {"target": target, "numerics": None, "level": "unknown", "source": "fastmma refuses to emulate it"}
    return {"target": target, "numerics": row.family, **asdict(row.evidence)}


def describe(ins: Instruction) -> dict[str, Any]:
    """Everything that the command prints."""
    types = {"d": ins.dtype, "a": ins.atype, "b": ins.btype, "c": ins.ctype}
    return {
        "opcode": ins.opcode,
        "shape": [ins.m, ins.n, ins.k],
        "types": types,
        "lanes": ins.lanes,
        "ptx": f"{ins.ptx[0]}.{ins.ptx[1]}",
        "heading": ins.heading,
        "operands": {name: _operand(operand) for name, operand in ins.operands.items()},
        "targets": [_target(ins, target) for target in ins.targets],
    }


def show(
    opcode: Annotated[str, typer.Argument(help="For example mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show an instruction: types, registers, layouts, targets, and how each computes it."""
    shown = describe(instruction(opcode))
    if as_json:
        print_json(shown)
        return
    typer.echo(shown["opcode"])
    typer.echo(f"PTX {shown['ptx']}, {shown['heading']}\n")
    operands = [
        (
            name,
            each["type"],
            "x".join(map(str, each["shape"])),
            f"{each['registers']} x {each['register_bits']} bits",
            each["row"],
            each["col"],
            each.get("computation", "0"),
        )
        for name, each in shown["operands"].items()
    ]
    several = any(row[-1] != "0" for row in operands)
    headings = ("operand", "type", "matrix", "registers a lane", "row of element i", "column of element i", "computation")
    width = len(headings) if several else len(headings) - 1
    print_table(headings[:width], [row[:width] for row in operands])
    typer.echo("")
    alike: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each in shown["targets"]:
        alike[each["numerics"] or "-", f"{each['level']}: {each['source']}"].append(each["target"])
    print_table(("numerics", "evidence", "targets"), [(*known, ", ".join(targets)) for known, targets in alike.items()])
