"""The loops of AMD's matrix cores in lanes of AVX-512, which Numba compiles on a CPU that has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np

from bench.instructions import FMA, Counted, Cpu
from fastmma import FORMATS
from fastmma.backends.parameters import element_of
from fastmma.kernels.fused import window_lanes
from fastmma.kernels.fused.window_panels import PANEL, ROWS, Steps, packed_columns, packed_rows
from fastmma.kernels.matrices.loans import Loan


@dataclass(frozen=True)
class Lanes(Counted):
    """Of steps that end to nearest: of two rows of A and a panel of B, or of four rows where sums are exact."""

    how: Steps

    def products(self, cpu: Cpu) -> int:  # noqa: ARG002 - one size for all CPUs
        return (ROWS if self.how.exact else 2) * PANEL * self.how.depth

    def _arguments(self) -> tuple[Any, ...]:
        """What the kernel is called with."""
        codes, element = np.zeros((PANEL, PANEL), np.uint16), element_of(FORMATS["f16"])
        x, y = (pack(self.how, codes, element, 1, Loan()) for pack in (packed_rows, packed_columns))
        c = np.zeros((PANEL, PANEL), np.float32)
        return self.how, x, y, c, c, np.zeros(PANEL, np.bool_), 0, PANEL

    def assembly(self, cpu: Cpu) -> str:
        kernel = numba.njit(nogil=True, error_model="numpy", boundscheck=False)(window_lanes._run.function)
        kernel.compile(tuple(map(numba.typeof, self._arguments())))
        (text,) = kernel.inspect_llvm().values()
        module = llvm.parse_assembly(text)
        module.triple = cpu.triple
        machine = llvm.Target.from_triple(cpu.triple).create_target_machine(cpu=cpu.name, features=cpu.flags, opt=2)
        return str(machine.emit_assembly(module))


LANES = (
    Lanes("f16, MI300X", FMA, Steps(8, narrow=True)),
    Lanes("bf16, MI300X", FMA, Steps(8)),
    Lanes("xf32, MI300X", FMA, Steps(4)),
    Lanes("8-bit floats, MI300X", FMA, Steps(8, 2, narrow=True)),
    Lanes("f16, MI100", FMA, Steps(4, exact=True)),
    Lanes("bf16, MI100", FMA, Steps(2, exact=True)),
)
