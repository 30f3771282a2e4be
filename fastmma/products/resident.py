"""Products of arrays that lie in a GPU's memory, by the plan of any GPU: operands are codes there, and so are the results."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.backends.call import Codes, Operands
from fastmma.backends.gpu.resident import Resident
from fastmma.kernels.params import Promotion
from fastmma.products.epilogue import finished_codes
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.loop import accumulate


def resident_product(
    backend: Resident, plan: GemmPlan, a: Codes, b: Codes, *, alpha: float = 1.0, beta: float | None = None, c: Any = None, bias: Any = None
) -> Codes:
    """The codes of products (T, M, N), in the format `plan.out`, with the bits that `fastmma.matmul` has by the same plan.

    Parameters
    ----------
    backend : Resident
    plan : GemmPlan
        Its c, if it has one, is added in the epilogue.
    a, b : arrays (T, M, K) and (T, K, N)
        Codes of the plan's formats, or of f32 where it casts to tf32; any strides.
    c, bias : float32 arrays (T, M, N) and (N,), optional
        Where the operands lie.

    Raises
    ------
    OperandError, OperandTypeError, BackendError
    """
    if plan.cast and plan.operation.instruction.atype == "tf32":
        a, b = backend.rounded_to_tf32(a), backend.rounded_to_tf32(b)
    operands, shape = Operands(a, b, None), (*a.shape[:2], b.shape[2])
    if plan.epilogue:
        given = {"alpha": alpha, "beta": beta, "c": c, "bias": bias}
        return finished_codes("a product", plan, operands, shape, given, backend, 1)
    sums = backend.empty(shape, np.dtype(plan.operation.instruction.formats.d.code_dtype))
    promotion = None if plan.promote_every is None else Promotion(plan.promote_every)
    accumulate(backend, plan.operation, operands, sums, promotion, plan.order, 1)
    return sums
