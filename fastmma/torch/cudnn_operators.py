"""torch's operators of cuDNN's attention, as cuDNN 9.19 computes them."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fastmma.functions.attention import cudnn, cudnn_backward, cudnn_repeats
from fastmma.torch.arrays import to_numpy
from fastmma.torch.attention_arrays import ANY_ORDER, as_arrays, computed, draw, dropout_of, filled, numbers_of, tell
from fastmma.torch.emulation import Emulation
from fastmma.torch.reductions import as_tensor

FORWARD = torch.ops.aten._scaled_dot_product_cudnn_attention.default
BACKWARD = torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default

_ALIGNED = 16  # bytes that cuDNN's kernels load at once
_UNALIGNED = "cuDNN reads from multiples of 16 bytes only; from such tensors a GPU reads other numbers, or stops"
_MASKED = "which numbers cuDNN gives to queries that see no key is not known"


def _is_aligned(tensor: Tensor) -> bool:
    """Tell whether all rows of a tensor begin at multiples of what kernels load at once."""
    steps = [step for step, size in zip(tensor.stride()[:-1], tensor.shape[:-1], strict=True) if size > 1]
    return not any(step * tensor.itemsize % _ALIGNED for step in (tensor.storage_offset(), *steps))


def _doubt(operands: tuple[Tensor, ...], bias: Tensor | None) -> str:
    """Say why a call has not cuDNN's bits for sure; nothing where it has."""
    if not all(map(_is_aligned, operands)):
        return _UNALIGNED
    return _MASKED if bias is not None and bool(bias.isneginf().all(-1).any()) else ""


def _bias_of(bias: Tensor | None) -> NDArray[Any] | None:
    return None if bias is None else as_arrays(bias)[0]


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
    """Compute ``aten::_scaled_dot_product_cudnn_attention``.

    Raises
    ------
    UnknownError
    """
    bias = _bias_of(attn_bias)
    arrays = as_arrays(query, key, value)
    dropout = draw(dropout_p, query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2])
    out, logs = computed(cudnn, *arrays, bias=bias, causal=is_causal, scale=scale, dropout=dropout, threads=run.settings.threads)
    tell(run, FORWARD, (query, key, value), _doubt((query, key, value), attn_bias))
    return (
        filled(torch.empty_like(query), out),
        as_tensor(logs)[..., None],
        None,
        None,
        query.shape[2],
        key.shape[2],
        *numbers_of(dropout),
        query.new_empty(0),
    )


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
    """Compute ``aten::_scaled_dot_product_cudnn_attention_backward``.

    Raises
    ------
    UnknownError
    """
    bias, dropout = _bias_of(attn_bias), dropout_of(dropout_p, philox_seed, philox_offset)
    arrays = [*as_arrays(grad_out, query, key, value, out), to_numpy(logsumexp)[..., 0]]
    gradients = computed(cudnn_backward, *arrays, bias=bias, causal=is_causal, scale=scale, dropout=dropout)
    dq, dk, dv = (filled(torch.empty_like(each), gradient) for each, gradient in zip((query, key, value), gradients, strict=True))
    doubt = _doubt((query, key, value), attn_bias) or ("" if cudnn_repeats(key.shape) else ANY_ORDER)
    tell(run, BACKWARD, (grad_out, query, key, value), doubt)
    return dq, dk, dv
