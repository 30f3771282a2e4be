"""Matrices of finite numbers for one instruction, as codes, and their product at matrix level."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma import FORMATS, Instruction
from fastmma.isa.codes import from_codes
from reference import sparsity

Codes = NDArray[Any]
SCALES = {"ue8m0": (120, 134), "ue4m3": (1, 0x7F)}  # near one, and all but zero and NaN


def finite_codes(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Codes:
    """Draw any codes but those of infinities and NaNs; f64, f32, tf32 and s32 of moderate size."""
    fmt = FORMATS[name]
    if fmt.kind == "float" and fmt.bits >= 19:
        codes = rng.normal(size=shape).astype(fmt.dtype).view(fmt.code_dtype)
        return codes & np.uint32(0xFFFFE000) if name == "tf32" else codes
    codes = rng.integers(0, 1 << min(fmt.bits, 20), shape).astype(fmt.code_dtype)
    if fmt.kind == "float":
        with np.errstate(invalid="ignore"):
            codes[~np.isfinite(fastmma.decode(codes, fmt).astype(np.float64))] = 1
    return codes


def matrices(ins: Instruction, seed: int, *lead: int) -> dict[str, Codes]:
    """Draw a as it is stored, b and c, and the metadata and scales that an instruction takes."""
    rng = np.random.default_rng(seed)
    shapes = {"a": (ins.m, ins.stored_k), "b": (ins.k, ins.n), "c": (ins.m, ins.n)}
    found = {name: finite_codes(rng, getattr(ins, f"{name}type"), (*lead, *shape)) for name, shape in shapes.items()}
    if ins.sparse:
        name = sparsity.pattern(ins)
        words = sparsity.words(name, ordered=ins.op != "mma" or ins.ordered_metadata)
        found["metadata"] = rng.choice(np.array(words, np.uint8), (*lead, ins.m, ins.k // sparsity.GRANULARITIES[name].chunk))
    if ins.stype:
        for name, shape in (("scale_a", (ins.m, ins.scale_vec_size)), ("scale_b", (ins.scale_vec_size, ins.n))):
            found[name] = rng.integers(*SCALES[ins.stype], (*lead, *shape), dtype=np.uint8)
    return found


def elements_of(ins: Instruction, given: dict[str, Codes]) -> dict[str, NDArray[Any]]:
    """Give matrices of codes as the arguments of `fastmma.mma`."""
    formats = {"a": ins.atype, "b": ins.btype, "c": ins.ctype, "scale_a": ins.stype, "scale_b": ins.stype}
    return {name: from_codes(codes, formats[name]) if name in formats else codes for name, codes in given.items()}


def multiplied(ins: Instruction, given: dict[str, Codes], target: str) -> Codes:
    """Compute the codes of d."""
    return np.ascontiguousarray(fastmma.mma(ins, **elements_of(ins, given), target=target)).view(FORMATS[ins.dtype].code_dtype)
