"""Block-scaled arrays from torch's and torchao's tensors, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastmma.host.calls import named_keywords
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.scaling import ScaledArray, to_blocked
from fastmma.torch.arrays import E2M1_PAIRS, to_torch
from fastmma.torch.plans import UnknownError
from fastmma.torch.recipes import B16, B32, B128, L128, ROW, SWIZZLED, TENSOR, scaled_operand

# of schemes without their formats; those of MX and NVFP4 have scales that may be swizzled
_RECIPES = {"fp8_tensor": TENSOR, "fp8_row": ROW, "fp8_1x128": L128, "fp8_128x128": B128, "mx": B32, "nvfp4": B16}


class TorchOperand(NamedTuple):
    """An operand (outer, K) as `torch.nn.functional.scaled_mm` takes it; recipes and swizzles are numbers of its enums."""

    elements: Tensor
    scales: list[Tensor]
    recipes: list[int]
    swizzles: list[int]


@named_keywords
def to_scaled(elements: Tensor, scales: Tensor | Sequence[Tensor] | None = None, recipe: Any = None, swizzle: Any = None) -> ScaledArray:
    """Convert a tensor's elements and scales to a `fastmma.ScaledArray`, contracted along the last dimension.

    Parameters
    ----------
    elements : Tensor (outer, K), or torchao's MXTensor or NVFP4Tensor, which hold all the rest
        In float8, or float4_e2m1fn_x2.
    scales : Tensor, or a sequence of one or two
        The scales of the blocks, and that of the whole tensor if there are two levels.
    recipe : torch.nn.functional.ScalingType, or a sequence that starts with one
    swizzle : torch.nn.functional.SwizzleType, optional
        The layout of the scales.

    Raises
    ------
    OperandError, OperandTypeError
        If the parts do not fit together.

    Examples
    --------
    >>> from torch.nn.functional import ScalingType
    >>> to_scaled(torch.ones(4, 64).to(torch.float8_e4m3fn), torch.tensor(2.0), ScalingType.TensorWise).dequantize()[0, 0]
    np.float32(2.0)
    """
    given: Any = elements
    if hasattr(given, "qdata") and scales is None:
        data, scales = given.qdata, [given.scale]
        packed = data.dtype is torch.uint8
        recipe = B16 if packed and given.scale.dtype is torch.float8_e4m3fn else B32
        if recipe == B16 and given.per_tensor_scale is not None:
            scales = [given.scale, given.per_tensor_scale]
        elements, swizzle = data.view(E2M1_PAIRS) if packed else data, SWIZZLED if given.is_swizzled_scales else None
    if scales is None or recipe is None:
        raise OperandTypeError(f"scales and recipe are needed for a {type(given).__name__}")
    found, number = [scales] if isinstance(scales, Tensor) else list(scales), _number(recipe)
    if elements.dim() != 2:
        raise OperandError(f"elements must have two dimensions, not {elements.dim()}")
    if number == B128:
        raise OperandError("scales of 128 x 128 come turned and padded for scaled_mm; make the ScaledArray of fastmma.scaling from them")
    try:
        return scaled_operand(elements, found, number, swizzle is not None and _number(swizzle) == SWIZZLED)
    except UnknownError as error:
        raise OperandError(str(error)) from None


def _number(value: Any) -> int:
    """The number of a member of torch's enums, or of the first of several."""
    first = value[0] if isinstance(value, list | tuple) and value else value
    return first if isinstance(first, int) else int(first.value)


@named_keywords
def from_scaled(array: ScaledArray) -> TorchOperand:
    """Convert a block-scaled array (outer, K) for `torch.nn.functional.scaled_mm`, with elements transposed for the second operand.

    Raises
    ------
    OperandError
        If torch has no recipe for the array's scheme.

    Examples
    --------
    >>> from fastmma.scaling import quantize
    >>> operand = from_scaled(quantize(np.ones((128, 64), np.float32), "mxfp8_e4m3"))
    >>> operand.recipes, operand.swizzles, tuple(operand.scales[0].shape)
    ([3], [1], (512,))
    """
    if array.ndim != 2 or array.axis != 1:
        raise OperandError(f"torch takes operands (outer, K), contracted along the last dimension, not {array!r}")
    scheme = array.scheme.removesuffix("_e5m2")
    recipe = _RECIPES.get("mx" if array.scheme.startswith(("mxfp8", "mxfp4")) else scheme)
    if recipe is None:
        raise OperandError(f"torch has no recipe for {array.scheme}")
    elements = to_torch(array.elements)
    if recipe in (B16, B32):
        blocked = to_torch(to_blocked(array.scales))
        if recipe == B32:
            return TorchOperand(elements, [blocked], [B32], [SWIZZLED])
        return TorchOperand(elements, [blocked, torch.tensor(float(array.global_scale or 1))], [B16, TENSOR], [SWIZZLED])
    scales = to_torch(np.ascontiguousarray(array.scales))
    if recipe == L128:
        scales = scales.t().contiguous().t()
    if recipe == B128:  # whole fours of k, which come first
        padded = torch.zeros(scales.shape[0], -(-scales.shape[1] // 4) * 4)
        padded[:, : scales.shape[1]] = scales
        scales = padded.t()
    return TorchOperand(elements, [scales], [recipe], [])
