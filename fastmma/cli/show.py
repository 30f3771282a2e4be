"""``fastmma show``: one instruction, from its types to the evidence for its arithmetic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fastmma.cli.table import print_json, print_table, print_text, print_wrapped, version_text
from fastmma.host.errors import TargetError
from fastmma.isa.cute import atoms
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.table import instruction
from fastmma.numerics.evidence import Evidence
from fastmma.numerics.lookup import arithmetic, fragment_evidence
from fastmma.operands.placement import operand_names, placement

_HEADINGS = {
    "type": "type",
    "shape": "matrix",
    "registers": "registers a lane",
    "row": "row of element i",
    "col": "column of element i",
    "computation": "computation",
    "holds": "lanes",
}
_CELLS: dict[str, Callable[[dict[str, Any]], str]] = {
    "shape": lambda each: "x".join(map(str, each["shape"])),
    "registers": lambda each: f"{each['registers']} x {each['register_bits']} bits",
}
_SPECIFIED = Evidence("by definition", "PTX says where each bit goes")


def _operand(ins: Instruction | Movement, name: str) -> dict[str, Any]:
    held = placement(ins, name)
    layout, where = held.layout, held.formulas()
    described: dict[str, Any] = {
        "type": held.kind,
        "shape": list(layout.shape),
        "registers": held.registers,
        "register_bits": layout.register_bits,
        "elements": layout.elements,
        "row": where["row"],
        "col": where["col"],
    }
    return described | {extra: where[extra] for extra in ("computation", "holds") if extra in where}


def _numerics(ins: Instruction | Movement, target: str) -> tuple[str, Evidence]:
    """Return what a target does with the numbers, and how that is known."""
    if isinstance(ins, Instruction):
        row = arithmetic(ins, target, strict=False)
        return row.family, row.evidence
    if ins.op.startswith("wmma"):
        return "moves bits", fragment_evidence(ins, target, strict=False)
    return "moves bits", _SPECIFIED


def _target(ins: Instruction | Movement, target: str) -> dict[str, Any]:
    try:
        numerics, evidence = _numerics(ins, target)
    except TargetError:
        return {"target": target, "numerics": None, "level": "unknown", "source": "fastmma refuses to emulate it"}
    return {"target": target, "numerics": numerics, **asdict(evidence)}


def describe(ins: Instruction | Movement) -> dict[str, Any]:
    """Everything that the command prints."""
    return {
        "opcode": ins.opcode,
        "ptx": version_text(ins.ptx),
        "heading": ins.heading,
        "cute": list(atoms(ins)),
        "operands": {name: _operand(ins, name) for name in operand_names(ins)},
        "targets": [_target(ins, target) for target in ins.targets],
    }


def show(
    opcode: str,
    as_json: bool,
) -> None:
    """Show a whole instruction: types, registers, layouts, targets, and how each computes it."""
    shown = describe(instruction(opcode))
    if as_json:
        print_json(shown)
        return
    print_text(shown["opcode"])
    print_wrapped(f"PTX {shown['ptx']}, {shown['heading']}" if shown["ptx"] else shown["heading"])
    for name in shown["cute"]:
        print_text(f"CuTe {name}")
    print_text("\n")
    operands = shown["operands"]
    columns = [key for key in _HEADINGS if any(key in each for each in operands.values())]
    print_table(
        ("operand", *(_HEADINGS[key] for key in columns)),
        [(name, *(_CELLS[key](each) if key in _CELLS else each.get(key, "") for key in columns)) for name, each in operands.items()],
    )
    print_text("\n")
    alike: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each in shown["targets"]:
        alike[each["numerics"] or "-", f"{each['level']}: {each['source']}"].append(each["target"])
    print_table(("targets", "numerics", "evidence"), [(", ".join(targets), *known) for known, targets in alike.items()])
