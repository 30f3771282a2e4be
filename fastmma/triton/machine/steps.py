"""From a step of PTX to a function that executes it on the state of many blocks."""

from __future__ import annotations

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.machine.arithmetic_steps import make_float, make_integer
from fastmma.triton.machine.bulk_steps import PARAMETERS, make_bulk_step
from fastmma.triton.machine.carries import make_carry
from fastmma.triton.machine.code import Step
from fastmma.triton.machine.conversion_steps import make_comparison, make_conversion, make_mark
from fastmma.triton.machine.data_steps import make_atomic, make_copy, make_load, make_move, make_store
from fastmma.triton.machine.operands import EXACT, MOVED, Plan, find_kind, is_float, make_pure, make_writer
from fastmma.triton.machine.state import Array, Mask, Run, State
from fastmma.triton.machine.tensor_steps import make_tensor_step
from fastmma.triton.machine.values import KINDS, getter
from fastmma.triton.machine.warp_steps import make_matrix_product, make_warp_step

# instructions without effect where each step is complete before the next begins
_NOTHING = (
    *("bar.", "barrier.", "fence", "membar", "cp.async.commit_group", "cp.async.wait_", "wgmma.fence", "wgmma.commit", "wgmma.wait"),
    *("cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "mbarrier.inval"),
    *("tcgen05.wait", "tcgen05.fence", "tcgen05.relinquish_alloc_permit", "tcgen05.dealloc"),
    *("griddepcontrol", "createpolicy", "prefetch", "discard", "applypriority", "nanosleep", "pragma"),
)


def _choose(x: Array, y: Array, chosen: Array) -> Array:
    return np.where(chosen, x, y)


def _do_nothing(_state: State, _mask: Mask) -> None:
    """Leave everything as it is."""


def make_step(step: Step, plan: Plan) -> tuple[Run, str]:
    """Return the function that executes a step, and what is known of its bits.

    Raises
    ------
    NotEmulatedError
        If nothing here executes it; the message names the instruction.
    """
    if step.opcode.startswith(_NOTHING) and not step.opcode.startswith("barrier.cluster"):
        return _do_nothing, MOVED
    parts = step.opcode.split(".")
    name = parts[0]
    if name in ("ld", "ldu"):
        return make_load(step, plan, parts), MOVED
    if name == "st":
        return make_store(step, plan, parts), MOVED
    if name in ("atom", "red"):
        return make_atomic(step, plan, parts)
    found = make_tensor_step(step, plan, parts) or make_bulk_step(step, plan, parts)
    if found is not None:
        return found
    if step.opcode.startswith("cp.async"):
        return make_copy(step, plan), MOVED
    if name == "mov":
        return make_move(step, plan, parts[-1]), MOVED
    if name in ("cvta", "isspacep") and "to" in parts and "global" in parts:
        return make_pure(step, plan, [parts[-1]], lambda values: values), MOVED
    if step.opcode == "cvta.param.u64":
        base = plan.special(PARAMETERS)
        get, write = getter(step.operands[1], "u64", plan.special), make_writer(step.operands[0], step)
        return lambda state, mask: write(state, get(state.registers) + state.registers[base], mask), MOVED
    if name == "setp":
        return make_comparison(step, plan, parts), EXACT
    if name == "set":
        return make_mark(step, plan, parts), EXACT
    if name == "selp":
        return make_pure(step, plan, [parts[1], parts[1], "pred"], _choose), MOVED
    if name == "cvt":
        return make_conversion(step, plan, parts)
    carry = make_carry(step, plan, parts)
    if carry is not None:
        return carry, EXACT
    found = make_warp_step(step, plan, parts) or make_matrix_product(step, plan, parts)
    if found is not None:
        return found
    kind = find_kind(step, parts)
    if is_float(kind):
        of_floats = make_float(step, plan, name, kind, {part for part in parts[1:] if part not in KINDS})
        if of_floats is not None:
            return of_floats
    else:
        run = make_integer(step, plan, name, kind, parts)
        if run is not None:
            return run, EXACT
    raise NotEmulatedError(step.opcode)
