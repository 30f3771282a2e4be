"""The reference as an engine: tile by tile, instruction by instruction, in exact integers."""

from __future__ import annotations

import numpy as np

from fastmma.backends.call import Batch, Codes, Job, cut, whole_k
from fastmma.backends.compiled import Engine
from fastmma.host.threads import parallel_for
from fastmma.kernels.params import Promotion
from fastmma.numerics import reference, reference_sums


def _tile(job: Job, batch: Batch, c: Codes) -> Codes:
    return reference.tile(
        job.instruction,
        job.arithmetic,
        batch.a,
        batch.b,
        c,
        metadata=batch.metadata,
        scale_a=batch.scale_a,
        scale_b=batch.scale_b,
    )


def _tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    def work(start: int, stop: int, _worker: int) -> None:
        for tile in range(start, stop):
            one = batch.each(lambda codes: codes[tile])  # noqa: B023
            d[tile] = _tile(job, one, np.zeros_like(d[tile]) if one.c is None else one.c)

    parallel_for(work, len(d), threads)


def _gemm(job: Job, batch: Batch, d: Codes, _threads: int) -> None:
    ins, whole = job.instruction, whole_k(job, batch)
    d[...] = 0 if whole.c is None else whole.c
    for k in range(0, whole.b.shape[0], ins.k):
        d[...] = _tile(job, cut(ins, whole, k, k + ins.k), d)


def _promoted(job: Job, batch: Batch, d: Codes, promotion: Promotion, threads: int) -> None:
    ins, depth = job.instruction, batch.b.shape[0]
    total = np.zeros_like(d) if batch.c is None else batch.c.copy()
    for chunk, start in enumerate(range(0, depth, promotion.every)):
        partial = np.empty_like(d)
        _gemm(job, cut(ins, batch, start, min(start + promotion.every, depth)), partial, threads)
        scales = (None if each is None else each[chunk].view(np.uint32) for each in (promotion.scale_a, promotion.scale_b))
        total = reference_sums.promote(promotion.rule, partial, total, *scales)
    d[...] = total


REFERENCE = Engine(_tiles, _gemm, _promoted)
