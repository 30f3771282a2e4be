"""Sums of integers of several registers: their carry and their borrow, ``add.cc``, ``madc``, ``subc`` and the like."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.triton.machine.code import Step
from fastmma.triton.machine.operands import Plan, make_writer
from fastmma.triton.machine.state import Mask, Run, State
from fastmma.triton.machine.values import getter

Array = NDArray[Any]
_WORD = np.int64(0xFFFFFFFF)


def make_carry(step: Step, plan: Plan, parts: list[str]) -> Run | None:
    """Return what adds with a carry, or leaves one; None where an instruction does neither, or has not 32 bits."""
    name, *options = parts
    takes, leaves = name in ("addc", "subc", "madc"), "cc" in options
    if not (takes or leaves) or name.rstrip("c") not in ("add", "sub", "mad") or options[-1][1:] != "32":
        return None
    getters = [getter(operand, "u32", plan.special) for operand in step.operands[1:]]
    write = make_writer(step.operands[0], step)
    signed = options[-1] == "s32"

    def run(state: State, mask: Mask) -> None:
        values = [get(state.registers).astype(np.int64) for get in getters]
        carry = state.carry.astype(np.int64) if takes else np.zeros((1, 1), np.int64)
        if name.startswith("mad"):
            total = _multiply(values[0], values[1], "hi" in options, signed) + values[2] + carry
        else:
            total = values[0] - values[1] - carry if name.startswith("sub") else values[0] + values[1] + carry
        if leaves:
            left = total < 0 if name.startswith("sub") else total > _WORD
            state.carry = np.asarray(left if mask is None else np.where(mask, left, state.carry))
        write(state, (total & _WORD).astype(np.uint32), mask)

    return run


def _multiply(x: Array, y: Array, is_high: bool, signed: bool) -> Array:
    """Return the lower or the higher 32 bits of a product."""
    if signed:
        x, y = (one.astype(np.uint32).view(np.int32).astype(np.int64) for one in (x, y))
        product = (x * y).view(np.uint64)
    else:
        product = x.astype(np.uint64) * y.astype(np.uint64)
    return np.asarray((product >> np.uint64(32) if is_high else product).astype(np.int64) & _WORD)
