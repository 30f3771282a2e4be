"""From a step that computes floats or integers to a function that executes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.formats import canonicalise_nan
from fastmma.triton.machine import directed, floats, integers, packed
from fastmma.triton.machine.code import Immediate, Register, Step
from fastmma.triton.machine.operands import (
    EXACT,
    FUSED,
    UNCLEAR,
    UNIT,
    Plan,
    make_pure,
    make_writer,
    take_number,
)
from fastmma.triton.machine.state import Array, Mask, Run, State
from fastmma.triton.machine.values import KINDS, PAIRS, getter, join_pairs, split_pairs
from fastmma.triton.numbers import fused

_ROUNDINGS = {"rn", "rz", "rm", "rp"}
_KNOWN = _ROUNDINGS | {
    "ftz",
    "sat",
    "relu",
    "approx",
    "full",
    "NaN",
    "xorsign",
    "abs",
}  # what an opcode of floats may say beside its name and type

_FUSABLE = {**floats.ADDITIONS, "mul": floats.multiply}  # of pairs of f32, of which nobody reads what ptxas fuses


def _make_float_function(function: Callable[..., Array], kind: str, options: set[str]) -> Callable[..., Array]:
    """Return a function of registers: of pairs both halves, denormals flushed and NaN as the GPU has it."""
    flushes, saturates = "ftz" in options and kind in ("f16", "f16x2", "f32", "f32x2"), "sat" in options

    def computed(*values: Array) -> Array:
        if kind in PAIRS:
            values = tuple(split_pairs(one, PAIRS[kind]) for one in values)
        if flushes:
            values = tuple(map(floats.flush, values))
        result = function(*values)
        if flushes:
            result = floats.flush(result)
        if saturates:
            result = floats.saturate(result)
        result = canonicalise_nan(result)
        if "relu" in options:
            result = np.where(np.signbit(result), result.dtype.type(0), result)
        return join_pairs(result) if kind in PAIRS else result

    return computed


def _addition(step: Step, plan: Plan, kind: str, options: set[str], name: str) -> tuple[Run, str]:
    """Return a sum, in one rounding with a product where ptxas fuses it."""
    function = _make_float_function(floats.ADDITIONS[name], kind, options)
    index = plan.fused.get(step.place, -1)
    if index is None or index < 0 or options & _ROUNDINGS:
        return make_pure(step, plan, [kind, kind], function), EXACT if index is not None else UNCLEAR
    product, is_negated = plan.sources[step.place]
    other = getter(step.operands[2 - index], kind, plan.special)
    write = make_writer(step.operands[0], step)
    negates_product = is_negated != (name == "sub" and index == 1)
    negates_other = name == "sub" and index == 0

    def joined(x: Array, y: Array, z: Array) -> Array:
        return fused(floats.negate(x) if negates_product else x, y, floats.negate(z) if negates_other else z)

    function = _make_float_function(joined, kind, options)

    def run(state: State, mask: Mask) -> None:
        x, y = state.factors[product]
        write(state, function(x, y, other(state.registers)), mask)

    return run, FUSED


def _product(step: Step, plan: Plan, kind: str, options: set[str]) -> tuple[Run, str]:
    """Return a product, whose factors are kept where a sum takes them."""
    compute = make_pure(step, plan, [kind, kind], _make_float_function(floats.multiply, kind, options))
    number = take_number(step.operands[0], step)
    if number not in plan.products:
        return compute, EXACT
    first, second = (getter(operand, kind, plan.special) for operand in step.operands[1:])

    def run(state: State, mask: Mask) -> None:
        state.factors[number] = first(state.registers), second(state.registers)
        compute(state, mask)

    return run, EXACT


def _quotient(step: Step, plan: Plan, factorise: Callable[..., tuple[Array, Array]]) -> tuple[Run, str]:
    """Return a quotient, whose last factors are kept where a sum takes them."""
    second = step.operands[2]
    constant = None
    if isinstance(second, Register):
        constant = plan.constants.get(second.number)
    elif isinstance(second, Immediate):
        constant = float(np.uint32(second.value).view(np.float32))
    number = take_number(step.operands[0], step)
    first, other = (getter(operand, "f32", plan.special) for operand in step.operands[1:])
    write = make_writer(step.operands[0], step)

    def run(state: State, mask: Mask) -> None:
        x, y = factorise(first(state.registers), other(state.registers), constant)
        state.factors[number] = x, y
        write(state, canonicalise_nan(x * y), mask)

    return run, UNIT


def make_float(step: Step, plan: Plan, name: str, kind: str, options: set[str]) -> tuple[Run, str] | None:
    """Return what computes floats, None where the name is none of these."""
    number = len(step.operands) - 1
    if name == "testp":
        return make_pure(step, plan, [kind], floats.TESTS[step.opcode.split(".")[1]]), EXACT
    if options - _KNOWN or ("relu" in options and name != "fma"):
        return None
    direction = next((one for one in directed.DIRECTIONS if one in options), None)
    if name == "mad" and options & _ROUNDINGS:
        name = "fma"
    if direction is not None:
        function = directed.direct(name, direction) if kind == "f32" else None
        if function is None:
            raise NotEmulatedError(step.opcode)
        return make_pure(step, plan, [kind] * number, _make_float_function(function, kind, options)), EXACT
    if kind == "f32x2" and name in _FUSABLE and not options & _ROUNDINGS:
        run = make_pure(step, plan, [kind, kind], _make_float_function(_FUSABLE[name], kind, options))
        return run, UNCLEAR if plan.may_fuse else EXACT
    if name in ("add", "sub"):
        return _addition(step, plan, kind, options, name)
    if name == "mul":
        return _product(step, plan, kind, options)
    if step.opcode in floats.QUOTIENTS:
        return _quotient(step, plan, floats.QUOTIENTS[step.opcode])
    if step.opcode in floats.UNIT:
        return make_pure(step, plan, [kind] * number, floats.UNIT[step.opcode]), UNIT
    if "approx" in options:
        return None
    if name == "copysign":
        return make_pure(step, plan, [kind] * number, floats.copy_sign), EXACT
    if name in floats.EXACT:
        function = _make_float_function(floats.EXACT[name], kind, options)
        return make_pure(step, plan, [kind] * number, function), FUSED if name == "fma" else EXACT
    if name in floats.SIGNS:
        return make_pure(step, plan, [kind] * number, _make_float_function(floats.SIGNS[name], kind, options)), EXACT
    if name in floats.EXTREMA and not options - {"NaN", "ftz", "xorsign", "abs"}:
        function = partial(floats.EXTREMA[name], keeps_nan="NaN" in options)
        if "xorsign" in options:
            function = partial(floats.join_signs, function)
        return make_pure(step, plan, [kind] * number, _make_float_function(function, kind, options)), EXACT
    return None


def make_integer(step: Step, plan: Plan, name: str, kind: str, parts: list[str]) -> Run | None:
    """Return what computes integers, None where the name is none of these."""
    options = set(parts[1:])
    number = len(step.operands) - 1
    if kind == "pred":
        function = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not}.get(name)
        return make_pure(step, plan, ["pred"] * number, function) if function is not None else None
    if name in ("add", "sub") and options == {"sat", "s32"}:
        return make_pure(step, plan, [kind, kind], partial(integers.saturate, name=name))
    if kind in packed.PAIRS and name in integers.PLAIN:
        of_pairs = packed.apply_to_pairs(integers.PLAIN[name], packed.PAIRS[kind], clamps="relu" in options)
        return make_pure(step, plan, [kind] * number, of_pairs)
    if options & {"sat", "cc"}:
        raise NotEmulatedError(step.opcode)
    if "relu" in options:
        return (
            make_pure(step, plan, [kind] * number, lambda x, y: np.maximum(integers.PLAIN[name](x, y), 0))
            if name in ("min", "max")
            else None
        )
    if name in integers.PLAIN:
        return make_pure(step, plan, [kind] * number, integers.PLAIN[name])
    if name in ("mul", "mad"):
        multiply: Callable[..., Array] = (
            integers.multiply_wide if "wide" in options else integers.multiply_high if "hi" in options else np.multiply
        )
        if name == "mul":
            return make_pure(step, plan, [kind, kind], multiply)
        size = KINDS[kind].itemsize * (2 if "wide" in options else 1)
        return make_pure(step, plan, [kind, kind, f"{kind[0]}{8 * size}"], lambda x, y, z: multiply(x, y) + z)
    if name in ("shl", "shr"):
        return make_pure(step, plan, [kind, "u32"], integers.shift_left if name == "shl" else integers.shift_right)
    if name in ("bfe", "bfi"):
        return make_pure(step, plan, [kind] * (number - 2) + ["u32"] * 2, integers.extract if name == "bfe" else integers.insert)
    if step.opcode.startswith("prmt.b32"):
        mode = parts[2] if len(parts) > 2 else ""
        return make_pure(step, plan, ["b32"] * 3, integers.PERMUTATIONS[mode]) if mode in integers.PERMUTATIONS else None
    if name == "lop3":
        return make_pure(step, plan, ["b32"] * 4, integers.combine)
    if name == "shf":
        return make_pure(step, plan, ["b32"] * 3, partial(integers.shift_pair, left=parts[1] == "l", wraps="wrap" in options))
    if name == "clz":
        return make_pure(step, plan, [f"u{kind[1:]}"], integers.count_leading_zeros)
    if name == "popc":
        return make_pure(step, plan, [f"u{kind[1:]}"], lambda x: np.bitwise_count(x).astype(np.uint32))
    if name == "bfind":
        find = integers.find_shift if "shiftamt" in options else integers.find_highest
        return make_pure(step, plan, [kind], find)
    if name == "slct":
        return make_pure(step, plan, [parts[1], parts[1], "s32"], integers.select) if parts[2] == "s32" else None
    if name == "dp4a":
        return make_pure(step, plan, ["b32"] * 3, partial(packed.dot_bytes, signed=(parts[1] == "s32", parts[2] == "s32")))
    if name == "dp2a":
        signed = parts[2] == "s32", parts[3] == "s32"
        return make_pure(step, plan, ["b32"] * 3, partial(packed.dot_halves, signed=signed, first=2 * (parts[1] == "hi")))
    if name in integers.OF_24_BITS:
        return make_pure(step, plan, [kind] * number, partial(integers.OF_24_BITS[name], high="hi" in options))
    if name == "bmsk":
        return make_pure(step, plan, ["b32", "b32"], partial(integers.mask_bits, wraps=parts[1] == "wrap"))
    if name == "szext":
        return make_pure(step, plan, [kind, "u32"], partial(integers.extend, wraps=parts[1] == "wrap"))
    return None
