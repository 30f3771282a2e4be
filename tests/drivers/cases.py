"""Calls drawn at random with every option that they take, on operands that are hard to get right."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from reference.paths import PATHS

import fastmma
from fastmma import FORMATS, AccumulationPlan, FastmmaError, Instruction, ScaledArray, gemm, matmul, scaled_matmul, sparse, warp
from fastmma import warpgroup as warpgroups
from fastmma.isa.codes import from_codes
from fastmma.isa.formats import FNUZ
from fastmma.isa.scales import scale_selectors
from fastmma.isa.sparsity import metadata_layout, pattern_of, selectors
from fastmma.numerics.lookup import fragment_evidence
from fastmma.operands import scales
from fastmma.operands.registers import register_dtype
from fastmma.scaling import SCHEMES, quantize
from fastmma.verification import inputs

Array = NDArray[Any]
Generator = np.random.Generator
SIZES = (0, 1, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64, 65, 97, 129)
WORK = 3000  # products of elements that the reference computes in a moment
LARGE = 300_000  # that portable kernels do
EVERYTHING = float(os.environ.get("FASTMMA_FUZZ_MINUTES") or 0) > 0
ORDERS, EPILOGUES = ("split_k", "promote_every"), ("alpha", "beta", "bias", "activation", "out_dtype")
WORKING = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


@dataclass(frozen=True)
class Case:
    """A call: its arrays by parameter, its other arguments, and what is counted."""

    family: str
    call: Callable[..., Any]
    arrays: dict[str, Array]
    arguments: dict[str, Any]
    counted: tuple[str, ...] = ()
    takes_threads: bool = True
    takes_backend: bool = True
    out: tuple[tuple[int, ...], Any] | None = None  # shape and dtype of the result, where the call takes `out`
    small: bool = True  # enough for the reference
    native: tuple[str, ...] = ()  # arrays that must have the machine's byte order
    paths: tuple[str, ...] = PATHS  # of kernels that the call can take
    inner: bool = False  # below the checks of calls: arrays are aligned and native, and the result lies in the place of c or of none

    def run(self, arrays: dict[str, Array], **more: Any) -> Any:
        """The result for other arrays of the same values, with more arguments."""
        return self.call(**arrays, **self.arguments, **more)


# --- operands


def one_of(rng: Generator, choices: Any) -> Any:
    """One of a sequence, as it is."""
    return choices[int(rng.integers(len(choices)))]


def hard_codes(rng: Generator, fmt: str, shape: tuple[int, ...], distribution: str) -> Array:
    """Codes of one of the verification's distributions."""
    return inputs.codes(fmt, distribution, int(np.prod(shape)), rng).reshape(shape)


def distributions(rng: Generator, ins: Instruction) -> tuple[str, str]:
    """Of the multiplicands and of the accumulators."""
    pairs = inputs.PAIRS if FORMATS[ins.atype].kind == "float" else inputs.INTEGER_PAIRS
    found: tuple[str, str] = one_of(rng, pairs)
    return found


def cancelled(a: Array, b: Array, fmt: str) -> None:
    """Make the second half of k take the first half away again, but for its last element: in place."""
    half = a.shape[-1] // 2
    sign = FORMATS[fmt].code_dtype.type(1 << (FORMATS[fmt].bits - 1))
    a[..., half : 2 * half] = a[..., :half] ^ sign
    b[..., half : 2 * half, :] = b[..., :half, :]


def metadata_words(rng: Generator, ins: Instruction, shape: tuple[int, ...]) -> Array:
    """Words that the instruction takes."""
    rule = pattern_of(ins)
    return rng.choice(np.array([word for word, _ in rule.words[: rule.ordered if ins.ordered_metadata else None]], np.uint8), shape)


def scale_codes(rng: Generator, stype: str, shape: tuple[int, ...]) -> Array:
    """Scales near 1, anywhere with NaN among others, or at the ends."""
    middle, top = (127, 256) if stype == "ue8m0" else (0x38, 128)
    near, spread = rng.integers(middle - 4, middle + 5, shape), rng.integers(0, top, shape)
    ends = rng.choice(
        [0, 1, middle, top - 3, top - 2] if rng.random() < 0.5 else [0, 1, 2] if rng.random() < 0.5 else [top - 2, top - 3], shape
    )
    return np.asarray(one_of(rng, (near, near, near, spread, ends)), np.uint8)


def matrices(rng: Generator, ins: Instruction, m: int, n: int, k: int, lead: tuple[int, ...] = ()) -> dict[str, Array]:
    """Operands of an instruction at matrix level, as elements."""
    multiplicands, accumulators = distributions(rng, ins)
    a = hard_codes(rng, ins.atype, (*lead, m, k * ins.stored_k // ins.k), multiplicands)
    b = hard_codes(rng, ins.btype, (*lead, k, n), multiplicands)
    fmt = FORMATS[ins.atype]
    if ins.atype == ins.btype and fmt.kind == "float" and not fmt.padding and not ins.sparse and rng.random() < 0.15:
        cancelled(a, b, ins.atype)
    found = {"a": from_codes(a, ins.atype), "b": from_codes(b, ins.btype)}
    found["c"] = from_codes(hard_codes(rng, ins.ctype, (*lead, m, n), accumulators), ins.ctype)
    if ins.sparse:
        found["metadata"] = metadata_words(rng, ins, (*lead, m, k // pattern_of(ins).chunk))
    if ins.scale_vec_size:
        count = -(-k * ins.scale_vec_size // ins.k)
        dtype = ml_dtypes.float8_e8m0fnu if ins.stype == "ue8m0" else ml_dtypes.float8_e4m3fn
        for name, shape in (("scale_a", (m, count)), ("scale_b", (count, n))):
            found[name] = scale_codes(rng, ins.stype, (*lead, *shape)).view(dtype)
    return found


# --- instructions


@cache
def instructions(family: str) -> tuple[tuple[tuple[Instruction, str], ...], ...]:
    """Instructions with the targets of which enough is known, in groups of like ones, so that none drowns in the wide families.

    ``FASTMMA_FUZZ_MINUTES`` set: all of them. Else those of `operations`, one for each arithmetic: tests of kernels compile the same.
    """
    from drivers.operations import operations  # which draws by functions of this module

    groups: dict[Any, list[tuple[Instruction, str]]] = {}
    every = ((ins, target) for ins in fastmma.instructions() if isinstance(ins, Instruction) for target in ins.targets)
    for ins, target in every if EVERYTHING else ((each.instruction, each.target) for each in operations()):
        if ins.op == "fma" or ins.n > 64:
            continue
        if {"gemm": ins.ctype != ins.dtype, "warp": ins.op == "wgmma", "warpgroup": ins.op != "wgmma" or ins.n > 16}.get(family):
            continue
        try:
            fastmma.arithmetic(ins, target)
            if family == "warp" and ins.op == "wmma":
                fragment_evidence(ins, target)
        except FastmmaError:
            continue
        key = ins.op, ins.atype, ins.btype, ins.dtype, ins.kind, ins.sparse, ins.stype
        groups.setdefault(key, []).append((ins, target))
    return tuple(map(tuple, groups.values()))


def any_instruction(rng: Generator, family: str) -> tuple[Instruction, str]:
    """An instruction and a target."""
    found: tuple[Instruction, str] = one_of(rng, one_of(rng, instructions(family)))
    return found


def kind_of(ins: Instruction) -> tuple[str, ...]:
    """What is counted of an instruction."""
    marks = [ins.op, ins.atype, f"to {ins.dtype}"]
    return (*marks, *(["sparse"] if ins.sparse else []), *(["block-scaled"] if ins.scale_vec_size else []))


def shape_of(rng: Generator, work: int, deepest: int) -> tuple[int, int, int]:
    """M, N and K; large ones are thin somewhere."""
    m, n = int(one_of(rng, SIZES)), int(one_of(rng, SIZES))
    while m * n * 4 > work:
        m, n = (m // 2, n) if m > n else (m, n // 2)
    depth = min(work // max(m * n, 1), 2 * deepest + 3 if rng.random() < 0.5 else 8 * deepest)
    k = int(one_of(rng, (0, 1, deepest, deepest + 1, depth, depth, int(rng.integers(depth + 1)))))
    return m, n, min(k, depth) if rng.random() < 0.9 else 0


def sizes_counted(*sizes: int) -> tuple[str, ...]:
    marks = {"0": 0 in sizes, "1": 1 in sizes, "odd": any(size > 1 and size % 2 for size in sizes)}
    return tuple(f"size {mark}" for mark, present in marks.items() if present)


# --- families


def gemm_case(rng: Generator, *, large: bool = False) -> Case:
    ins, target = any_instruction(rng, "gemm")
    m, n, k = shape_of(rng, LARGE if large else WORK, ins.k)
    if ins.sparse:
        k -= k % pattern_of(ins).chunk
    arrays = matrices(rng, ins, m, n, k)
    arguments: dict[str, Any] = {"instruction": ins, "target": target}
    if rng.random() < 0.4:
        del arrays["c"]
    if rng.random() < 0.3:
        arguments["split_k"] = int(rng.integers(1, 5))
    if ins.dtype == "f32" and rng.random() < 0.3:
        arguments["promote_every"] = ins.k * int(rng.integers(1, 4))
    result = ins.dtype
    if ins.dtype in ("f32", "f16", "s32") and rng.random() < 0.25:
        result = epilogue(rng, m, n, arrays, arguments)
    counted = (*kind_of(ins), *sizes_counted(m, n, k), *(name for name in (*ORDERS, *EPILOGUES) if name in {**arguments, **arrays}))
    return Case("gemm", gemm, arrays, arguments, counted, out=((m, n), FORMATS[result].dtype), small=not large)


def epilogue(rng: Generator, m: int, n: int, arrays: dict[str, Array], arguments: dict[str, Any]) -> str:
    """Add what follows the sums, of which c may now have another dtype; give the format of results."""
    result: str = one_of(rng, ("f32", "bf16", "f16"))
    arguments["out_dtype"] = result
    addend = FORMATS[one_of(rng, ("f32", "bf16", "f16"))].dtype
    if rng.random() < 0.5:
        arguments["alpha"] = float(rng.uniform(-2, 2))
    if "c" in arrays:
        arrays["c"], arguments["beta"] = floats(rng, (m, n), addend), float(one_of(rng, (0.0, 1.0, -0.7)))
    if rng.random() < 0.5:
        arrays["bias"] = floats(rng, (n,), addend)
    if rng.random() < 0.3:
        arguments["activation"] = "relu"
    return result


def large_gemm_case(rng: Generator) -> Case:
    return replace(gemm_case(rng, large=True), family="large gemm")


def matmul_case(rng: Generator) -> Case:
    ins, target = any_instruction(rng, "gemm")
    while ins.sparse or ins.scale_vec_size:
        ins, target = any_instruction(rng, "gemm")
    m, n, k = shape_of(rng, WORK // 4, ins.k)
    found = matrices(rng, ins, m, n, k, (2, 2))
    a, b = found["a"], found["b"]
    a = one_of(rng, (a, a[0], a[0, 0], a[:, :1], a[0, 0, 0] if m else a))
    b = one_of(rng, (b, b[0], b[0, 0], b[:1], b[0, 0, :, 0] if n else b))
    shape = np.matmul(np.zeros(a.shape, np.int8), np.zeros(b.shape, np.int8)).shape
    out = (shape, FORMATS[ins.dtype].dtype) if shape else None
    return Case(
        "matmul", matmul, {"a": a, "b": b}, {"instruction": ins, "target": target}, (*kind_of(ins), *sizes_counted(m, n, k)), out=out
    )


def tiles_case(rng: Generator) -> Case:
    ins, target = any_instruction(rng, "tiles")
    lead = one_of(rng, ((), (1,), (2,), (0,), (2, 1)))
    arrays = matrices(rng, ins, ins.m, ins.n, ins.k, lead)
    return Case("mma", fastmma.mma, arrays, {"ins": ins, "target": target}, kind_of(ins))


def warp_case(rng: Generator) -> Case:
    ins, target = any_instruction(rng, "warp")
    lead = one_of(rng, ((), (1,), (3,), (0,)))
    arguments: dict[str, Any] = {"ins": ins, "target": target}
    found = matrices(rng, ins, ins.m, ins.n, ins.k, lead)
    arrays = {}
    for name in "abc":
        operand = ins.operands[name]
        dtype = register_dtype(operand)
        arrays[name] = rng.integers(0, 1 << 8 * dtype.itemsize, (*lead, operand.layout.lanes, operand.registers), dtype=dtype)
        if rng.random() < 0.8:  # registers of hard matrices, else of any bits
            codes = found[name].view(FORMATS[getattr(ins, f"{name}type")].code_dtype).astype(f"u{max(8, operand.layout.bits) // 8}")
            if ins.tiles > 1:
                codes = np.repeat(codes[..., None, :, :], operand.layout.tiles, axis=-3)
            arrays[name] = fastmma.scatter(codes, operand, kind=ins.kind)
    if ins.sparse:
        arguments["selector"] = int(one_of(rng, selectors(ins)))
        words = metadata_words(rng, ins, (*lead, *metadata_layout(ins).shape))
        arrays["metadata"] = sparse.pack_metadata(ins, words, selector=arguments["selector"])
    if ins.scale_vec_size:
        for operand, lines in (("a", ins.m), ("b", ins.n)):
            byte_ids, thread_ids = scale_selectors(ins, operand)
            chosen = int(one_of(rng, byte_ids)), int(one_of(rng, thread_ids))
            given = scale_codes(rng, ins.stype, (*lead, lines, ins.scale_vec_size))
            arrays[f"scale_{operand}"] = scales.pack_scales(ins, given, operand, *chosen)
            arguments |= {f"byte_id_{operand}": chosen[0], f"thread_id_{operand}": chosen[1]}
    return Case("warp.mma", warp.mma, arrays, arguments, kind_of(ins))


def warpgroup_case(rng: Generator) -> Case:
    ins, target = any_instruction(rng, "warpgroup")
    operands = ins.operands
    arrays: dict[str, Array] = {"memory": rng.integers(0, 256, (1, 1 << 17), dtype=np.uint8)}
    for name in "da":
        dtype = register_dtype(operands[name])
        arrays[name] = rng.integers(0, 1 << 8 * dtype.itemsize, (operands[name].layout.lanes, operands[name].registers), dtype=dtype)
    used = (0xFF, 0xFF << 16, 0xFF << 32, 7 << 49)
    # no swizzle, or rows of 128 or 64 bytes: sparse k does not fit into 32
    descriptors = [sum(int(rng.integers(1 << 63)) * 2 & mask for mask in used) | int(rng.integers(3)) << 62 for _ in range(2)]
    arguments: dict[str, Any] = {"ins": ins, "b": descriptors[1], "target": target, "scale_d": int(rng.integers(2))}
    if rng.random() < 0.5:
        del arrays["a"]
        arguments["a"] = descriptors[0]
    if ins.sparse:
        arguments |= {"selector": 0}
        arrays["metadata"] = sparse.pack_metadata(ins, metadata_words(rng, ins, metadata_layout(ins).shape))
    return Case("warpgroup.mma", warpgroups.mma, arrays, arguments, kind_of(ins))


def _scaled(rng: Generator, scheme: str, shape: tuple[int, int], axis: int) -> tuple[dict[str, Array], dict[str, Any]]:
    """Elements and scales of a block-scaled array, and the rest of it."""
    row = SCHEMES[scheme]
    block = row.block(shape, axis)
    counts = tuple(-(-extent // size) for extent, size in zip(shape, block, strict=True))
    distribution = one_of(rng, inputs.PAIRS if row.element != "s8" else inputs.INTEGER_PAIRS)[0]
    elements = from_codes(hard_codes(rng, row.element, shape, distribution), row.element)
    if row.scale == "f32":
        found = np.exp2(rng.integers(-20, 20, counts)).astype(np.float32) * rng.uniform(1, 2, counts).astype(np.float32)
        found = np.where(rng.random(counts) < one_of(rng, (0, 0, 0.15)), hard_codes(rng, "f32", counts, "special").view(np.float32), found)
    else:
        found = scale_codes(rng, row.scale, counts).view(row.scale_format.dtype)
    overall = np.float32(rng.uniform(0.5, 2)) if row.two_level else None
    return {"elements": elements, "scales": found}, {"block": block, "axis": axis, "global_scale": overall, "scheme": scheme}


def _scaled_product(a_elements: Array, a_scales: Array, b_elements: Array, b_scales: Array, of_a: Any, of_b: Any, **more: Any) -> Array:
    return scaled_matmul(ScaledArray(a_elements, a_scales, **of_a), ScaledArray(b_elements, b_scales, **of_b), **more)


SCALED_TARGETS = ("sm_90a", "sm_90a", "sm_120a", "sm_120a", "sm_89", "sm_80", "sm_100a")


def is_fnuz(scheme: str) -> bool:
    """Tell whether only a gfx942 multiplies a scheme's elements, and only with their like."""
    return SCHEMES[scheme].element in FNUZ


SCHEME_PAIRS = [
    (x, y)
    for x in SCHEMES
    for y in SCHEMES
    if x == y or (is_fnuz(x) == is_fnuz(y) and {x[:4], y[:4]} in ({"mxfp"}, {"fp8_"}, {"mxfp", "fp8_"}))
]


def scaled_case(rng: Generator, pairs: Sequence[tuple[str, str]] = SCHEME_PAIRS) -> Case:
    while True:
        schemes = one_of(rng, pairs)
        target = "gfx942" if is_fnuz(schemes[0]) else one_of(rng, SCALED_TARGETS)
        m, n, k = shape_of(rng, WORK, 64)
        held, rest = zip(_scaled(rng, schemes[0], (m, k), 1), _scaled(rng, schemes[1], (k, n), 0), strict=True)
        arrays = {f"{side}_{name}": array for side, each in zip("ab", held, strict=True) for name, array in each.items()}
        arguments: dict[str, Any] = {"of_a": rest[0], "of_b": rest[1], "target": target}
        arguments["out_dtype"] = one_of(rng, ("float32", "bfloat16", "float16"))
        if rng.random() < 0.3:
            arguments["alpha"] = float(rng.uniform(-2, 2))
        if rng.random() < 0.2:
            arguments["split_k"] = int(rng.integers(1, 4))
        if rng.random() < 0.2:
            arguments["promote_every"] = 64 * int(rng.integers(1, 3))
        if rng.random() < 0.3:
            arrays["c"] = rng.standard_normal((m, n)).astype(one_of(rng, (np.float32, np.float16, ml_dtypes.bfloat16)))
        if rng.random() < 0.3:
            arrays["bias"] = rng.standard_normal(n).astype(np.float32)
        try:
            plan: AccumulationPlan = fastmma.scaled_plan(
                *(ScaledArray(arrays[f"{side}_elements"], arrays[f"{side}_scales"], **arguments[f"of_{side}"]) for side in "ab"),
                **{name: arguments[name] for name in ("target", "split_k", "promote_every", "out_dtype") if name in arguments},
            )
        except FastmmaError:
            continue
        out = (m, n), FORMATS[plan.out].dtype
        counted = (f"{schemes[0]} by {schemes[1]}", f"scales in the {plan.scales}", f"to {plan.out}", *sizes_counted(m, n, k))
        return Case("scaled_matmul", _scaled_product, arrays, arguments, counted, out=out, native=("a_scales", "b_scales"))


def floats(rng: Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Floats of any bits, near one, widely spread, tiny, or with zeros, infinities and NaNs."""
    kind = int(rng.integers(5))
    count = int(np.prod(shape))
    size = np.dtype(dtype).itemsize
    if kind == 0:
        return rng.integers(0, 256, (count, size), dtype=np.uint8).reshape(-1).view(dtype).reshape(shape)
    values = rng.standard_normal(count)
    if kind == 2:
        values *= np.exp2(rng.integers(-12, 12, count))
    elif kind == 3:
        values *= float(ml_dtypes.finfo(dtype).smallest_normal)
    elif kind == 4:
        values[rng.random(count) < 0.1] = one_of(rng, (np.nan, np.inf, -np.inf, 0.0, -0.0))
    return values.astype(dtype).reshape(shape)


def quantize_case(rng: Generator) -> Case:
    scheme = one_of(rng, list(SCHEMES))
    row = SCHEMES[scheme]
    shape = tuple(int(one_of(rng, (0, 1, 2, 3, 5, 17, 33, 70, 130))) for _ in range(int(one_of(rng, (2, 2, 3)))))
    while np.prod(shape) > 2000:
        shape = tuple(-(-extent // 2) for extent in shape)
    dtype = one_of(rng, WORKING)
    rounding = one_of(rng, ("nearest", "zero", "stochastic"))
    arguments: dict[str, Any] = {"scheme": scheme, "axis": int(rng.integers(-len(shape), len(shape))), "rounding": rounding}
    arguments["rule"] = one_of(rng, row.rules)
    if rounding == "stochastic":
        arguments["seed"] = int(rng.integers(1 << 30))
    counted = (scheme, rounding, f"from {np.dtype(dtype).name}", *sizes_counted(*shape))
    return Case("quantize", quantize, {"x": floats(rng, shape, dtype)}, arguments, counted, takes_backend=False)


def _dequantized(elements: Array, scales: Array, of: Any, dtype: Any, **more: Any) -> Array:
    return ScaledArray(elements, scales, **of).dequantize(dtype, **more)


def dequantize_case(rng: Generator) -> Case:
    scheme, axis = one_of(rng, list(SCHEMES)), int(rng.integers(2))
    shape = int(one_of(rng, SIZES)), int(one_of(rng, SIZES))
    arrays, rest = _scaled(rng, scheme, shape, axis)
    dtype = one_of(rng, WORKING)
    counted = (scheme, f"to {np.dtype(dtype).name}", *sizes_counted(*shape))
    arguments = {"of": rest, "dtype": dtype}
    return Case("dequantize", _dequantized, arrays, arguments, counted, takes_backend=False, native=("scales",))


def movement_case(rng: Generator) -> Case:
    moves = [
        move
        for move in fastmma.instructions()
        if isinstance(move, fastmma.Movement) and move.op in ("ldmatrix", "stmatrix", "movmatrix") and not move.unknown
    ]
    move = one_of(rng, moves)
    registers = rng.integers(0, 1 << 32, (2, 32, move.registers), dtype=np.uint32)
    arrays: dict[str, Array] = {"memory": rng.integers(0, 256, (2, 2048), dtype=np.uint8), "addresses": rng.integers(0, 64, (2, 32)) * 16}
    if move.op == "movmatrix":
        arrays = {"registers": registers[..., 0]}
    elif move.op == "stmatrix":
        arrays["registers"] = registers
    call = getattr(warp, move.op)
    return Case("movement", call, arrays, {"opcode": move}, (move.op,), takes_threads=False, takes_backend=False)


FAMILIES: dict[str, Callable[[Generator], Case]] = {
    "gemm": gemm_case,
    "large gemm": large_gemm_case,
    "matmul": matmul_case,
    "mma": tiles_case,
    "warp.mma": warp_case,
    "warpgroup.mma": warpgroup_case,
    "scaled_matmul": scaled_case,
    "quantize": quantize_case,
    "dequantize": dequantize_case,
    "movement": movement_case,
}
# in the order in which they are drawn
DRAWN = (*FAMILIES, "gemm", "large gemm", "scaled_matmul")
OF_A_SEED = 50  # cases


def drawn(seed: int, index: int) -> tuple[Generator, str, Case]:
    """The case of a number, its family, and the generator to go on with; every test that draws these compiles the same kernels."""
    rng = np.random.default_rng([seed, index])
    family = DRAWN[index % len(DRAWN)]
    return rng, family, FAMILIES[family](rng)
