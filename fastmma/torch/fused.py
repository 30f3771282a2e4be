"""Composites that are one kernel on a GPU, and several operators on a CPU: rms_norm, and the softmax of float16 in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastmma.functions import libdevice
from fastmma.host.errors import NotEmulatedError
from fastmma.torch.emulation import Emulation
from fastmma.torch.reductions import as_gpu_array
from fastmma.torch.rms_norms import KeptRmsNorm, kept_rms_norm, rms_norm
from fastmma.torch.scaled_attention import attend

WHY = "a GPU's kernel of it is another"
ATTENTION = "scaled_dot_product_attention"


def _softmax(function: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    def compute(run: Emulation, x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor | None:
        if x.dtype is not torch.float16 or dtype is not torch.float32:
            return None
        as_gpu_array(x)
        return function(x, dim, True)

    return compute


def _dropout(run: Emulation, x: Tensor, p: float, train: bool) -> Tensor | None:
    return torch.native_dropout(x, p, train)[0] if train and 0 < p < 1 and x.numel() else None


_NORM = "rms_norm"
KEPT = frozenset({_NORM})  # of which what computes a call computes the next one
_SOFTMAX = frozenset({"softmax", "log_softmax"})
_COMPUTE: dict[str, Callable[..., Tensor | None]] = {
    _NORM: rms_norm,
    "dropout": _dropout,
    "softmax": _softmax(torch._softmax),
    "log_softmax": _softmax(torch._log_softmax),
    ATTENTION: attend,
}


def keep(run: Emulation, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KeptRmsNorm | None:
    """Return what computes calls like one that was computed, from the addresses of their tensors; None where nothing does so."""
    return kept_rms_norm(run, *args) if name == _NORM and not kwargs else None


def is_taken_apart(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether a composite is a softmax whose operators are a GPU's."""
    return name in _SOFTMAX and (args[0].dtype is not torch.float16 or (*args[2:3], kwargs.get("dtype"))[0] is not torch.float32)


def compute(run: Emulation, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor | None, bool]:
    """Compute a composite as a GPU does.

    Raises
    ------
    NotEmulatedError
        Of attention, where the settings want no guesses; and without a known release of libdevice.

    Returns
    -------
    Its result, or None where its operators are the GPU's, too, or nobody knows; and whether they are the GPU's.
    """
    x = args[0]
    if not run.settings.computes_functions or not x.is_floating_point() or x.device.type != "cpu":
        return None, True
    if name != ATTENTION or run.settings.computes_attention:
        libdevice.required_release()
    try:
        found = _COMPUTE[name](run, *args, **kwargs)
    except NotEmulatedError:
        if name == ATTENTION and run.settings.attention == "error":
            raise
        return None, False
    return found, True
