"""Products of arrays that lie in a GPU's memory, by the plan of any GPU: operands are codes there, and so are the results."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.backends.call import Codes, Operands
from fastmma.backends.gpu.resident import Resident
from fastmma.kernels.params import Promotion
from fastmma.products.bound import Arguments
from fastmma.products.by_tile import ByTile
from fastmma.products.epilogue import Epilogue, finish_codes
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.loop import accumulate
from fastmma.products.plan import AccumulationPlan
from fastmma.products.scaled_operands import ScaledOperand, bound, of_lines, promotion_of


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
        return finish_codes(plan, Arguments("a product", a, b, c, bias, alpha, beta), operands, shape, backend, 1)
    sums = backend.empty(shape, np.dtype(plan.operation.instruction.formats.d.code_dtype))
    promotion = None if plan.promote_every is None else Promotion(plan.promote_every)
    accumulate(backend, plan.operation, operands, sums, promotion, plan.order, 1)
    return sums


def resident_scaled_product(
    backend: Resident, plan: AccumulationPlan, a: ScaledOperand, b: ScaledOperand, *, alpha: Any = None, bias: Any = None
) -> Codes:
    """The codes of a product (M, N), in the format `plan.out`, with the bits that `fastmma.scaled_matmul` has by the same plan.

    Parameters
    ----------
    backend : Resident
    plan : AccumulationPlan
    a, b : ScaledOperand (M, K) and (K, N)
        Of the plan's schemes.
    alpha : float32 array (1, 1), optional
        The product of the global scales, where the schemes have them.
    bias : float32 array (N,), optional
        Arrays lie where the operands lie.

    Raises
    ------
    OperandError, OperandTypeError, BackendError
    """
    left, right = (each.widened(wide, backend) for each, wide in zip((a, b), plan.widened, strict=True))
    shape = left.codes.shape[0], right.codes.shape[1]
    finish = Epilogue("a scaled product", plan.epilogue, plan.out, backend, 1)
    values = finish.operands(1.0, None, None, bias, shape)
    if alpha is not None:
        values["alpha"] = alpha.view(np.uint32)
    if plan.scales == "epilogue":
        values |= finish.scales(of_lines(left, -1, backend), of_lines(right, -2, backend))
    promotion, operands = promotion_of(plan, left, right, (), backend), bound(plan, left, right, ())

    def multiply(products: slice, rows: slice, sums: Codes) -> None:
        some = promotion if promotion is None else promotion.of(products).part(slice(None), rows, slice(None))
        part = operands.products(products.start, products.stop).lines(rows, slice(None))
        accumulate(backend, plan.operation, part, sums, some, plan.order, 1)

    return finish.results(multiply, plan.operation.instruction.formats.d, values, shape, not isinstance(plan.split_k, ByTile))
