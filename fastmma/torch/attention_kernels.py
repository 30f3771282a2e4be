"""torch's operators of attention of tensors (batch, length, heads, head dimension), which those of its functions call on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastmma.torch.efficient_operators import efficient_forward, efficient_gradients
from fastmma.torch.emulation import Emulation
from fastmma.torch.flash_operators import flash_forward, flash_gradients, sequences_forward, sequences_gradients
from fastmma.torch.plans import UnknownError

aten = torch.ops.aten
_MASKS = (False, True)  # whether a mask of memory-efficient attention is causal, by its number
_HARMLESS = ("shared_storage_dqdkdv",)


def _turned(*tensors: Tensor) -> list[Tensor]:
    return [each.transpose(1, 2) for each in tensors]


def _window_of(rest: dict[str, Any]) -> tuple[int, int]:
    """Take the sizes of a window out of the options."""
    left, right = (rest.pop(f"window_size_{side}", None) for side in ("left", "right"))
    return -1 if left is None else left, -1 if right is None else right


def _check(lengths: tuple[Tensor | None, ...], rest: dict[str, Any]) -> None:
    """Refuse sequences of several lengths and options that are not known.

    Raises
    ------
    UnknownError
    """
    given = [name for name, value in rest.items() if value is not None and name not in _HARMLESS]
    if given or any(each is not None and each.numel() for each in lengths):
        raise UnknownError(f"attention with {', '.join(given) or 'sequences of several lengths'} is not known")


def _is_causal(mask: int) -> bool:
    if mask >= len(_MASKS):
        raise UnknownError("masks that are causal from the last key are not known")
    return _MASKS[mask]


def flash_kernel(
    run: Emulation,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    **rest: Any,
) -> tuple[Any, ...]:
    """Compute ``aten::_flash_attention_forward``.

    Raises
    ------
    UnknownError
    """
    window = _window_of(rest)
    _check((), rest)
    if cum_seq_q is not None and cum_seq_k is not None:
        return sequences_forward(run, query, key, value, cum_seq_q, cum_seq_k, dropout_p, is_causal, scale=scale, window=window)
    q, k, v = _turned(query, key, value)
    found = flash_forward(run, q, k, v, dropout_p, is_causal, return_debug_mask, scale=scale, window=window)
    return found[0].transpose(1, 2), found[1], *found[6:]


def flash_kernel_gradients(
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
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: float | None = None,
    **rest: Any,
) -> tuple[Tensor, ...]:
    """Compute ``aten::_flash_attention_backward``.

    Raises
    ------
    UnknownError
    """
    window = _window_of(rest)
    _check((), rest)
    if cum_seq_q is not None and cum_seq_q.numel():
        operands = grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k
        return sequences_gradients(run, *operands, dropout_p, is_causal, rng_state, scale=scale, window=window)
    given = (*_turned(grad_out, query, key, value, out), logsumexp, None, None, max_q, max_k, dropout_p, is_causal, rng_state, unused)
    return tuple(_turned(*flash_gradients(run, *given, scale=scale, window=window)))


def efficient_kernel(
    run: Emulation,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    **rest: Any,
) -> tuple[Any, ...]:
    """Compute ``aten::_efficient_attention_forward``.

    Raises
    ------
    UnknownError
    """
    _check((cu_seqlens_q, cu_seqlens_k), rest)
    q, k, v = _turned(query, key, value)
    causal = _is_causal(custom_mask_type)
    out, logs, seed, offset = efficient_forward(run, q, k, v, bias, compute_log_sumexp, dropout_p, causal, scale=scale)
    return out.transpose(1, 2), logs, seed, offset, query.shape[1], key.shape[1]


def efficient_kernel_gradients(
    run: Emulation,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    out: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    logsumexp: Tensor,
    dropout_p: float,
    philox_seed: Tensor,
    philox_offset: Tensor,
    custom_mask_type: int,
    bias_requires_grad: bool,
    *,
    scale: float | None = None,
    **rest: Any,
) -> tuple[Tensor | None, ...]:
    """Compute ``aten::_efficient_attention_backward``.

    Raises
    ------
    UnknownError
    """
    _check((cu_seqlens_q, cu_seqlens_k), rest)
    grad, q, k, v, result = _turned(grad_out, query, key, value, out)
    drawn = philox_seed, philox_offset, dropout_p
    wanted = [True, True, True, bias_requires_grad]
    causal = _is_causal(custom_mask_type)
    *gradients, of_bias = efficient_gradients(run, grad, q, k, v, bias, result, logsumexp, *drawn, wanted, causal, scale=scale)
    return *_turned(*filter(torch.is_tensor, gradients)), of_bias


KERNELS: dict[Any, Callable[..., Any]] = {
    aten._flash_attention_forward.default: flash_kernel,
    aten._flash_attention_backward.default: flash_kernel_gradients,
    aten._efficient_attention_forward.default: efficient_kernel,
    aten._efficient_attention_backward.default: efficient_kernel_gradients,
}
