"""torch's operators of cuDNN's attention.

Its kernels are not known. Flash attention agrees with them in most elements, and stands for them where it computes the same; this is told
as assumed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fastmma.torch import flash_operators
from fastmma.torch.arrays import as_numpy
from fastmma.torch.attention_arrays import filled, tell
from fastmma.torch.attention_choice import Call
from fastmma.torch.emulation import Emulation
from fastmma.torch.plans import UnknownError

FORWARD = torch.ops.aten._scaled_dot_product_cudnn_attention.default
BACKWARD = torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default
_ASSUMED = "cuDNN's kernel is not known; computed as flash attention"


def refuses(run: Emulation, call: Call) -> bool:
    """Tell whether flash attention does not stand for cuDNN's: of masks and dropout, or where nothing is to be assumed."""
    square = not call.causal or call.query.shape[2] == call.key.shape[2]
    return run.settings.attention == "error" or call.mask is not None or call.dropout > 0 or not square


def _check(run: Emulation, call: Call) -> None:
    if refuses(run, call):
        raise UnknownError("cuDNN's attention is not known")


def cudnn_forward(
    run: Emulation,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Compute ``aten::_scaled_dot_product_cudnn_attention`` as flash attention does.

    Raises
    ------
    UnknownError
    """
    _check(run, Call(query, key, value, attn_bias, dropout_p, is_causal, True))
    out, logs = flash_operators.attend(query, key, value, None, is_causal, scale)
    tell(run, FORWARD, (query, key, value), _ASSUMED)
    none = torch.empty((), dtype=torch.int64)
    laid = filled(torch.empty_like(query), as_numpy(out))
    return laid, logs[..., None], None, None, query.shape[2], key.shape[2], none, none, query.new_empty(0)


def cudnn_gradients(
    run: Emulation,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    attn_bias: Tensor | None,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``aten::_scaled_dot_product_cudnn_attention_backward`` as flash attention does.

    Raises
    ------
    UnknownError
    """
    _check(run, Call(query, key, value, attn_bias, dropout_p, is_causal, True))
    found = flash_operators.gradients_of((grad_out, query, key, value, out), logsumexp[..., 0], None, is_causal, scale)
    tell(run, BACKWARD, (grad_out, query, key, value), _ASSUMED)
    return found
