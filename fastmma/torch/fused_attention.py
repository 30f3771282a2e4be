"""Fused attention as a GPU computes it: flash and memory-efficient attention, forward and backward, by their operators.

cuDNN's kernels are not known. Flash attention agrees with them in most elements, and stands for them where it computes the same; this is
told as assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastmma.functions import libdevice
from fastmma.functions.attention import (
    Dropout,
    efficient,
    efficient_backward,
    efficient_bias_gradient,
    efficient_repeats,
    flash,
    flash_backward,
    flash_repeats,
)
from fastmma.host.errors import FastmmaError
from fastmma.host.float_mode import in_default_mode
from fastmma.torch import generators
from fastmma.torch.arrays import as_numpy, to_numpy
from fastmma.torch.attention_choice import NUMBERS, Call, choose, repeats
from fastmma.torch.emulation import Emulation
from fastmma.torch.plans import UnknownError
from fastmma.torch.reductions import FLOATS, RECORDED
from fastmma.torch.report import ASSUMED, EMULATED

aten = torch.ops.aten
FLASH = aten._scaled_dot_product_flash_attention.default
FLASH_BACKWARD = aten._scaled_dot_product_flash_attention_backward.default
EFFICIENT = aten._scaled_dot_product_efficient_attention.default
EFFICIENT_BACKWARD = aten._scaled_dot_product_efficient_attention_backward.default
CUDNNS = aten._scaled_dot_product_cudnn_attention.default
CUDNNS_BACKWARD = aten._scaled_dot_product_cudnn_attention_backward.default
_CHOICE = aten._fused_sdp_choice.default

_ANY_ORDER = "a GPU adds up the gradient of the queries in any order; those of keys and values have its bits"
_OF_CUDNN = "cuDNN's kernel is not known; computed as flash attention"
_WIDE = "values of another head dimension were not compared"
_NOT_COMPARED = "deterministic algorithms were not compared"
_WARP = 32  # threads for which flash attention draws, of each head
_LOGS = 32  # queries to which memory-efficient attention fills up logarithms
_STEP = 16  # keys to which it fills up the gradient of a bias


def _arrays(*tensors: Tensor) -> list[NDArray[Any]]:
    """Return tensors as arrays.

    Raises
    ------
    UnknownError
        If there is nothing to compute with, or they are no plain tensors on the CPU.
    """
    if libdevice.release() is None:
        raise UnknownError("libdevice is not installed")
    for each in tensors:
        if each.device.type != "cpu" or each.layout is not torch.strided or each.is_nested or each.dtype not in FLOATS:
            raise UnknownError("fused attention is computed of plain tensors on the CPU")
    return [to_numpy(each) for each in tensors]


def _computed(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Compute a function of arrays.

    Raises
    ------
    UnknownError
        If it refuses them.
    """
    try:
        return in_default_mode(function, *args, **options)
    except FastmmaError as error:
        raise UnknownError(str(error)) from None


def _tell(run: Emulation, func: Any, args: tuple[Any, ...], why: str = "") -> None:
    why = run.guess or why
    run.tell(str(func), ASSUMED if why else EMULATED, why or RECORDED, args)


def _filled(empty: Tensor, array: NDArray[Any]) -> Tensor:
    """Give a tensor these elements; those of its shape that the array lacks are left."""
    as_numpy(empty)[tuple(map(slice, array.shape))] = array
    return empty


def _like(tensor: Tensor, array: NDArray[Any]) -> Tensor:
    """A tensor that lies in memory as ``empty_like`` of (batch, length, heads, head dimension) does."""
    return _filled(torch.empty_like(tensor.transpose(1, 2)).transpose(1, 2), array)


def _rows(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """A tensor (batch, heads, length, head dimension) whose heads lie side by side."""
    batch, heads, length, size = array.shape
    return _filled(torch.empty(batch, length, heads, size, dtype=dtype).transpose(1, 2), array)


def _drawn(probability: float, count: int) -> Dropout | None:
    return Dropout(probability, *generators.take(count)) if probability > 0 else None


def _flash_forward(query: Tensor, key: Tensor, value: Tensor, dropout: Dropout | None, causal: bool, scale: float | None) -> Any:
    q, k, v = _arrays(query, key, value)
    out, logs = _computed(flash, q, k, v, causal=causal, scale=scale, dropout=dropout)
    swapped = query.shape[2] == 1 and key.shape[1] < query.shape[1] and dropout is None
    return _rows(out, query.dtype) if swapped else _like(query, out), torch.from_numpy(np.ascontiguousarray(logs))


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
    dropout = _drawn(dropout_p, query.shape[0] * query.shape[1] * _WARP)
    out, logs = _flash_forward(query, key, value, dropout, is_causal, scale)
    state = torch.tensor([0, 0] if dropout is None else [dropout.seed, dropout.offset], dtype=torch.uint64)
    _tell(run, FLASH, (query, key, value))
    return out, logs, None, None, query.shape[2], key.shape[2], state, torch.empty((), dtype=torch.uint64), query.new_empty(0)


def _flash_gradients(
    given: tuple[Tensor, ...], logsumexp: Tensor, dropout: Dropout | None, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    grad_out, q, k, v, out = _arrays(*given)
    options = {"causal": causal, "scale": scale, "dropout": dropout, "deterministic": repeats()}
    gradients = _computed(flash_backward, grad_out, q, k, v, out, to_numpy(logsumexp), **options)
    dq, dk, dv = map(_like, given[1:4], gradients)
    return dq, dk, dv


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
    found = _flash_gradients((grad_out, query, key, value, out), logsumexp, dropout, is_causal, scale)
    fixed = flash_repeats(query.shape, key.shape, deterministic=repeats())
    _tell(run, FLASH_BACKWARD, (grad_out, query, key, value), "" if fixed else _ANY_ORDER)
    return found


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
    q, k, v = _arrays(query, key, value)
    bias = None if attn_bias is None else _arrays(attn_bias)[0]
    batch, heads, length, _ = query.shape
    dropout = _drawn(dropout_p, batch * heads * length * key.shape[2])
    out, logs = _computed(efficient, q, k, v, bias=bias, causal=is_causal, scale=scale, dropout=dropout)
    room = -(-length // _LOGS) * _LOGS if compute_log_sumexp else 0
    sums = torch.full((batch, heads, room), float("inf"))
    if room:
        _filled(sums, logs)
    seed, offset = (0, 0) if dropout is None else (dropout.seed, dropout.offset)
    _tell(run, EFFICIENT, (query, key, value), _WIDE if query.shape[3] != value.shape[3] else "")
    return _rows(out, query.dtype), sums, torch.tensor(_signed(seed)), torch.tensor(offset)


def _signed(seed: int) -> int:
    return seed - (1 << 64) if seed >= 1 << 63 else seed


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
    arrays = [*_arrays(grad_out, query, key, value, out), to_numpy(logsumexp)[..., : query.shape[2]]]
    bias = None if attn_bias is None else _arrays(attn_bias)[0]
    seed = int(philox_seed) % (1 << 64)
    dropout = Dropout(dropout_p, seed, int(philox_offset)) if dropout_p > 0 else None
    options = {"bias": bias, "causal": is_causal, "scale": scale, "dropout": dropout}
    gradients = _computed(efficient_backward, *arrays, **options, deterministic=repeats())
    found: list[Tensor | None] = [_rows(each, query.dtype) for each in gradients]
    found.append(None)
    if grad_input_mask[3] and bias is not None:
        slopes = _computed(efficient_bias_gradient, *arrays, **options)
        room = -(-key.shape[2] // _STEP) * _STEP
        found[3] = _filled(torch.empty(*slopes.shape[:3], room, dtype=query.dtype)[..., : key.shape[2]], slopes)
    why = _WIDE if query.shape[3] != value.shape[3] else _NOT_COMPARED if repeats() else ""
    if not (why or efficient_repeats(query.shape, key.shape, 8 * query.itemsize, causal=is_causal, wide=value.shape[3])):
        why = _ANY_ORDER
    _tell(run, EFFICIENT_BACKWARD, (grad_out, query, key, value), why)
    return tuple(found)


def refuses_cudnn(run: Emulation, call: Call) -> bool:
    """Tell whether flash attention does not stand for cuDNN's: of masks and dropout, or where nothing is to be assumed."""
    square = not call.causal or call.query.shape[2] == call.key.shape[2]
    return run.settings.attention == "error" or call.mask is not None or call.dropout > 0 or not square


def _check_cudnn(run: Emulation, call: Call) -> None:
    if refuses_cudnn(run, call):
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
    _check_cudnn(run, Call(query, key, value, attn_bias, dropout_p, is_causal, True))
    out, logs = _flash_forward(query, key, value, None, is_causal, scale)
    _tell(run, CUDNNS, (query, key, value), _OF_CUDNN)
    none = torch.empty((), dtype=torch.int64)
    laid = _filled(torch.empty_like(query), as_numpy(out))
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
    _check_cudnn(run, Call(query, key, value, attn_bias, dropout_p, is_causal, True))
    found = _flash_gradients((grad_out, query, key, value, out), logsumexp[..., 0], None, is_causal, scale)
    _tell(run, CUDNNS_BACKWARD, (grad_out, query, key, value), _OF_CUDNN)
    return found


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
    FLASH: flash_forward,
    FLASH_BACKWARD: flash_gradients,
    EFFICIENT: efficient_forward,
    EFFICIENT_BACKWARD: efficient_gradients,
    CUDNNS: cudnn_forward,
    CUDNNS_BACKWARD: cudnn_gradients,
    _CHOICE: choice,
}
