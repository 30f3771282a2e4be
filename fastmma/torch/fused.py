"""Composites that are one kernel on a GPU, and several operators on a CPU: rms_norm, and the softmax of float16 in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastmma.functions import libdevice, norms
from fastmma.host.errors import NotEmulatedError
from fastmma.torch.emulation import Emulation
from fastmma.torch.reductions import FLOATS, as_gpu_array, as_tensor, as_tensors
from fastmma.torch.scaled_attention import attend

WHY = "a GPU's kernel of it is another"
ATTENTION = "scaled_dot_product_attention"


class _RmsNorm(torch.autograd.Function):
    """``aten::_fused_rms_norm``, which a CPU has not."""

    @staticmethod
    def forward(ctx: Any, run: Emulation, x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> Tensor:
        weights = None if weight is None else as_gpu_array(weight)
        result, rstd = norms.rms_norm(as_gpu_array(x), shape, weights, eps)
        ctx.run, ctx.shape, ctx.rstd = run, shape, rstd
        ctx.save_for_backward(x, weight)
        run.computed("aten._fused_rms_norm.default", (x,))
        return as_tensor(result)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        weights = None if weight is None else as_gpu_array(weight)
        arrays = as_gpu_array(gradients[0].contiguous()), as_gpu_array(x), ctx.shape, ctx.rstd
        found = as_tensors(norms.rms_norm_backward(*arrays, weights))
        ctx.run.computed("aten._fused_rms_norm_backward.default", (x,))
        return None, found[0], None, found[1] if weight is not None else None, None


def _rms_norm(run: Emulation, x: Tensor, shape: list[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    if x.dtype not in FLOATS or (weight is not None and weight.dtype is not x.dtype):
        raise NotEmulatedError("weights of another format are not known")
    if any(torch._C._functorch.is_functorch_wrapped_tensor(each) for each in (x, weight) if each is not None):
        raise NotEmulatedError("function transforms take rms_norm apart")
    found: Tensor = _RmsNorm.apply(run, x, list(shape), weight, eps)
    return found


def _softmax(function: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    def compute(run: Emulation, x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor | None:
        if x.dtype is not torch.float16 or dtype is not torch.float32:
            return None
        as_gpu_array(x)
        return function(x, dim, True)

    return compute


def _dropout(run: Emulation, x: Tensor, p: float, train: bool) -> Tensor | None:
    return torch.native_dropout(x, p, train)[0] if train and 0 < p < 1 and x.numel() else None


_SOFTMAX = frozenset({"softmax", "log_softmax"})
_COMPUTE: dict[str, Callable[..., Tensor | None]] = {
    "rms_norm": _rms_norm,
    "dropout": _dropout,
    "softmax": _softmax(torch._softmax),
    "log_softmax": _softmax(torch._log_softmax),
    ATTENTION: attend,
}


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
