"""torch's operators of flash attention, as a GPU computes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fastmma.functions.attention import Dropout, flash, flash_backward, flash_repeats
from fastmma.torch.arrays import to_numpy
from fastmma.torch.attention_arrays import ANY_ORDER, as_arrays, computed, draw, lie_in_rows, lie_like, tell
from fastmma.torch.attention_choice import repeats
from fastmma.torch.emulation import Emulation
from fastmma.torch.plans import UnknownError
from fastmma.torch.reductions import as_tensor

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_backward.default
_WARP = 32  # threads that draw, of each head


def flash_forward(
    run: Emulation,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Compute ``aten::_scaled_dot_product_flash_attention``.

    Raises
    ------
    UnknownError
    """
    if return_debug_mask and dropout_p > 0:
        raise UnknownError("the mask of dropout that flash attention returns is not known")
    arrays = as_arrays(query, key, value)
    dropout = draw(dropout_p, query.shape[0] * query.shape[1] * _WARP)
    out, logs = computed(flash, *arrays, causal=is_causal, scale=scale, dropout=dropout, threads=run.settings.threads)
    swapped = query.shape[2] == 1 and key.shape[1] < query.shape[1] and dropout is None
    laid = lie_in_rows(out, query.dtype) if swapped else lie_like(query, out)
    state = torch.tensor([0, 0] if dropout is None else [dropout.seed, dropout.offset], dtype=torch.uint64)
    tell(run, FORWARD, (query, key, value))
    return laid, as_tensor(logs), None, None, query.shape[2], key.shape[2], state, torch.empty((), dtype=torch.uint64), query.new_empty(0)


def flash_gradients(
    run: Emulation,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``aten::_scaled_dot_product_flash_attention_backward``.

    Raises
    ------
    UnknownError
    """
    dropout = Dropout(dropout_p, *philox_seed.tolist()) if dropout_p > 0 else None
    arrays = [*as_arrays(grad_out, query, key, value, out), to_numpy(logsumexp)]
    found = computed(flash_backward, *arrays, causal=is_causal, scale=scale, dropout=dropout, deterministic=repeats())
    dq, dk, dv = map(lie_like, (query, key, value), found)
    fixed = flash_repeats(query.shape, key.shape, deterministic=repeats())
    tell(run, BACKWARD, (grad_out, query, key, value), "" if fixed else ANY_ORDER)
    return dq, dk, dv
