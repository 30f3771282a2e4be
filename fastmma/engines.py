"""How each method of the numerics table is executed: by compiled kernels, or by the reference.

An engine works on arrays of codes. `tiles` executes the instruction once on every tile of a batch; `gemm` loops it over k in ascending
order, D fed back as C, so the last instruction of a k that does not divide is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import reference
from fastmma.formats import Format, decode, encode, format_of
from fastmma.isa.model import Instruction
from fastmma.kernels.params import Element, Fused
from fastmma.numerics import Arithmetic
from fastmma.threads import parallel_for

Codes = NDArray[Any]
_SPECIALS = {"none": 0, "ieee": 1, "nan": 2}


@dataclass(frozen=True)
class Job:
    """An instruction on a target: what an engine needs to know."""

    instruction: Instruction
    arithmetic: Arithmetic


@dataclass(frozen=True)
class Engine:
    """``tiles(job, a, b, c, d, threads)`` on (T, m, k), (T, k, n), (T, m, n); ``gemm`` likewise on (M, K), (K, N), (M, N).

    In `gemm`, c may be None for zero, and c and d have one type.
    """

    tiles: Callable[[Job, Codes, Codes, Codes, Codes, int], None]
    gemm: Callable[[Job, Codes, Codes, Codes | None, Codes, int], None]


def _element(fmt: Format) -> Element:
    return Element(fmt.exponent_bits, fmt.mantissa_bits, fmt.bias, fmt.padding, _SPECIALS[fmt.specials])


@cache
def fused_parameters(job: Job) -> Fused:
    """The kernel's parameters for a fused arithmetic."""
    ins, row = job.instruction, job.arithmetic
    a, b = (format_of(row.widened or name) for name in (ins.atype, ins.btype))
    return Fused(
        a=_element(a),
        b=_element(b),
        terms=row.terms,
        align_bits=row.align_bits,
        emax_floor=row.emax_floor,
        keep_bits=row.keep_bits,
        half=int(ins.dtype == "f16"),
        restart=2 if row.split else 0,
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
def _widening(source: str, wide: str) -> Codes:
    """Table from every code of a format to the wider format's code of the same value."""
    fmt = format_of(source)
    return encode(decode(np.arange(1 << fmt.bits), fmt), wide)


def _multiplicand(codes: Codes, name: str, job: Job) -> Codes:
    wide = job.arithmetic.widened
    return _widening(name, wide)[codes] if wide else codes


def _fused_tiles(job: Job, a: Codes, b: Codes, c: Codes, d: Codes, threads: int) -> None:
    from fastmma.kernels import fused

    ins = job.instruction
    a, b = _multiplicand(a, ins.atype, job), _multiplicand(b, ins.btype, job)
    if ins.ctype != ins.dtype:  # f16 to f32, which is exact
        c = c.view(np.float16).astype(np.float32).view(np.uint32)
    fused.tiles(fused_parameters(job), a, b, c, d, threads, _order(job))


def _fused_gemm(job: Job, a: Codes, b: Codes, c: Codes | None, d: Codes, threads: int) -> None:
    from fastmma.kernels import chain, fused

    ins, parameters = job.instruction, fused_parameters(job)
    a, b = _multiplicand(a, ins.atype, job), _multiplicand(b, ins.btype, job)
    if chain.supported(parameters):
        chain.gemm(parameters, a, b, c, d, threads, _fused_block)
    else:
        fused.gemm(parameters, a, b, c, d, threads, _order(job))


def _fused_block(parameters: Fused, a: Codes, b: Codes, c: Codes | None, d: Codes, threads: int) -> None:
    from fastmma.kernels import fused

    fused.gemm(parameters, a, b, c, d, threads)


def _whole_k(job: Job, a: Codes, b: Codes) -> tuple[Codes, Codes]:
    """Fill k up to a multiple of the instruction's: in a chain of fma, +0 x +0 can change the sign of a zero."""
    missing = -a.shape[1] % job.instruction.k
    if not missing:
        return a, b
    return np.pad(a, ((0, 0), (0, missing))), np.pad(b, ((0, missing), (0, 0)))


def _f64_tiles(job: Job, a: Codes, b: Codes, c: Codes, d: Codes, threads: int) -> None:
    from fastmma.kernels import fma

    views = (array.view(np.float64) for array in (a, b, c, d))
    fma.f64_tiles(job.instruction.rounding, *views, threads)


def _f64_gemm(job: Job, a: Codes, b: Codes, c: Codes | None, d: Codes, threads: int) -> None:
    from fastmma.kernels import fma

    a, b = _whole_k(job, a, b)
    start = None if c is None else c.view(np.float64)
    fma.f64_gemm(job.instruction.rounding, a.view(np.float64), b.view(np.float64), start, d.view(np.float64), threads)


def _f32_tiles(job: Job, a: Codes, b: Codes, c: Codes, d: Codes, threads: int) -> None:
    from fastmma.kernels import fma

    fma.f32_chain_tiles(a, b, c, d, job.arithmetic.method == "f32-fma-pairs", threads)


def _f32_gemm(job: Job, a: Codes, b: Codes, c: Codes | None, d: Codes, threads: int) -> None:
    from fastmma.kernels import fma

    a, b = _whole_k(job, a, b)
    fma.f32_chain_gemm(a, b, c, d, job.arithmetic.method == "f32-fma-pairs", threads)


def _integers(codes: Codes, name: str) -> Codes:
    """Codes of a multiplicand as int8 or uint8 values."""
    fmt = format_of(name)
    if fmt.kind == "unsigned":
        return codes
    return codes.view(np.int8) if fmt.bits == 8 else ((codes ^ 8) - 8).view(np.int8)


def _integer_tiles(job: Job, a: Codes, b: Codes, c: Codes, d: Codes, threads: int) -> None:
    from fastmma.kernels import integer

    ins = job.instruction
    a, b = _integers(a, ins.atype), _integers(b, ins.btype)
    integer.tiles(a, b, c.view(np.int32), d.view(np.int32), ins.satfinite, threads)


def _integer_gemm(job: Job, a: Codes, b: Codes, c: Codes | None, d: Codes, threads: int) -> None:
    from fastmma.kernels import integer

    ins = job.instruction
    a, b = _integers(a, ins.atype), _integers(b, ins.btype)
    integer.gemm(a, b, None if c is None else c.view(np.int32), d.view(np.int32), ins.satfinite, ins.k, threads)


def _bit_tiles(job: Job, a: Codes, b: Codes, c: Codes, d: Codes, threads: int) -> None:
    from fastmma.kernels import bit

    bit.tiles(a, b, c.view(np.int32), d.view(np.int32), job.instruction.bit_op, threads)


def _bit_gemm(job: Job, a: Codes, b: Codes, c: Codes | None, d: Codes, threads: int) -> None:
    from fastmma.kernels import bit

    bit.gemm(a, b, None if c is None else c.view(np.int32), d.view(np.int32), job.instruction.bit_op, threads)


NUMBA: dict[str, Engine] = {
    "fused": Engine(_fused_tiles, _fused_gemm),
    "f64-fma": Engine(_f64_tiles, _f64_gemm),
    "f32-fma": Engine(_f32_tiles, _f32_gemm),
    "f32-fma-pairs": Engine(_f32_tiles, _f32_gemm),
    "integer": Engine(_integer_tiles, _integer_gemm),
    "bit": Engine(_bit_tiles, _bit_gemm),
}


def _reference_tiles(job: Job, a: Codes, b: Codes, c: Codes, d: Codes, threads: int) -> None:
    def work(start: int, stop: int, _worker: int) -> None:
        for tile in range(start, stop):
            d[tile] = reference.tile(job.instruction, job.arithmetic, a[tile], b[tile], c[tile])

    parallel_for(work, len(d), threads)


def _reference_gemm(job: Job, a: Codes, b: Codes, c: Codes | None, d: Codes, _threads: int) -> None:
    a, b = _whole_k(job, a, b)
    d[...] = 0 if c is None else c
    step = job.instruction.k
    for k in range(0, a.shape[1], step):
        d[...] = reference.tile(job.instruction, job.arithmetic, a[:, k : k + step], b[k : k + step], d)


_REFERENCE = Engine(_reference_tiles, _reference_gemm)
REFERENCE: dict[str, Engine] = dict.fromkeys(NUMBA, _REFERENCE)
