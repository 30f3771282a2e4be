"""Copies of boxes between tensors and shared memory by the TMA, and the mbarriers that count their bytes, in executed PTX.

A copy is done at once, so what waits for it goes on; a wait for what no thread of the block has begun does not end, which is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.machine.code import Operand, Step, Vector
from fastmma.triton.machine.operands import EXACT, MOVED, Plan, make_address, make_writer
from fastmma.triton.machine.state import Array, Mask, Run, State
from fastmma.triton.machine.tensor_maps import BYTES, BoxMap, decode_map
from fastmma.triton.machine.values import getter

PARAMETERS = "%parameters"  # the register that holds where the parameters of a launch lie
_COPIES = frozenset({"cp", "async", "bulk", "tensor", "1d", "2d", "3d", "4d", "5d", "shared::cta", "global", "tile", "L2::cache_hint"})
_LOADS, _STORES = _COPIES | {"mbarrier::complete_tx::bytes"}, _COPIES | {"bulk_group"}
# of the word of an mbarrier: its phase; arrivals that are missing, and that a phase has; bytes that are missing
_ARRIVALS, _COUNT, _TRANSFERS = 1, 21, 41
_FIELD = (1 << 20) - 1
_ALL_BYTES = (1 << 23) - 1


def list_active(state: State, mask: Mask, *values: Array) -> Iterator[tuple[int, ...]]:
    """Yield the block and the values of each thread that is active."""
    rows, columns = np.nonzero(state.active(mask))
    full = [state.full(one) for one in values]
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        yield row, *(int(one[row, column]) for one in full)


def change_barrier(state: State, block: int, address: int, *, arrivals: int = 0, transfers: int = 0) -> None:
    """Take arrivals and bytes from what a phase of an mbarrier lacks; the last of them begin the next phase."""
    words = state.shared[block].view(np.uint64)
    word = int(words[address // 8])
    count, missing = word >> _COUNT & _FIELD, (word >> _ARRIVALS & _FIELD) - arrivals
    expected = (word >> _TRANSFERS) - transfers & _ALL_BYTES
    phase = word & 1
    if missing < 0:
        raise NotEmulatedError(f"an mbarrier at {address} with more arrivals than the {count} of a phase")
    if not missing and not expected:
        phase, missing = phase ^ 1, count
    words[address // 8] = np.uint64(phase | missing << _ARRIVALS | count << _COUNT | expected << _TRANSFERS)


def _make_barrier(step: Step, plan: Plan, parts: list[str]) -> Run:
    """Return an operation of an mbarrier."""
    place = 1 if parts[1] in ("arrive", "try_wait", "test_wait") else 0
    address = make_address(step.operands[place], plan, "u32")
    value = getter(step.operands[place + 1], "u32", plan.special) if len(step.operands) > place + 1 else None
    if parts[1] in ("try_wait", "test_wait"):
        if value is None or "parity" not in parts:
            raise NotEmulatedError(step.opcode)
        write, parity = make_writer(step.operands[0], step), value

        def wait(state: State, mask: Mask) -> None:
            places = state.full(address(state)).astype(np.int64) // 8
            words = state.shared.view(np.uint64)[state.rows, np.where(state.active(mask), places, 0)]
            write(state, (words & np.uint64(1)) != (state.full(parity(state.registers)) & 1), mask)

        return wait
    if parts[1] not in ("init", "arrive") or (parts[1] == "arrive" and step.operands[0] is not None):
        raise NotEmulatedError(step.opcode)
    begins, expects = parts[1] == "init", "expect_tx" in parts

    def run(state: State, mask: Mask) -> None:
        given = value(state.registers) if value is not None else np.ones((1, 1), np.uint32)
        for block, where, number in list_active(state, mask, address(state), given):
            if begins:
                state.shared[block].view(np.uint64)[where // 8] = np.uint64(number << _ARRIVALS | number << _COUNT)
            elif expects:
                change_barrier(state, block, where, transfers=-number, arrivals=1)
            else:
                change_barrier(state, block, where, arrivals=number)

    return run


def _make_box(operand: Operand, step: Step, plan: Plan) -> Callable[[State, Mask], Iterator[tuple[int, BoxMap, tuple[int, ...]]]]:
    """Return what yields block, map and first element of each active thread's box."""
    if not isinstance(operand, Vector) or len(operand.parts) != 2 or not isinstance(operand.parts[1], Vector):
        raise NotEmulatedError(step.opcode)
    descriptor = getter(operand.parts[0], "u64", plan.special)
    coordinates = [getter(one, "s32", plan.special) for one in operand.parts[1].parts]

    def boxes(state: State, mask: Mask) -> Iterator[tuple[int, BoxMap, tuple[int, ...]]]:
        values = [descriptor(state.registers), *(get(state.registers) for get in coordinates)]
        for block, address, *start in list_active(state, mask, *values):
            place = address - state.parameters.ctypes.data
            if not 0 <= place <= state.parameters.size - BYTES:
                raise NotEmulatedError(f"{step.opcode} by a tensor map that is no parameter")
            yield block, decode_map(state.parameters[place : place + BYTES].tobytes()), tuple(reversed(start))

    return boxes


def _make_load(step: Step, plan: Plan) -> Run:
    to, barrier = (make_address(step.operands[index], plan, "u32") for index in (0, 2))
    boxes = _make_box(step.operands[1], step, plan)

    def load(state: State, mask: Mask) -> None:
        ends = list_active(state, mask, to(state), barrier(state))
        for (block, box, start), (_, where, signal) in zip(boxes(state, mask), ends, strict=True):
            data = np.ascontiguousarray(box.tensor.load(start, box.box)).view(np.uint8).ravel()
            state.shared[block, box.places(where)] = data
            change_barrier(state, block, signal, transfers=data.size)

    return load


def _make_store(step: Step, plan: Plan) -> Run:
    source = make_address(step.operands[1], plan, "u32")
    boxes = _make_box(step.operands[0], step, plan)

    def store(state: State, mask: Mask) -> None:
        for (block, box, start), (_, where) in zip(boxes(state, mask), list_active(state, mask, source(state)), strict=True):
            data: Any = np.ascontiguousarray(state.shared[block, box.places(where)]).view(box.tensor.dtype)
            box.tensor.store(start, data.reshape(box.box))

    return store


def make_bulk_step(step: Step, plan: Plan, parts: list[str]) -> tuple[Run, str] | None:
    """Return a copy of a box or an operation of an mbarrier, None where the name is neither.

    Raises
    ------
    NotEmulatedError
        If it is one that nothing here executes.
    """
    if parts[0] == "mbarrier":
        return _make_barrier(step, plan, parts), EXACT
    if parts[0] != "cp" or "bulk" not in parts:
        return None
    if "mbarrier::complete_tx::bytes" in parts and set(parts) <= _LOADS:
        return _make_load(step, plan), MOVED
    if "bulk_group" in parts and set(parts) <= _STORES:
        return _make_store(step, plan), MOVED
    raise NotEmulatedError(step.opcode)
