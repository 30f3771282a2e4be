"""Sparse A served by dense kernels: its zeros are put back, and must not multiply infinities or NaNs of B."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Batch, Codes, Job, Run
from fastmma.isa.formats import Format, format_of
from fastmma.isa.sparsity import pattern_of
from fastmma.operands import sparse


def _specials(codes: Codes, fmt: Format) -> NDArray[np.bool_]:
    """Where codes are infinities or NaNs."""
    if fmt.kind != "float" or fmt.specials == "none":
        return np.zeros(codes.shape, dtype=bool)
    lost = fmt.mantissa_bits if fmt.specials == "ieee" else 0
    magnitude = (codes >> (fmt.padding + lost)) & ((1 << (fmt.exponent_bits + fmt.mantissa_bits - lost)) - 1)
    return np.asarray(magnitude == (1 << (fmt.exponent_bits + fmt.mantissa_bits - lost)) - 1)


def _dense(job: Job, batch: Batch) -> Batch:
    """The batch with A's zeros put back."""
    if batch.metadata is None:
        return batch
    return batch._replace(a=sparse.expand(batch.a, batch.metadata, pattern_of(job.instruction)), metadata=None)


def _selected(job: Job, batch: Batch) -> NDArray[np.bool_]:
    """Which places of dense A the metadata selects."""
    if batch.metadata is None:
        raise ValueError("the batch is dense")
    return sparse.expand(np.ones(batch.a.shape, dtype=np.uint8), batch.metadata, pattern_of(job.instruction)).astype(bool)


def tiles_with_zeros(tiles: Run) -> Run:
    """Tiles of a dense kernel for sparse A too.

    A zero that is put back must not multiply: tiles whose B has infinities or NaNs are done row by row, with B cleared where the row
    selects nothing.
    """

    def run(job: Job, batch: Batch, d: Codes, threads: int) -> None:
        dense = _dense(job, batch)
        tiles(job, dense, d, threads)
        if batch.metadata is None:
            return
        chosen = np.flatnonzero(_specials(batch.b, format_of(job.instruction.btype)).any(axis=(1, 2)))
        if chosen.size:
            part = batch.each(lambda codes: codes[chosen])
            mask = _selected(job, part)[..., None]
            rows = dense.each(lambda codes: codes[chosen])
            by_row = _by_row(rows, np.where(mask, rows.b[:, None], np.zeros((), rows.b.dtype)))
            result = np.empty((len(by_row.a), 1, d.shape[-1]), dtype=d.dtype)
            tiles(job, by_row, result, threads)
            d[chosen] = result.reshape(len(chosen), *d.shape[1:])

    return run


def _by_row(batch: Batch, b: Codes) -> Batch:
    """Every row of a batch as a tile of its own, with a B (T, m, k, n) of its own."""
    count = b.shape[0] * b.shape[1]
    scale_b = None if batch.scale_b is None else np.repeat(batch.scale_b, b.shape[1], axis=0)
    return Batch(
        batch.a.reshape(count, 1, -1),
        b.reshape(count, *b.shape[2:]),
        None if batch.c is None else np.ascontiguousarray(batch.c).reshape(count, 1, -1),
        None,
        None if batch.scale_a is None else np.ascontiguousarray(batch.scale_a).reshape(count, 1, -1),
        scale_b,
    )


def gemm_with_zeros(gemm: Run) -> Run:
    """The same for one product: columns of B with infinities or NaNs are done row by row."""

    def run(job: Job, batch: Batch, d: Codes, threads: int) -> None:
        chosen = np.zeros(0, dtype=np.intp)
        if batch.metadata is not None:
            chosen = np.flatnonzero(_specials(batch.b, format_of(job.instruction.btype)).any(axis=0))
        start = None if batch.c is None or not chosen.size else batch.c[:, chosen].copy()
        dense = _dense(job, batch)
        gemm(job, dense, d, threads)
        if not chosen.size:
            return
        mask = _selected(job, batch)
        columns = batch.b[:, chosen]
        scale_b = None if batch.scale_b is None else batch.scale_b[:, chosen]
        for i in range(len(d)):
            row = slice(i, i + 1)
            b = np.where(mask[i][:, None], columns, np.zeros((), columns.dtype))
            part = Batch(
                dense.a[row],
                b,
                None if start is None else start[row],
                None,
                None if batch.scale_a is None else batch.scale_a[row],
                scale_b,
            )
            result = np.empty((1, chosen.size), dtype=d.dtype)
            gemm(job, part, result, threads)
            d[row, chosen] = result

    return run
