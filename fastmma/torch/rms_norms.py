"""``rms_norm``, which is one kernel on a GPU, with its gradient; calls of a form that came before are computed from addresses."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fastmma.functions import autocast, norms
from fastmma.host.errors import NotEmulatedError
from fastmma.host.float_mode import is_default
from fastmma.torch.arrays import as_numpy
from fastmma.torch.emulation import Emulation
from fastmma.torch.norms import PlacedNorm, norm_of
from fastmma.torch.reductions import FLOATS, as_gpu_array, as_tensor, as_tensors

if TYPE_CHECKING:
    from fastmma.torch.report import Tally

_NAME = "aten._fused_rms_norm"
_PLAIN = (Tensor, torch.nn.Parameter)


class _RmsNorm(torch.autograd.Function):
    """``aten::_fused_rms_norm``, which a CPU has not."""

    @staticmethod
    def forward(
        ctx: Any, run: Emulation, placed: PlacedNorm | None, x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None
    ) -> Tensor:
        if placed is None:
            weights = None if weight is None else as_gpu_array(weight)
            found, ctx.rstd = norms.rms_norm(as_gpu_array(x), shape, weights, eps)
            result = as_tensor(found)
        else:
            result, _, rstd = placed.norm.compute(placed.eps, (x, weight, None), run.settings.threads)
            ctx.rstd = as_numpy(rstd)
        ctx.run, ctx.shape = run, shape
        ctx.save_for_backward(x, weight)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        weights = None if weight is None else as_gpu_array(weight)
        arrays = as_gpu_array(gradients[0].contiguous()), as_gpu_array(x), ctx.shape, ctx.rstd
        found = as_tensors(norms.rms_norm_backward(*arrays, weights))
        ctx.run.computed(f"{_NAME}_backward.default", (x,))
        return None, None, found[0], None, found[1] if weight is not None else None, None


def rms_norm(run: Emulation, x: Tensor, shape: list[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Compute an ``rms_norm`` as a GPU does.

    Raises
    ------
    NotEmulatedError
        If formats differ, or a transform of functions is to take it apart.
    """
    if x.dtype not in FLOATS or (weight is not None and weight.dtype is not x.dtype):
        raise NotEmulatedError("weights of another format are not known")
    if any(torch._C._functorch.is_functorch_wrapped_tensor(each) for each in (x, weight) if each is not None):
        raise NotEmulatedError("function transforms take rms_norm apart")
    placed = _place(x, shape, weight, eps)
    with nullcontext() if placed is None else torch._C._DisableTorchDispatch():
        found: Tensor = _RmsNorm.apply(run, placed, x, list(shape), weight, eps)
    run.computed(f"{_NAME}.default", (x,))
    return found


def _place(x: Tensor, shape: list[int], weight: Tensor | None = None, eps: float | None = None) -> PlacedNorm | None:
    """Find what computes calls with such arguments in these places where they lie; None where nothing does."""
    found = norm_of({"input": x, "normalized_shape": shape, "weight": weight}, False)
    return found and PlacedNorm(found, norms.EPSILON if eps is None else eps, (0, -1 if weight is None else 2, -1))


class KeptRmsNorm:
    """Compute and count calls of one form of ``rms_norm``, which came before."""

    def __init__(self, placed: PlacedNorm, shape: list[int], run: Emulation, x: Tensor) -> None:
        self._placed, self._shape = placed, shape
        self.line = run.line_of(f"{_NAME}.default", (x,))

    def compute(self, run: Emulation, tally: Tally, args: tuple[Any, ...]) -> Tensor | None:
        """Compute a call; return None where products are only assumed, the order of additions is not known, or torch transforms it."""
        operands = self._placed.operands(args)
        if run.guess or operands is None or forward_ad._current_level >= 0 or autocast.is_on() or not is_default():
            return None
        x, weight, _ = operands
        if x is None or any(each is not None and type(each) not in _PLAIN for each in operands):
            return None
        with torch._C._DisableTorchDispatch():
            try:
                if torch.is_grad_enabled() and (x.requires_grad or (weight is not None and weight.requires_grad)):
                    result = _RmsNorm.apply(run, self._placed, x, self._shape, weight, None)
                else:
                    result, _, _ = self._placed.norm.compute(self._placed.eps, operands, run.settings.threads)
            except NotEmulatedError:
                return None
        tally.count(self, run.report)
        return result


def kept_rms_norm(run: Emulation, x: Tensor, shape: list[int], *others: Any) -> KeptRmsNorm | None:
    """Return what computes calls like one that `rms_norm` computed, with such arguments in these places; None where nothing does."""
    placed = _place(x, shape, *others)
    return placed and KeptRmsNorm(placed, list(shape), run, x)
