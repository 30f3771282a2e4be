"""torch's operators of flash attention, as a GPU computes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fastmma.functions.attention import (
    Dropout,
    flash,
    flash_backward,
    flash_repeats,
    flash_sequences,
    flash_sequences_backward,
    flash_sequences_repeat,
)
from fastmma.torch.arrays import to_numpy
from fastmma.torch.attention_arrays import ANY_ORDER, as_arrays, computed, draw, filled, lie_in_rows, lie_like, tell
from fastmma.torch.attention_choice import repeats
from fastmma.torch.emulation import Emulation
from fastmma.torch.plans import UnknownError
from fastmma.torch.reductions import as_tensor

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_backward.default
SEQUENCES = torch.ops.aten._flash_attention_forward.default
SEQUENCES_BACKWARD = torch.ops.aten._flash_attention_backward.default
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
    window: tuple[int, int] = (-1, -1),
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
    out, logs = computed(flash, *arrays, causal=is_causal, scale=scale, window=window, dropout=dropout, threads=run.settings.threads)
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
    window: tuple[int, int] = (-1, -1),
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``aten::_scaled_dot_product_flash_attention_backward``.

    Raises
    ------
    UnknownError
    """
    dropout = Dropout(dropout_p, *philox_seed.tolist()) if dropout_p > 0 else None
    arrays = [*as_arrays(grad_out, query, key, value, out), to_numpy(logsumexp)]
    settings: dict[str, Any] = {"causal": is_causal, "window": window, "deterministic": repeats()}
    found = computed(flash_backward, *arrays, scale=scale, dropout=dropout, **settings)
    dq, dk, dv = map(lie_like, (query, key, value), found)
    fixed = flash_repeats(query.shape, key.shape, **settings)
    tell(run, BACKWARD, (grad_out, query, key, value), "" if fixed else ANY_ORDER)
    return dq, dk, dv


def _places(starts: Tensor, key_starts: Tensor) -> tuple[list[int], list[int]]:
    """Read where sequences begin."""
    if not starts.dtype == key_starts.dtype == torch.int32:
        raise UnknownError("sequences whose starts are not int32 are not known")
    return starts.tolist(), key_starts.tolist()


def sequences_forward(
    run: Emulation,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None,
    window: tuple[int, int],
) -> tuple[Any, ...]:
    """Compute ``aten::_flash_attention_forward`` of sequences that lie one after the other.

    Raises
    ------
    UnknownError
    """
    places = _places(starts, key_starts)
    arrays = as_arrays(query, key, value)
    dropout = draw(dropout_p, (len(places[0]) - 1) * query.shape[1] * _WARP)
    settings: dict[str, Any] = {"causal": is_causal, "scale": scale, "window": window, "dropout": dropout}
    out, logs = computed(flash_sequences, *arrays, *places, **settings, threads=run.settings.threads)
    tell(run, SEQUENCES, (query, key, value))
    state = torch.tensor([0, 0] if dropout is None else [dropout.seed, dropout.offset], dtype=torch.uint64)
    unused = torch.empty((), dtype=torch.uint64)
    return filled(torch.empty_like(query), out), as_tensor(logs), state, unused, query.new_empty(0)


def sequences_gradients(
    run: Emulation,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    dropout_p: float,
    is_causal: bool,
    state: Tensor,
    *,
    scale: float | None,
    window: tuple[int, int],
) -> tuple[Tensor, ...]:
    """Compute ``aten::_flash_attention_backward`` of sequences that lie one after the other.

    Raises
    ------
    UnknownError
    """
    places = _places(starts, key_starts)
    dropout = Dropout(dropout_p, *state.tolist()) if dropout_p > 0 else None
    arrays = [*as_arrays(grad_out, query, key, value, out), to_numpy(logsumexp)]
    settings: dict[str, Any] = {"causal": is_causal, "window": window, "deterministic": repeats()}
    found = computed(flash_sequences_backward, *arrays, *places, scale=scale, dropout=dropout, **settings)
    fixed = flash_sequences_repeat(query.shape[2], *places, **settings)
    tell(run, SEQUENCES_BACKWARD, (grad_out, query, key, value), "" if fixed else ANY_ORDER)
    return tuple(filled(torch.empty_like(each), array) for each, array in zip((query, key, value), found, strict=True))
