"""tcgen05 in executed PTX: allocations of tensor memory, products on it, its loads and stores, and copies into it.

Each is done at once, so what waits for it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import fastmma
from fastmma.host.errors import NotEmulatedError
from fastmma.triton.machine.bulk_steps import change_barrier, list_active
from fastmma.triton.machine.code import Address, Immediate, Register, Step
from fastmma.triton.machine.operands import EXACT, MOVED, PRODUCT, Plan, list_parts, make_address, make_writer
from fastmma.triton.machine.state import Array, Mask, Run, State
from fastmma.triton.machine.values import getter

COLUMNS = 512
_LANES = 32


def name_product(step: Step, plan: Plan) -> Step:
    """Return a product on tensor memory with its instruction descriptor in its name, where that is a constant; other steps as they are."""
    if not step.opcode.startswith("tcgen05.mma.") or len(step.operands) < 4:
        return step
    held = step.operands[3]
    if not isinstance(held, Register) or held.number not in plan.constants:
        raise NotEmulatedError(f"{step.opcode} with an instruction descriptor that is no constant")
    bits = int(np.float32(plan.constants[held.number]).view(np.uint32))
    plain = ".".join(part for part in step.opcode.split(".") if not part.startswith("collector::"))
    return replace(step, opcode=f"{plain} idesc={bits:#010x}")


def _make_allocation(step: Step, plan: Plan) -> Run:
    address, size = make_address(step.operands[0], plan, "u32"), getter(step.operands[1], "u32", plan.special)

    def allocate(state: State, mask: Mask) -> None:
        for block, where, columns in {
            found[0]: found for found in list_active(state, mask, address(state), size(state.registers))
        }.values():
            first = int(state.columns[block])
            if first + columns > COLUMNS:
                raise NotEmulatedError(f"{step.opcode} of more than the {COLUMNS} columns of tensor memory")
            state.columns[block] = first + columns
            state.shared[block].view(np.uint32)[where // 4] = first

    return allocate


def _make_place(operand: Any, plan: Plan) -> Callable[[State], Array]:
    """Return what finds a descriptor, or an address in tensor memory."""
    if isinstance(operand, Address):
        return make_address(operand, plan, "u32")
    get = getter(operand, "u64", plan.special)
    return lambda state: get(state.registers)


def _by_operands(state: State, mask: Mask, values: list[Array]) -> Iterator[tuple[Array, list[int]]]:
    """Yield the blocks of which an active thread has the same operands, and these."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for block, *found in list_active(state, mask, *values):
        groups.setdefault(tuple(found), []).append(block)
    for key, blocks in groups.items():
        yield np.array(blocks), list(key)


def _make_product(step: Step, plan: Plan) -> Run:
    to, left, right, _, *scales, starts = step.operands
    places = [_make_place(one, plan) for one in (to, left, right, *scales)]
    uses = getter(starts, "pred", plan.special)

    def multiply(state: State, mask: Mask) -> None:
        values = [*(place(state) for place in places), uses(state.registers)]
        for blocks, (d, a, b, *rest, start) in _by_operands(state, mask, values):
            state.tensor[blocks] = fastmma.tcgen05.mma(
                step.opcode,
                d,
                a,
                b,
                target=state.target,
                tmem=state.tensor[blocks],
                memory=state.shared[blocks],
                enable_input_d=bool(start),
                scale_a=rest[0] if rest else None,
                scale_b=rest[1] if rest else None,
            )

    return multiply


def _make_copy(step: Step, plan: Plan) -> Run:
    *names, form, spread = step.opcode.split(".")
    opcode = ".".join([*names, *((spread, form) if form.startswith("warpx") else (form, spread))])
    to, source = _make_place(step.operands[0], plan), _make_place(step.operands[1], plan)

    def copy(state: State, mask: Mask) -> None:
        for blocks, (address, descriptor) in _by_operands(state, mask, [to(state), source(state)]):
            state.tensor[blocks] = fastmma.tcgen05.cp(opcode, state.tensor[blocks], address, descriptor, state.shared[blocks])

    return copy


def _make_movement(step: Step, plan: Plan, *, loads: bool) -> Run:
    """Return a load of registers of warps from tensor memory, or a store of them."""
    held, rest = (step.operands[0], step.operands[1:]) if loads else (step.operands[-1], step.operands[:-1])
    address = make_address(rest[0], plan, "u32")
    offsets = [one.value for one in rest[1:] if isinstance(one, Immediate)]
    if len(offsets) != len(rest) - 1:
        raise NotEmulatedError(step.opcode)
    options = dict(zip(("half_split_offset",), offsets, strict=False))

    def find(state: State, mask: Mask) -> tuple[Array, Array]:
        """Return which warps take part, and the address of each."""
        present = state.active(mask).reshape(state.blocks, -1, _LANES)
        if (present.any(-1) != present.all(-1)).any():
            raise NotEmulatedError(f"{step.opcode} of a part of a warp")
        return present[..., 0], state.full(address(state)).reshape(state.blocks, -1, _LANES)[..., 0].astype(np.int64)

    if loads:
        writes = [make_writer(one, step) for one in list_parts(held)]

        def load(state: State, mask: Mask) -> None:
            present, addresses = find(state, mask)
            found = fastmma.tcgen05.ld(step.opcode, state.tensor, np.where(present, addresses, 0), **options)
            flat = found.reshape(state.blocks, state.threads, -1)
            for index, write in enumerate(writes):
                write(state, flat[..., index], mask)

        return load
    getters = [getter(one, "b32", plan.special) for one in list_parts(held)]

    def store(state: State, mask: Mask) -> None:
        present, addresses = find(state, mask)
        given = np.stack([state.full(get(state.registers)) for get in getters], -1).reshape(state.blocks, -1, _LANES, len(getters))
        for warps in np.unique(present, axis=0):
            blocks = np.flatnonzero((present == warps).all(-1))
            chosen = np.ix_(blocks, np.flatnonzero(warps))
            state.tensor[blocks] = fastmma.tcgen05.st(step.opcode, state.tensor[blocks], addresses[chosen], given[chosen], **options)

    return store


def _make_commit(step: Step, plan: Plan) -> Run:
    address = make_address(step.operands[0], plan, "u32")

    def arrive(state: State, mask: Mask) -> None:
        for block, where in list_active(state, mask, address(state)):
            change_barrier(state, block, where, arrivals=1)

    return arrive


def make_tensor_step(step: Step, plan: Plan, parts: list[str]) -> tuple[Run, str] | None:
    """Return an operation of tensor memory, None where the name is none.

    Raises
    ------
    NotEmulatedError
        If it is one that nothing here executes, such as those of two CTAs.
    """
    if parts[0] != "tcgen05":
        return None
    name = parts[1]
    if "cta_group::2" in parts or "multicast::cluster" in parts or (name == "ld" and "red" in parts):
        raise NotEmulatedError(step.opcode)
    if name == "alloc":
        return _make_allocation(step, plan), MOVED
    if name == "mma":
        return _make_product(step, plan), PRODUCT
    if name == "cp":
        return _make_copy(step, plan), MOVED
    if name in ("ld", "st"):
        return _make_movement(step, plan, loads=name == "ld"), MOVED
    if name == "commit":
        return _make_commit(step, plan), EXACT
    raise NotEmulatedError(step.opcode)
