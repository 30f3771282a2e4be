"""c in f16 that meets sums in f32 without being converted first."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from fastmma.backends.call import Codes, Operands, Operation, Run


@lru_cache(1024)
def _raised(operation: Operation) -> Operation:
    """The operation whose emax is never below the exponent of c's subnormals."""
    row, lowest = operation.arithmetic, operation.instruction.formats.c.emin
    return replace(operation, arithmetic=replace(row, emax_floor=max(row.emax_floor, lowest), native_c=False))


def with_native_c(run: Run) -> Run:
    """Kernels that take c as a number, where the arithmetic takes its exponent from its format.

    The two differ where c is subnormal, and there emax is at least the exponent of the smallest normal number. Such an instruction is one
    step, and its result cannot be its next c.
    """

    def wrapped(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        run(operation, operands, d, threads)
        ins, c = operation.instruction, operands.c
        if c is None or not operation.arithmetic.native_c or ins.ctype == ins.accumulator:
            return
        magnitude = c & c.dtype.type((1 << ins.formats.c.magnitude_bits) - 1)
        subnormal = (magnitude != 0) & (magnitude >> c.dtype.type(ins.formats.c.mantissa_bits) == 0)
        if subnormal.any():
            raised = np.empty(d.shape, d.dtype)
            run(_raised(operation), operands, raised, threads)
            d[subnormal] = raised[subnormal]

    return wrapped
