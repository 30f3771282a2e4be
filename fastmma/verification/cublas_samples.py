"""Inputs that tell orders of k apart, and whether an entry of a plan book has the bits of a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.isa.formats import FORMATS
from fastmma.products.book import Entry, Request
from fastmma.products.gemm import gemm
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.library import opcode_of
from fastmma.products.presets import gemm_preset
from fastmma.verification.stream import Stream

KEPT = 8  # rows and columns of a product that are looked at
# bits of a significand that are drawn, and the largest exponent: sums of products stay in the format of the result
_DRAWN = {"bf16": (8, 6), "f16": (11, 5), "tf32": (11, 6), "e4m3": (4, 3)}
_PAIRED = 64  # from so many k on
_OUT = {"bf16": "bf16", "f16": "f16", "tf32": "f32", "e4m3": "bf16"}


@lru_cache(64)
def vectors(fmt: str, depth: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows of a and columns of b, (KEPT, depth) each, whose products cancel in pairs: what is left of a sum is what was rounded off."""
    bits, most = _DRAWN[fmt]
    stream = Stream("plan book", fmt, depth)

    def drawn() -> NDArray[np.float64]:
        significands = stream.integers(1 << (bits - 1), 1 << bits, (KEPT, depth))
        exponents = stream.integers(-most, most + 1, (KEPT, depth)) - (bits - 1)
        signs = 1 - 2 * stream.integers(0, 2, (KEPT, depth))
        return np.asarray(np.ldexp(significands * signs.astype(np.float64), exponents))

    a, b, places = drawn(), drawn(), np.argsort(stream.bits(depth), kind="stable")
    if depth > _PAIRED:
        first, second = places[: depth // 2], places[depth // 2 : depth // 2 * 2]
        a[:, second], b[:, second] = a[:, first], -b[:, first]
    dtype = FORMATS[fmt].dtype
    return a.astype(np.float32).astype(dtype), b.astype(np.float32).astype(dtype)


def kept(size: int) -> NDArray[np.intp]:
    """The rows or columns where the vectors are put."""
    return np.unique(np.linspace(0, size - 1, min(KEPT, size)).astype(np.intp))


def confirmed(request: Request, found: Entry | None, sample: NDArray[np.float32]) -> Entry | None:
    """The entry, or one that it may stand for, that has the bits of a sample; None if none has."""
    rows, columns = (min(KEPT, size) for size in (request.m, request.n))
    for candidate in [] if found is None else _candidates(request, found):
        with np.errstate(over="ignore"):
            product = _product(request.fmt, request.k, candidate)[:rows, :columns]
        if np.array_equal(product, sample, equal_nan=True):
            return candidate
    return None


def _candidates(request: Request, found: Entry) -> Iterator[Entry]:
    yield found
    if request.fmt == "tf32" and found.instruction == "wgmma" and found.split_k == 1:
        # xmma cuts k in segments for so many CTAs, which its log does not tell
        for parts in range(2, 17):
            yield replace(found, split_k=parts, split_unit=32)


@lru_cache(64)
def _product(fmt: str, depth: int, found: Entry) -> NDArray[np.float32]:
    opcode = opcode_of(found, fmt)
    ins = GemmPlan("sm_90a", opcode).operation.instruction
    row = gemm_preset("cublas", GemmPlan("sm_90a", opcode_of(replace(found, instruction="wgmma"), fmt)).operation.instruction, "sm_90a")
    out = _OUT[fmt]
    join = {"out": "workspace", "inplace": "in-place"}.get(found.join, "ascending")
    order: dict[str, Any] = {"split_k": found.split_k, "split_unit": found.split_unit, "first_tile": found.first_tile, "join": join}
    order |= {"promote_every": row.promote_every, "join_dtype": out if join != "ascending" else "", "cast": row.cast}
    plan = GemmPlan("sm_90a", ins.opcode, **order, epilogue=("round",), out=out)
    a, b = vectors(fmt, depth)
    return gemm(a, b.T, plan=plan).astype(np.float32)
