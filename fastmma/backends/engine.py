"""The interface of backends: an object with one method for each thing that calls need of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from fastmma.backends.call import Codes, Operands, Operation, cut
from fastmma.isa.formats import Format
from fastmma.kernels.params import Promotion, Step
from fastmma.numerics.arithmetic import CANONICAL_NAN

if TYPE_CHECKING:
    from fastmma.backends.fixed import Fixed, FixedScaled, Form
    from fastmma.kernels.sums.epilogue import EpilogueForm


class Backend(ABC):
    """A backend computes calls. Backends differ in speed and in the place where they run, never in bits.

    Attributes
    ----------
    warps_at_once : int
        Warps of a register call whose matrices are unpacked, multiplied and packed together.
    rows_at_once : int or None
        Rows of sums that are computed and go through an epilogue together, while they are in a cache; None: all.
    raw : module or None
        What executes the real opcode on registers and memory as they are, where the backend is a GPU.
    """

    warps_at_once = 1
    rows_at_once: int | None = None
    raw: ModuleType | None = None

    @abstractmethod
    def run(self, operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        """Write T products to `d` (T, M, N), each accumulated from its c over ascending k; `d` may be c.

        c and d have one format, except where K is at most the instruction's. A last instruction that K does not fill is filled with zeros.
        """

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Codes:
        """Uninitialised memory for codes that `run` is to write."""
        return np.empty(shape, dtype)

    def holds(self, array: Any) -> bool:  # noqa: ARG002 - of a backend with memory of its own
        """Tell whether an operand of an epilogue lies in memory of the backend's own, and is not NumPy's."""
        return False

    def look_up(self, table: Codes, codes: Codes) -> Codes:
        """The entries of a table for codes of one byte."""
        found: Codes = table[codes]
        return found

    def run_registers(self, operation: Operation, registers: Operands, d: Codes, threads: int) -> bool:  # noqa: ARG002
        """Write the registers of D (warps, all lanes' registers) from those of A, B and C, without matrices in between.

        False if this backend has no way to do so for the operation; then nothing is written.
        """
        return False

    def fixed(self, operation: Operation, form: Form, epilogue: EpilogueForm | None, threads: int) -> Fixed | None:  # noqa: ARG002
        """Return what computes products of a form when it is given addresses, with an epilogue if there is one; or None."""
        return None

    def fixed_scaled(self, operation: Operation, shape: tuple[int, int, int], threads: int) -> FixedScaled | None:  # noqa: ARG002
        """Return what computes products of block-scaled matrices of a shape (M, N, K) in one go, or None."""
        return None

    def settings(self) -> object | None:
        """Return what else than its arguments the products of `fixed` depend on; None where there are no such products."""
        return None

    def promoted(self, operation: Operation, operands: Operands, d: Codes, promotion: Promotion, threads: int) -> None:
        """Write products in f32 whose chunks of k start from zero and join totals that start from c."""
        from fastmma.kernels.sums import promotion as compiled

        depth, ins = operands.depth, operation.instruction
        total = np.zeros(d.shape, np.uint32)
        if operands.c is not None:
            total[...] = operands.c
        partial = np.empty(d.shape, np.uint32)
        for chunk, start in enumerate(range(0, depth, promotion.every)):
            self.run(operation, cut(ins, operands, start, min(start + promotion.every, depth)), partial, threads)
            for index, (sums, totals) in enumerate(zip(partial, total, strict=True)):
                compiled.promote(promotion.of(index), chunk, sums, totals, threads)
        d[...] = total

    def join(self, total: Codes, part: Codes, fmt: Format, stage: str = "split-k") -> Codes:  # noqa: ARG002 - for who explains it
        """Sums of codes of a format, element by element: IEEE addition to nearest (wrapping for s32), NaN canonical."""
        with np.errstate(all="ignore"):
            joined = np.asarray(total.view(fmt.dtype) + part.view(fmt.dtype))
        codes: Codes = joined.view(fmt.code_dtype)
        if fmt.kind == "float":
            codes[np.isnan(joined)] = CANONICAL_NAN[fmt.name]
        return codes

    def rounded(self, sums: Codes, fmt: str, threads: int) -> Codes:
        """Parts of k as f32 codes (T, M, N), rounded to a narrower format and f32 again."""
        rows = sums.reshape(math.prod(sums.shape[:-1]), sums.shape[-1])
        return self.apply(rows, [Step(f"round to {fmt}")], threads).reshape(sums.shape)

    def apply(self, sums: Codes, steps: list[Step], threads: int) -> Codes:
        """Steps of an epilogue on f32 codes (M, N), which may be overwritten."""
        from fastmma.kernels.sums import epilogue

        epilogue.apply(sums, steps, threads)
        return sums

    def narrow(self, sums: Codes, out: str, threads: int) -> Codes:
        """Rounded f32 codes as codes of the format `out`: f32, bf16 or f16."""
        if out == "f32":
            return sums
        from fastmma.kernels.sums import epilogue

        narrowed = np.empty(sums.shape, np.uint16)
        epilogue.narrow(sums, narrowed, out == "f16", threads)
        return narrowed

    def finish(self, sums: Codes, steps: list[Step], out: str, threads: int, results: Codes) -> None:
        """Write codes of the format `out` after the steps of an epilogue, one of which rounds to it.

        f32 codes (M, N) may be overwritten; `results` may be the sums.
        """
        results[...] = self.narrow(self.apply(sums, steps, threads), out, threads)
