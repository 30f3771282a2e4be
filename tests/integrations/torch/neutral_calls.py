"""Calls of torch's operators on hostile numbers of each dtype: the same on a GPU, where their digests were recorded, and on a CPU."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
FLOATS = (F16, BF16, F32, F64)
NARROW = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
ALL = (*FLOATS, *NARROW, *INTEGERS, torch.bool)
SIZE = 1 << 14
CODES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
# bits of the fraction and of the exponent
FIELDS = {F16: (10, 5), BF16: (7, 8), F32: (23, 8), F64: (52, 11)}
Call = Callable[[], Any]


def _traps(dtype: torch.dtype) -> np.ndarray[Any, Any]:
    """Zeros, subnormals, powers of two and their neighbours, ties, the largest, infinities and NaNs."""
    fraction, exponent = FIELDS[dtype]
    bias, top = 2 ** (exponent - 1) - 1, 2**exponent - 1
    one = 1 << fraction
    steps = sorted({0, 1, bias - fraction, bias - 1, bias, bias + 1, bias + fraction, top - 1})
    parts = (0, 1, one // 2 - 1, one // 2, one // 2 + 1, one - 1)
    found = [step * one + part for step in steps for part in parts] + [top * one, top * one + 1, top * one + one // 2, top * one + one - 1]
    sign = 1 << (fraction + exponent)
    return np.array([value + each for value in found for each in (0, sign)], np.uint64)


def numbers(dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """Three tensors of bit patterns: any two of them meet at near exponents, at far ones, and in all pairs of traps."""
    rng = np.random.default_rng(FIELDS[dtype][0])
    width = sum(FIELDS[dtype]) + 1
    traps, kind = _traps(dtype), CODES[width // 8]
    x = rng.integers(0, 2**63, SIZE, np.uint64) << np.uint64(1) >> np.uint64(64 - width)
    near = rng.integers(-3, 4, SIZE) << FIELDS[dtype][0]
    y = (x.astype(np.int64) + near + rng.integers(-9, 10, SIZE) * (rng.random(SIZE) < 0.3)).astype(np.uint64) & np.uint64(2**width - 1)
    y ^= rng.integers(0, 2, SIZE, np.uint64) << np.uint64(width - 1)
    far = SIZE // 2
    y[:far] = rng.integers(0, 2**63, far, np.uint64) << np.uint64(1) >> np.uint64(64 - width)
    z = rng.permutation(x)
    pairs = np.stack(np.meshgrid(traps, traps), -1).reshape(-1, 2)
    x, y, z = np.concatenate([x, pairs[:, 0]]), np.concatenate([y, pairs[:, 1]]), np.concatenate([z, np.roll(pairs[:, 1], 5)])
    same = {2: torch.int16, 4: torch.int32, 8: torch.int64}[width // 8]
    signed = {2: np.int16, 4: np.int32, 8: np.int64}[width // 8]
    return [torch.from_numpy(each.astype(kind).view(signed)).view(same).view(dtype).to(device) for each in (x, y, z)]


def all_numbers(dtype: torch.dtype, device: str) -> torch.Tensor:
    """Every number of 16 bits."""
    return torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype).to(device)


def whole_numbers(dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """Two tensors of integers, and one of integers from 1."""
    info, rng = torch.iinfo(dtype), np.random.default_rng(7)
    x, y = (rng.integers(info.min, info.max, SIZE, np.int64, endpoint=True) for _ in "xy")
    x[: SIZE // 2] = rng.integers(-9 if info.min else 0, 10, SIZE // 2)
    x[:3], y[:3] = (info.min, info.max, 0), (info.max, info.max, info.min)
    positive = np.maximum(np.abs(y // 2), 1)
    return [torch.from_numpy(each).to(dtype).to(device) for each in (x, y, positive)]


def rows(x: torch.Tensor) -> torch.Tensor:
    """In rows of 64."""
    return x[: x.numel() // 64 * 64].view(-1, 64)


def named(names: str, where: Any = torch) -> dict[str, Callable[..., Any]]:
    """Functions by their names."""
    return {name: getattr(where, name) for name in names.split()}


def without_zeros(x: torch.Tensor) -> torch.Tensor:
    """Ones in their place: of zeros, a maximum may be the one or the other."""
    return torch.where(x == 0, 1, x)


def sevenths(x: torch.Tensor, stop: int = 9999) -> torch.Tensor:
    """Places, each once."""
    return torch.arange(0, stop, 7, device=x.device)


UNARY: dict[str, Callable[[torch.Tensor], Any]] = {
    **named("neg abs sqrt reciprocal floor ceil trunc round frac sign sgn relu nan_to_num isnan isinf isfinite isposinf isneginf signbit"),
    **named("logical_not frexp deg2rad square exp rsqrt"),
    **named("relu6 hardsigmoid hardswish gelu", functional),
    "round decimals": lambda x: torch.round(x, decimals=2),
    "hardtanh": lambda x: functional.hardtanh(x, -0.3, 0.7),
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.01),
    "threshold": lambda x: functional.threshold(x, 0.1, 20.0),
    "hardshrink": lambda x: functional.hardshrink(x, 0.3),
    "softshrink": lambda x: functional.softshrink(x, 0.3),
    **{f"pow {power}": lambda x, power=power: torch.pow(x, power) for power in (-2, -1, -0.5, 0, 0.5, 1, 2, 3, 4)},
    "clamp": lambda x: torch.clamp(x, -0.3, 0.7),
    "clamp_min 0": lambda x: torch.clamp_min(x, 0),
    "clamp_min": lambda x: torch.clamp_min(x, 0.1),
    "clamp_max 0": lambda x: torch.clamp_max(x, 0),
    "clamp 0 1": lambda x: torch.clamp(x, 0, 1),
    "relu in place": lambda x: x.clone().relu_(),
    "clamp_max": lambda x: torch.clamp_max(x, 0.1),
    **{f"{name} 0.1": lambda x, f=f: f(x, 0.1) for name, f in named("add sub mul eq ne lt le gt ge", operator).items()},
    "rsub 0.1": lambda x: 0.1 - x,
    "mul 0.1 in place": lambda x: x.clone().mul_(0.1),
    "mul 1e-40": lambda x: x * 1e-40,
    **{f"div {y}": lambda x, y=y: x / y for y in (3, 0.1, 8)},
    "div 2^-20": lambda x: x / 2.0**-20,
    "div 0": lambda x: x / 0.0,
    "3 div": lambda x: 3 / x,
    **{f"{name} 0.3": lambda x, f=f: f(x, 0.3) for name, f in named("fmod remainder floor_divide").items()},
    **{f"div {mode} 0.3": lambda x, mode=mode: torch.div(x, 0.3, rounding_mode=mode) for mode in ("floor", "trunc")},
    "where 0.1": lambda x: torch.where(x > 0, x, 0.1),
    "masked_fill 0.1": lambda x: x.masked_fill(x > 0, 0.1),
    "full_like 0.1": lambda x: torch.full_like(x, 0.1),
    "heaviside": lambda x: torch.heaviside(x, x.new_full((), 0.1)),
    **{
        f"{name} of rows without 0": lambda x, name=name: getattr(without_zeros(rows(x)), name)(dim=-1)
        for name in ("amax", "amin", "aminmax", "max", "min")
    },
    "signbit of numbers": lambda x: torch.signbit(x.nan_to_num()),
    **{name: lambda x, name=name: getattr(rows(x), name)(dim=-1) for name in ("amax", "amin", "aminmax")},
    **{f"{name} dim": lambda x, name=name: getattr(rows(x), name)(-1) for name in ("max", "min")},
    "max dim ties": lambda x: rows(x).sign().max(-1),
    **{name: lambda x, name=name: getattr(rows(x).sign(), name)(-1) for name in ("argmax", "argmin")},
    **{name: lambda x, name=name: getattr(x.nan_to_num(), name)() for name in ("max", "min")},
    "norm inf": lambda x: torch.linalg.vector_norm(rows(x), float("inf"), -1),
    **{name: lambda x, name=name: getattr(torch, name)(rows(x), -1) for name in ("cummax", "cummin")},
    "any": lambda x: rows(x).trunc().any(-1),
    "all": lambda x: rows(x).all(-1),
    "count_nonzero": lambda x: torch.count_nonzero(x.trunc()),
    "nonzero": lambda x: x.trunc().nonzero(),
    "sort stable": lambda x: torch.sort(rows(x).nan_to_num().abs(), dim=-1, stable=True),
    "unique": lambda x: torch.unique(x.nan_to_num().abs(), return_inverse=True, return_counts=True),
    "max_pool2d": lambda x: functional.max_pool2d(x[:16384].view(1, 1, 128, 128), 3, 2, 1, return_indices=True),
    "adaptive_max_pool2d": lambda x: functional.adaptive_max_pool2d(x[:16384].view(1, 1, 128, 128), 17, return_indices=True),
    "softmax": lambda x: torch.softmax(rows(x.nan_to_num()), -1),
    "sum": lambda x: rows(x.nan_to_num(0, 1, -1).clamp(-9, 9)).sum(-1),
    # moves keep what they move
    "cat": lambda x: torch.cat([x[:1000], x[5:70]]),
    "stack": lambda x: torch.stack([x[:1000], x[5:1005]], 1),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(77, 0),
    "repeat": lambda x: x[:100].repeat(3),
    "repeat_interleave": lambda x: x[:100].repeat_interleave(3),
    "constant_pad_nd": lambda x: functional.pad(x[:100], (3, 4), value=0.1),
    "reflection_pad1d": lambda x: functional.pad(x[None, :100], (3, 4), mode="reflect"),
    "replication_pad1d": lambda x: functional.pad(x[None, :100], (3, 4), mode="replicate"),
    **{name: lambda x, name=name, n=n: getattr(x[:16384].view(128, 128), name)(n) for name, n in (("tril", 3), ("triu", -3))},
    "clone": lambda x: x[:16384].view(128, 128).t().contiguous(),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x[:16384].view(1, 16, 32, 32), 4),
    "pixel_unshuffle": lambda x: functional.pixel_unshuffle(x[:16384].view(1, 1, 128, 128), 4),
    "channel_shuffle": lambda x: functional.channel_shuffle(x[:16384].view(1, 16, 32, 32), 4),
    "im2col": lambda x: functional.unfold(x[:16384].view(1, 16, 32, 32), 3),
    "diag_embed": lambda x: torch.diag_embed(x[:64]),
    "block_diag": lambda x: torch.block_diag(x[:64].view(8, 8), x[64:80].view(4, 4)),
    "complex": lambda x: torch.view_as_real(torch.complex(x, x.flip(0))) if x.dtype in (F32, F64) else x,
}

BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    **named("add sub rsub mul div floor_divide maximum minimum fmax fmin fmod remainder copysign eq ne lt le gt ge"),
    **named("logical_and logical_or logical_xor"),
    **{f"div {mode}": lambda x, y, mode=mode: torch.div(x, y, rounding_mode=mode) for mode in ("floor", "trunc")},
    "copysign of numbers": lambda x, y: torch.copysign(x, y.nan_to_num()),
    **{f"{name} without 0": lambda x, y, f=f: f(without_zeros(x), without_zeros(y)) for name, f in named("maximum minimum").items()},
    "hardtanh_backward of numbers": lambda x, y: torch.ops.aten.hardtanh_backward(y, x.nan_to_num(), -0.3, 0.7),
    "hardshrink_backward of numbers": lambda x, y: torch.ops.aten.hardshrink_backward(y, x.nan_to_num(), 0.3),
    "relu_backward": lambda x, y: torch.ops.aten.threshold_backward(y, x, 0),
    "nextafter": lambda x, y: torch.nextafter(x, y) if x.dtype is not F16 else x,
    "heaviside tensor": torch.heaviside,
    "equal": lambda x, y: torch.tensor([torch.equal(x, y), torch.equal(x.isnan(), x.isnan())]),
    "where": lambda x, y: torch.where(x > y, x, y),
    "clamp tensors": lambda x, y: torch.clamp(x, y, y.abs()),
    "prelu": lambda x, y: torch._prelu_kernel(x, y),
    "prelu backward": lambda x, y: torch.ops.aten._prelu_kernel_backward(y, x, x.flip(0)),
    "threshold_backward": lambda x, y: torch.ops.aten.threshold_backward(y, x, 0.1),
    "leaky_relu_backward": lambda x, y: torch.ops.aten.leaky_relu_backward(y, x, 0.01, False),
    "hardtanh_backward": lambda x, y: torch.ops.aten.hardtanh_backward(y, x, -0.3, 0.7),
    "hardshrink_backward": lambda x, y: torch.ops.aten.hardshrink_backward(y, x, 0.3),
    "softshrink_backward": lambda x, y: torch.ops.aten.softshrink_backward(y, x, 0.3),
    **named("sigmoid_backward tanh_backward", torch.ops.aten),
    **{
        f"{name} alpha {alpha}": lambda x, y, name=name, alpha=alpha: getattr(torch, name)(x, y, alpha=alpha)
        for name, alpha in (("add", -1), ("sub", -1), ("add", 0.1), ("add", 0.5), ("sub", 0.1))
    },
    "lerp 0.1": lambda x, y: torch.lerp(x, y, 0.1),
    "mse": lambda x, y: functional.mse_loss(x, y, reduction="none"),
    "l1": lambda x, y: functional.l1_loss(x, y, reduction="none"),
    "mse backward": lambda x, y: torch.ops.aten.mse_loss_backward(y.flip(0), x, y, 0),
    "select_backward": lambda x, y: torch.ops.aten.select_backward(x[:64], [64, 64], 1, 3),
    "slice_backward": lambda x, y: torch.ops.aten.slice_backward(x[:64], [99], 0, 7, 71, 1),
    "embedding_dense_backward of each once": lambda x, y: torch.ops.aten.embedding_dense_backward(
        x[:4096].view(64, 64), torch.arange(0, 192, 3, device=x.device), 200, -1, False
    ),
    "embedding_dense_backward": lambda x, y: torch.ops.aten.embedding_dense_backward(
        x[:4096].nan_to_num(0, 1, 1).clamp(-9, 9).view(64, 64), torch.arange(0, 192, 3, device=x.device) % 7, 200, -1, False
    ),
    **{
        f"upsample_nearest{len(size)}d {size}": lambda x, y, size=size: functional.interpolate(
            x[: 16 ** len(size)].view(1, 1, *([16] * len(size))), size=size
        )
        for size in ((32,), (23,), (33, 19), (48, 61), (9, 40), (17, 3, 25))
    },
    "upsample_nearest2d of a factor": lambda x, y: functional.interpolate(x[:4096].view(1, 1, 64, 64), scale_factor=1.7),
    "avg_pool2d": lambda x, y: functional.avg_pool2d(x[:16384].view(1, 1, 128, 128), 2),
    "max_pool2d backward apart": lambda x, y: torch.ops.aten.max_pool2d_with_indices_backward(
        y[:1024].view(1, 1, 32, 32),
        x[:4096].view(1, 1, 64, 64),
        [2, 2],
        [2, 2],
        [0, 0],
        [1, 1],
        False,
        functional.max_pool2d(x[:4096].view(1, 1, 64, 64), 2, return_indices=True)[1],
    ),
    "huber": lambda x, y: functional.huber_loss(x, y, reduction="none"),
    "ldexp": lambda x, y: torch.ldexp(x, torch.arange(x.numel(), device=x.device, dtype=torch.int32) % 9 - 4),
    "dropout backward": lambda x, y: torch.ops.aten.native_dropout_backward(x, y > 0, 1 / 0.9),
    **{f"foreach {f}": lambda x, y, f=f: getattr(torch, f"_foreach_{f}")([x, y], [y, x]) for f in ("add", "mul", "div")},
    "foreach mul 0.1": lambda x, y: torch._foreach_mul([x, y], 0.1),
    "foreach div 3": lambda x, y: torch._foreach_div([x, y], 3),
    "foreach sqrt": lambda x, y: torch._foreach_sqrt([x, y]),
    "foreach add alpha": lambda x, y: torch._foreach_add([x, y], [y, x], alpha=-0.1),
    "dot of one": lambda x, y: (x[:, None] * y[:, None]).sum(-1),
    "index_select": lambda x, y: x.index_select(0, sevenths(x)),
    "gather": lambda x, y: x[:4096].view(64, 64).gather(1, torch.arange(64, device=x.device).flip(0).expand(64, 64)),
    "take": lambda x, y: x.take(sevenths(x)),
    "index": lambda x, y: x[sevenths(x)],
    "index mask": lambda x, y: x[y > x],
    "masked_select": lambda x, y: x.masked_select(y > x),
    "masked_scatter": lambda x, y: x.masked_scatter(y > x, y),
    "embedding": lambda x, y: functional.embedding(torch.arange(0, 99, 7, device=x.device), x[:16384].view(128, 128)),
    "scatter": lambda x, y: (
        x[:4096].view(64, 64).scatter(1, torch.arange(64, device=x.device).flip(0).expand(64, 64), y[:4096].view(64, 64))
    ),
    "index_put": lambda x, y: x.clone().index_put_((sevenths(x),), y[: len(sevenths(y))]),
    "index_copy": lambda x, y: x.index_copy(0, sevenths(x), y[: len(sevenths(y))]),
    "index_fill": lambda x, y: x.index_fill(0, sevenths(x), 0.1),
    "index_add of each once": lambda x, y: x.index_add(0, sevenths(x), y[: len(sevenths(y))]),
    "slice_scatter": lambda x, y: x.slice_scatter(y[:99], 0, 5, 104),
    "zero dim f32 cpu mul": lambda x, y: x * torch.tensor(0.1),
    **{
        f"zero dim f32 {name}": lambda x, y, f=f: f(x, torch.tensor(0.1, device=x.device))
        for name, f in named("mul add sub lt maximum").items()
    },
    "zero dim f32 div": lambda x, y: x / torch.tensor(3.0, device=x.device),
    "zero dim first f32 sub": lambda x, y: torch.tensor(0.1, device=x.device) - x,
    "zero dim f32 where": lambda x, y: torch.where(y > x, x, torch.tensor(0.1, device=x.device)),
    "zero dim f32 fmod": lambda x, y: torch.fmod(x, torch.tensor(0.3, device=x.device)),
    "one element f32 mul": lambda x, y: x.float() * torch.tensor([0.1], device=x.device),
    "zero dim same mul": lambda x, y: x * torch.tensor(0.1, device=x.device, dtype=x.dtype),
    "zero dim same div": lambda x, y: x / torch.tensor(3.0, device=x.device, dtype=x.dtype),
}

aten = torch.ops.aten
MOVED: dict[str, Callable[[torch.Tensor], Any]] = {
    "as_strided_scatter": lambda x: x[:99].as_strided_scatter(x[200:220], (20,), (3,), 5),
    "diagonal_backward": lambda x: aten.diagonal_backward(x[:32], [32, 40], 0, 0, 1),
    "diagonal_scatter": lambda x: x[:1024].view(32, 32).diagonal_scatter(x[2000:2032]),
    "select_scatter": lambda x: x[:1024].view(32, 32).select_scatter(x[2000:2032], 1, 3),
    "eye": lambda x: torch.eye(9, 7, dtype=x.dtype, device=x.device),
    "fill": lambda x: aten.fill.Scalar(x[:9], 0.1),
    "fill_": lambda x: x[:9].clone().fill_(0.1),
    "full": lambda x: torch.full((9,), 0.1, dtype=x.dtype, device=x.device),
    "new": lambda x: [x.new_ones(3), x.new_zeros(3), x.new_full((3,), 0.1), torch.ones_like(x[:3]), torch.zeros_like(x[:3])],
    "made": lambda x: [f(3, dtype=x.dtype, device=x.device) for f in (torch.ones, torch.zeros)],
    "zero": lambda x: [aten.zero(x[:9]), x[:9].clone().zero_()],
    "scalar_tensor": lambda x: torch.scalar_tensor(0.1, dtype=x.dtype, device=x.device),
    "lift": lambda x: [aten.lift(x[:9]), aten.lift_fresh_copy(x[:9])],
    "narrow_copy": lambda x: torch.narrow_copy(x[:99], 0, 3, 9),
    "native_channel_shuffle": lambda x: torch.native_channel_shuffle(x[:4096].view(1, 16, 16, 16), 4),
    "nonzero_static": lambda x: torch.nonzero_static(x[:99].trunc(), size=50, fill_value=-1),
    "pads": lambda x: [functional.pad(x[:64].view(1, 1, 8, 8), (1, 2, 3, 4), mode=mode) for mode in ("reflect", "replicate")],
    "pads of three": lambda x: [
        functional.pad(x[:64].view(1, 1, 4, 4, 4), (1, 2, 1, 3, 2, 1), mode=mode) for mode in ("reflect", "replicate")
    ],
    "rot90": lambda x: torch.rot90(x[:64].view(8, 8), 1),
    "repeat_interleave by tensor": lambda x: x[:9].repeat_interleave(torch.arange(9, device=x.device)),
    "split": lambda x: [*torch.split_copy(x[:9], 4), *torch.split_with_sizes_copy(x[:9], [2, 7])],
    "unsafe split": lambda x: [*torch.unsafe_split(x[:9], 4), *torch.unsafe_split_with_sizes(x[:9], [2, 7])],
    "unsafe index": lambda x: aten._unsafe_index(x, [sevenths(x, 999)]),
    "unsafe view": lambda x: aten._unsafe_view(x[:64], [8, 8]),
    "places": lambda x: [torch.tril_indices(7, 9, 1, device=x.device), torch.triu_indices(7, 9, 1, device=x.device)],
    "in place": lambda x: x[:64].clone().view(8, 8).t_().unsqueeze_(0).transpose_(0, 1).squeeze_(1).as_strided_((4, 4), (1, 8)),
    "copy": lambda x: [aten.copy(x[:9], x[9:18]), x[:9].clone().copy_(x[9:18]), x[:9].double().copy_(x[9:18])],
    "lists": lambda x: _lists([x[:9].clone(), x[9:12].clone()], [x[90:99], x[99:102]]),
    "item": lambda x: torch.tensor([x[5].item()], dtype=torch.float64),
    "unsafe_index_put": lambda x: aten._unsafe_index_put(x[:999], [sevenths(x, 999)], x[1000:1143]),
    "index_put_impl": lambda x: aten._index_put_impl(x[:999], [sevenths(x, 999)], x[1000:1143]),
    "index_put of masks": lambda x: aten.index_put(x[:999], [x[:999] > 0.5], torch.full((), 3.0, dtype=x.dtype, device=x.device)),
    "cummax of both": lambda x: [*aten.cummax(rows(x), 1), *aten.cummin(rows(x), 0)],
    "max_pool3d": lambda x: functional.max_pool3d(x[:4096].view(1, 1, 16, 16, 16), 3, 2, 1, return_indices=True),
    "adaptive_max_pool3d": lambda x: functional.adaptive_max_pool3d(x[:4096].view(1, 1, 16, 16, 16), 5, return_indices=True),
    "unique in turn": lambda x: [
        *torch.unique_consecutive(x[:99].sign().nan_to_num(), return_counts=True),
        *torch.unique(x[:300].view(-1, 3).sign().nan_to_num().abs(), dim=0, return_inverse=True),
    ],
    "searchsorted": lambda x: [
        torch.searchsorted(*(torch.sort(part.nan_to_num(), stable=True).values for part in (x[:999], x[999:1999]))),
        torch.bucketize(x[:999].nan_to_num(), torch.sort(x[999:1999].nan_to_num(), stable=True).values),
    ],
    "shifts": lambda x: [x.view(torch.int16)[:99] << 3, x.view(torch.int16)[:99] >> 3],
    "shifts in place": lambda x: [x.view(torch.int16)[:99].clone().__ilshift__(3), x.view(torch.int16)[:99].clone().__irshift__(3)],
    "booleans": lambda x: torch.stack([aten._is_all_true(x[:9] > 0), aten._is_any_true(x[:9] > 0)]),
    "arange to the limit": lambda x: torch.arange(
        0, {F16: 2048, BF16: 256, F32: 20000, F64: 20000}[x.dtype], dtype=x.dtype, device=x.device
    ),
}


def _lists(into: list[torch.Tensor], given: list[torch.Tensor]) -> list[torch.Tensor]:
    copies = [each.clone() for each in into]
    torch._foreach_copy_(into, given)
    torch._foreach_zero_(copies)
    return into + copies


TERNARY: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {
    "addcmul": torch.addcmul,
    "addcmul 0.1": lambda x, y, z: torch.addcmul(x, y, z, value=0.1),
    "addcdiv": torch.addcdiv,
    "lerp": torch.lerp,
}

WHOLE: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {
    **{
        f.__name__: lambda x, y, z, f=f: f(x, y)
        for f in (torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.eq, torch.lt)
    },
    **{f.__name__: lambda x, y, z, f=f: f(x, y) for f in (torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor)},
    **{f.__name__: lambda x, y, z, f=f: f(x) for f in (torch.abs, torch.sign, torch.bitwise_not, torch.square, torch.relu, torch.sqrt)},
    **{f.__name__: lambda x, y, z, f=f: f(x, z) for f in (torch.floor_divide, torch.remainder, torch.fmod, torch.div, torch.gcd)},
    "neg": lambda x, y, z: -x,
    "add alpha": lambda x, y, z: torch.add(x, y, alpha=3),
    "mul 0.1": lambda x, y, z: x * 0.1,
    "div 3": lambda x, y, z: x / 3,
    "shift": lambda x, y, z: torch.bitwise_left_shift(x, (z % 7).to(x.dtype)),
    "shift right": lambda x, y, z: torch.bitwise_right_shift(x, (z % 7).to(x.dtype)),
    "shift too far": lambda x, y, z: torch.bitwise_left_shift(x, torch.full_like(x, 65)),
    "pow": lambda x, y, z: torch.pow(x, 3),
    "sum": lambda x, y, z: x.view(-1, 64).sum(-1),
    "cumsum": lambda x, y, z: x.view(-1, 64).cumsum(-1),
    "prod": lambda x, y, z: x.view(-1, 64).prod(-1),
    "sort": lambda x, y, z: torch.sort(x.view(-1, 64), dim=-1, stable=True),
    "index_add": lambda x, y, z: x.index_add(0, (z % 99).long(), y),
    "bincount": lambda x, y, z: torch.bincount((z % 99).long()),
    "clamp": lambda x, y, z: x.clamp(-3 if x.dtype.is_signed else 0, 5),
    "argmax": lambda x, y, z: x.view(-1, 64).argmax(-1),
    "amax": lambda x, y, z: x.view(-1, 64).amax(-1),
    "searchsorted": lambda x, y, z: torch.searchsorted(torch.sort(x[:999], stable=True).values, y),
    "bucketize": lambda x, y, z: torch.bucketize(y, torch.sort(x[:999], stable=True).values),
    "isin": lambda x, y, z: torch.isin(x, y[:99]),
    "true float": lambda x, y, z: x.float().add(y.double().float()),
}


def _within(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Numbers that an integer dtype holds, with fractions."""
    info = torch.iinfo(kind)
    wide = x.double().nan_to_num(0, 0, 0)
    held = torch.where((wide > info.min - 1.0) & (wide < info.max - 1.0), wide, torch.zeros_like(wide))
    return held.to(x.dtype) if kind is not torch.int64 else (held / 2).to(x.dtype)


def calls(device: str) -> Iterator[tuple[str, Call]]:
    """Each call by its name; the numbers are the same on all devices."""
    for dtype in FLOATS:
        x, y, z = numbers(dtype, device)
        name = str(dtype).removeprefix("torch.")
        every = all_numbers(dtype, device) if dtype in (F16, BF16) else x
        for table, given in ((UNARY, (every,)), (BINARY, (x, y)), (TERNARY, (x, y, z)), (MOVED, (x,))):
            for what, call in table.items():
                yield f"{what} {name}", lambda call=call, given=given: call(*given)
        for other in ALL:
            if other not in INTEGERS:
                yield f"to {other} {name}".replace("torch.", ""), lambda x=x, other=other: x.to(other)
            else:
                yield f"to {other} within {name}".replace("torch.", ""), lambda x=x, other=other: _within(x, other).to(other)
                yield f"to {other} beyond {name}".replace("torch.", ""), lambda x=x, other=other: x.to(other)
        for other in FLOATS:
            if other is not dtype:
                mixed = numbers(other, device)[1][: x.numel()]
                short = min(x.numel(), mixed.numel())
                for what in ("add", "mul", "div", "maximum", "lt"):
                    yield (
                        f"{what} mixed {other} {name}".replace("torch.", ""),
                        lambda what=what, x=x, mixed=mixed, short=short: getattr(torch, what)(x[:short], mixed[:short]),
                    )
        whole = whole_numbers(torch.int64, device)[0]
        short = min(x.numel(), whole.numel())
        yield f"mul mixed int64 {name}", lambda x=x, whole=whole, short=short: x[:short] * whole[:short]
        yield f"mul mixed bool {name}", lambda x=x, y=y: x * (y > x)
        yield (
            f"arange whole {name}",
            lambda dtype=dtype: torch.arange(3, 200, 7, dtype=dtype, device=device),
        )
        yield f"arange {name}", lambda dtype=dtype: torch.arange(0.1, 200, 0.7, dtype=dtype, device=device)
        yield f"linspace {name}", lambda dtype=dtype: torch.linspace(0.1, 200, 777, dtype=dtype, device=device)
    for dtype in NARROW:
        code = torch.arange(256, dtype=torch.uint8, device=device).view(dtype)
        for other in FLOATS:
            yield f"to {other} {dtype}".replace("torch.", ""), lambda code=code, other=other: code.to(other)
    scales = torch.arange(256, dtype=torch.uint8, device=device).view(torch.float8_e8m0fnu)
    yield "to float32 float8_e8m0fnu", lambda: scales.to(F32)
    yield "to bfloat16 float8_e8m0fnu", lambda: scales.to(BF16)
    yield "to float8_e8m0fnu float32", lambda: numbers(F32, device)[0].abs().to(torch.float8_e8m0fnu)
    for dtype in INTEGERS:
        given = whole_numbers(dtype, device)
        name = str(dtype).removeprefix("torch.")
        for what, call in WHOLE.items():
            yield f"{what} {name}", lambda call=call, given=given: call(*given)
        for other in (*FLOATS, *INTEGERS, torch.bool):
            yield f"to {other} {name}".replace("torch.", ""), lambda given=given, other=other: given[0].to(other)
    re, im = (numbers(F32, device)[0], numbers(F32, device)[1])
    a, b = torch.complex(re, im), torch.complex(im, re.flip(0))
    for what in ("add", "sub", "mul", "div", "eq"):
        yield f"{what} complex64", lambda what=what: _real(getattr(torch, what)(a, b))
    yield "neg complex64", lambda: _real(-a)
    yield "abs complex64", lambda: a.abs()


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def digest(found: Any) -> str:
    """The digest of the bits of results; all NaNs are one."""
    hashed = hashlib.sha256()
    for each in found if isinstance(found, tuple | list) else (found,):
        tensor = each.detach().cpu().contiguous()
        if tensor.is_floating_point():
            wide = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize]
            nan = tensor.to(F64).isnan() if tensor.itemsize == 1 else tensor.isnan()
            tensor = tensor.view(wide).masked_fill(nan, -1 if wide is not torch.uint8 else 255)
        hashed.update(str(tuple(tensor.shape)).encode())
        hashed.update(tensor.numpy().tobytes())
    return hashed.hexdigest()[:16]
