"""The accumulation of a product by lanes off the tensor cores: a plan that prints, and can be changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Codes, Operands
from fastmma.backends.engine import Backend
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import check_string
from fastmma.isa.scalar import OP
from fastmma.products.lanes import Lanes
from fastmma.products.library_plan import LibraryPlan
from fastmma.products.steps import OUTPUTS, check_steps, operands_of, texts

OPERANDS = ("f32", "bf16", "f16")
_AT_ONCE = 1 << 24  # sums of chains that are held together


@dataclass(frozen=True)
class LanesPlan(LibraryPlan):
    """Everything that decides the bits of a product whose k are shared by lanes off the tensor cores.

    Attributes
    ----------
    target : str
        The GPU.
    instruction : str
        ``"fma.rn.f32"``.
    lanes : Lanes
        Which lane takes which k, and how their sums are joined.
    operands : {"f32", "bf16", "f16"}
        The format of both operands, whose elements are converted to f32, exactly.
    epilogue : tuple of str
        What becomes of the sums, as f32 numbers: the steps of `fastmma.GemmPlan`. If empty, the result is the sum.
    out : {"", "f32", "bf16", "f16"}
        The format of the result, where there is an epilogue.
    scaled : {"", "a", "b"}
        The operand that alpha multiplies first, in f32; empty where the epilogue takes alpha, or none is given.
    evidence : OrderEvidence, optional
        How it is known that a library adds so; given by name.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        If the parts do not go together.

    Examples
    --------
    >>> print(LanesPlan("sm_90a", "fma.rn.f32", Lanes(2, vector=0, chunk=256, tree="ascending"), "bf16", ("round",), "bf16"))
    bf16 x bf16 on sm_90a
      instruction  fma.rn.f32
      arithmetic   f32-fma-from-c
      operands     converted to f32, exactly
      k order      2 lanes of adjacent k, added in ascending order; chains of 256 k
      epilogue     x = sum; round to bf16
      result       bf16
    """

    lanes: Lanes = Lanes()  # noqa: RUF009 - it is frozen
    operands: str = "f32"
    epilogue: tuple[str, ...] = ()
    out: str = ""
    scaled: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        ins = self.operation.instruction
        if ins.op != OP:
            raise OperandError(f"{ins}: lanes off the tensor cores take fma.rn.f32")
        if not isinstance(self.lanes, Lanes):
            raise OperandTypeError(f"lanes must be Lanes, not {type(self.lanes).__name__}")
        check_string(self.operands, "operands")
        check_string(self.out, "out")
        if self.operands not in OPERANDS:
            raise OperandError(f"operands must be one of {', '.join(OPERANDS)}, not {self.operands!r}")
        if self.epilogue or self.out:
            check_steps(self.epilogue, self.target)
            if self.out not in OUTPUTS:
                raise OperandError(f"the result of an epilogue must be one of {', '.join(OUTPUTS)}, not {self.out!r}")
        check_string(self.scaled, "scaled")
        if self.scaled not in ("", "a", "b") or (self.scaled and any("alpha" in operands_of(step) for step in self.epilogue)):
            raise OperandError(f"scaled must be empty, or 'a' or 'b' where the epilogue does not take alpha, not {self.scaled!r}")
        self._keep_evidence()

    @cached_property
    def adds_c(self) -> bool:
        """Tell whether the epilogue takes c."""
        return any("c" in operands_of(step) for step in self.epilogue)

    def accumulate(self, operands: Operands, sums: Codes, backend: Backend, threads: int) -> None:
        """Write the sums of products (T, M, N) of f32 codes."""
        places = self.lanes.places(operands.depth)
        for product in range(len(sums)):
            a, b = operands.a[product].view(np.float32), operands.b[product].view(np.float32)
            for rows in _blocks(len(a), math.prod(places.shape[:-1]) * b.shape[1]):
                sums[product, rows] = self._join(a[rows], b, places, backend, threads)

    def _join(self, a: NDArray[np.float32], b: NDArray[np.float32], places: NDArray[np.int64], backend: Backend, threads: int) -> Codes:
        """Compute the sums of a block of rows."""
        depth = len(b)
        chains = places.reshape(-1, places.shape[-1])
        used = np.flatnonzero((chains >= 0).any(1))
        # beyond the end are 0 and -0, whose product leaves every sum as it is
        left = np.concatenate([a, np.zeros((len(a), 1), np.float32)], 1)
        right = np.concatenate([b, np.full((1, b.shape[1]), -0.0, np.float32)])
        taken = np.where(chains[used] < 0, depth, chains[used])
        first = np.ascontiguousarray(left[:, taken].swapaxes(0, 1))
        found = backend.empty((len(used), len(a), b.shape[1]), np.dtype(np.uint32))
        if found.size:
            backend.run(self.operation, Operands(first.view(np.uint32), right[taken].view(np.uint32), None), found, threads)
        sums = np.zeros((len(chains), len(a), b.shape[1]), np.float32)
        sums[used] = found.view(np.float32)
        joined = np.ascontiguousarray(self.lanes.join(np.moveaxis(sums, 0, -1).reshape(*sums.shape[1:], *places.shape[:-1])))
        codes: Codes = joined.view(np.uint32)
        codes[np.isnan(joined)] = 0x7FFFFFFF
        return codes

    def _operands(self) -> str:
        return f"{self.operands} x {self.operands}"

    def _details(self) -> list[tuple[str, str]]:
        return [
            *super()._details(),
            ("operands", "" if self.operands == "f32" else "converted to f32, exactly"),
            ("alpha", f"multiplies {self.scaled} first, rounded to f32" if self.scaled else ""),
            ("k order", str(self.lanes)),
            ("epilogue", "; ".join(["x = sum", *texts(self.epilogue, self.out)]) if self.epilogue else ""),
            ("result", self.out or "f32"),
            ("library", self._library()),
        ]


def _blocks(rows: int, each: int) -> Iterator[slice]:
    """Cut rows so that no more than a known number of sums are held at once."""
    most = max(_AT_ONCE // max(each, 1), 1)
    return (slice(first, min(first + most, rows)) for first in range(0, rows, most))
