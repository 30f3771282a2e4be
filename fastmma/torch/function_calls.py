"""Calls by which versions of torch are compared: functions, sums, norms, losses, optimizers and attention of torch, with gradients."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_SIZE, _LONG = (40, 300), (3, 5000)
_SEED = 7  # of random numbers


class Operands:
    """Operands of a call: the same on every machine."""

    def __init__(self, name: str, dtype: torch.dtype, device: str) -> None:
        self._random = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
        self.dtype, self.device = dtype, device
        self.leaves: tuple[Tensor, ...] = ()

    def floats(self, *shape: int, low: float = -4.0, high: float = 4.0) -> Tensor:
        """Draw numbers, of which a gradient is taken."""
        numbers = self._random.random(shape, np.float32) * np.float32(high - low) + np.float32(low)
        leaf = torch.from_numpy(np.asarray(numbers)).to(self.dtype).to(self.device).requires_grad_()
        self.leaves = (*self.leaves, leaf)
        return leaf

    def plain(self, *shape: int, low: float = -4.0, high: float = 4.0) -> Tensor:
        """Draw numbers of which no gradient is taken."""
        return self.floats(*shape, low=low, high=high).detach()

    def integers(self, limit: int, *shape: int) -> Tensor:
        """Draw integers from zero."""
        return torch.from_numpy(self._random.integers(0, limit, shape)).to(self.device)


class Call(NamedTuple):
    """A call that is compared.

    Attributes
    ----------
    name : str
    run : callable
        Takes `Operands`, and returns a tensor, or several.
    dtypes : sequence of torch.dtype
    """

    name: str
    run: Callable[[Operands], Any]
    dtypes: Sequence[torch.dtype] = DTYPES


def compute(call: Call, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Compute a call and its gradients."""
    operands = Operands(f"{call.name} {dtype}", dtype, device)
    with torch.random.fork_rng():
        torch.manual_seed(_SEED)
        found = [each for each in tree_leaves(call.run(operands)) if isinstance(each, Tensor)]
        live = [each for each in found if each.requires_grad]
        leaves = list(operands.leaves)
        gradients = [operands.plain(*each.shape).to(each.dtype) for each in live]
        more = torch.autograd.grad(live, leaves, gradients, allow_unused=True) if live else ()
    return [each.detach() for each in (*found, *more) if each is not None]


def _alone(names: str, home: Any, **limits: float) -> Iterator[Call]:
    for name in names.split():
        yield Call(name, partial(_applied, getattr(home, name), 1, limits))


def _of_two(names: str) -> Iterator[Call]:
    for name in names.split():
        yield Call(name, partial(_applied, getattr(torch, name), 2, {"low": 0.1}))


def _applied(function: Callable[..., Any], count: int, limits: dict[str, float], of: Operands) -> Any:
    return function(*(of.floats(*_SIZE, **limits) for _ in range(count)))


def _along(names: str) -> Iterator[Call]:
    for name in names.split():
        for shape, dim in ((_SIZE, 0), (_SIZE, 1), (_LONG, 1)):
            yield Call(f"{name} {shape} {dim}", partial(_over, getattr(torch, name), shape, dim))


def _over(function: Callable[..., Any], shape: tuple[int, ...], dim: int, of: Operands) -> Any:
    return function(of.floats(*shape), dim)


def _losses(names: str) -> Iterator[Call]:
    for name in names.split():
        for reduction in ("batchmean" if name == "kl_div" else "mean", "sum", "none"):
            yield Call(f"{name} {reduction}", partial(_loss, getattr(functional, name), reduction))


def _loss(function: Callable[..., Any], reduction: str, of: Operands) -> Any:
    return function(of.floats(*_SIZE), of.plain(*_SIZE, low=0.1, high=0.9), reduction=reduction)


def _attention(backend: SDPBackend, dtypes: Sequence[torch.dtype], causal: bool) -> Call:
    def run(of: Operands) -> Tensor:
        q, k, v = (of.floats(2, 3, 96, 64, low=-1, high=1) for _ in range(3))
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return Call(f"attention {backend.name.lower()}{' causal' * causal}", run, dtypes)


def _optimizer(name: str, **options: Any) -> Call:
    def run(of: Operands) -> list[Tensor]:
        weights = [of.plain(*shape).requires_grad_() for shape in (_SIZE, (77,))]
        optimizer = getattr(torch.optim, name)(weights, **options)
        for _ in range(2):
            for weight in weights:
                weight.grad = of.plain(*weight.shape)
            optimizer.step()
        return [each.detach() for each in weights]

    return Call(f"{name} {options}", run)


def _clipped(of: Operands) -> list[Tensor]:
    weights = [of.plain(*shape).requires_grad_() for shape in (_SIZE, (77,))]
    for weight in weights:
        weight.grad = of.plain(*weight.shape)
    return [torch.nn.utils.clip_grad_norm_(weights, 1.0), *(each.grad for each in weights if each.grad is not None)]


def _normed(of: Operands) -> Tensor:
    shape = (_SIZE[1],)
    return functional.layer_norm(of.floats(*_SIZE), shape, of.floats(*shape), of.floats(*shape))


_HALVES = (torch.bfloat16, torch.float16)
_POSITIVE = "log log10 log1p log2 rsqrt sqrt lgamma"
CALLS: tuple[Call, ...] = (
    *_alone("atan asinh cos cosh erf erfc exp exp2 expm1 sigmoid sin sinc sinh tan tanh", torch),
    *_alone("acos asin atanh erfinv", torch, low=-0.99, high=0.99),
    *_alone(_POSITIVE, torch, low=0.1),
    *_alone("acosh", torch, low=1.1),
    *_alone("gelu silu mish softplus elu selu celu hardswish hardsigmoid logsigmoid softshrink tanhshrink glu", functional),
    Call("gelu tanh", lambda of: functional.gelu(of.floats(*_SIZE), approximate="tanh")),
    Call("powers", lambda of: [of.floats(*_SIZE, low=0.1) ** power for power in (2, 3, 0.5, -0.5, -1, 1.7)]),
    *_of_two("atan2 hypot pow logaddexp logaddexp2 xlogy"),
    Call("lerp", lambda of: torch.lerp(of.floats(*_SIZE), of.floats(*_SIZE), 0.3)),
    Call("addcmul", lambda of: torch.addcmul(of.floats(*_SIZE), of.floats(*_SIZE), of.floats(*_SIZE), value=0.3)),
    Call("addcdiv", lambda of: torch.addcdiv(of.floats(*_SIZE), of.floats(*_SIZE), of.floats(*_SIZE, low=0.1), value=0.3)),
    Call("scaled", lambda of: [of.floats(*_SIZE) / 3, torch.add(of.floats(*_SIZE), of.floats(*_SIZE), alpha=0.3), of.floats(*_SIZE) * 0.1]),
    *_along("sum mean var std amax logsumexp softmax log_softmax cumsum"),
    Call("norm", lambda of: [torch.linalg.vector_norm(of.floats(*_SIZE), order, 1) for order in (1, 2)]),
    Call("layer_norm", _normed),
    Call("rms_norm", lambda of: functional.rms_norm(of.floats(*_SIZE), (_SIZE[1],), of.floats(_SIZE[1]))),
    Call("group_norm", lambda of: functional.group_norm(of.floats(5, 12, 20), 3, of.floats(12), of.floats(12))),
    Call("cross_entropy", lambda of: functional.cross_entropy(of.floats(*_SIZE), of.integers(_SIZE[1], _SIZE[0]))),
    *_losses("mse_loss l1_loss smooth_l1_loss kl_div binary_cross_entropy_with_logits"),
    Call("embedding", lambda of: functional.embedding(of.integers(50, 8, 100), of.floats(50, 32))),
    Call("pools", lambda of: [functional.avg_pool2d(of.floats(2, 3, 14, 14), 2), functional.max_pool2d(of.floats(2, 3, 14, 14), 3, 2)]),
    Call("dropout", lambda of: functional.dropout(of.floats(*_SIZE), 0.3)),
    Call("drawn", lambda of: [torch.rand_like(of.plain(*_SIZE)), torch.randn_like(of.plain(*_SIZE)), torch.bernoulli(of.plain(9, 9), 0.3)]),
    _optimizer("AdamW"),
    _optimizer("AdamW", foreach=False),
    _optimizer("AdamW", fused=True),
    _optimizer("SGD", lr=0.1, momentum=0.9),
    Call("clip_grad_norm_", _clipped),
    *(_attention(SDPBackend.FLASH_ATTENTION, _HALVES, causal) for causal in (False, True)),
    *(_attention(SDPBackend.EFFICIENT_ATTENTION, DTYPES, causal) for causal in (False, True)),
    *(_attention(SDPBackend.CUDNN_ATTENTION, _HALVES, causal) for causal in (False, True)),
)
