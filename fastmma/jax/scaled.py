"""jax.nn.scaled_matmul: products of block-scaled operands."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fastmma.host.calls import named_keywords
from fastmma.host.errors import FastmmaError, NotEmulatedError, OperandError
from fastmma.isa.gpus import TargetName, target_named
from fastmma.jax.calls import Call, describe, make_line, write_place
from fastmma.jax.internals import find_place
from fastmma.products.plan import AccumulationPlan
from fastmma.products.scaled import scaled_matmul as multiplied
from fastmma.products.scaled_choice import scaled_plan
from fastmma.scaling import ScaledArray

CUDNN = "one accumulator, k ascending: cuDNN's order is not known"
# schemes by the dtype of the elements and the k that share a scale
_SCHEMES = {
    ("float8_e4m3fn", 32): "mxfp8_e4m3",
    ("float8_e5m2", 32): "mxfp8_e5m2",
    ("float4_e2m1fn", 32): "mxfp4",
    ("float4_e2m1fn", 16): "nvfp4",
}


def _array(elements: Any, scales: Any) -> ScaledArray:
    """Elements (..., K) with scales (..., K / block)."""
    values, factors = np.asarray(elements), np.asarray(scales)
    block = values.shape[-1] // max(factors.shape[-1], 1)
    scheme = _SCHEMES.get((values.dtype.name, block))
    if scheme is None:
        raise NotEmulatedError(f"{values.dtype} in blocks of {block} with {factors.dtype} is no scheme that tensor cores multiply")
    whole = np.float32(1) if scheme == "nvfp4" else None
    return ScaledArray(np.ascontiguousarray(values), np.ascontiguousarray(factors), (1,) * (values.ndim - 1) + (block,), -1, whole, scheme)


def scaled_plan_of(target: str, operands: tuple[Any, ...], out: Any) -> AccumulationPlan:
    """Choose how a product of (lhs, rhs, lhs_scales, rhs_scales) is accumulated.

    Raises
    ------
    NotEmulatedError
        If the target has no instruction that takes the scales: XLA then widens the operands, in a way that is not known.
    """
    lhs, rhs = (
        _array(np.zeros((1, elements.shape[-1]), elements.dtype), np.ones((1, scales.shape[-1]), scales.dtype))
        for elements, scales in zip(operands[:2], operands[2:], strict=True)
    )
    try:
        plan = scaled_plan(lhs, rhs.T, target=target, out_dtype=out)
    except FastmmaError as error:
        raise NotEmulatedError(f"scaled_matmul of {lhs.scheme} and {rhs.scheme} on {target}: {error}") from error
    if not plan.operation.instruction.scale_vec_size:
        raise NotEmulatedError(f"scaled_matmul: no instruction of {target} takes the scales of {lhs.scheme} and {rhs.scheme}")
    return plan


def scaled_product(lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, *, plan: AccumulationPlan) -> NDArray[Any]:
    """(B, M, K) times (B, N, K), of arrays in main memory."""
    pairs = zip(*(np.asarray(each) for each in (lhs, rhs, lhs_scales, rhs_scales)), strict=True)
    found = [multiplied(_array(x, s), _array(y, t).T, plan=plan) for x, y, s, t in pairs]
    return np.stack(found) if found else np.zeros((0, lhs.shape[1], rhs.shape[1]), np.float32)


@named_keywords
def scaled_matmul(
    lhs: Any,
    rhs: Any,
    lhs_scales: Any,
    rhs_scales: Any,
    preferred_element_type: Any = np.float32,
    *,
    target: TargetName,
    plan: AccumulationPlan | None = None,
) -> jax.Array:
    """Compute ``jax.nn.scaled_matmul`` with the bits of a GPU's tensor cores.

    Parameters
    ----------
    lhs, rhs : arrays (B, M, K) and (B, N, K)
        float8_e4m3fn or float8_e5m2 in blocks of 32, float4_e2m1fn in blocks of 32 or 16.
    lhs_scales, rhs_scales : arrays (B, M, K / block) and (B, N, K / block)
        float8_e8m0fnu, or float8_e4m3fn for blocks of 16.
    preferred_element_type : dtype
        float32, bfloat16 or float16. The sums are rounded to it once.
    target : str
        A GPU with instructions that take the scales. For another GPU, give a plan.
    plan : AccumulationPlan, optional
        As `fastmma.scaled_plan` returns it.

    Returns
    -------
    array (B, M, N)

    Raises
    ------
    NotEmulatedError, OperandError, TargetError

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> x, scales = jnp.ones((1, 4, 64), jnp.float8_e4m3fn), jnp.ones((1, 4, 2), jnp.float8_e8m0fnu)
    >>> float(scaled_matmul(x, x, scales, scales, target="B200")[0, 0, 0])
    64.0
    """
    operands = tuple(map(jax.numpy.asarray, (lhs, rhs, lhs_scales, rhs_scales)))
    shapes = [each.shape for each in operands]
    if any(len(shape) != 3 for shape in shapes) or shapes[0][2] != shapes[1][2] or len({shape[0] for shape in shapes}) > 1:
        raise OperandError(f"scaled_matmul: shapes must be (B, M, K), (B, N, K) and those of their scales, not {shapes}")
    chosen = plan or scaled_plan_of(target_named(target), operands, preferred_element_type)
    result = jax.ShapeDtypeStruct((shapes[0][0], shapes[0][1], shapes[1][1]), np.dtype(preferred_element_type))
    line = make_line("fastmma.jax.scaled_matmul", describe(*operands[:2]), chosen, chosen.instruction, "" if plan else CUDNN)
    call = Call(scaled_product, (("plan", chosen),), line, write_place(find_place()))
    return jax.pure_callback(call, result, *operands, vmap_method="sequential")
