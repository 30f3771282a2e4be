"""All instructions and layouts as compact data for the page: a layout is its modes, and what is alike is there once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastmma.isa.cute import atoms
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.table import instructions
from fastmma.isa.tcgen05.instruction import largest
from fastmma.operands.pictures.colours import lane_colour
from fastmma.operands.pictures.view import Placement
from fastmma.operands.placement import operand_names, placement, selections
from fastmma.operands.trace import equation


class _Once:
    """Values by number: equal ones have the same."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: Any) -> int:
        """The number of a value, which is kept if it is new."""
        found = self._numbers.setdefault(repr(value), len(self.values))
        if found == len(self.values):
            self.values.append(value)
        return found


def _layout(held: Placement) -> dict[str, Any]:
    layout = held.layout
    return {
        "shape": list(layout.shape),
        "bits": layout.bits,
        "tiles": layout.tiles,
        "lane": [list(mode) for mode in layout.lane],
        "element": [list(mode) for mode in layout.element],
        "digits": [[mode.size, int(any(mode[1:]))] for mode in held.digits],
        "base": held.base,
        "first": held.first_bit,
        "formulas": held.formulas(),
    }


def _operand(ins: Instruction | Movement, name: str, layouts: _Once) -> dict[str, Any]:
    found = [(choice, placement(ins, name, **choice)) for choice in selections(ins, name)]
    held = found[0][1]
    return {
        "name": name,
        "kind": held.kind,
        "holder": held.holder,
        "sigil": held.sigil or f"%{held.letter}",
        "register": held.register,
        "tile": held.tile,
        "places": [[_told(choice), layouts.number(_layout(each))] for choice, each in found],
    }


def _told(choice: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in choice.items())


def _in_memory(ins: Instruction) -> Iterator[dict[str, Any]]:
    """Operands that lie in no register: B of wgmma and tcgen05."""
    if "b" not in ins.operands:
        yield {"name": "b", "kind": ins.btype, "shape": [ins.k, ins.n], "memory": "shared memory"}


def _operands(ins: Instruction | Movement, layouts: _Once, operands: _Once) -> list[int]:
    found = [_operand(ins, name, layouts) for name in operand_names(ins)]
    return [operands.number(each) for each in (*found, *(() if isinstance(ins, Movement) else _in_memory(ins)))]


def layouts() -> dict[str, Any]:
    """The data of the page's first half.

    Returns
    -------
    dict
        ``layouts``, ``operands``, ``equations``, and ``instructions``: opcode, numbers of its operands
        and its equation (-1 where it multiplies nothing), and CuTe's names; ``colours`` of lanes.
    """
    laid, operands, equations = _Once(), _Once(), _Once()
    listed = []
    for ins in (*instructions(), *largest(every_form=True)):
        told = equations.number(equation(ins, "row", "col")) if isinstance(ins, Instruction) else -1
        listed.append([ins.opcode, _operands(ins, laid, operands), told, list(atoms(ins))])
    return {
        "layouts": laid.values,
        "operands": operands.values,
        "equations": equations.values,
        "instructions": listed,
        "colours": [lane_colour(lane) for lane in range(32)],
    }
