"""How each method of the numerics table is executed by compiled kernels.

An engine works on arrays of codes. `tiles` executes the instruction once on every tile of a batch; `gemm` loops it over k in ascending
order, D fed back as C, so the last instruction of a k that does not divide is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from fastmma.backends.call import Batch, Codes, Job, Run, cut, whole_k
from fastmma.backends.parameters import fused_parameters, product_order, scaled_parameters
from fastmma.backends.zeros import gemm_with_zeros, tiles_with_zeros
from fastmma.isa.formats import decode, encode, format_of
from fastmma.kernels.params import Fused, Promotion
from fastmma.numerics.reference import CANONICAL_NAN

Promoted = Callable[[Job, Batch, Codes, Promotion, int], None]


def promoted_by_chunks(gemm: Run) -> Promoted:
    """`Engine.promoted` out of an engine's `gemm`: a product for every chunk of k."""

    def run(job: Job, batch: Batch, d: Codes, promotion: Promotion, threads: int) -> None:
        from fastmma.kernels.sums.promotion import by_chunks

        def multiply(start: int, stop: int, partial: Codes) -> None:
            gemm(job, cut(job.instruction, batch, start, stop), partial, threads)

        by_chunks(multiply, batch.b.shape[0], batch.c, d, promotion, threads)

    return run


@dataclass(frozen=True)
class Engine:
    """``tiles(job, batch, d, threads)``, ``gemm(job, batch, d, threads)`` and ``promoted(job, batch, d, promotion, threads)``.

    In `gemm`, c and d have one type. In `promoted` it is f32: every chunk of k is a product from zero, whose sums join a total that
    starts from c.
    """

    tiles: Run
    gemm: Run
    promoted: Promoted


@cache
def widening(source: str, wide: str) -> Codes:
    """Table from every code of a format to the wider format's code of the same value."""
    fmt = format_of(source)
    return encode(decode(np.arange(1 << fmt.bits), fmt), wide)


def _widened(job: Job, batch: Batch) -> Batch:
    ins, wide = job.instruction, job.arithmetic.widened
    if not wide:
        return batch
    return batch._replace(a=widening(ins.atype, wide)[batch.a], b=widening(ins.btype, wide)[batch.b])


def _fused_tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels.fused import portable

    if batch.scale_a is not None and batch.scale_b is not None:
        from fastmma.kernels.scaled import dispatch

        dispatch.tiles(scaled_parameters(job), batch.a, batch.b, batch.c, d, batch.scale_a, batch.scale_b, threads)
        return
    ins, wide, c = job.instruction, _widened(job, batch), batch.c
    if c is not None and ins.ctype != ins.accumulator:  # f16 to f32, which is exact
        c = c.view(np.float16).astype(np.float32).view(np.uint32)
    sums = d if ins.dtype == ins.accumulator else np.empty(d.shape, dtype=np.uint32)
    portable.tiles(fused_parameters(job), wide.a, wide.b, c, sums, threads, product_order(job))
    if sums is not d:
        d[...] = _halved(sums)


def _halved(codes: Codes) -> Codes:
    """f32 codes rounded to f16, NaN canonical."""
    with np.errstate(over="ignore", invalid="ignore"):
        half: Codes = codes.view(np.float32).astype(np.float16).view(np.uint16)
    half[(half & 0x7FFF) > 0x7C00] = CANONICAL_NAN["f16"]
    return half


def _fused_gemm(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels.fused import portable, x86

    if batch.scale_a is not None and batch.scale_b is not None:
        from fastmma.kernels.scaled import dispatch

        dispatch.gemm(scaled_parameters(job), batch.a, batch.b, batch.c, d, batch.scale_a, batch.scale_b, threads)
        return
    parameters, wide = fused_parameters(job), _widened(job, batch)
    if x86.supported(parameters):
        x86.gemm(parameters, wide.a, wide.b, batch.c, d, threads, _fused_block)
    else:
        portable.gemm(parameters, wide.a, wide.b, batch.c, d, threads, product_order(job))


def _fused_promoted(job: Job, batch: Batch, d: Codes, promotion: Promotion, threads: int) -> None:
    from fastmma.kernels.fused import x86

    parameters = fused_parameters(job)
    if batch.metadata is not None or batch.scale_a is not None or not x86.promotes(parameters, promotion.every):
        promoted_by_chunks(gemm_with_zeros(_fused_gemm))(job, batch, d, promotion, threads)
    elif batch.b.shape[0] == 0:
        d[...] = 0 if batch.c is None else batch.c
    else:
        wide = _widened(job, batch)
        x86.gemm(parameters, wide.a, wide.b, batch.c, d, threads, _fused_block, promotion)


def _fused_block(parameters: Fused, a: Codes, b: Codes, c: Codes | None, d: Codes, threads: int) -> None:
    from fastmma.kernels.fused import portable

    portable.gemm(parameters, a, b, c, d, threads)


def _f64_tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels.fma import f64

    views = batch.each(lambda codes: codes.view(np.float64))
    f64.f64_tiles(job.instruction.rounding, views.a, views.b, views.c, d.view(np.float64), threads)


def _f64_gemm(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels.fma import f64

    views = whole_k(job, batch).each(lambda codes: codes.view(np.float64))
    f64.f64_gemm(job.instruction.rounding, views.a, views.b, views.c, d.view(np.float64), threads)


def _f32_tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels.fma import f64

    f64.f32_chain_tiles(batch.a, batch.b, batch.c, d, job.arithmetic.method == "f32-fma-pairs", threads)


def _f32_gemm(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels.fma import f64

    whole = whole_k(job, batch)
    f64.f32_chain_gemm(whole.a, whole.b, whole.c, d, job.arithmetic.method == "f32-fma-pairs", threads)


def _integers(codes: Codes, name: str) -> Codes:
    """Codes of a multiplicand as int8 or uint8 values."""
    fmt = format_of(name)
    if fmt.kind == "unsigned":
        return codes
    return codes.view(np.int8) if fmt.bits == 8 else ((codes ^ 8) - 8).view(np.int8)


def _integer_tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels.integer import int8

    ins = job.instruction
    a, b = _integers(batch.a, ins.atype), _integers(batch.b, ins.btype)
    int8.tiles(a, b, None if batch.c is None else batch.c.view(np.int32), d.view(np.int32), ins.satfinite, threads)


def _integer_gemm(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels.integer import int8

    ins = job.instruction
    a, b = _integers(batch.a, ins.atype), _integers(batch.b, ins.btype)
    int8.gemm(a, b, None if batch.c is None else batch.c.view(np.int32), d.view(np.int32), ins.satfinite, ins.k, threads)


def _bit_tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels.integer import b1

    c = None if batch.c is None else batch.c.view(np.int32)
    b1.tiles(batch.a, batch.b, c, d.view(np.int32), job.instruction.bit_op, threads)


def _bit_gemm(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels.integer import b1

    c = None if batch.c is None else batch.c.view(np.int32)
    b1.gemm(batch.a, batch.b, c, d.view(np.int32), job.instruction.bit_op, threads)


def _engine(tiles: Run, gemm: Run) -> Engine:
    return Engine(tiles, gemm, promoted_by_chunks(gemm))


_FUSED = Engine(tiles_with_zeros(_fused_tiles), gemm_with_zeros(_fused_gemm), _fused_promoted)
NUMBA: dict[str, Engine] = {
    "fused": _FUSED,
    "grouped": _FUSED,
    "f64-fma": _engine(_f64_tiles, _f64_gemm),
    "f32-fma": _engine(_f32_tiles, _f32_gemm),
    "f32-fma-pairs": _engine(_f32_tiles, _f32_gemm),
    "integer": _engine(tiles_with_zeros(_integer_tiles), gemm_with_zeros(_integer_gemm)),
    "bit": _engine(_bit_tiles, _bit_gemm),
}
