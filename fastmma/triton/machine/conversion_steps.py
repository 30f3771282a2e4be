"""From a step that compares or converts to a function that executes it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.machine import conversions, floats, integers, packed
from fastmma.triton.machine.code import Step, Vector
from fastmma.triton.machine.operands import CONVERTED, EXACT, Plan, find_kind, is_float, make_pure, make_writer
from fastmma.triton.machine.state import Array, Mask, Run, State
from fastmma.triton.machine.values import KINDS, PAIRS, getter, split_pairs

_JOINS: dict[str, Any] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def make_comparison(step: Step, plan: Plan, parts: list[str]) -> Run:
    """Return a comparison, joined with a predicate where the opcode says so."""
    kind = find_kind(step, parts)
    name = parts[1]
    joining = next((part for part in parts[2:] if part in ("and", "or", "xor")), None)
    first, second = (getter(operand, kind, plan.special) for operand in step.operands[1:3])
    third = getter(step.operands[3], "pred", plan.special) if joining else None
    into = step.operands[0].parts if isinstance(step.operands[0], Vector) else (step.operands[0],)
    writes = [make_writer(one, step) for one in into]
    flushes = "ftz" in parts

    def run(state: State, mask: Mask) -> None:
        x, y = first(state.registers), second(state.registers)
        if kind in PAIRS:
            found = floats.compare_ordered(name, split_pairs(x, PAIRS[kind]), split_pairs(y, PAIRS[kind]))
            results = [found[..., 0], found[..., 1]]
        else:
            if flushes:
                x, y = floats.flush(x), floats.flush(y)
            found = floats.compare_ordered(name, x, y) if is_float(kind) else integers.COMPARISONS[name](x, y)
            results = [found, ~found]
        if third is not None:
            other = third(state.registers)
            results = [_JOINS[joining or ""](one, other) for one in results]
        for write, one in zip(writes, results, strict=False):
            write(state, one, mask)

    return run


def make_mark(step: Step, plan: Plan, parts: list[str]) -> Run:
    """Return a comparison that leaves a number, ``set``: all bits set or 1.0 where it holds, else 0."""
    target, kind = parts[-2:]
    name = parts[1]
    if len(parts) > (5 if "ftz" in parts else 4) or target not in ("u32", "s32", "f32") or kind not in KINDS or kind in PAIRS:
        raise NotEmulatedError(step.opcode)
    mark = np.float32(1).view(np.uint32) if target == "f32" else np.uint32(0xFFFFFFFF)

    def compare(x: Array, y: Array) -> Array:
        if is_float(kind):
            x, y = (floats.flush(x), floats.flush(y)) if "ftz" in parts else (x, y)
            return np.where(floats.compare_ordered(name, x, y), mark, np.uint32(0))
        return np.where(integers.COMPARISONS[name](x, y), mark, np.uint32(0))

    return make_pure(step, plan, [kind, kind], compare)


def make_conversion(step: Step, plan: Plan, parts: list[str]) -> tuple[Run, str]:
    """Return a conversion, and what is known of its bits; the error where nothing does it names the instruction."""
    try:
        return _make_conversion(step, plan, parts)
    except NotEmulatedError:
        raise NotEmulatedError(step.opcode) from None


def _make_conversion(step: Step, plan: Plan, parts: list[str]) -> tuple[Run, str]:
    if step.opcode in packed.PACKINGS:
        return make_pure(step, plan, ["s32", "s32", "b32"][: len(step.operands) - 1], packed.PACKINGS[step.opcode]), EXACT
    named = [part for part in parts if part in KINDS]
    if len(named) != 2 or parts[-2:] != named:
        raise NotEmulatedError(step.opcode)
    target, source = named
    if (len(step.operands) == 3) != (target in conversions.PACKED and source == "f32"):
        raise NotEmulatedError(step.opcode)
    options = {part for part in parts[1:] if part not in KINDS}
    zero = np.zeros((1, 1), KINDS[source])
    if len(step.operands) == 3 and target in conversions.PACKED:
        pack = partial(conversions.pack, source=source, target=target, options=options)
        pack(zero, zero)  # raises before the launch where nothing does it
        return make_pure(step, plan, [source, source], pack), CONVERTED
    if target in PAIRS and source in conversions.PACKED:
        widen = partial(conversions.unpack, source=source, target=target, relu="relu" in options)
        return make_pure(step, plan, [source], widen), CONVERTED
    if target in conversions.PACKED and source in PAIRS:

        def narrow(values: Array) -> Array:
            halves = split_pairs(values, PAIRS[source]).astype(np.float32)
            return conversions.pack(halves[..., 1], halves[..., 0], "f32", target, options)

        return make_pure(step, plan, [source], narrow), CONVERTED
    convert = partial(conversions.convert, source=source, target=target, options=options)
    convert(zero)
    status = CONVERTED if is_float(source) or is_float(target) else EXACT
    return make_pure(step, plan, [source], convert), status
