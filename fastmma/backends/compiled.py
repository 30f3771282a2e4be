"""The backend "numba": methods of the numerics table by compiled kernels, which are imported when they are first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastmma.backends import fused, route
from fastmma.backends.call import Codes, Operands, Operation, Run, whole_k
from fastmma.backends.engine import Backend
from fastmma.backends.exact import Exact
from fastmma.backends.fixed import Fixed, FixedScaled, Form, fixed_product, fixed_scaled
from fastmma.backends.holds import cpu, portable_only
from fastmma.backends.native_c import with_native_c
from fastmma.backends.parts import is_small, parts
from fastmma.backends.stored import on_stored_elements
from fastmma.backends.zeros import on_dense_kernel
from fastmma.kernels.params import Promotion, Step
from fastmma.numerics.methods import METHODS

if TYPE_CHECKING:
    from fastmma.kernels.sums.epilogue import EpilogueForm


class Compiled(Backend):
    """Compiled kernels on this CPU."""

    warps_at_once = 1024
    rows_at_once = 2048  # as many as there are in a piece of a product: a panel of B is packed for each piece anyway

    def run(self, operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        """`Backend.run`."""
        run, ins = _AROUND.get(METHODS[operation.arithmetic.method].sums, route.run), operation.instruction
        if route.is_left_to_reference(operation):
            Exact().run(operation, operands, d, threads)
            return
        operands = _fill(operation, operands)
        if is_small(operands, d):
            run(operation, operands, d, threads)
            return
        for part in parts(operands, d, ins.k):
            run(operation, part.of(ins, operands, d), d[part.results], threads)

    def run_registers(self, operation: Operation, registers: Operands, d: Codes, threads: int) -> bool:
        """`Backend.run_registers`."""
        return fused.run_registers(operation, registers, d, threads)

    def fixed(self, operation: Operation, form: Form, epilogue: EpilogueForm | None, threads: int) -> Fixed | None:
        """`Backend.fixed`."""
        return fixed_product(operation, form, epilogue, threads)

    def fixed_scaled(self, operation: Operation, shape: tuple[int, int, int], threads: int) -> FixedScaled | None:
        """`Backend.fixed_scaled`."""
        return fixed_scaled(operation, shape, threads, cpu().usable())

    def settings(self) -> bool:
        """`Backend.settings`: whether only portable kernels are allowed."""
        return portable_only()

    def promoted(self, operation: Operation, operands: Operands, d: Codes, promotion: Promotion, threads: int) -> None:
        """`Backend.promoted`."""
        dense = operands.metadata is None and operands.scale_a is None
        if METHODS[operation.arithmetic.method].in_steps and dense and operands.depth:
            operands = _fill(operation, operands)
        if not fused.promoted(operation, operands, d, promotion, threads):
            super().promoted(operation, operands, d, promotion, threads)

    def finish(self, sums: Codes, steps: list[Step], out: str, threads: int, results: Codes) -> None:
        """`Backend.finish`, in one pass."""
        from fastmma.kernels.sums import epilogue

        if out != "f32":
            epilogue.apply(sums, steps, threads, results, out == "f16")
            return
        epilogue.apply(sums, steps, threads)
        if results is not sums:
            results[...] = sums


def _fill(operation: Operation, operands: Operands) -> Operands:
    """Operands of whole instructions where steps of zeros may change sums, as they do in an arithmetic of few bits."""
    return whole_k(operation.instruction, operands) if operation.own else operands


# what is done around products; of chains nothing is
_AROUND: dict[str, Run] = {
    "steps": on_stored_elements(on_dense_kernel(with_native_c(fused.run))),
    "integers": on_dense_kernel(route.run),
}
