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
from fastmma.products.epilogue import Epilogue, f32_code
from fastmma.products.lanes_plan import LanesPlan


def lanes_gemm(plan: LanesPlan, a: Any, b: Any, given: dict[str, Any], out: Any, backend: Backend, threads: int) -> NDArray[Any]:
    """Multiply two matrices; `given` is what the epilogue takes: alpha, beta, c and bias.

    Raises
    ------
    OperandError, OperandTypeError
    """
    left, right = (_widened(operand, plan.operands, name) for operand, name in ((a, "a"), (b, "b")))
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise OperandError(f"gemm needs a of shape (M, K) and b of shape (K, N), not {left.shape} and {right.shape}")
    if given["c"] is not None and not plan.adds_c:
        raise OperandError(f"gemm: the plan's epilogue {plan.epilogue} has no step for c")
    alpha = given["alpha"]
    if plan.scaled:
        factor = np.array(f32_code(alpha, "gemm: alpha"), np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            left, right = (factor * left, right) if plan.scaled == "a" else (left, factor * right)
        alpha = 1.0
    operands = Operands(left[None].view(np.uint32), right[None].view(np.uint32), None)
    shape, fmt = (len(left), right.shape[1]), plan.out or "f32"
    finish = Epilogue("gemm", plan.epilogue, fmt, backend, threads)

    def multiply(products: slice, rows: slice, sums: Codes) -> None:
        plan.accumulate(operands.products(products.start, products.stop).lines(rows, slice(None)), sums, backend, threads)

    values = finish.operands(alpha, given["beta"], given["c"], given["bias"], shape)
    if out is not None:
        check_output(out, shape, FORMATS[fmt], "gemm")
    found = from_codes(finish.results(multiply, FORMATS["f32"], values, shape, True), fmt)
    if out is None:
        return found
    out[...] = found
    result: NDArray[Any] = out
    return result


def _widened(operand: Any, fmt: str, name: str) -> NDArray[np.float32]:
    """Convert an operand to f32, exactly."""
    elements = from_codes(codes_of(operand, FORMATS[fmt], f"gemm: {name}"), FORMATS[fmt])
    return np.ascontiguousarray(elements.astype(np.float32))
