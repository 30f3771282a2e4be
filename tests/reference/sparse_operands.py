"""Sparse instructions, and operands and metadata for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma.isa.codes import decode, from_codes
from fastmma.isa.formats import format_of
from reference import sparsity as facts

PATTERNS = tuple(facts.GRANULARITIES)
SPARSE = [ins for ins in fastmma.instructions() if not isinstance(ins, fastmma.Movement) and ins.sparse]
# wgmma's N changes nothing here
METADATA = [ins for ins in SPARSE if ins.op == "mma" or ins.n == 8]


def finite_values(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Any elements but zeros, infinities and NaNs."""
    fmt = format_of(dtype)
    codes = np.arange(1 << min(fmt.bits, 16)).astype(fmt.code_dtype)
    if fmt.bits == 32:
        codes = rng.integers(1, 0x7F800000, 5000, dtype=np.uint32) & np.uint32(0xFFFFE000) | np.uint32(0x800000)
    values = decode(codes, fmt).astype(np.float64)
    usable = codes[np.isfinite(values) & (values != 0)]
    return from_codes(rng.choice(usable, shape), fmt)


def random_words(rng: np.random.Generator, name: str, shape: tuple[int, ...], *, ordered: bool) -> NDArray[np.uint8]:
    return rng.choice(np.array(facts.words(name, ordered=ordered), np.uint8), shape)
