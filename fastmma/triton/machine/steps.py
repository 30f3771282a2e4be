"""From a step of PTX to a function that executes it on the state of many blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.formats import canonicalise_nan
from fastmma.triton.machine import conversions, floats, integers, memory, warps
from fastmma.triton.machine.code import Address, Immediate, Operand, Register, Step, Symbol, Vector
from fastmma.triton.machine.state import Array, Mask, Run, State
from fastmma.triton.machine.values import KINDS, PAIRS, UNSIGNED, getter, join_pairs, resize, split_pairs
from fastmma.triton.numbers import fused

# of these nothing is left where all that is asked for is done at once
_NOTHING = (
    *("bar.", "barrier.", "fence", "membar", "cp.async.commit_group", "cp.async.wait_", "wgmma.fence", "wgmma.commit", "wgmma.wait"),
    *("griddepcontrol", "createpolicy", "prefetch", "discard", "applypriority", "nanosleep", "pragma"),
)
_ROUNDINGS = {"rn", "rz", "rm", "rp"}
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
    """What is known of a kernel beside its text: where names lie, and which sums ptxas fuses with which operand.

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
    """

    special: Callable[[str], int]
    constants: Mapping[int, float]
    fused: Mapping[int, int | None]
    sources: Mapping[int, tuple[int, bool]]
    products: frozenset[int]
    read: frozenset[int]


def _kind_of(step: Step, parts: list[str]) -> str:
    found = [part for part in parts if part in KINDS]
    if not found:
        raise NotEmulatedError(step.opcode)
    return found[-1]


def _number(operand: Operand, step: Step) -> int:
    if not isinstance(operand, Register):
        raise NotEmulatedError(f"{step.opcode} into {operand}")
    return operand.number


def _writer(operand: Operand, step: Step) -> Callable[[State, Array, Mask], None]:
    """Return what writes a result, in the size of its register."""
    if operand is None:
        return lambda _state, _values, _mask: None
    number = _number(operand, step)
    assert isinstance(operand, Register)
    if operand.size == 1:
        return lambda state, values, mask: state.put(number, values, mask)
    dtype = UNSIGNED[operand.size]
    return lambda state, values, mask: state.put(number, resize(values, dtype), mask)


def _pure(step: Step, plan: Plan, kinds: list[str], function: Callable[..., Array]) -> Run:
    """Return what computes values of threads from their own values."""
    write = _writer(step.operands[0], step)
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


def _float_function(function: Callable[..., Array], kind: str, options: set[str], canonical: bool = True) -> Callable[..., Array]:
    """Return a function of registers: of pairs both halves, denormals flushed and NaN as the GPU has it."""
    flushes, saturates = "ftz" in options and kind == "f32", "sat" in options

    def computed(*values: Array) -> Array:
        if kind in PAIRS:
            values = tuple(split_pairs(one, PAIRS[kind]) for one in values)
        if flushes:
            values = tuple(map(floats.flush, values))
        result = function(*values)
        if flushes:
            result = floats.flush(result)
        if saturates:
            result = np.where(np.isnan(result), result.dtype.type(0), np.clip(result, 0, 1)).astype(result.dtype)
        if canonical:
            result = canonicalise_nan(result)
        return join_pairs(result) if kind in PAIRS else result

    return computed


def _is_float(kind: str) -> bool:
    return kind in ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")


def _addition(step: Step, plan: Plan, kind: str, options: set[str], name: str) -> tuple[Run, str]:
    """Return a sum, in one rounding with a product where ptxas fuses it."""
    function = _float_function(floats.ADDITIONS[name], kind, options)
    index = plan.fused.get(step.place, -1)
    if index is None or index < 0 or options & _ROUNDINGS:
        return _pure(step, plan, [kind, kind], function), EXACT if index is not None else UNCLEAR
    product, is_negated = plan.sources[step.place]
    other = getter(step.operands[2 - index], kind, plan.special)
    write = _writer(step.operands[0], step)
    negates_product = is_negated != (name == "sub" and index == 1)
    negates_other = name == "sub" and index == 0

    def joined(x: Array, y: Array, z: Array) -> Array:
        return fused(floats.negate(x) if negates_product else x, y, floats.negate(z) if negates_other else z)

    function = _float_function(joined, kind, options)

    def run(state: State, mask: Mask) -> None:
        x, y = state.factors[product]
        write(state, function(x, y, other(state.registers)), mask)

    return run, FUSED


def _product(step: Step, plan: Plan, kind: str, options: set[str]) -> tuple[Run, str]:
    """Return a product, whose factors are kept where a sum takes them."""
    compute = _pure(step, plan, [kind, kind], _float_function(floats.multiply, kind, options))
    number = _number(step.operands[0], step)
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
    number = _number(step.operands[0], step)
    first, other = (getter(operand, "f32", plan.special) for operand in step.operands[1:])
    write = _writer(step.operands[0], step)

    def run(state: State, mask: Mask) -> None:
        x, y = factorise(first(state.registers), other(state.registers), constant)
        state.factors[number] = x, y
        write(state, canonicalise_nan(x * y), mask)

    return run, UNIT


def _float(step: Step, plan: Plan, name: str, kind: str, options: set[str]) -> tuple[Run, str] | None:
    """Return what computes floats, None where the name is none of these."""
    if name in ("add", "sub", "mul", "fma", "sqrt", "div", "rcp") and options & (_ROUNDINGS - {"rn"}):
        raise NotEmulatedError(step.opcode)
    if name in ("add", "sub"):
        return _addition(step, plan, kind, options, name)
    if name == "mul":
        return _product(step, plan, kind, options)
    if step.opcode in floats.QUOTIENTS:
        return _quotient(step, plan, floats.QUOTIENTS[step.opcode])
    if step.opcode in floats.UNIT:
        return _pure(step, plan, [kind], floats.UNIT[step.opcode]), UNIT
    if "approx" in options:
        return None
    number = len(step.operands) - 1
    if name in floats.EXACT:
        return _pure(step, plan, [kind] * number, _float_function(floats.EXACT[name], kind, options)), FUSED if name == "fma" else EXACT
    if name in floats.SIGNS:
        return _pure(step, plan, [kind] * number, _float_function(floats.SIGNS[name], kind, options, canonical=False)), EXACT
    if name in floats.EXTREMA and number == 2 and not options - {"NaN", "ftz"}:
        function = partial(floats.EXTREMA[name], keeps_nan="NaN" in options)
        return _pure(step, plan, [kind] * 2, _float_function(function, kind, options)), EXACT
    return None


def _compare(step: Step, plan: Plan, parts: list[str]) -> Run:
    kind = _kind_of(step, parts)
    name = parts[1]
    joining = next((part for part in parts[2:] if part in ("and", "or", "xor")), None)
    first, second = (getter(operand, kind, plan.special) for operand in step.operands[1:3])
    third = getter(step.operands[3], "pred", plan.special) if joining else None
    into = step.operands[0].parts if isinstance(step.operands[0], Vector) else (step.operands[0],)
    writes = [_writer(one, step) for one in into]
    flushes = "ftz" in parts

    def run(state: State, mask: Mask) -> None:
        x, y = first(state.registers), second(state.registers)
        if kind in PAIRS:
            found = floats.compare_ordered(name, split_pairs(x, PAIRS[kind]), split_pairs(y, PAIRS[kind]))
            results = [found[..., 0], found[..., 1]]
        else:
            if flushes:
                x, y = floats.flush(x), floats.flush(y)
            found = floats.compare_ordered(name, x, y) if _is_float(kind) else integers.COMPARISONS[name](x, y)
            results = [found, ~found]
        if third is not None:
            other = third(state.registers)
            results = [_JOINS[joining or ""](one, other) for one in results]
        for write, one in zip(writes, results, strict=False):
            write(state, one, mask)

    return run


_JOINS: dict[str, Any] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _move(step: Step, plan: Plan, kind: str) -> Run:
    """Move, put registers together or take one apart."""
    to, source = step.operands
    if isinstance(source, Vector):
        write = _writer(to, step)
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
        writes = [_writer(part, step) for part in to.parts]

        def split(state: State, mask: Mask) -> None:
            value = get(state.registers)
            for index, write in enumerate(writes):
                write(state, (value >> value.dtype.type(8 * size * index)).astype(UNSIGNED[size]), mask)

        return split
    return _pure(step, plan, [kind], lambda values: values)


def _integer(step: Step, plan: Plan, name: str, kind: str, parts: list[str]) -> Run | None:
    """Return what computes integers, None where the name is none of these."""
    options = set(parts[1:])
    number = len(step.operands) - 1
    if kind == "pred":
        function = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not}.get(name)
        return _pure(step, plan, ["pred"] * number, function) if function is not None else None
    if options & {"sat", "cc"}:
        raise NotEmulatedError(step.opcode)
    if name in integers.PLAIN:
        return _pure(step, plan, [kind] * number, integers.PLAIN[name])
    if name in ("mul", "mad"):
        multiply: Callable[..., Array] = (
            integers.multiply_wide if "wide" in options else integers.multiply_high if "hi" in options else np.multiply
        )
        if name == "mul":
            return _pure(step, plan, [kind, kind], multiply)
        size = KINDS[kind].itemsize * (2 if "wide" in options else 1)
        return _pure(step, plan, [kind, kind, f"{kind[0]}{8 * size}"], lambda x, y, z: multiply(x, y) + z)
    if name in ("shl", "shr"):
        return _pure(step, plan, [kind, "u32"], integers.shift_left if name == "shl" else integers.shift_right)
    if name in ("bfe", "bfi"):
        return _pure(step, plan, [kind] * (number - 2) + ["u32"] * 2, integers.extract if name == "bfe" else integers.insert)
    if step.opcode == "prmt.b32":
        return _pure(step, plan, ["b32"] * 3, integers.permute)
    if name == "lop3":
        return _pure(step, plan, ["b32"] * 4, integers.combine)
    if name == "shf":
        return _pure(step, plan, ["b32"] * 3, partial(integers.shift_pair, left=parts[1] == "l", wraps="wrap" in options))
    if name == "clz":
        return _pure(step, plan, [f"u{kind[1:]}"], integers.count_leading_zeros)
    if name == "popc":
        return _pure(step, plan, [f"u{kind[1:]}"], lambda x: np.bitwise_count(x).astype(np.uint32))
    if name == "bfind" and "shiftamt" not in options:
        return _pure(step, plan, [kind], integers.find_highest)
    if name == "dp4a":
        return _pure(step, plan, ["b32"] * 3, partial(integers.dot_bytes, signed=(parts[1] == "s32", parts[2] == "s32")))
    return None


def _convert(step: Step, plan: Plan, parts: list[str]) -> tuple[Run, str]:
    target, source = [part for part in parts if part in KINDS][-2:]
    options = {part for part in parts[1:] if part not in KINDS}
    if len(step.operands) == 3:
        return _pure(step, plan, [source, source], partial(conversions.pack, source=source, target=target, options=options)), CONVERTED
    if target == "f16x2" and source in ("e4m3x2", "e5m2x2"):
        return _pure(step, plan, [source], partial(conversions.unpack_bytes, source=source)), CONVERTED
    if target in ("e4m3x2", "e5m2x2") and source == "f16x2":

        def narrow(values: Array) -> Array:
            halves = split_pairs(values, PAIRS["f16x2"]).astype(np.float32)
            return conversions.pack(halves[..., 1], halves[..., 0], "f32", target, options)

        return _pure(step, plan, [source], narrow), CONVERTED
    status = CONVERTED if _is_float(source) or _is_float(target) else EXACT
    return _pure(step, plan, [source], partial(conversions.convert, source=source, target=target, options=options)), status


def _address(operand: Operand, plan: Plan, kind: str) -> Callable[[State], Array]:
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


def _parts(operand: Operand) -> tuple[Operand, ...]:
    return operand.parts if isinstance(operand, Vector) else (operand,)


def _space(parts: list[str]) -> str:
    found = next((part for part in parts if part.partition("::")[0] in ("param", "shared", "global", "local", "const")), "global")
    return found.partition("::")[0]


def _load(step: Step, plan: Plan, parts: list[str]) -> Run:
    kind, space = _kind_of(step, parts), _space(parts)
    dtype = KINDS[kind]
    writes = [_writer(part, step) for part in _parts(step.operands[0])]
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
    if space not in ("global", "shared"):
        raise NotEmulatedError(step.opcode)
    address = _address(step.operands[1], plan, "u64" if space == "global" else "u32")
    fetch = memory.load_global if space == "global" else memory.load_shared

    def run(state: State, mask: Mask) -> None:
        found = fetch(state, address(state), dtype.itemsize, len(writes), mask)
        for write, one in zip(writes, found, strict=True):
            write(state, one.view(dtype), mask)

    return run


def _store(step: Step, plan: Plan, parts: list[str]) -> Run:
    kind, space = _kind_of(step, parts), _space(parts)
    if space not in ("global", "shared"):
        raise NotEmulatedError(step.opcode)
    unsigned = f"b{8 * KINDS[kind].itemsize}"
    getters = [getter(part, unsigned, plan.special) for part in _parts(step.operands[1])]
    address = _address(step.operands[0], plan, "u64" if space == "global" else "u32")
    keep = memory.store_global if space == "global" else memory.store_shared
    size = KINDS[kind].itemsize
    return lambda state, mask: keep(state, address(state), [get(state.registers) for get in getters], size, mask)


def _change(step: Step, plan: Plan, parts: list[str]) -> tuple[Run, str]:
    """Return an atomic operation."""
    name = next((part for part in parts[1:] if part in ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")), "")
    kind = _kind_of(step, parts)
    space = _space(parts)
    if space not in ("global", "shared") or not name or (space == "shared" and _is_float(kind)):
        raise NotEmulatedError(step.opcode)
    operands = step.operands if parts[0] == "atom" else (None, *step.operands)
    writes = [_writer(part, step) for part in _parts(operands[0])]
    unsigned = f"b{8 * KINDS[kind].itemsize}"
    address = _address(operands[1], plan, "u64" if space == "global" else "u32")
    getters = [getter(part, unsigned, plan.special) for part in _parts(operands[3 if name == "cas" else 2])]
    compared = getter(operands[2], unsigned, plan.special) if name == "cas" else None
    is_read = any(isinstance(part, Register) and part.number in plan.read for part in _parts(operands[0]))

    def run(state: State, mask: Mask) -> None:
        given = [get(state.registers) for get in getters]
        wanted = compared(state.registers) if compared is not None else None
        found = memory.change(state, space, name, kind, address(state), given, wanted, mask)
        for write, one in zip(writes, found, strict=False):
            write(state, one, mask)

    keeps_order = _is_float(kind) or name in ("exch", "cas", "inc", "dec") or is_read
    return run, ORDER if keeps_order else EXACT


def _copy(step: Step, plan: Plan, parts: list[str]) -> Run:
    """Return a copy to shared memory."""
    to, source = _address(step.operands[0], plan, "u32"), _address(step.operands[1], plan, "u64")
    size = step.operands[2]
    if not isinstance(size, Immediate) or "bulk" in parts or len(step.operands) > 4:
        raise NotEmulatedError(step.opcode)
    given = getter(step.operands[3], "u32", plan.special) if len(step.operands) > 3 else None
    count = size.value
    return lambda state, mask: memory.copy_to_shared(
        state, to(state), source(state), count, given(state.registers) if given is not None else None, mask
    )


def _of_warps(step: Step, plan: Plan, parts: list[str]) -> tuple[Run, str] | None:
    """Return what threads of a warp do together, None where the name is none of these."""
    name = parts[0]
    special = plan.special
    if name == "shfl":
        into = step.operands[0].parts if isinstance(step.operands[0], Vector) else (step.operands[0], None)
        writes = [_writer(one, step) for one in into]
        getters = [getter(operand, "b32", special) for operand in step.operands[1:4]]

        def shuffle(state: State, mask: Mask) -> None:
            results = warps.exchange(state, parts[2], *(get(state.registers) for get in getters))
            for write, one in zip(writes, results, strict=True):
                write(state, one, mask)

        return shuffle, EXACT
    if name == "redux" and parts[-1] in ("s32", "u32", "b32"):
        write, get = _writer(step.operands[0], step), getter(step.operands[1], parts[-1], special)
        return lambda state, mask: write(state, warps.reduce(state, parts[2], get(state.registers)), mask), EXACT
    if name == "vote":
        write, get = _writer(step.operands[0], step), getter(step.operands[1], "pred", special)
        return lambda state, mask: write(state, warps.vote(state, parts[2], get(state.registers), state.active(mask)), mask), EXACT
    if name == "activemask":
        write = _writer(step.operands[0], step)
        return lambda state, mask: write(state, warps.vote(state, "ballot", state.active(None), state.active(mask)), mask), EXACT
    if name == "elect":
        write = _writer(_parts(step.operands[0])[-1], step)
        return lambda state, mask: write(state, np.arange(state.threads)[None] % 32 == 0, mask), EXACT
    if name in ("ldmatrix", "stmatrix") and "b16" in parts and "m8n8" in parts:
        index = 1 if name == "ldmatrix" else 0
        address = _address(step.operands[index], plan, "u32")
        each = _parts(step.operands[1 - index])
        transposed = "trans" in parts
        if name == "ldmatrix":
            writes = [_writer(one, step) for one in each]

            def load(state: State, mask: Mask) -> None:
                for write, one in zip(writes, warps.load_matrices(state, address(state), len(writes), transposed=transposed), strict=True):
                    write(state, one, mask)

            return load, EXACT
        getters = [getter(one, "b32", special) for one in each]
        return lambda state, _mask: warps.store_matrices(
            state, address(state), [get(state.registers) for get in getters], transposed=transposed
        ), EXACT
    return None


def _multiply(step: Step, plan: Plan, parts: list[str]) -> tuple[Run, str] | None:
    """Return a product of matrices, None where the name is none."""
    special = plan.special
    if step.opcode.startswith("mma.sync") and len(step.operands) == 4:
        size = "b64" if parts[-1] == "f64" else "b32"
        writes = [_writer(one, step) for one in _parts(step.operands[0])]
        getters = [[getter(one, size, special) for one in _parts(operand)] for operand in step.operands[1:]]

        def multiply(state: State, mask: Mask) -> None:
            a, b, c = ([get(state.registers) for get in each] for each in getters)
            for write, one in zip(writes, warps.multiply(state, step.opcode, a, b, c), strict=True):
                write(state, one, mask)

        return multiply, PRODUCT
    if not step.opcode.startswith("wgmma.mma_async.sync"):
        return None
    to, left, right, starts, *flags = step.operands
    writes = [_writer(one, step) for one in _parts(to)]
    before = [getter(one, "b32", special) for one in _parts(to)]
    in_registers = isinstance(left, Vector)
    firsts = [getter(one, "b32" if in_registers else "b64", special) for one in _parts(left)]
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
        return _load(step, plan, parts), MOVED
    if name == "st":
        return _store(step, plan, parts), MOVED
    if name in ("atom", "red"):
        return _change(step, plan, parts)
    if step.opcode.startswith("cp.async"):
        return _copy(step, plan, parts), MOVED
    if name == "mov":
        return _move(step, plan, parts[-1]), MOVED
    if name in ("cvta", "isspacep") and "to" in parts and "global" in parts:
        return _pure(step, plan, [parts[-1]], lambda values: values), MOVED
    if name == "setp":
        return _compare(step, plan, parts), EXACT
    if name == "selp":
        return _pure(step, plan, [parts[1], parts[1], "pred"], _choose), MOVED
    if name == "cvt":
        return _convert(step, plan, parts)
    found = _of_warps(step, plan, parts) or _multiply(step, plan, parts)
    if found is not None:
        return found
    kind = _kind_of(step, parts)
    if _is_float(kind):
        of_floats = _float(step, plan, name, kind, {part for part in parts[1:] if part not in KINDS})
        if of_floats is not None:
            return of_floats
    else:
        run = _integer(step, plan, name, kind, parts)
        if run is not None:
            return run, EXACT
    raise NotEmulatedError(step.opcode)
