"""torch's operators of memory-efficient attention, as a GPU computes them."""

from __future__ import annotations

import torch
from torch import Tensor

from fastmma.functions.attention import efficient, efficient_backward, efficient_bias_gradient, efficient_repeats
from fastmma.torch.arrays import to_numpy
from fastmma.torch.attention_arrays import ANY_ORDER, as_arrays, computed, draw, dropout_of, filled, lie_in_rows, numbers_of, tell
from fastmma.torch.attention_choice import repeats
from fastmma.torch.emulation import Emulation

FORWARD = torch.ops.aten._scaled_dot_product_efficient_attention.default
BACKWARD = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default
_WIDE = "values of another head dimension were not compared"
_NOT_COMPARED = "deterministic algorithms were not compared"
_LOGS = 32  # queries to which logarithms are filled up
_STEP = 16  # keys to which the gradient of a bias is


def efficient_forward(
    run: Emulation,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """Compute ``aten::_scaled_dot_product_efficient_attention``.

    Raises
    ------
    UnknownError
    """
    q, k, v = as_arrays(query, key, value)
    bias = None if attn_bias is None else as_arrays(attn_bias)[0]
    batch, heads, length, _ = query.shape
    dropout = draw(dropout_p, batch * heads * length * key.shape[2])
    out, logs = computed(efficient, q, k, v, bias=bias, causal=is_causal, scale=scale, dropout=dropout, threads=run.settings.threads)
    room = -(-length // _LOGS) * _LOGS if compute_log_sumexp else 0
    sums = torch.full((batch, heads, room), float("inf"))
    if room:
        filled(sums, logs)
    tell(run, FORWARD, (query, key, value), _WIDE if query.shape[3] != value.shape[3] else "")
    return lie_in_rows(out, query.dtype), sums, *numbers_of(dropout)


def efficient_gradients(
    run: Emulation,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """Compute ``aten::_scaled_dot_product_efficient_attention_backward``.

    Raises
    ------
    UnknownError
    """
    arrays = [*as_arrays(grad_out, query, key, value, out), to_numpy(logsumexp)[..., : query.shape[2]]]
    bias = None if attn_bias is None else as_arrays(attn_bias)[0]
    dropout = dropout_of(dropout_p, philox_seed, philox_offset)
    options = {"bias": bias, "causal": is_causal, "scale": scale, "dropout": dropout}
    gradients = computed(efficient_backward, *arrays, **options, deterministic=repeats())
    found: list[Tensor | None] = [lie_in_rows(each, query.dtype) for each in gradients]
    found.append(None)
    if grad_input_mask[3] and bias is not None:
        slopes = computed(efficient_bias_gradient, *arrays, **options)
        room = -(-key.shape[2] // _STEP) * _STEP
        found[3] = filled(torch.empty(*slopes.shape[:3], room, dtype=query.dtype)[..., : key.shape[2]], slopes)
    why = _WIDE if query.shape[3] != value.shape[3] else _NOT_COMPARED if repeats() else ""
    if not (why or efficient_repeats(query.shape, key.shape, 8 * query.itemsize, causal=is_causal, wide=value.shape[3])):
        why = ANY_ORDER
    tell(run, BACKWARD, (grad_out, query, key, value), why)
    return tuple(found)
