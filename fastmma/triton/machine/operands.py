"""Facts of a kernel that its steps need, and functions that read and write a step's operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.machine.code import Address, Operand, Register, Step, Vector
from fastmma.triton.machine.state import Array, Mask, Run, State
from fastmma.triton.machine.values import KINDS, UNSIGNED, getter, resize

# how well the bits of a step are known
EXACT, UNIT, FUSED, PRODUCT, UNCLEAR, ORDER, MOVED, CONVERTED = (
    "exact",
    "unit",
    "fused",
    "product",
    "unclear",
    "order",
    "moved",
    "converted",
)


@dataclass
class Plan:
    """Facts of a kernel beside its steps: where names lie, and which sums ptxas fuses with which operand.

    Attributes
    ----------
    special : callable
        Returns the number of the register that holds a name's value.
    constants : mapping
        Floats that registers hold, by number, where one instruction writes them.
    fused : mapping
        By the place of a sum, which operand of it is fused: 0, 1, or None where that is not clear.
    sources : mapping
        By the place of a sum, the register of the product, and whether its sign is changed.
    products : set of int
        The registers of products that enter sums.
    read : set of int
        The registers that any instruction reads.
    may_fuse : bool
        Whether it has both products and sums of f32, alone or in pairs.
    """

    special: Callable[[str], int]
    constants: Mapping[int, float]
    fused: Mapping[int, int | None]
    sources: Mapping[int, tuple[int, bool]]
    products: frozenset[int]
    read: frozenset[int]
    may_fuse: bool


def find_kind(step: Step, parts: list[str]) -> str:
    """Return the last kind of number that an opcode names."""
    found = [part for part in parts if part in KINDS]
    if not found:
        raise NotEmulatedError(step.opcode)
    return found[-1]


def is_float(kind: str) -> bool:
    """Return whether a kind is one of floats or pairs of floats."""
    return kind in ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2")


def take_number(operand: Operand, step: Step) -> int:
    """Return the number of an operand's register."""
    if not isinstance(operand, Register):
        raise NotEmulatedError(f"{step.opcode} into {operand}")
    return operand.number


def list_parts(operand: Operand) -> tuple[Operand, ...]:
    """Return the registers of a vector, or the one operand."""
    return operand.parts if isinstance(operand, Vector) else (operand,)


def find_space(parts: list[str]) -> str:
    """Return the space of memory that an opcode names, global where it names none."""
    found = next((part for part in parts if part.partition("::")[0] in ("param", "shared", "global", "local", "const")), "global")
    return found.partition("::")[0]


def make_writer(operand: Operand, step: Step) -> Callable[[State, Array, Mask], None]:
    """Return what writes a result, in the size of its register."""
    if operand is None:
        return lambda _state, _values, _mask: None
    number = take_number(operand, step)
    assert isinstance(operand, Register)
    if operand.size == 1:  # a predicate, or 8 bits
        return lambda state, values, mask: state.put(number, values if values.itemsize == 1 else resize(values, UNSIGNED[1]), mask)
    dtype = UNSIGNED[operand.size]
    return lambda state, values, mask: state.put(number, resize(values, dtype), mask)


def make_pure(step: Step, plan: Plan, kinds: list[str], function: Callable[..., Array]) -> Run:
    """Return what computes values of threads from their own values."""
    if len(step.operands) != 1 + len(kinds):
        raise NotEmulatedError(f"{step.opcode} with {len(step.operands)} operands")
    write = make_writer(step.operands[0], step)
    getters = [getter(operand, kind, plan.special) for operand, kind in zip(step.operands[1:], kinds, strict=True)]
    if len(getters) == 1:
        (only,) = getters
        return lambda state, mask: write(state, function(only(state.registers)), mask)
    if len(getters) == 2:
        first, second = getters
        return lambda state, mask: write(state, function(first(state.registers), second(state.registers)), mask)

    def run(state: State, mask: Mask) -> None:
        write(state, function(*(get(state.registers) for get in getters)), mask)

    return run


def make_address(operand: Operand, plan: Plan, kind: str) -> Callable[[State], Array]:
    """Return what computes addresses."""
    if not isinstance(operand, Address):
        raise NotEmulatedError(f"the address {operand}")
    base = operand.base
    get = getter(base, kind, plan.special)
    dtype = KINDS[kind]
    offset = np.full((1, 1), operand.offset & ((1 << 8 * dtype.itemsize) - 1), dtype)
    if operand.offset == 0:
        return lambda state: get(state.registers)
    return lambda state: get(state.registers) + offset


def _numbers(operand: Any) -> Iterator[int]:
    """Yield the registers in an operand."""
    if isinstance(operand, Register):
        yield operand.number
    elif isinstance(operand, Address):
        yield from _numbers(operand.base)
    elif isinstance(operand, Vector):
        for part in operand.parts:
            yield from _numbers(part)


def list_read(steps: Iterable[Step]) -> frozenset[int]:
    """List the registers that steps read."""
    found: set[int] = set()
    for step in steps:
        writes = not step.opcode.startswith(
            ("st.", "red.", "bra", "stmatrix", "wgmma", "cp.", "tcgen05.mma", "tcgen05.st", "tcgen05.cp", "tcgen05.commit", "tcgen05.alloc")
        )
        found.update(number for operand in step.operands[writes:] for number in _numbers(operand))
        found.update(_numbers(step.predicate))
    return frozenset(found)
