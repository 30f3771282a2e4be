"""Products by the plan of lanes off the tensor cores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Codes, Operands
from fastmma.backends.engine import Backend
from fastmma.host.errors import OperandError
from fastmma.isa.codes import from_codes
from fastmma.isa.formats import FORMATS
from fastmma.operands.check import check_output, codes_of
from fastmma.products.bound import Arguments
from fastmma.products.epilogue import Epilogue, f32_code
from fastmma.products.lanes_plan import LanesPlan


class LanesProduct:
    """A product by the plan of lanes off the tensor cores, and who computes it."""

    def __init__(self, plan: LanesPlan, runner: Backend, threads: int) -> None:
        self.plan, self._runner, self._threads = plan, runner, threads

    def multiply(self, arguments: Arguments) -> NDArray[Any]:
        """Multiply two matrices.

        Raises
        ------
        OperandError, OperandTypeError
        """
        plan, backend, threads = self.plan, self._runner, self._threads
        call, a, b, c, bias, alpha, beta, out, metadata, scale_a, scale_b = arguments
        if not metadata is scale_a is scale_b is None:
            raise OperandError(f"{call}: lanes off the tensor cores take dense operands without scales")
        left, right = (_widen(operand, plan.operands, f"{call}: {name}") for operand, name in ((a, "a"), (b, "b")))
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
            raise OperandError(f"{call} needs a of shape (M, K) and b of shape (K, N), not {left.shape} and {right.shape}")
        if c is not None and not plan.adds_c:
            raise OperandError(f"{call}: the plan's epilogue {plan.epilogue} has no step for c")
        if plan.scaled:
            factor = np.array(f32_code(alpha, f"{call}: alpha"), np.uint32).view(np.float32)
            with np.errstate(all="ignore"):
                left, right = (factor * left, right) if plan.scaled == "a" else (left, factor * right)
            alpha = 1.0
        operands = Operands(left[None].view(np.uint32), right[None].view(np.uint32), None)
        shape, fmt = (len(left), right.shape[1]), plan.out or "f32"
        finish = Epilogue(call, plan.epilogue, fmt, backend, threads)

        def multiply(products: slice, rows: slice, sums: Codes) -> None:
            plan.accumulate(operands.products(products.start, products.stop).lines(rows, slice(None)), sums, backend, threads)

        values = finish.operands(alpha, beta, c, bias, shape)
        if out is not None:
            check_output(out, shape, FORMATS[fmt], call)
        found = from_codes(finish.results(multiply, FORMATS["f32"], values, shape, True), fmt)
        if out is None:
            return found
        out[...] = found
        result: NDArray[Any] = out
        return result


def _widen(value: Any, fmt: str, what: str) -> NDArray[np.float32]:
    """Convert an operand to f32, exactly."""
    elements = from_codes(codes_of(value, FORMATS[fmt], what), FORMATS[fmt])
    return np.ascontiguousarray(elements.astype(np.float32))
