"""From a step that threads of a warp or warpgroup execute together to a function that executes it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.machine import warps
from fastmma.triton.machine.code import Immediate, Step, Vector
from fastmma.triton.machine.floats import EXTREMA, magnitude
from fastmma.triton.machine.operands import EXACT, PRODUCT, Plan, list_parts, make_address, make_writer
from fastmma.triton.machine.state import Mask, Run, State
from fastmma.triton.machine.values import getter


def make_warp_step(step: Step, plan: Plan, parts: list[str]) -> tuple[Run, str] | None:
    """Return what threads of a warp do together, None where the name is none of these."""
    name = parts[0]
    special = plan.special
    if name == "shfl":
        into = step.operands[0].parts if isinstance(step.operands[0], Vector) else (step.operands[0], None)
        writes = [make_writer(one, step) for one in into]
        getters = [getter(operand, "b32", special) for operand in step.operands[1:4]]

        def shuffle(state: State, mask: Mask) -> None:
            results = warps.exchange(state, parts[2], *(get(state.registers) for get in getters))
            for write, one in zip(writes, results, strict=True):
                write(state, one, mask)

        return shuffle, EXACT
    if name == "redux" and parts[-1] in ("s32", "u32", "b32"):
        write, get = make_writer(step.operands[0], step), getter(step.operands[1], parts[-1], special)
        return lambda state, mask: write(state, warps.reduce(state, parts[2], get(state.registers)), mask), EXACT
    if name == "redux" and parts[-1] == "f32":
        write, get = make_writer(step.operands[0], step), getter(step.operands[1], "f32", special)
        extremum = partial(EXTREMA[parts[2]], keeps_nan="NaN" in parts)

        def reduce(state: State, mask: Mask) -> None:
            values = state.full(get(state.registers))
            write(state, warps.reduce_in_pairs(state, extremum, magnitude(values) if "abs" in parts else values), mask)

        return reduce, EXACT
    if step.opcode == "movmatrix.sync.aligned.m8n8.trans.b16":
        write, get = make_writer(step.operands[0], step), getter(step.operands[1], "b32", special)
        return lambda state, mask: write(state, warps.transpose(state, step.opcode, get(state.registers)), mask), EXACT
    if name == "vote":
        write, get = make_writer(step.operands[0], step), getter(step.operands[1], "pred", special)
        return lambda state, mask: write(state, warps.vote(state, parts[2], get(state.registers), state.active(mask)), mask), EXACT
    if name == "activemask":
        write = make_writer(step.operands[0], step)
        return lambda state, mask: write(state, warps.vote(state, "ballot", state.active(None), state.active(mask)), mask), EXACT
    if name == "elect":
        write = make_writer(list_parts(step.operands[0])[-1], step)
        return lambda state, mask: write(state, np.arange(state.threads)[None] % 32 == 0, mask), EXACT
    if name in ("ldmatrix", "stmatrix") and "b16" in parts and "m8n8" in parts:
        index = 1 if name == "ldmatrix" else 0
        address = make_address(step.operands[index], plan, "u32")
        each = list_parts(step.operands[1 - index])
        transposed = "trans" in parts
        if name == "ldmatrix":
            writes = [make_writer(one, step) for one in each]

            def load(state: State, mask: Mask) -> None:
                for write, one in zip(writes, warps.load_matrices(state, address(state), len(writes), transposed=transposed), strict=True):
                    write(state, one, mask)

            return load, EXACT
        getters = [getter(one, "b32", special) for one in each]
        return lambda state, _mask: warps.store_matrices(
            state, address(state), [get(state.registers) for get in getters], transposed=transposed
        ), EXACT
    return None


def make_matrix_product(step: Step, plan: Plan, parts: list[str]) -> tuple[Run, str] | None:
    """Return a product of matrices, None where the name is none."""
    special = plan.special
    if step.opcode.startswith("mma.sync") and len(step.operands) == 4:
        size = "b64" if parts[-1] == "f64" else "b32"
        writes = [make_writer(one, step) for one in list_parts(step.operands[0])]
        getters = [[getter(one, size, special) for one in list_parts(operand)] for operand in step.operands[1:]]

        def multiply(state: State, mask: Mask) -> None:
            a, b, c = ([get(state.registers) for get in each] for each in getters)
            for write, one in zip(writes, warps.multiply(state, step.opcode, a, b, c), strict=True):
                write(state, one, mask)

        return multiply, PRODUCT
    if not step.opcode.startswith("wgmma.mma_async.sync"):
        return None
    to, left, right, starts, *flags = step.operands
    writes = [make_writer(one, step) for one in list_parts(to)]
    before = [getter(one, "b32", special) for one in list_parts(to)]
    in_registers = isinstance(left, Vector)
    firsts = [getter(one, "b32" if in_registers else "b64", special) for one in list_parts(left)]
    descriptor = getter(right, "b64", special)
    scale = getter(starts, "pred", special)
    values = [flag.value for flag in flags if isinstance(flag, Immediate)]
    names = ("imm_scale_a", "imm_scale_b", *(() if in_registers else ("imm_trans_a",)), "imm_trans_b")
    if ".s32." in step.opcode:
        names = ()
    if len(values) > len(names):
        raise NotEmulatedError(f"{step.opcode} with {len(values)} flags")
    options = dict(zip(names, values, strict=False))

    def multiply_group(state: State, mask: Mask) -> None:
        a: Any = [get(state.registers) for get in firsts]
        d = [get(state.registers) for get in before]
        results = warps.multiply_by_warpgroup(
            state, step.opcode, d, a if in_registers else a[0], descriptor(state.registers), scale(state.registers), options
        )
        for write, one in zip(writes, results, strict=True):
            write(state, one, mask)

    return multiply_group, PRODUCT
