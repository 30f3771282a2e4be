"""Kernels of Triton's libraries, unmodified, under `fastmma.triton.interpret`: which run, which are right, which are emulated whole.

The libraries are those of PyPI: liger-kernel, flash-linear-attention, conch-triton-kernels, and the files of mamba-ssm and
batch_invariant_ops that hold kernels. Those that are not installed are left out. ``python -m tests.reference.triton_libraries`` prints the
table of docs/triton.md, and with ``--page`` puts it there; names of cases may follow. tests/integrations/triton/test_libraries.py compares.
"""

# ruff: noqa: N803, N812 - the names of torch and of the libraries
from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

from tools.pages import fill

TOLERANCES = {torch.float32: 2e-3, torch.float16: 4e-3, torch.bfloat16: 2e-2, torch.int8: 1e-3}
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@dataclass(frozen=True)
class Tensor:
    """An argument: its shape and type, whether its gradient is taken, and what becomes of the numbers that are drawn."""

    shape: tuple[int, ...]
    dtype: torch.dtype = F32
    has_gradient: bool = True
    change: Callable[[torch.Tensor], torch.Tensor] = field(default=lambda drawn: drawn)

    def drawn(self, generator: torch.Generator) -> torch.Tensor:
        return self.change(torch.randn(self.shape, generator=generator)).to(self.dtype)


def x(*shape: int, dtype: torch.dtype = F32, change: Any = lambda drawn: drawn) -> Tensor:
    return Tensor(shape, dtype, True, change)


def fixed(*shape: int, dtype: torch.dtype = F32, change: Any = lambda drawn: drawn) -> Tensor:
    return Tensor(shape, dtype, False, change)


def below(bound: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda drawn: (drawn.abs() * 1000).long() % bound


@dataclass(frozen=True)
class Case:
    """One operation of a library, forward and backward, and the same in plain torch; None where that is the same call on copies."""

    library: str
    name: str
    arguments: dict[str, Tensor]
    call: Callable[..., Any]
    plain: Callable[..., Any]

    @property
    def tolerance(self) -> float:
        """Of the narrowest type among the arguments."""
        return max(TOLERANCES.get(one.dtype, 0.0) for one in self.arguments.values())

    def drawn(self, seed: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed + zlib.crc32(f"{self.library} {self.name}".encode()))
        return {name: one.drawn(generator) for name, one in self.arguments.items()}


def of(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def liger(module: str, name: str) -> Any:
    return of(f"liger_kernel.ops.{module}", name).apply


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for part in value for one in tensors(part)] if isinstance(value, (tuple, list)) else []


def computed(call: Callable[..., Any], given: dict[str, torch.Tensor], case: Case, seed: int) -> list[torch.Tensor]:
    """Outputs, and the gradients of all arguments that have one, for drawn gradients of the outputs."""
    leaves = {name: one.clone().requires_grad_(case.arguments[name].has_gradient) for name, one in given.items()}
    outputs = tensors(call(**leaves))
    kept = [one.detach().clone() for one in outputs]
    differentiable = [one for one in outputs if one.requires_grad]
    if differentiable:
        generator = torch.Generator().manual_seed(seed)
        gradients = [torch.randn(one.shape, generator=generator).to(one.dtype) for one in differentiable]
        torch.autograd.backward(differentiable, gradients)
    return kept + [one.grad for name, one in leaves.items() if case.arguments[name].has_gradient and one.grad is not None]


def rms(x, w, eps=1e-6):
    return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def attend(q, k, v, causal=True, scale=None, bias=None):
    """Heads in the third dimension of four."""
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    k, v = (one.repeat_interleave(q.shape[1] // one.shape[1], 1) for one in (k, v))
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


def recurrent(q, k, v, g=None, scale=None, beta=None):
    """A linear recurrence of states, token by token: with decays of keys, or by the delta rule."""
    scale = scale or q.shape[-1] ** -0.5
    state = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    out = []
    for t in range(q.shape[1]):
        if g is not None:
            state = state * g[:, t].exp().reshape(*g[:, t].shape[:2], -1, 1)
        value = v[:, t]
        if beta is not None:
            value = (value - (state * k[:, t, :, :, None]).sum(-2)) * beta[:, t, :, None]
        state = state + k[:, t, :, :, None] * value[:, :, None, :]
        out.append(((q[:, t] * scale)[..., None] * state).sum(-2))
    return torch.stack(out, 1)


def scanned(x, g):
    state, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = g[:, t].exp() * state + x[:, t]
        out.append(state)
    return torch.stack(out, 1)


def divergence(x, y, beta=0.5):
    p, q = x.exp(), y.exp()
    m = beta * q + (1 - beta) * p
    return (beta * q * (y - m.log()) + (1 - beta) * p * (x - m.log())).sum() / x.shape[0]


def sparse(x):
    ordered, _ = x.sort(-1, descending=True)
    sums = ordered.cumsum(-1) - 1
    ranks = torch.arange(1, x.shape[-1] + 1)
    number = (ranks * ordered > sums).sum(-1, keepdim=True)
    return (x - sums.gather(-1, number - 1) / number).clamp(min=0)


def shifted(x):
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1) - x


def convolved(x, w):
    padded = F.pad(x.transpose(1, 2), (w.shape[1] - 1, 0))
    return F.silu(F.conv1d(padded, w[:, None], groups=w.shape[0])).transpose(1, 2)


def log_softmax(x):
    return x.log_softmax(-1)


def negative_softplus(x):
    return F.logsigmoid(x)


def small_decay(drawn):
    return F.logsigmoid(drawn) / 16


def positive(drawn):
    return drawn.abs()


def unit(drawn):
    return F.normalize(drawn, dim=-1)


N, D = 12, 192
ROWS = {"x": x(N, D), "w": x(D)}
HEADS = {"q": x(1, 96, 2, 32), "k": x(1, 96, 2, 32), "v": x(1, 96, 2, 32)}
HALVES = {name: Tensor(one.shape, BF16) for name, one in HEADS.items()}
COS, SIN = fixed(1, 24, 32, change=torch.cos), fixed(1, 24, 32, change=torch.sin)

LIGER = [
    Case("Liger", "RMS norm", ROWS, lambda x, w: liger("rms_norm", "LigerRMSNormFunction")(x, w, 1e-6), rms),
    Case(
        "Liger",
        "layer norm",
        ROWS | {"b": x(D)},
        lambda x, w, b: liger("layer_norm", "LigerLayerNormFunction")(x, w, b, 1e-5),
        lambda x, w, b: F.layer_norm(x, (D,), w, b),
    ),
    Case(
        "Liger",
        "group norm",
        {"x": x(4, 12, 48), "w": x(12), "b": x(12)},
        lambda x, w, b: liger("group_norm", "LigerGroupNormFunction")(x, w, b, 12, 3, 1e-5),
        lambda x, w, b: F.group_norm(x, 3, w, b),
    ),
    Case(
        "Liger",
        "fused add RMS norm",
        ROWS | {"r": x(N, D)},
        lambda x, w, r: liger("fused_add_rms_norm", "LigerFusedAddRMSNormFunction")(x, r, w, 1e-6),
        lambda x, w, r: (rms(x + r, w), x + r),
    ),
    Case(
        "Liger",
        "polynomial norm",
        {"x": x(N, D), "w": x(3), "b": x()},
        lambda x, w, b: liger("poly_norm", "LigerPolyNormFunction")(x, w, b, 1e-6),
        lambda x, w, b: sum(w[i] * x.pow(3 - i) * torch.rsqrt(x.pow(2 * (3 - i)).mean(-1, keepdim=True) + 1e-6) for i in range(3)) + b,
    ),
    Case(
        "Liger",
        "DyT",
        {"x": x(N, D), "a": x(1), "w": x(D), "b": x(D)},
        lambda x, a, w, b: liger("dyt", "LigerDyTFunction")(x, a, w, b),
        lambda x, a, w, b: torch.tanh(x * a) * w + b,
    ),
    Case(
        "Liger",
        "SwiGLU",
        {"x": x(N, D, dtype=BF16), "y": x(N, D, dtype=BF16)},
        lambda x, y: liger("swiglu", "LigerSiLUMulFunction")(x, y),
        lambda x, y: F.silu(x) * y,
    ),
    Case(
        "Liger",
        "GeGLU",
        {"x": x(N, D), "y": x(N, D)},
        lambda x, y: liger("geglu", "LigerGELUMulFunction")(x, y),
        lambda x, y: F.gelu(x, approximate="tanh") * y,
    ),
    Case("Liger", "squared ReLU", {"x": x(N, D)}, lambda x: liger("relu_squared", "LigerReLUSquaredFunction")(x), lambda x: F.relu(x) ** 2),
    Case(
        "Liger",
        "rotary embedding",
        {"q": x(1, 4, 24, 32), "k": x(1, 2, 24, 32), "cos": COS, "sin": SIN},
        lambda q, k, cos, sin: liger("rope", "LigerRopeFunction")(q, k, half(cos), half(sin)),
        lambda q, k, cos, sin: (rotated(q, half(cos)[:, None], half(sin)[:, None]), rotated(k, half(cos)[:, None], half(sin)[:, None])),
    ),
    Case(
        "Liger",
        "cross entropy",
        {"x": x(N, 500), "y": fixed(N, change=below(500), dtype=torch.int64)},
        lambda x, y: liger("cross_entropy", "LigerCrossEntropyFunction")(x, y, None, -100, 0.0, 0.1, "mean", None)[0],
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    ),
    Case(
        "Liger",
        "fused linear cross entropy",
        {"x": x(N, 64, dtype=BF16), "w": x(500, 64, dtype=BF16), "y": fixed(N, change=below(500), dtype=torch.int64)},
        lambda x, w, y: liger("fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction")(x, w, y)[0],
        lambda x, w, y: F.cross_entropy((x @ w.T), y),
    ),
    Case(
        "Liger",
        "KL divergence",
        {"x": x(N, D, change=log_softmax), "y": fixed(N, D, change=lambda drawn: drawn.softmax(-1))},
        lambda x, y: liger("kl_div", "LigerKLDivLossFunction")(x, y, "batchmean", False, 1e-10),
        lambda x, y: F.kl_div(x, y, reduction="batchmean"),
    ),
    Case(
        "Liger",
        "Jensen-Shannon divergence",
        {"x": x(N, D, change=log_softmax), "y": fixed(N, D, change=log_softmax)},
        lambda x, y: liger("jsd", "LigerJSDFunction")(x, y, None, 0.5),
        divergence,
    ),
    Case(
        "Liger",
        "total variation",
        {"x": x(N, D, change=lambda drawn: drawn.softmax(-1)), "y": fixed(N, D, change=lambda drawn: drawn.softmax(-1))},
        lambda x, y: liger("tvd", "LigerTVDLossFunction")(x, y, None, "batchmean"),
        lambda x, y: (x - y).abs().sum() / 2 / N,
    ),
    Case("Liger", "softmax", {"x": x(N, D)}, lambda x: liger("softmax", "LigerSoftmaxFunction")(x), lambda x: x.softmax(-1)),
    Case("Liger", "sparsemax", {"x": x(N, D)}, lambda x: liger("sparsemax", "LigerSparsemaxFunction")(x, -1), sparse),
    Case(
        "Liger",
        "embedding",
        {"w": x(40, 64), "i": fixed(24, change=below(40), dtype=torch.int64)},
        lambda w, i: liger("experimental.embedding", "LigerEmbeddingFunction")(w, i),
        lambda w, i: F.embedding(i, w),
    ),
]


def half(one: torch.Tensor) -> torch.Tensor:
    """Angles of which both halves of a head take the same."""
    return torch.cat([one[..., : one.shape[-1] // 2]] * 2, -1)


def fla(module: str, name: str) -> Any:
    return of(f"fla.{module}", name)


FLA = [
    Case("FLA", "RMS norm", ROWS, lambda x, w: fla("modules.norm.layernorm", "rms_norm")(x, w, None), lambda x, w: rms(x, w, 1e-5)),
    Case(
        "FLA",
        "layer norm",
        ROWS | {"b": x(D)},
        lambda x, w, b: fla("modules.norm.layernorm", "layer_norm")(x, w, b),
        lambda x, w, b: F.layer_norm(x, (D,), w, b),
    ),
    Case(
        "FLA",
        "gated RMS norm",
        ROWS | {"g": x(N, D)},
        lambda x, w, g: fla("modules.norm.fused_norm_gate", "rms_norm_gated")(x, g, w, None),
        lambda x, w, g: rms(x, w, 1e-5) * F.silu(g),
    ),
    Case(
        "FLA",
        "L2 norm",
        {"x": x(N, 128)},
        lambda x: fla("modules.norm.l2norm", "l2norm")(x),
        lambda x: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6),
    ),
    Case(
        "FLA",
        "rotary embedding",
        {"x": x(1, 24, 2, 32), "cos": fixed(24, 16, change=torch.cos), "sin": fixed(24, 16, change=torch.sin)},
        lambda x, cos, sin: fla("modules.rotary.ops", "rotary_embedding")(x, cos, sin),
        lambda x, cos, sin: rotated(x, torch.cat([cos] * 2, -1)[:, None], torch.cat([sin] * 2, -1)[:, None]),
    ),
    Case(
        "FLA",
        "causal convolution",
        {"x": x(1, 48, 64), "w": x(64, 4)},
        lambda x, w: fla("modules.causal_conv1d.ops", "causal_conv1d")(x, w, activation="silu")[0],
        convolved,
    ),
    Case("FLA", "token shift", {"x": x(2, 24, 64)}, lambda x: fla("modules.token_shift", "token_shift")(x), shifted),
    Case("FLA", "log sigmoid", {"x": x(N, D)}, lambda x: fla("modules.activations.ops", "logsigmoid")(x), negative_softplus),
    Case(
        "FLA",
        "cross entropy",
        {"x": x(N, 500), "y": fixed(N, change=below(500), dtype=torch.int64)},
        lambda x, y: fla("modules.fused_cross_entropy.ops", "cross_entropy_loss")(x, y)[0],
        lambda x, y: F.cross_entropy(x, y, reduction="none"),
    ),
    Case(
        "FLA",
        "cumulative sum in chunks",
        {"x": fixed(1, 128, 2)},
        lambda x: fla("ops.utils.cumsum", "chunk_local_cumsum")(x, 32),
        lambda x: x.view(1, 4, 32, 2).cumsum(2).view(1, 128, 2),
    ),
    Case("FLA", "softmax", {"x": fixed(N, D)}, lambda x: fla("ops.utils.softmax", "softmax_fwd")(x), lambda x: x.softmax(-1)),
    Case(
        "FLA",
        "mean pooling",
        {"x": x(1, 128, 2, 32)},
        lambda x: fla("ops.utils.pooling", "mean_pooling")(x, 32),
        lambda x: x.view(1, 4, 32, 2, 32).mean(2),
    ),
    Case(
        "FLA",
        "attention",
        HALVES,
        lambda q, k, v: fla("ops.attn", "parallel_attn")(q, k, v),
        attend,
    ),
    Case(
        "FLA",
        "retention in chunks",
        HALVES,
        lambda q, k, v: fla("ops.retention", "chunk_retention")(q, k, v)[0],
        lambda q, k, v: recurrent(q, k, v, (1 - 2.0 ** (-5 - torch.arange(2.0))).log().expand(1, 96, 2)),
    ),
    Case(
        "FLA",
        "linear attention in chunks",
        HALVES,
        lambda q, k, v: fla("ops.linear_attn", "chunk_linear_attn")(q, k, v, normalize=False)[0],
        recurrent,
    ),
    Case(
        "FLA",
        "simple GLA in chunks",
        HALVES | {"g": x(1, 96, 2, change=small_decay)},
        lambda q, k, v, g: fla("ops.simple_gla", "chunk_simple_gla")(q, k, v, g)[0],
        recurrent,
    ),
    Case(
        "FLA",
        "GLA in chunks",
        HALVES | {"g": x(1, 96, 2, 32, change=small_decay)},
        lambda q, k, v, g: fla("ops.gla", "chunk_gla")(q, k, v, g)[0],
        recurrent,
    ),
    Case(
        "FLA",
        "GLA token by token",
        {name: Tensor((1, 24, 2, 32)) for name in "qkv"} | {"g": x(1, 24, 2, 32, change=small_decay)},
        lambda q, k, v, g: fla("ops.gla", "fused_recurrent_gla")(q, k, v, g)[0],
        recurrent,
    ),
    Case(
        "FLA",
        "delta rule in chunks",
        HALVES | {"k": x(1, 96, 2, 32, dtype=BF16, change=unit), "beta": x(1, 96, 2, dtype=BF16, change=torch.sigmoid)},
        lambda q, k, v, beta: fla("ops.delta_rule", "chunk_delta_rule")(q, k, v, beta)[0],
        lambda q, k, v, beta: recurrent(q, k, v, beta=beta),
    ),
    Case(
        "FLA",
        "gated delta rule in chunks",
        HALVES
        | {
            "k": x(1, 96, 2, 32, dtype=BF16, change=unit),
            "g": x(1, 96, 2, change=small_decay),
            "beta": x(1, 96, 2, dtype=BF16, change=torch.sigmoid),
        },
        lambda q, k, v, g, beta: fla("ops.gated_delta_rule", "chunk_gated_delta_rule")(q, k, v, g, beta)[0],
        lambda q, k, v, g, beta: recurrent(q, k, v, g, beta=beta),
    ),
    Case(
        "FLA",
        "HGRN in chunks",
        {"x": x(1, 96, 32), "g": x(1, 96, 32, change=F.logsigmoid)},
        lambda x, g: fla("ops.hgrn", "chunk_hgrn")(x, g)[0],
        scanned,
    ),
    Case(
        "FLA",
        "HGRN token by token",
        {"x": x(1, 48, 32), "g": x(1, 48, 32, change=F.logsigmoid)},
        lambda x, g: fla("ops.hgrn", "fused_recurrent_hgrn")(x, g)[0],
        scanned,
    ),
]


def quantised(x, largest, dtype):
    scale = x.abs().max() / largest
    return scale, (x / scale).to(dtype)


def pooled(x):
    out = torch.zeros(1, 1, 4, 4, 32)
    for cell in range(4):
        out[0, 0, 0, cell] = x[8 * cell : 8 * cell + 8].sum(0)
    return out


def pool(x):
    cells = torch.zeros(32, 4, dtype=torch.int32)
    cells[:, 1] = torch.arange(32) // 8
    starts = torch.arange(0, 32, 8, dtype=torch.int32)
    return of("conch.ops.vision.bev_pool", "bev_pool")(x, cells, starts, torch.full((4,), 8, dtype=torch.int32), 1, 1, 4, 4)


def paged(q, k, v):
    """Three sequences of 40 keys in pages of 16, one after another."""
    table = torch.arange(9, dtype=torch.int32).view(3, 3)
    return of("conch.ops.attention.paged_attention", "paged_attention")(q, k, v, table, torch.full((3,), 40, dtype=torch.int32))


def unpaged(q, k, v):
    k, v = (one.view(3, 48, 2, 64)[:, :40] for one in (k, v))
    return attend(q[:, None], k, v, causal=False)[:, 0]


def varlen(q, k, v):
    table = torch.arange(4, dtype=torch.int32).view(2, 2)
    bounds = torch.tensor([0, 32, 64], dtype=torch.int32)
    lengths = torch.full((2,), 32, dtype=torch.int32)
    return of("conch.ops.attention.varlen_attention", "varlen_attention")(q, k, v, bounds, 32, lengths, 32, table, causal=True)


def unvarlen(q, k, v):
    q, k, v = (one.reshape(2, 32, 2, 64) for one in (q, k, v))
    return attend(q, k, v).reshape(64, 2, 64)


def suppressed(boxes, scores):
    corners = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
    return of("conch.ops.vision.nms", "nms")(corners, scores, 0.4)


def suppress(boxes, scores):
    corners = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
    kept = []
    for i in scores.argsort(descending=True).tolist():
        low, high = torch.maximum(corners[i, :2], corners[kept, :2]), torch.minimum(corners[i, 2:], corners[kept, 2:])
        shared = (high - low).clamp(min=0).prod(-1)
        areas = (corners[:, 2:] - corners[:, :2]).prod(-1)
        if not (shared / (areas[i] + areas[kept] - shared) > 0.4).any():
            kept.append(i)
    return torch.tensor(kept)


CONCH = [
    Case(
        "Conch",
        "GELU and multiply",
        {"x": fixed(N, 256)},
        lambda x: of("conch.ops.activation.gelu_tanh_and_mul", "gelu_tanh_and_mul")(x),
        lambda x: F.gelu(x[:, :128], approximate="tanh") * x[:, 128:],
    ),
    Case(
        "Conch",
        "SiLU and multiply",
        {"x": fixed(N, 256)},
        lambda x: of("conch.ops.activation.silu_and_mul", "silu_and_mul")(x),
        lambda x: F.silu(x[:, :128]) * x[:, 128:],
    ),
    Case(
        "Conch",
        "RMS norm",
        {"x": fixed(N, D, dtype=F16), "w": fixed(D, dtype=F16)},
        lambda x, w: of("conch.ops.normalization.rms_norm", "rms_norm")(x, w, 1e-6),
        rms,
    ),
    Case(
        "Conch",
        "Gemma RMS norm",
        {"x": fixed(N, D, dtype=F16), "w": fixed(D, dtype=F16)},
        lambda x, w: of("conch.ops.normalization.gemma_rms_norm", "gemma_rms_norm")(x, w, 1e-6),
        lambda x, w: rms(x, 1 + w),
    ),
    Case(
        "Conch",
        "rotary embedding",
        {"q": fixed(24, 64), "k": fixed(24, 64), "angles": fixed(24, 32)},
        lambda q, k, angles: of("conch.ops.embedding.rotary_embedding", "rotary_embedding")(torch.arange(24), q, k, 32, angles),
        lambda q, k, angles: tuple(
            rotated(one.view(24, 2, 32), *(torch.cat([part] * 2, -1)[:, None] for part in angles.chunk(2, -1))).view(24, 64)
            for one in (q, k)
        ),
    ),
    Case(
        "Conch",
        "quantising to fp8",
        {"x": fixed(N, D)},
        lambda x: of("conch.ops.quantization.fp8", "scaled_fp8_quant")(x, torch.tensor([0.05]))[0].float(),
        lambda x: (x / 0.05).clamp(-448, 448).to(torch.float8_e4m3fn).float(),
    ),
    Case(
        "Conch",
        "quantising to int8",
        {"x": fixed(N, D)},
        lambda x: of("conch.ops.quantization.int8", "scaled_int8_quant")(x, torch.tensor([0.05]))[0].float(),
        lambda x: (x / 0.05).clamp(-128, 127).trunc(),
    ),
    Case(
        "Conch",
        "scaled int8 product",
        {
            "a": fixed(128, 256, change=lambda drawn: (drawn * 30).clamp(-127, 127), dtype=torch.int8),
            "b": fixed(256, 128, change=lambda drawn: (drawn * 30).clamp(-127, 127), dtype=torch.int8),
        },
        lambda a, b: of("conch.ops.quantization.gemm", "scaled_gemm")(a, b, torch.full((128, 1), 0.5), torch.full((1, 128), 0.03125), F16),
        lambda a, b: (a.float() @ b.float() / 64).half(),
    ),
    Case("Conch", "pooling of a bird's eye view", {"x": fixed(32, 32)}, pool, pooled),
    Case(
        "Conch",
        "suppression of boxes",
        {"boxes": fixed(24, 4, change=lambda drawn: drawn.abs() + 0.2), "scores": fixed(24)},
        suppressed,
        suppress,
    ),
    Case(
        "Conch",
        "paged attention",
        {"q": fixed(3, 4, 64, dtype=F16), "k": fixed(9, 16, 2, 64, dtype=F16), "v": fixed(9, 16, 2, 64, dtype=F16)},
        paged,
        unpaged,
    ),
    Case(
        "Conch",
        "attention of several lengths",
        {"q": fixed(64, 2, 64, dtype=F16), "k": fixed(4, 16, 2, 64, dtype=F16), "v": fixed(4, 16, 2, 64, dtype=F16)},
        varlen,
        unvarlen,
    ),
]


def updated(state, x, dt, A, B, C, D, b):
    call = of("mamba_ssm.ops.triton.selective_state_update", "selective_state_update")
    return call(state, x, dt, A, B, C, D, dt_bias=b, dt_softplus=True), state


def update(state, x, dt, A, B, C, D, b):
    dt = F.softplus(dt + b)
    state = state * (dt[..., None] * A).exp() + (dt * x)[..., None] * B[:, None]
    return (state * C[:, None]).sum(-1) + x * D, state


def chunked(x, dt, A, B, C):
    return of("mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined")(x, dt, A, B, C, 32, dt_softplus=True)


def unchunked(x, dt, A, B, C):
    dt = F.softplus(dt)
    return recurrent(C.repeat(1, 1, 2, 1), B.repeat(1, 1, 2, 1), x * dt[..., None], dt * A, 1.0)


OTHERS = [
    Case(
        "mamba",
        "layer norm",
        ROWS | {"b": x(D)},
        lambda x, w, b: of("mamba_ssm.ops.triton.layer_norm", "layer_norm_fn")(x, w, b),
        lambda x, w, b: F.layer_norm(x, (D,), w, b, 1e-6),
    ),
    Case(
        "mamba",
        "gated RMS norm",
        ROWS | {"z": x(N, D)},
        lambda x, w, z: of("mamba_ssm.ops.triton.layernorm_gated", "rmsnorm_fn")(x, w, None, z, norm_before_gate=False),
        lambda x, w, z: rms(x * F.silu(z), w),
    ),
    Case(
        "mamba",
        "SwiGLU",
        {"x": x(N, 256)},
        lambda x: of("mamba_ssm.ops.triton.k_activations", "swiglu")(x),
        lambda x: F.silu(x[:, :128]) * x[:, 128:],
    ),
    Case(
        "mamba",
        "update of a state",
        {
            "state": fixed(2, 32, 16),
            "x": fixed(2, 32),
            "dt": fixed(2, 32),
            "A": fixed(32, 16, change=lambda drawn: -drawn.abs()),
            "B": fixed(2, 16),
            "C": fixed(2, 16),
            "D": fixed(32),
            "b": fixed(32),
        },
        updated,
        update,
    ),
    Case(
        "mamba",
        "scan in chunks",
        {"x": x(1, 96, 2, 32), "dt": x(1, 96, 2), "A": x(2, change=lambda drawn: -drawn.abs()), "B": x(1, 96, 1, 32), "C": x(1, 96, 1, 32)},
        chunked,
        unchunked,
    ),
    Case(
        "batch_invariant_ops",
        "product",
        {"a": fixed(48, 96, dtype=BF16), "b": fixed(96, 64, dtype=BF16)},
        lambda a, b: of("batch_invariant_ops.batch_invariant_ops", "matmul_persistent")(a, b),
        lambda a, b: a @ b,
    ),
    Case(
        "batch_invariant_ops",
        "log softmax",
        {"x": fixed(N, 500)},
        lambda x: of("batch_invariant_ops.batch_invariant_ops", "log_softmax")(x, -1),
        log_softmax,
    ),
    Case(
        "batch_invariant_ops",
        "mean",
        {"x": fixed(N, 96, 16)},
        lambda x: of("batch_invariant_ops.batch_invariant_ops", "mean_dim")(x, 1),
        lambda x: x.mean(1),
    ),
]
CASES = [*LIGER, *FLA, *CONCH, *OTHERS]
PACKAGES = {"Liger": "liger_kernel", "FLA": "fla", "Conch": "conch", "mamba": "mamba_ssm", "batch_invariant_ops": "batch_invariant_ops"}


@dataclass
class Outcome:
    """What became of a case."""

    case: Case
    error: str = ""
    difference: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)
    seconds: tuple[float, float] = (0.0, 0.0)
    told: list[str] = field(default_factory=list)
    kernels: set[str] = field(default_factory=set)

    @property
    def is_right(self) -> bool:
        return not self.error and self.difference < 1

    @property
    def is_emulated(self) -> bool:
        return self.is_right and not any(self.statuses.get(name) for name in ("assumed", "passed", "unseen"))


def difference(found: list[torch.Tensor], wanted: list[torch.Tensor], tolerance: float) -> float:
    """The largest relative error of a tensor, by its root mean square, in tolerances; infinite for others in number or shape."""
    if [one.shape for one in found] != [one.shape for one in wanted]:
        return float("inf")
    worst = 0.0
    for one, other in zip(found, wanted, strict=True):
        error = (one.double() - other.double()).pow(2).mean().sqrt()
        ratio = float(error / other.double().pow(2).mean().sqrt().clamp(min=1e-6)) / tolerance
        worst = max(worst, ratio if ratio == ratio else float("inf"))
    return worst


def run(case: Case, seed: int = 0, target: str = "H100", **options: Any) -> Outcome:
    """Run a case twice, and compare it with plain torch in float32."""
    import fastmma.triton
    from fastmma.triton.emulation import Emulation

    outcome = Outcome(case)
    enter = Emulation.enter

    def note(emulation: Any, kernel: Any, *launch: Any) -> None:
        outcome.kernels.add(f"{kernel.fn.__module__}.{kernel.fn.__qualname__}")
        enter(emulation, kernel, *launch)

    given = case.drawn(seed)
    wide = {name: one.float() if one.is_floating_point() else one for name, one in given.items()}
    try:
        with fastmma.triton.interpret(target, as_cuda=True, **options) as report, patch.object(Emulation, "enter", note):
            began = time.perf_counter()
            found = computed(case.call, given, case, seed)
            middle = time.perf_counter()
            computed(case.call, given, case, seed)
            outcome.seconds = middle - began, time.perf_counter() - middle
        outcome.statuses = {name: sum(getattr(report, name).values()) for name in ("emulated", "assumed", "passed", "neutral", "unseen")}
        outcome.told = [line for line in str(report).splitlines() if line.split()[0] in ("passed", "assumed", "unseen", "note")]
    except Exception as error:  # whatever a library's kernel raises is what the table says of it
        outcome.error = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return outcome
    outcome.difference = difference(found, computed(case.plain, wide, case, seed), case.tolerance)
    return outcome


def installed(names: list[str]) -> Iterator[Case]:
    for case in CASES:
        if find_spec(PACKAGES[case.library]) and (not names or any(name in f"{case.library}: {case.name}" for name in names)):
            yield case


HEAD = "| library | operation | right | every operation emulated | else |\n| --- | --- | --- | --- | --- |\n"


def row(outcome: Outcome) -> str:
    """The row of the table for a case that ran."""
    counts = outcome.statuses.items()
    rest = outcome.error or ", ".join(f"{count} {name}" for name, count in counts if count and name not in ("emulated", "neutral"))
    right, emulated = (("no", "yes")[value] for value in (outcome.is_right, outcome.is_emulated))
    return f"| {outcome.case.library} | {outcome.case.name} | {right} | {emulated} | {rest} |"


def total(rows: list[str]) -> str:
    """The sentence below the table, counted from its rows."""
    columns = [[cell.strip() for cell in one.split("|")] for one in rows]
    right, emulated = (sum(cells[index] == "yes" for cells in columns) for index in (3, 4))
    return f"{len(rows)} operations: {right} right, {emulated} with every operation emulated"


def count_kernels(outcomes: list[Outcome]) -> str:
    """The sentence about the kernels of the packages from PyPI."""
    chosen = [one for one in outcomes if one.case.library in ("Liger", "FLA", "Conch")]
    right, emulated = (set().union(*(one.kernels for one in chosen if getattr(one, name))) for name in ("is_right", "is_emulated"))
    return f"Liger's, FLA's and Conch's: {len(right)} kernels of right operations, {len(emulated)} of those with every operation emulated"


def main(arguments: list[str]) -> None:
    """Print the table, or with ``--page`` put it into docs/triton.md."""
    names = [one for one in arguments if one != "--page"]
    rows, outcomes = [], []
    print(HEAD, end="")
    for case in installed(names):
        outcome = run(case)
        outcomes.append(outcome)
        rows.append(row(outcome))
        print(rows[-1], flush=True)
        if names:
            print(outcome.difference, outcome.seconds, *outcome.told, sep="\n")
    below = f"\n{total(rows)}\n\n{count_kernels(outcomes)}\n"
    print(below)
    if "--page" in arguments:
        fill("libraries", HEAD + "".join(f"{one}\n" for one in rows) + below)


if __name__ == "__main__":
    main(sys.argv[1:])
