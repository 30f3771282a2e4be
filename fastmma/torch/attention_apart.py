"""Fused attention taken apart into products and a softmax: what stands for kernels whose products nobody sees."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fastmma.torch.emulation import Emulation
from fastmma.torch.operators import Handler, called
from fastmma.torch.plans import UnknownError
from fastmma.torch.report import PASSED
from fastmma.torch.unfixed import APPROXIMATED

_BMM = torch.ops.aten.bmm.default


def forward(
    run: Emulation,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The output of math attention, and the logarithms of the sums of exponentials."""
    factor = _factor(query, scale)
    key, value = _for_all_heads(query, key), _for_all_heads(query, value)
    scores = _masked(_product(run, _wide(query) * factor, _wide(key).mT * factor), attn_mask, is_causal)
    weights = _softmax(run, scores)
    if dropout_p:
        raise UnknownError("dropout within attention draws other numbers on a GPU")
    out = _product(run, weights, _wide(value)).to(query.dtype)
    return out.transpose(1, 2).contiguous().transpose(1, 2), torch.logsumexp(scores.float(), -1)


def backward(
    run: Emulation,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of math attention, by the operations that autograd derives from it."""
    factor, groups = _factor(query, scale), key.shape[-3]
    key, value = _for_all_heads(query, key), _for_all_heads(query, value)
    q, k, v = _wide(query) * factor, _wide(key) * factor, _wide(value)
    weights = _softmax(run, _masked(_product(run, q, k.mT), attn_mask, is_causal))
    grad = grad_out.to(weights.dtype)
    grad_weights = _product(run, grad, v.mT)
    run.tell("aten._softmax_backward_data.default", PASSED, APPROXIMATED, (grad_weights, weights))
    grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
    of_query = _product(run, grad_scores, k) * factor
    of_key = _product(run, grad_scores.mT, q) * factor
    of_value = _product(run, weights.mT, grad)
    return of_query.to(query.dtype), _of_groups(of_key.to(key.dtype), groups), _of_groups(of_value.to(value.dtype), groups)


def cpu_forward(run: Emulation, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """`forward` with the strides of torch's CPU kernel, which captured graphs rely on."""
    out, sums = forward(run, query, key, value, *args, **kwargs)
    return torch.empty_like(query).copy_(out), _rows_before_heads(sums)


def cpu_backward(run: Emulation, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    """`backward` with the strides of torch's CPU kernel, which captured graphs rely on."""
    return tuple(map(_rows_before_heads, backward(run, *args, **kwargs)))


def _rows_before_heads(tensor: Tensor) -> Tensor:
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def _for_all_heads(query: Tensor, shared: Tensor) -> Tensor:
    """Keys or values of as many heads as the queries have, where several share one."""
    heads, groups = query.shape[-3], shared.shape[-3]
    return shared if heads == groups else shared.repeat_interleave(heads // groups, -3)


def _of_groups(gradient: Tensor, groups: int) -> Tensor:
    """The gradient of keys or values that several heads share."""
    heads = gradient.shape[-3]
    return gradient if heads == groups else gradient.unflatten(-3, (groups, heads // groups)).sum(-3)


def _product(run: Emulation, a: Tensor, b: Tensor) -> Tensor:
    """a @ b of batches of heads."""
    x, y = a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:])
    found: Tensor = called(run, _BMM, (x, y), {}, run.plain.get(_BMM))
    return found.unflatten(0, a.shape[:-2])


def _softmax(run: Emulation, scores: Tensor) -> Tensor:
    run.tell("aten._softmax.default", PASSED, APPROXIMATED, (scores,))
    return torch.softmax(scores, -1)


def _wide(tensor: Tensor) -> Tensor:
    """As math attention multiplies it: 16-bit operands in f32, unless torch's settings let their products be in 16 bits."""
    if torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed() or tensor.dtype not in (torch.float16, torch.bfloat16):
        return tensor
    return tensor.float()


def _factor(query: Tensor, scale: float | None) -> float:
    """Return what both the queries and the keys are multiplied by: half of the scale."""
    whole: Any = query.shape[-1] ** -0.5 if scale is None else scale
    return float(whole**0.5)


def _masked(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    """Scores where keys are seen, and minus infinity elsewhere."""
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        return scores.masked_fill(~seen, float("-inf"))
    if mask is None:
        return scores
    return scores.masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else scores + mask


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
    """`forward` as a GPU's flash attention returns it."""
    out, sums = forward(run, query, key, value, dropout_p, is_causal, scale=scale)
    none = query.new_empty(0)
    return out, sums, none, none, query.shape[-2], key.shape[-2], none, none, none


def flash_backward(
    run: Emulation,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *rest: Any,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`backward` as a GPU's flash attention is asked for it."""
    return backward(run, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, scale=scale)


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
    """`forward` as a GPU's memory-efficient attention returns it."""
    out, sums = forward(run, query, key, value, dropout_p, is_causal, attn_mask=attn_bias, scale=scale)
    none = query.new_empty(0)
    return out, sums, none, none


def efficient_backward(
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
    """`backward` as a GPU's memory-efficient attention is asked for it."""
    if grad_input_mask[3]:
        raise UnknownError("the gradient of a mask is not known")
    return *backward(run, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask=attn_bias, scale=scale), None


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
    """`forward` as cuDNN's attention returns it."""
    out, sums, none, _ = efficient_forward(run, query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, scale=scale)
    return out, sums, none, none, query.shape[-2], key.shape[-2], none, none, none


def cudnn_backward(
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
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`backward` as cuDNN's attention is asked for it."""
    return backward(run, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask=attn_bias, scale=scale)


APART: dict[Any, Handler] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default: cpu_forward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default: cpu_backward,
    torch.ops.aten._scaled_dot_product_flash_attention.default: flash_forward,
    torch.ops.aten._scaled_dot_product_flash_attention_backward.default: flash_backward,
    torch.ops.aten._scaled_dot_product_efficient_attention.default: efficient_forward,
    torch.ops.aten._scaled_dot_product_efficient_attention_backward.default: efficient_backward,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default: cudnn_forward,
    torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default: cudnn_backward,
}
