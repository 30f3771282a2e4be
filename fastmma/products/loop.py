"""The loop over k: chunks between promotions, and the parts of split-k."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.backends.call import Codes, Operands, Operation, cut
from fastmma.backends.engine import Backend
from fastmma.host.arrays import integer
from fastmma.host.errors import InstructionError, OperandError
from fastmma.isa.instruction import Instruction
from fastmma.kernels.params import Promotion


def split(depth: int, parts: int, unit: int) -> list[tuple[int, int]]:
    """Where split-k cuts: at most `parts` parts of equal length, rounded up to a multiple of `unit`; one empty part where there is no k.

    Examples
    --------
    >>> split(300, 2, 32)
    [(0, 160), (160, 300)]
    """
    length = max(-(-depth // (parts * unit)) * unit, unit)
    return [(start, min(start + length, depth)) for start in range(0, max(depth, 1), length)]


def checked_loop(ins: Instruction, promote_every: Any, split_k: Any) -> tuple[int | None, int]:
    """k between promotions and parts of k, as integers.

    Raises
    ------
    InstructionError, OperandError
        If the instruction cannot be looped over k, or not so.
    """
    if ins.ctype != ins.dtype:
        raise InstructionError(f"{ins}: D cannot be fed back as C, because their types differ")
    every = None if promote_every is None else integer(promote_every, "promote_every", 1)
    if every is not None and every % ins.k:
        raise OperandError(f"promote_every must be a multiple of the instruction's k, {ins.k}, not {every}")
    return every, integer(split_k, "split_k", 1)


def accumulate(
    backend: Backend,
    operation: Operation,
    operands: Operands,
    d: Codes,
    promotion: Promotion | None,
    split_k: int,
    threads: int,
    split_unit: int | None = None,
    first_tile: int = 0,
) -> None:
    """Write products to `d`: each part of k from zero (the first from c), the parts added in ascending order by IEEE adds.

    Parts are cut at multiples of `split_unit`, by default the instruction's k, or of the chunks between promotions where these have scales.
    Where a part is no multiple of `first_tile`, what is left over is its first tile, and so ends with an instruction of fewer k.
    """
    if split_k == 1:
        _part(backend, operation, operands, d, promotion, threads, first_tile)
        return
    ins = operation.instruction
    scaled = promotion is not None and promotion.scale_a is not None
    parts = split(operands.depth, split_k, promotion.every if promotion is not None and scaled else split_unit or ins.k)
    if len(parts) == 1:
        _part(backend, operation, operands, d, promotion, threads, first_tile)
        return
    total: Codes | None = None
    for start, stop in parts:
        part_operands = cut(ins, operands, start, stop)._replace(c=operands.c if start == 0 else None)
        chunks = None
        if promotion is not None:
            inside = slice(start // promotion.every, -(-stop // promotion.every))
            chunks = promotion.part(inside, slice(None), slice(None))
        part = np.empty(d.shape, d.dtype)
        _part(backend, operation, part_operands, part, chunks, threads, first_tile)
        total = part if total is None else backend.join(total, part, ins.formats.d)
    d[...] = total


def _part(
    backend: Backend, operation: Operation, operands: Operands, d: Codes, promotion: Promotion | None, threads: int, first_tile: int
) -> None:
    """One part of k."""
    ins = operation.instruction
    left_over = operands.depth % first_tile if first_tile else 0
    if left_over % ins.k and left_over < operands.depth:
        started = np.empty(d.shape, d.dtype)
        backend.run(operation, cut(ins, operands, 0, left_over)._replace(c=operands.c), started, threads)
        backend.run(operation, cut(ins, operands, left_over, operands.depth)._replace(c=started), d, threads)
    elif promotion is None:
        backend.run(operation, operands, d, threads)
    elif ins.dtype == "f32":
        backend.promoted(operation, operands, d, promotion, threads)
    else:
        total = operands.c
        for start in range(0, operands.depth, promotion.every):
            partial = np.empty(d.shape, d.dtype)
            backend.run(operation, cut(ins, operands, start, min(start + promotion.every, operands.depth)), partial, threads)
            total = partial if total is None else backend.join(total, partial, ins.formats.d)
        d[...] = 0 if total is None else total
