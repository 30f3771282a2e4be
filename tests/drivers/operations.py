"""One operation for each arithmetic of the tables, and operands for it, as codes, that are hard to get right."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastmma
from drivers.cases import cancelled, hard_codes, metadata_words, one_of, scale_codes
from fastmma import FORMATS, FastmmaError, Instruction
from fastmma.backends.call import Operands, Operation
from fastmma.backends.parameters import fused_parameters, scaled_parameters
from fastmma.backends.resolve import operation_of
from fastmma.isa.sparsity import pattern_of
from fastmma.verification import inputs

Array = NDArray[Any]
Generator = np.random.Generator
MIXES = (
    "as drawn",
    "as drawn",
    "rare",
    "cancelled",
    "one special",
    "zero products",
    "zero blocks",
    "same signs",
    "lines apart",
    "few powers",
)


def _seen_by_kernels(operation: Operation) -> tuple[Any, ...]:
    """What is known of an operation where it is computed, without the formats of A and B."""
    ins, row = operation.instruction, operation.arithmetic
    known: tuple[Any, ...] = (row.method, bool(ins.sparse), ins.ctype, ins.dtype, row.native_c)
    if row.method not in ("fused", "grouped"):
        depth = ins.k if ins.satfinite else 0
        return (*known, ins.btype, depth, ins.satfinite, ins.rounding, ins.bit_op)
    return (*known, (scaled_parameters if ins.scale_vec_size else fused_parameters)(operation)._replace(a=None, b=None))


@cache
def operations(*methods: str) -> tuple[Operation, ...]:
    """Operations of these methods, or of all.

    The formats that A has meet those that B has in turn, and rows that more than four formats of A share take two each, but the first all.
    """
    if methods:  # those of the whole list, whose kernels other tests have compiled
        return tuple(operation for operation in operations() if operation.arithmetic.method in methods)
    found: dict[Any, dict[str, dict[str, Operation]]] = {}
    for ins in fastmma.instructions():
        if not isinstance(ins, Instruction):
            continue
        for target in ins.targets:
            try:
                operation = operation_of(ins, target)
            except FastmmaError:  # nothing is known
                continue
            found.setdefault(_seen_by_kernels(operation), {}).setdefault(ins.atype, {}).setdefault(ins.btype, operation)
    rows = [list(formats.values()) for formats in found.values()]
    shared = [formats for formats in rows if len(formats) > 4]
    for turn, formats in enumerate(shared[1:]):
        formats[:] = [formats[(2 * turn + place) % len(formats)] for place in range(2)]
    each_a = [formats for row in rows for formats in row]
    drawn = [list(of_b.values())[number % len(of_b)] for number, of_b in enumerate(each_a)]
    return (*drawn, operation_of("fma.rn.f32", "sm_80"))  # which is no tensor core's, and not among the instructions


def name_of(operation: Operation) -> str:
    """Where it is and what it computes."""
    return f"{operation.target} {operation.instruction.opcode}"


def _twisted(rng: Generator, ins: Instruction, codes: dict[str, Array]) -> None:
    """Change operands in place as one of `MIXES` says."""
    mix, floats = one_of(rng, MIXES), ins.formats.a.kind == "float"

    def others(name: str, distribution: str, chosen: Array) -> None:
        """Draw the chosen elements anew."""
        codes[name][...] = np.where(chosen, hard_codes(rng, getattr(ins, f"{name}type"), codes[name].shape, distribution), codes[name])

    if mix == "rare":
        for name, array in codes.items():
            others(name, "bits", rng.random(array.shape) < 0.03)
    elif mix == "one special":
        name = one_of(rng, sorted(codes))
        others(name, "bits", np.arange(codes[name].size).reshape(codes[name].shape) == rng.integers(codes[name].size + 1))
    elif mix == "lines apart":
        for name, shape in (("a", (1, -1, 1)), ("b", (1, 1, -1))):
            lines = rng.random(codes[name].shape[1 if name == "a" else 2]) < 0.5
            others(name, one_of(rng, inputs.PAIRS if floats else inputs.INTEGER_PAIRS)[0], lines.reshape(shape))
    elif mix == "zero products":
        codes["a"][...] = 0
    elif mix == "zero blocks":
        codes["a"][:, ::2, :32] = 0
        codes["b"][:, -16:, ::3] = 0
    elif mix == "same signs" and floats:
        for name in "ab":
            fmt = getattr(ins.formats, name)
            codes[name] &= fmt.code_dtype.type((1 << fmt.bits - 1) - 1)
    elif mix == "few powers" and floats:  # of two, whose sums are often ties with a bit somewhere below
        for name, array in codes.items():
            fmt = getattr(ins.formats, name)
            most = min(fmt.bias - 1, 12)
            fields = (rng.integers(fmt.bias - most, fmt.bias + most + 1, array.shape) << fmt.mantissa_bits).astype(fmt.code_dtype)
            signs = rng.integers(0, 2, array.shape).astype(fmt.code_dtype) << (fmt.bits - fmt.padding - 1)
            array[...] = ((fields | signs) << fmt.padding) * (rng.random(array.shape) < (1 if name == "b" else 0.2))
    elif mix == "cancelled" and ins.atype == ins.btype and floats and not ins.formats.a.padding and not ins.sparse:
        cancelled(codes["a"], codes["b"], ins.atype)


def operands(
    rng: Generator, ins: Instruction, m: int, n: int, k: int, count: int = 1, *, pair: tuple[str, str] | None = None
) -> dict[str, Array]:
    """Codes of `count` products by the names of `Operands`, those of a pair of distributions as they are drawn.

    k are whole chunks where A is sparse.
    """
    pairs = inputs.PAIRS if FORMATS[ins.atype].kind == "float" else inputs.INTEGER_PAIRS
    together, apart = (one_of(rng, pairs), rng.random() < 0.3) if pair is None else (pair, False)
    found = {}
    for name, shape in (("a", (m, k * ins.stored_k // ins.k)), ("b", (k, n)), ("c", (m, n))):
        distribution = (one_of(rng, pairs) if apart else together)[name == "c"]
        found[name] = hard_codes(rng, getattr(ins, f"{name}type"), (count, *shape), distribution)
        if ins.atype == "b1" and name != "c":  # any byte but zero is a one
            found[name] = rng.choice(np.array([0, 0, 0, 1, 2, 128, 255], np.uint8), found[name].shape)
    if pair is None:
        _twisted(rng, ins, found)
    if ins.sparse:
        found["metadata"] = metadata_words(rng, ins, (count, m, k // pattern_of(ins).chunk))
    if ins.scale_vec_size:
        blocks = -(-k * ins.scale_vec_size // ins.k)
        found["scale_a"] = scale_codes(rng, ins.stype, (count, m, blocks))
        found["scale_b"] = scale_codes(rng, ins.stype, (count, blocks, n))
    return found


def as_operands(arrays: dict[str, Array]) -> Operands:
    return Operands(**{"c": None, **arrays})
