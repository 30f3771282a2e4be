"""From a step that moves, loads, stores or changes memory atomically to a function that executes it."""

from __future__ import annotations

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.machine import memory
from fastmma.triton.machine.code import Address, Immediate, Register, Step, Symbol, Vector
from fastmma.triton.machine.operands import (
    EXACT,
    ORDER,
    Plan,
    find_kind,
    find_space,
    is_float,
    list_parts,
    make_address,
    make_pure,
    make_writer,
)
from fastmma.triton.machine.state import Mask, Run, State
from fastmma.triton.machine.values import KINDS, UNSIGNED, getter

_LOADS = {"global": memory.load_global, "shared": memory.load_shared, "local": memory.load_local}
_STORES = {"global": memory.store_global, "shared": memory.store_shared, "local": memory.store_local}


def make_move(step: Step, plan: Plan, kind: str) -> Run:
    """Move, put registers together or take one apart."""
    to, source = step.operands
    if isinstance(source, Vector):
        write = make_writer(to, step)
        size = KINDS[kind].itemsize // len(source.parts)
        getters = [getter(part, f"b{8 * size}", plan.special) for part in source.parts]
        unsigned = UNSIGNED[KINDS[kind].itemsize]

        def join(state: State, mask: Mask) -> None:
            total = getters[0](state.registers).astype(unsigned)
            for index, get in enumerate(getters[1:], 1):
                total = total | get(state.registers).astype(unsigned) << unsigned.type(8 * size * index)
            write(state, total, mask)

        return join
    if isinstance(to, Vector):
        get = getter(source, kind, plan.special)
        size = KINDS[kind].itemsize // len(to.parts)
        writes = [make_writer(part, step) for part in to.parts]

        def split(state: State, mask: Mask) -> None:
            value = get(state.registers)
            for index, write in enumerate(writes):
                write(state, (value >> value.dtype.type(8 * size * index)).astype(UNSIGNED[size]), mask)

        return split
    return make_pure(step, plan, [kind], lambda values: values)


def make_load(step: Step, plan: Plan, parts: list[str]) -> Run:
    """Return a load of a parameter or from memory."""
    kind, space = find_kind(step, parts), find_space(parts)
    dtype = KINDS[kind]
    writes = [make_writer(part, step) for part in list_parts(step.operands[0])]
    if space == "param":
        if not isinstance(step.operands[1], Address) or not isinstance(step.operands[1].base, Symbol):
            raise NotEmulatedError(f"{step.opcode} of {step.operands[1]}")
        name, offset = step.operands[1].base.name, step.operands[1].offset
        places = [offset + index * dtype.itemsize for index in range(len(writes))]
        numbers = [plan.special(f"{name}+{place}:{dtype.itemsize}") for place in places]

        def take(state: State, mask: Mask) -> None:
            for number, write in zip(numbers, writes, strict=True):
                write(state, state.registers[number].view(dtype), mask)

        return take
    if space not in _LOADS:
        raise NotEmulatedError(step.opcode)
    address = make_address(step.operands[1], plan, "u64" if space == "global" else "u32")
    fetch = _LOADS[space]

    def run(state: State, mask: Mask) -> None:
        found = fetch(state, address(state), dtype.itemsize, len(writes), mask)
        for write, one in zip(writes, found, strict=True):
            write(state, one.view(dtype), mask)

    return run


def make_store(step: Step, plan: Plan, parts: list[str]) -> Run:
    """Return a store to memory."""
    kind, space = find_kind(step, parts), find_space(parts)
    if space not in _STORES:
        raise NotEmulatedError(step.opcode)
    unsigned = f"b{8 * KINDS[kind].itemsize}"
    getters = [getter(part, unsigned, plan.special) for part in list_parts(step.operands[1])]
    address = make_address(step.operands[0], plan, "u64" if space == "global" else "u32")
    keep = _STORES[space]
    size = KINDS[kind].itemsize
    return lambda state, mask: keep(state, address(state), [get(state.registers) for get in getters], size, mask)


def make_atomic(step: Step, plan: Plan, parts: list[str]) -> tuple[Run, str]:
    """Return an atomic operation."""
    name = next((part for part in parts[1:] if part in ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")), "")
    kind = find_kind(step, parts)
    space = find_space(parts)
    if space not in ("global", "shared") or not name or (space == "shared" and is_float(kind)):
        raise NotEmulatedError(step.opcode)
    operands = step.operands if parts[0] == "atom" else (None, *step.operands)
    writes = [make_writer(part, step) for part in list_parts(operands[0])]
    unsigned = f"b{8 * KINDS[kind].itemsize}"
    address = make_address(operands[1], plan, "u64" if space == "global" else "u32")
    getters = [getter(part, unsigned, plan.special) for part in list_parts(operands[3 if name == "cas" else 2])]
    compared = getter(operands[2], unsigned, plan.special) if name == "cas" else None
    is_read = any(isinstance(part, Register) and part.number in plan.read for part in list_parts(operands[0]))

    def run(state: State, mask: Mask) -> None:
        given = [get(state.registers) for get in getters]
        wanted = compared(state.registers) if compared is not None else None
        found = memory.change(state, space, name, kind, address(state), given, wanted, mask)
        for write, one in zip(writes, found, strict=False):
            write(state, one, mask)

    keeps_order = is_float(kind) or name in ("exch", "cas", "inc", "dec") or is_read
    return run, ORDER if keeps_order else EXACT


def make_copy(step: Step, plan: Plan) -> Run:
    """Return a copy to shared memory."""
    to, source = make_address(step.operands[0], plan, "u32"), make_address(step.operands[1], plan, "u64")
    size = step.operands[2]
    if not isinstance(size, Immediate) or len(step.operands) > 4:
        raise NotEmulatedError(step.opcode)
    given = getter(step.operands[3], "u32", plan.special) if len(step.operands) > 3 else None
    count = size.value
    return lambda state, mask: memory.copy_to_shared(
        state, to(state), source(state), count, given(state.registers) if given is not None else None, mask
    )
