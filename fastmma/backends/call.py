"""A call as engines see it: an instruction on a target, and its operands as codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.isa.formats import encode
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.numerics.rows import Arithmetic

Codes = NDArray[Any]


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
