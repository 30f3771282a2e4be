"""A call as backends see it: what is computed, and its operands as codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import BackendError
from fastmma.isa.codes import encode
from fastmma.isa.formats import FORMATS, Format
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.numerics.arithmetic import Arithmetic

Codes = NDArray[Any]


@dataclass(frozen=True)
class Operation:
    """An instruction, looped over k with D fed back as C, as a target computes it."""

    instruction: Instruction
    target: str
    arithmetic: Arithmetic

    @cached_property
    def _hash(self) -> int:
        return hash((self.instruction.opcode, self.target, self.arithmetic.family))

    def __hash__(self) -> int:
        return self._hash

    @property
    def own(self) -> bool:
        """True if the arithmetic is a caller's own, which claims no GPU."""
        return self.arithmetic.evidence.level == "own"

    def of_silicon(self) -> Operation:
        """This operation, which a real GPU is to compute.

        Raises
        ------
        BackendError
            If its arithmetic is a caller's own.
        """
        if self.own:
            raise BackendError(f"{self.instruction}: a GPU computes by its own arithmetic, not by {self.arithmetic.family}")
        return self

    @cached_property
    def multiplied(self) -> tuple[Format, Format]:
        """The formats in which A and B are multiplied: their own, or what the arithmetic widens them to."""
        formats, wide = self.instruction.formats, FORMATS.get(self.arithmetic.widened)
        return wide or formats.a, wide or formats.b


class Operands(NamedTuple):
    """The operands of T products, as codes: a (T, M, K), b (T, K, N), c (T, M, N) or None for zero.

    Strides are any; that of the products is 0 where they share an operand. Sparse A is stored (K halved), with 4-bit words
    `metadata` (T, M, K / chunk). Block scaling has `scale_a` (T, M, scales) and `scale_b` (T, scales, N).
    """

    a: Codes
    b: Codes
    c: Codes | None
    metadata: Codes | None = None
    scale_a: Codes | None = None
    scale_b: Codes | None = None

    @property
    def depth(self) -> int:
        """K, zeros of sparse A counted."""
        return int(self.b.shape[1])

    def each(self, change: Callable[[Codes], Codes]) -> Operands:
        """The same change to every operand that there is."""
        return Operands(*(None if codes is None else change(codes) for codes in self))  # type: ignore[arg-type]

    def products(self, start: int, stop: int) -> Operands:
        """Some of the products."""
        return self.each(lambda codes: codes[start:stop])

    def lines(self, rows: slice, columns: slice) -> Operands:
        """Return what some rows and columns of the results need."""
        along_rows, along_columns = (slice(None), rows), (slice(None), slice(None), columns)
        both = (slice(None), rows, columns)
        places = (along_rows, along_columns, both, along_rows, along_rows, along_columns)
        return Operands(*(None if codes is None else codes[at] for codes, at in zip(self, places, strict=True)))  # type: ignore[arg-type]


Run = Callable[[Operation, Operands, Codes, int], None]


def cut(ins: Instruction, operands: Operands, start: int, stop: int) -> Operands:
    """The part of products between two k, both multiples of the instruction's or the end; c stays behind."""
    stored = slice(start * ins.stored_k // ins.k, -(-stop * ins.stored_k // ins.k))
    chunk = pattern_of(ins).chunk if ins.sparse else 1
    scales = slice(start * ins.scale_vec_size // ins.k, -(-stop * ins.scale_vec_size // ins.k))
    return Operands(
        operands.a[:, :, stored],
        operands.b[:, start:stop],
        None,
        None if operands.metadata is None else operands.metadata[:, :, start // chunk : -(-stop // chunk)],
        None if operands.scale_a is None else operands.scale_a[:, :, scales],
        None if operands.scale_b is None else operands.scale_b[:, scales],
    )


def truth_values(ins: Instruction, operands: Operands) -> Operands:
    """Single bits as 0 and 1: any byte but zero is true in an array of bool."""
    if ins.formats.a.kind != "bit":
        return operands
    return operands._replace(a=(operands.a != 0).view(np.uint8), b=(operands.b != 0).view(np.uint8))


def whole_k(ins: Instruction, operands: Operands) -> Operands:
    """Pad K to whole instructions. The hardware multiplies the padding too, and in a chain of fma that turns -0 into +0."""
    missing = -operands.depth % ins.k
    if not missing:
        return operands
    filled = operands._replace(
        a=_pad(operands.a, 2, missing * ins.stored_k // ins.k, 0),
        b=_pad(operands.b, 1, missing, 0),
    )
    if operands.scale_a is not None and operands.scale_b is not None:
        scales = filled.depth // ins.k * ins.scale_vec_size - operands.scale_a.shape[2]
        one = int(encode(1.0, ins.stype)[()])
        filled = filled._replace(scale_a=_pad(operands.scale_a, 2, scales, one), scale_b=_pad(operands.scale_b, 1, scales, one))
    if operands.metadata is not None:
        rule = pattern_of(ins)
        filled = filled._replace(metadata=_pad(operands.metadata, 2, missing // rule.chunk, rule.words[0][0]))
    return filled


def _pad(codes: Codes, axis: int, count: int, value: int) -> Codes:
    """More entries at the end of an axis."""
    shape = list(codes.shape)
    shape[axis] = count
    return np.concatenate([codes, np.full(shape, value, codes.dtype)], axis)
