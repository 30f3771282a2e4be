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
MIXES = ("together", "each its own", "rare", "cancelled", "one special", "zero products")


def _seen_by_kernels(operation: Operation) -> tuple[Any, ...]:
    """What is known of an operation where it is computed, without the format of B."""
    ins, row = operation.instruction, operation.arithmetic
    known: tuple[Any, ...] = (row.method, bool(ins.sparse), ins.ctype, ins.dtype, row.native_c, ins.atype)
    if row.method not in ("fused", "grouped"):
        depth = ins.k if ins.satfinite else 0
        return (*known, ins.btype, depth, ins.satfinite, ins.rounding, ins.bit_op)
    return (*known, (scaled_parameters if ins.scale_vec_size else fused_parameters)(operation)._replace(a=None, b=None))


@cache
def operations(*methods: str) -> tuple[Operation, ...]:
    """Operations of these methods, or of all; the formats that A has meet those that B has in turn."""
    found: dict[Any, dict[str, Operation]] = {}
    for ins in fastmma.instructions():
        if not isinstance(ins, Instruction):
            continue
        for target in ins.targets:
            try:
                operation = operation_of(ins, target)
            except FastmmaError:  # nothing is known
                continue
            if not methods or operation.arithmetic.method in methods:
                found.setdefault(_seen_by_kernels(operation), {}).setdefault(ins.btype, operation)
    return tuple(list(each.values())[number % len(each)] for number, each in enumerate(found.values()))


def name_of(operation: Operation) -> str:
    """Where it is and what it computes."""
    return f"{operation.target} {operation.instruction.opcode}"


def _twisted(rng: Generator, ins: Instruction, codes: dict[str, Array]) -> None:
    """Change operands in place: few of any bits, sums that cancel, one element of any bits, or no products that are not zero."""
    mix = one_of(rng, MIXES)
    if mix == "rare":
        for name, array in codes.items():
            anything = hard_codes(rng, getattr(ins, f"{name}type"), array.shape, "bits")
            array[...] = np.where(rng.random(array.shape) < 0.03, anything, array)
    elif mix == "one special":
        name = one_of(rng, sorted(codes))
        if codes[name].size:
            place = tuple(int(rng.integers(extent)) for extent in codes[name].shape)
            codes[name][place] = hard_codes(rng, getattr(ins, f"{name}type"), (1,), "bits")[0]
    elif mix == "zero products":
        codes["a"][...] = 0
    elif mix == "cancelled" and ins.atype == ins.btype and ins.formats.a.kind == "float" and not ins.formats.a.padding and not ins.sparse:
        cancelled(codes["a"], codes["b"], ins.atype)


def operands(rng: Generator, ins: Instruction, m: int, n: int, k: int, count: int = 1) -> dict[str, Array]:
    """Codes of `count` products by the names of `Operands`; k are whole chunks where A is sparse."""
    pairs = inputs.PAIRS if FORMATS[ins.atype].kind == "float" else inputs.INTEGER_PAIRS
    together, apart = one_of(rng, pairs), rng.random() < 0.3
    found = {}
    for name, shape in (("a", (m, k * ins.stored_k // ins.k)), ("b", (k, n)), ("c", (m, n))):
        distribution = (one_of(rng, pairs) if apart else together)[name == "c"]
        found[name] = hard_codes(rng, getattr(ins, f"{name}type"), (count, *shape), distribution)
    _twisted(rng, ins, found)
    if ins.sparse:
        found["metadata"] = metadata_words(rng, ins, (count, m, k // pattern_of(ins).chunk))
    if ins.scale_vec_size:
        blocks = -(-k * ins.scale_vec_size // ins.k)
        found["scale_a"] = scale_codes(rng, ins.stype, (count, m, blocks))
        found["scale_b"] = scale_codes(rng, ins.stype, (count, blocks, n))
    return found


def results(operation: Operation, shape: tuple[int, ...]) -> Array:
    """Room for codes of results."""
    return np.empty(shape, operation.instruction.formats.d.code_dtype)


def as_operands(arrays: dict[str, Array]) -> Operands:
    return Operands(**{"c": None, **arrays})
