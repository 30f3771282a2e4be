"""How each method of the numerics table is executed: by compiled kernels, or by the reference.

An engine works on arrays of codes. `tiles` executes the instruction once on every tile of a batch; `gemm` loops it over k in ascending
order, D fed back as C, so the last instruction of a k that does not divide is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma import reference, scaled_reference, sparse
from fastmma.formats import Format, decode, encode, format_of
from fastmma.isa.model import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.kernels.params import Element, Fused, Promotion, Scaled
from fastmma.numerics import Arithmetic
from fastmma.rounding import to_nearest
from fastmma.threads import parallel_for

Codes = NDArray[Any]
_SPECIALS = {"none": 0, "ieee": 1, "nan": 2, "nan-only-ff": 3}


@dataclass(frozen=True)
class Job:
    """An instruction on a target: what an engine needs to know."""

    instruction: Instruction
    arithmetic: Arithmetic


class Batch(NamedTuple):
    """The operands of one call, as codes: of a batch of tiles (T, m, k), (T, k, n), (T, m, n), or of one product without the T.

    c may be None for zero in a product. Sparse A is stored (its last dimension halved), with 4-bit words `metadata` (..., m, k / chunk).
    Block scaling has `scale_a` (..., m, scales) and `scale_b` (..., scales, n).
    """

    a: Codes
    b: Codes
    c: Codes | None
    metadata: Codes | None = None
    scale_a: Codes | None = None
    scale_b: Codes | None = None

    def each(self, change: Callable[[Codes], Codes]) -> Batch:
        """The same change to every operand that there is."""
        return Batch(*(None if codes is None else change(codes) for codes in self))  # type: ignore[arg-type]


Run = Callable[[Job, Batch, Codes, int], None]
Promoted = Callable[[Job, Batch, Codes, Promotion, int], None]


def promoted_by_chunks(gemm: Run) -> Promoted:
    """`Engine.promoted` out of an engine's `gemm`: a product for every chunk of k."""

    def run(job: Job, batch: Batch, d: Codes, promotion: Promotion, threads: int) -> None:
        from fastmma.kernels.promotion import by_chunks

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


def _element(fmt: Format) -> Element:
    return Element(fmt.exponent_bits, fmt.mantissa_bits, fmt.bias, fmt.padding, _SPECIALS[fmt.specials])


def _dense_terms(job: Job) -> int:
    """Products a step, counted along the dense k: the kernels see sparse A with its zeros."""
    return job.arithmetic.terms * (2 if job.instruction.sparse else 1)


@cache
def fused_parameters(job: Job) -> Fused:
    """The kernel's parameters for a fused arithmetic."""
    ins, row = job.instruction, job.arithmetic
    a, b = (format_of(row.widened or name) for name in (ins.atype, ins.btype))
    return Fused(
        a=_element(a),
        b=_element(b),
        terms=_dense_terms(job),
        align_bits=row.align_bits,
        emax_floor=row.emax_floor,
        keep_bits=row.keep_bits,
        half=int(ins.accumulator == "f16"),
        restart=2 if row.split else 0,
    )


@cache
def scaled_parameters(job: Job) -> Scaled:
    """The kernel's parameters for block scaling."""
    ins, row = job.instruction, job.arithmetic
    sparsity = 2 if ins.sparse else 1
    return Scaled(
        a=_element(format_of(ins.atype)),
        b=_element(format_of(ins.btype)),
        scale=_element(format_of(ins.stype)),
        block=ins.k // ins.scale_vec_size,
        group=row.group * sparsity if row.group > 1 else 1,
        step=row.terms * row.group * sparsity,
        align_bits=row.align_bits,
        emax_floor=row.emax_floor,
    )


@cache
def _order(job: Job) -> NDArray[np.int32] | None:
    """Positions of one instruction's products in the order of its steps, where that is not ascending."""
    split = job.arithmetic.split
    if not split:
        return None
    k = np.arange(job.instruction.k, dtype=np.int32)
    return np.concatenate([k[k // split % 2 == half] for half in (0, 1)])


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


def _with_zeros(tiles: Callable[[Job, Batch, Codes, int], None]) -> Callable[[Job, Batch, Codes, int], None]:
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


def _with_zeros_gemm(gemm: Callable[[Job, Batch, Codes, int], None]) -> Callable[[Job, Batch, Codes, int], None]:
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


def _fused_tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels import fused

    if batch.scale_a is not None and batch.scale_b is not None:
        from fastmma.kernels import scaled

        scaled.tiles(scaled_parameters(job), batch.a, batch.b, batch.c, d, batch.scale_a, batch.scale_b, threads)
        return
    ins, wide, c = job.instruction, _widened(job, batch), batch.c
    if c is not None and ins.ctype != ins.accumulator:  # f16 to f32, which is exact
        c = c.view(np.float16).astype(np.float32).view(np.uint32)
    sums = d if ins.dtype == ins.accumulator else np.empty(d.shape, dtype=np.uint32)
    fused.tiles(fused_parameters(job), wide.a, wide.b, c, sums, threads, _order(job))
    if sums is not d:
        d[...] = _halved(sums)


@to_nearest
def _halved(codes: Codes) -> Codes:
    """f32 codes rounded to f16, NaN canonical."""
    with np.errstate(over="ignore", invalid="ignore"):
        half: Codes = codes.view(np.float32).astype(np.float16).view(np.uint16)
    half[(half & 0x7FFF) > 0x7C00] = reference.CANONICAL_NAN["f16"]
    return half


def _fused_gemm(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels import chain, fused

    if batch.scale_a is not None and batch.scale_b is not None:
        from fastmma.kernels import scaled

        scaled.gemm(scaled_parameters(job), batch.a, batch.b, batch.c, d, batch.scale_a, batch.scale_b, threads)
        return
    parameters, wide = fused_parameters(job), _widened(job, batch)
    if chain.supported(parameters):
        chain.gemm(parameters, wide.a, wide.b, batch.c, d, threads, _fused_block)
    else:
        fused.gemm(parameters, wide.a, wide.b, batch.c, d, threads, _order(job))


def _fused_promoted(job: Job, batch: Batch, d: Codes, promotion: Promotion, threads: int) -> None:
    from fastmma.kernels import chain

    parameters = fused_parameters(job)
    if batch.metadata is not None or batch.scale_a is not None or not chain.promotes(parameters, promotion.every):
        promoted_by_chunks(_with_zeros_gemm(_fused_gemm))(job, batch, d, promotion, threads)
    elif batch.b.shape[0] == 0:
        d[...] = 0 if batch.c is None else batch.c
    else:
        wide = _widened(job, batch)
        chain.gemm(parameters, wide.a, wide.b, batch.c, d, threads, _fused_block, promotion)


def _fused_block(parameters: Fused, a: Codes, b: Codes, c: Codes | None, d: Codes, threads: int) -> None:
    from fastmma.kernels import fused

    fused.gemm(parameters, a, b, c, d, threads)


def cut(ins: Instruction, batch: Batch, start: int, stop: int) -> Batch:
    """The part of a product between two k, both multiples of the instruction's or the end; c stays behind."""
    stored = slice(start * ins.stored_k // ins.k, -(-stop * ins.stored_k // ins.k))
    chunk = pattern_of(ins).chunk if ins.sparse else 1
    scales = slice(start * ins.scale_vec_size // ins.k, -(-stop * ins.scale_vec_size // ins.k))
    return Batch(
        batch.a[:, stored],
        batch.b[start:stop],
        None,
        None if batch.metadata is None else batch.metadata[:, start // chunk : -(-stop // chunk)],
        None if batch.scale_a is None else batch.scale_a[:, scales],
        None if batch.scale_b is None else batch.scale_b[scales],
    )


def whole_k(job: Job, batch: Batch) -> Batch:
    """Fill k up to a multiple of the instruction's: in a chain of fma, +0 x +0 can change the sign of a zero."""
    ins = job.instruction
    missing = -batch.b.shape[0] % ins.k
    if not missing:
        return batch
    stored = missing * ins.stored_k // ins.k
    filled = batch._replace(a=np.pad(batch.a, ((0, 0), (0, stored))), b=np.pad(batch.b, ((0, missing), (0, 0))))
    if batch.scale_a is not None and batch.scale_b is not None:
        scales = (batch.b.shape[0] + missing) // ins.k * ins.scale_vec_size - batch.scale_a.shape[1]
        one = int(encode(1.0, ins.stype)[()])
        filled = filled._replace(
            scale_a=np.pad(batch.scale_a, ((0, 0), (0, scales)), constant_values=one),
            scale_b=np.pad(batch.scale_b, ((0, scales), (0, 0)), constant_values=one),
        )
    if batch.metadata is not None:
        rule = pattern_of(ins)
        filled = filled._replace(metadata=np.pad(batch.metadata, ((0, 0), (0, missing // rule.chunk)), constant_values=rule.words[0][0]))
    return filled


def _f64_tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels import fma

    views = batch.each(lambda codes: codes.view(np.float64))
    fma.f64_tiles(job.instruction.rounding, views.a, views.b, views.c, d.view(np.float64), threads)


def _f64_gemm(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels import fma

    views = whole_k(job, batch).each(lambda codes: codes.view(np.float64))
    fma.f64_gemm(job.instruction.rounding, views.a, views.b, views.c, d.view(np.float64), threads)


def _f32_tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels import fma

    fma.f32_chain_tiles(batch.a, batch.b, batch.c, d, job.arithmetic.method == "f32-fma-pairs", threads)


def _f32_gemm(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels import fma

    whole = whole_k(job, batch)
    fma.f32_chain_gemm(whole.a, whole.b, whole.c, d, job.arithmetic.method == "f32-fma-pairs", threads)


def _integers(codes: Codes, name: str) -> Codes:
    """Codes of a multiplicand as int8 or uint8 values."""
    fmt = format_of(name)
    if fmt.kind == "unsigned":
        return codes
    return codes.view(np.int8) if fmt.bits == 8 else ((codes ^ 8) - 8).view(np.int8)


def _integer_tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels import integer

    ins = job.instruction
    a, b = _integers(batch.a, ins.atype), _integers(batch.b, ins.btype)
    integer.tiles(a, b, None if batch.c is None else batch.c.view(np.int32), d.view(np.int32), ins.satfinite, threads)


def _integer_gemm(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels import integer

    ins = job.instruction
    a, b = _integers(batch.a, ins.atype), _integers(batch.b, ins.btype)
    integer.gemm(a, b, None if batch.c is None else batch.c.view(np.int32), d.view(np.int32), ins.satfinite, ins.k, threads)


def _bit_tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels import bit

    c = None if batch.c is None else batch.c.view(np.int32)
    bit.tiles(batch.a, batch.b, c, d.view(np.int32), job.instruction.bit_op, threads)


def _bit_gemm(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    from fastmma.kernels import bit

    c = None if batch.c is None else batch.c.view(np.int32)
    bit.gemm(batch.a, batch.b, c, d.view(np.int32), job.instruction.bit_op, threads)


def _engine(tiles: Run, gemm: Run) -> Engine:
    return Engine(tiles, gemm, promoted_by_chunks(gemm))


_FUSED = Engine(_with_zeros(_fused_tiles), _with_zeros_gemm(_fused_gemm), _fused_promoted)
NUMBA: dict[str, Engine] = {
    "fused": _FUSED,
    "grouped": _FUSED,
    "f64-fma": _engine(_f64_tiles, _f64_gemm),
    "f32-fma": _engine(_f32_tiles, _f32_gemm),
    "f32-fma-pairs": _engine(_f32_tiles, _f32_gemm),
    "integer": _engine(_with_zeros(_integer_tiles), _with_zeros_gemm(_integer_gemm)),
    "bit": _engine(_bit_tiles, _bit_gemm),
}


def _reference_tile(job: Job, batch: Batch, c: Codes) -> Codes:
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


def _reference_tiles(job: Job, batch: Batch, d: Codes, threads: int) -> None:
    def work(start: int, stop: int, _worker: int) -> None:
        for tile in range(start, stop):
            one = batch.each(lambda codes: codes[tile])  # noqa: B023
            d[tile] = _reference_tile(job, one, np.zeros_like(d[tile]) if one.c is None else one.c)

    parallel_for(work, len(d), threads)


def _reference_gemm(job: Job, batch: Batch, d: Codes, _threads: int) -> None:
    ins, whole = job.instruction, whole_k(job, batch)
    d[...] = 0 if whole.c is None else whole.c
    for k in range(0, whole.b.shape[0], ins.k):
        d[...] = _reference_tile(job, cut(ins, whole, k, k + ins.k), d)


def _reference_promoted(job: Job, batch: Batch, d: Codes, promotion: Promotion, threads: int) -> None:
    ins, depth = job.instruction, batch.b.shape[0]
    total = np.zeros_like(d) if batch.c is None else batch.c.copy()
    for chunk, start in enumerate(range(0, depth, promotion.every)):
        partial = np.empty_like(d)
        _reference_gemm(job, cut(ins, batch, start, min(start + promotion.every, depth)), partial, threads)
        scales = (None if each is None else each[chunk].view(np.uint32) for each in (promotion.scale_a, promotion.scale_b))
        total = scaled_reference.promote(promotion.rule, partial, total, *scales)
    d[...] = total


_REFERENCE = Engine(_reference_tiles, _reference_gemm, _reference_promoted)
REFERENCE: dict[str, Engine] = dict.fromkeys(NUMBA, _REFERENCE)
