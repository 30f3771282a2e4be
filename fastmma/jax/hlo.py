"""XLA's text of a compiled program: its computations and their instructions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.-]+) = (\([^)]*\)|\S+) ([\w-]+)\(([^)]*)\)(.*)")
_TYPE = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)[^}]*\})?")
_NAME = re.compile(r"%([\w.-]+)")


@dataclass(frozen=True)
class Instruction:
    """One instruction of a computation.

    Attributes
    ----------
    name : str
    dtype : str
        As XLA writes it; empty where the result is a tuple.
    shape : tuple of int
    layout : tuple of int
        The dimensions, the one whose elements lie side by side first.
    opcode : str
    operands : tuple of str
        Names.
    rest : str
        What follows the operands: attributes, metadata and XLA's choices.
    is_root : bool
        Whether it is the result of its computation.
    argument : str
        What stands in the parentheses of a parameter or a constant.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: tuple[int, ...]
    opcode: str
    operands: tuple[str, ...]
    rest: str
    is_root: bool
    argument: str

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """Return an attribute that is a list of numbers; an empty one where it is missing."""
        found = re.search(rf"\b{attribute}=\{{([\d,]*)\}}", self.rest)
        return read_numbers(found[1]) if found else ()

    def word(self, pattern: str) -> str:
        """Return what the group of a pattern finds behind the operands; nothing where it finds nothing."""
        found = re.search(pattern, self.rest)
        return found[1] if found else ""

    @property
    def calls(self) -> str:
        """The computation that a fusion runs."""
        return self.word(r"\bcalls=%?([\w.-]+)")

    @property
    def scope(self) -> str:
        """The functions and transformations of JAX in which the operation was made."""
        return self.word(r'op_name="([^"]*)"').rpartition("/")[0]

    @property
    def from_major(self) -> tuple[int, ...]:
        """The dimensions, the one whose elements lie side by side last."""
        return self.layout[::-1] if self.layout else tuple(range(len(self.shape)))


@dataclass(frozen=True)
class Computation:
    """Instructions by name, in their order.

    Attributes
    ----------
    instructions : mapping
    """

    instructions: Mapping[str, Instruction]

    def users(self, name: str) -> list[Instruction]:
        """List the instructions that take a result."""
        return [each for each in self.instructions.values() if name in each.operands]

    def operand(self, instruction: Instruction, place: int) -> Instruction:
        """Return the instruction that makes an operand."""
        return self.instructions[instruction.operands[place]]

    def parameter(self, number: int) -> Instruction:
        """Return the parameter that stands for an operand of the caller."""
        found = (each for each in self.instructions.values() if each.opcode == "parameter" and each.argument == str(number))
        return next(found)

    @property
    def root(self) -> Instruction:
        """The result."""
        return next(each for each in self.instructions.values() if each.is_root)


def read_module(text: str) -> dict[str, Computation]:
    """Read the computations of a program by name.

    Examples
    --------
    >>> text = '''HloModule jit_f
    ... ENTRY %main (x: bf16[16,64], y: bf16[64,8]) -> f32[16,8] {
    ...   %x = bf16[16,64]{1,0} parameter(0)
    ...   %y = bf16[64,8]{1,0} parameter(1)
    ...   ROOT %dot.1 = f32[16,8]{1,0} dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ... }'''
    >>> dot = read_module(text)["main"].root
    >>> dot.dtype, dot.shape, dot.operands, dot.numbers("lhs_contracting_dims")
    ('f32', (16, 8), ('x', 'y'), (1,))
    """
    computations: dict[str, Computation] = {}
    current: dict[str, Instruction] | None = None
    for line in text.splitlines():
        if opened := _COMPUTATION.match(line):
            current = {}
            computations[opened[2]] = Computation(current)
        elif line.startswith("}"):
            current = None
        elif current is not None and (found := _INSTRUCTION.match(line)):
            instruction = _read(*found.groups())
            current[instruction.name] = instruction
    return computations


def _read(root: str | None, name: str, kind: str, opcode: str, operands: str, rest: str) -> Instruction:
    typed = None if kind.startswith("(") else _TYPE.match(kind)
    dtype, shape, layout = (typed[1], read_numbers(typed[2]), read_numbers(typed[3] or "")) if typed else ("", (), ())
    return Instruction(name, dtype, shape, layout, opcode, tuple(_NAME.findall(operands)), rest, bool(root), operands)


def read_numbers(text: str) -> tuple[int, ...]:
    """Read numbers between commas.

    Examples
    --------
    >>> read_numbers("4,256")
    (4, 256)
    """
    return tuple(int(each) for each in text.split(",") if each)


def match_dimensions(one: Instruction, other: Instruction) -> list[tuple[list[int], list[int]]]:
    """Group the dimensions of two arrays that hold the same elements in the same places of memory.

    Examples
    --------
    >>> module = read_module('''HloModule m
    ... ENTRY %main (x: f32[256,1536]) -> f32[256,8,192] {
    ...   %x = f32[256,1536]{1,0} parameter(0)
    ...   ROOT %y = f32[256,8,192]{2,1,0} bitcast(%x)
    ... }''')
    >>> match_dimensions(module["main"].instructions["x"], module["main"].root)
    [([0], [0]), ([1], [1, 2])]
    """
    left, right = list(one.from_major), list(other.from_major)
    groups = []
    while left and right:
        of_one, of_other = [left.pop(0)], [right.pop(0)]
        while (first := math.prod(one.shape[each] for each in of_one)) != (second := math.prod(other.shape[each] for each in of_other)):
            shorter, rest = (of_one, left) if first < second else (of_other, right)
            if not rest:
                return []
            shorter.append(rest.pop(0))
        groups.append((of_one, of_other))
    return groups
