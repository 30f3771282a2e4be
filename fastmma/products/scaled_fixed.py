"""Small products of block-scaled matrices that a compiled kernel computes in one go, with what multiplies all sums."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.engine import Backend
from fastmma.products.epilogue import Epilogue
from fastmma.products.plan import AccumulationPlan
from fastmma.scaling import ScaledArray

_ONE = np.float32(1)
_ALPHA = "alpha"


@lru_cache(256)
def _own(plan: AccumulationPlan, backend: Backend) -> int:
    """The k of a scale where a plan does nothing but add and multiply all sums by a number; else 0."""
    ins, order = plan.operation.instruction, plan.order
    as_they_are = plan.scales == "instruction" and plan.promote_every is None and plan.widened == ("", "")
    if not as_they_are or order.parts != 1 or order.first_tile or plan.out != "f32" or ins.dtype != "f32":
        return 0
    finish = Epilogue("scaled_matmul", plan.epilogue, plan.out, backend, 1)
    steps = finish.steps_of("f32", {_ALPHA: np.zeros((1, 1), np.uint32)}, (1, 1))
    return ins.k // ins.scale_vec_size if [(step.operation, step.names) for step in steps] == [("multiply", (_ALPHA,))] else 0


def multiply_small(
    plan: AccumulationPlan, a: ScaledArray, b: ScaledArray, alpha: float, out: NDArray[Any] | None, backend: Backend, threads: int
) -> NDArray[Any] | None:
    """Multiply small matrices into `out` if there is one, which was checked; None where no kernel does it in one go.

    Raises
    ------
    OperandTypeError
        If `alpha` is no number.
    """
    if len(a.elements.shape) != 2 or len(b.elements.shape) != 2:
        return None
    (rows, depth), columns, own = a.elements.shape, b.elements.shape[1], _own(plan, backend)
    blocks = own and -(-depth // own)
    if not blocks or a.scales.shape != (rows, blocks) or b.scales.shape != (blocks, columns):
        return None
    fixed = backend.fixed_scaled(plan.operation, (rows, columns, depth), threads)
    if fixed is None:
        return None
    given = a.elements.view(np.uint8), b.elements.view(np.uint8), a.scales.view(np.uint8), b.scales.view(np.uint8)
    result = np.empty((rows, columns), np.float32) if out is None else out
    if out is not None and (out.dtype != np.float32 or any(np.may_share_memory(out, each) for each in given)):
        return None
    finish = Epilogue("scaled_matmul", plan.epilogue, plan.out, backend, threads)
    values = finish.operands(alpha, None, None, None, result.shape, a.global_scale, b.global_scale)
    factor = values[_ALPHA].view(np.float32)[0, 0] if _ALPHA in values else _ONE
    return result if fixed(*given, result.view(np.uint32), factor) else None
