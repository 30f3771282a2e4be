"""torch's operators of fused attention that are computed as a GPU computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastmma.torch import cudnn_operators, efficient_operators, flash_operators
from fastmma.torch.attention_choice import NUMBERS, Call, choose
from fastmma.torch.attention_kernels import KERNELS
from fastmma.torch.emulation import Emulation


def choice(
    run: Emulation,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> int:
    """Compute ``aten::_fused_sdp_choice``.

    Raises
    ------
    RuntimeError
        If torch finds no kernel.
    """
    found = choose(Call(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa))
    if found is None:
        raise RuntimeError("No available kernel. Aborting execution.")
    return NUMBERS[found]


COMPUTED: dict[Any, Callable[..., Any]] = {
    flash_operators.FORWARD: flash_operators.flash_forward,
    flash_operators.BACKWARD: flash_operators.flash_gradients,
    efficient_operators.FORWARD: efficient_operators.efficient_forward,
    efficient_operators.BACKWARD: efficient_operators.efficient_gradients,
    cudnn_operators.FORWARD: cudnn_operators.cudnn_forward,
    cudnn_operators.BACKWARD: cudnn_operators.cudnn_gradients,
    torch.ops.aten._fused_sdp_choice.default: choice,
    **KERNELS,
}
