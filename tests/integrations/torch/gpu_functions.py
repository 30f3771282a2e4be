"""Functions and sums of f32 as torch's kernels compute them on a GPU, on its special function unit's ex2 and rsqrt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fastmma.functions import special
from fastmma.products.fma_lanes import fused

_STEP, _MAGIC, _LIFTED = 0x3BBB989D, 12582913.0, 12583039.0
_LOG2E, _REST = 0x3FB8AA3B, 0x32A57060  # log2(e) in two parts


def _fma(a: torch.Tensor, b: torch.Tensor | float, c: torch.Tensor | float) -> torch.Tensor:
    same = torch.broadcast_tensors(a, torch.as_tensor(b, dtype=torch.float32), torch.as_tensor(c, dtype=torch.float32))
    return torch.from_numpy(fused(*(each.contiguous().numpy() for each in same)))


def _number(code: int) -> float:
    return float(np.uint32(code).view(np.float32))


def _unit(function: Callable[..., Any], x: torch.Tensor, **options: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(function(x.contiguous().numpy(), **options), np.float32))


def exp(x: torch.Tensor) -> torch.Tensor:
    """CUDA's `expf`: the power of two is split off, and ex2 computes the rest."""
    place = _fma(x, _number(_STEP), 0.5).clamp(0, 1)
    lifted = (place.double() * 252 + _MAGIC).floor().float()
    whole = lifted - _LIFTED
    rest = _fma(x, _number(_REST), _fma(x, _number(_LOG2E), -whole))
    return _unit(special.ex2, rest, flush=True) * (lifted.view(torch.int32) << 23).view(torch.float32)


def _halved(lanes: torch.Tensor) -> torch.Tensor:
    """The sum of lanes: each of the first half adds the one half of them further, until one is left."""
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes


def _sum(x: torch.Tensor, _dim: list[int], keep: bool = False) -> torch.Tensor:
    """Of rows of 128 or 256: 32 lanes take four neighbours at a time, each into a sum of its own, which are then added in order."""
    fours = x.unflatten(-1, (-1, 32, 4)).unbind(-3)
    first, second, third, fourth = (fours[0] if len(fours) == 1 else fours[0] + fours[1]).unbind(-1)
    total = _halved(first + second + third + fourth)
    return total if keep else total[..., 0]


def _softmax(x: torch.Tensor, _dim: int, _half: bool) -> torch.Tensor:
    powers = exp(x - x.max(-1, True).values)
    strided = powers.unflatten(-1, (-1, 32)).unbind(-2)
    total = strided[0]
    for each in strided[1:]:
        total = total + each
    return powers / _halved(total)


def _silu_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    share = 1 / (1 + exp(-x))
    return grad * share * _fma(x, 1 - share, 1.0)


_FUNCTIONS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.ops.aten.exp.default: exp,
    torch.ops.aten.rsqrt.default: lambda x: _unit(special.rsqrt, x),
    torch.ops.aten.sigmoid.default: lambda x: 1 / (1 + exp(-x)),
    torch.ops.aten.silu.default: lambda x: x / (1 + exp(-x)),
    torch.ops.aten.silu_backward.default: _silu_backward,
    torch.ops.aten.div.Tensor: lambda x, y: x / y if isinstance(y, torch.Tensor) else x * (1 / y),
    torch.ops.aten._softmax.default: _softmax,
    torch.ops.aten.sum.dim_IntList: _sum,
    torch.ops.aten.mean.dim: lambda x, *how: _sum(x, *how) / x.shape[-1],
}


class GpuFunctions(TorchDispatchMode):
    """Within it, these functions of 16-bit and f32 tensors, and sums of rows, have a GPU's bits."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        function, rest = _FUNCTIONS.get(func), kwargs or {}
        if function is None or rest or (isinstance(args[-1], list) and args[-1] == [0]):  # sums of columns are added in another order
            return func(*args, **rest)
        wide = [each.detach().float() if isinstance(each, torch.Tensor) else each for each in args]
        return function(*wide).to(args[0].dtype)
