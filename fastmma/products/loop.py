"""The loop over k: chunks between promotions, and the parts of split-k."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Batch, cut
from fastmma.backends.resolve import Plan
from fastmma.isa.formats import format_of
from fastmma.kernels.params import Promotion
from fastmma.numerics.reference import CANONICAL_NAN

Codes = NDArray[Any]


def split(depth: int, parts: int, unit: int) -> list[tuple[int, int]]:
    """Where split-k cuts: at most `parts` parts of equal length, rounded up to a multiple of `unit`; one empty part where there is no k.

    Examples
    --------
    >>> split(300, 2, 32)
    [(0, 160), (160, 300)]
    """
    length = max(-(-depth // (parts * unit)) * unit, unit)
    return [(start, min(start + length, depth)) for start in range(0, max(depth, 1), length)]


def accumulate(
    todo: Plan, batch: Batch, d: Codes, promotion: Promotion | None, split_k: int, threads: int, split_unit: int | None = None
) -> None:
    """Write the product to `d`: each part of k from zero (the first from c), the parts added in ascending order by IEEE adds.

    Parts are cut at multiples of `split_unit`, by default the instruction's k, or of the chunks between promotions where these have scales.
    """
    ins, depth = todo.instruction, batch.b.shape[0]
    scaled = promotion is not None and promotion.scale_a is not None
    parts = split(depth, split_k, promotion.every if promotion is not None and scaled else split_unit or ins.k)
    if len(parts) == 1:
        _part(todo, batch, d, promotion, threads)
        return
    total: Codes | None = None
    for start, stop in parts:
        operands = cut(ins, batch, start, stop)._replace(c=batch.c if start == 0 else None)
        chunks = None
        if promotion is not None:
            inside = slice(start // promotion.every, -(-stop // promotion.every))
            chunks = promotion.part(inside, slice(None), slice(None))
        part = np.empty(d.shape, d.dtype)
        _part(todo, operands, part, chunks, threads)
        total = part if total is None else _ieee_sum(total, part, ins.dtype)
    d[...] = total


def _part(todo: Plan, batch: Batch, d: Codes, promotion: Promotion | None, threads: int) -> None:
    """One part of k."""
    ins, depth = todo.instruction, batch.b.shape[0]
    if promotion is None:
        todo.engine.gemm(todo.job, batch, d, threads)
    elif ins.dtype == "f32":
        todo.engine.promoted(todo.job, batch, d, promotion, threads)
    else:
        total = batch.c
        for start in range(0, depth, promotion.every):
            partial = np.empty(d.shape, d.dtype)
            todo.engine.gemm(todo.job, cut(ins, batch, start, min(start + promotion.every, depth)), partial, threads)
            total = partial if total is None else _ieee_sum(total, partial, ins.dtype)
        d[...] = 0 if total is None else total


def _ieee_sum(x: Codes, y: Codes, dtype: str) -> Codes:
    """Elementwise IEEE addition of codes to nearest (wrapping for s32), NaN canonical."""
    fmt = format_of(dtype)
    with np.errstate(all="ignore"):
        total = np.asarray(x.view(fmt.dtype) + y.view(fmt.dtype))
    codes: Codes = total.view(fmt.code_dtype)
    if fmt.kind == "float":
        codes[np.isnan(total)] = CANONICAL_NAN[dtype]
    return codes
