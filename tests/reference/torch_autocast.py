"""Calls that PyTorch 2.11 ran on an H200, on seeds by which no rule was found: autocast, sums of any strides, losses, quotients.

Operands are drawn for a call from its seed, its kind and what it was given. Of each result there are its dtype, shape and a checksum.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

PATH = Path(__file__).parent / "torch_autocast.json"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_BLOCK = 1024  # codes of a checksum, of results with more
_CODES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Given = dict[str, Any]


class Call(NamedTuple):
    """A call, and of each of its results the dtype, the shape and a checksum."""

    seed: int
    kind: str
    given: Given
    results: list[tuple[str, list[int], int]]


class Draw:
    """Draws operands as they were drawn for the GPU."""

    def __init__(self, *seeds: Any) -> None:
        codes = [each if isinstance(each, int) else zlib.crc32(str(each).encode()) for each in seeds]
        self.generator = np.random.Generator(np.random.PCG64(codes))

    def normal(self, shape: Any, fmt: str, scale: float = 1.0, *, grad: bool = False) -> Tensor:
        array = self.generator.standard_normal(shape, np.float32) * np.float32(scale)
        return torch.from_numpy(np.ascontiguousarray(array)).to(DTYPES[fmt]).requires_grad_(grad)

    def uniform(self, shape: Any, fmt: str, low: float = 0.0, high: float = 1.0) -> Tensor:
        array = (low + (high - low) * self.generator.random(shape, np.float64)).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(array)).to(DTYPES[fmt])

    def integers(self, high: int, shape: Any, low: int = 0) -> Tensor:
        return torch.from_numpy(np.asarray(self.generator.integers(low, high, shape)))

    def wild(self, count: int, fmt: str) -> Tensor:
        if fmt == "f32":
            codes = self.generator.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32)
            return torch.from_numpy(codes.view(np.float32))
        return torch.from_numpy(self.generator.integers(0, 65536, count).astype(np.uint16).view(np.int16)).view(DTYPES[fmt])


def _with_gradients(draw: Draw, results: Any, operands: list[Tensor | None]) -> list[Tensor]:
    found = list(results) if isinstance(results, tuple | list) else [results]
    live, leaves = [each for each in found if each.requires_grad], [each for each in operands if each is not None and each.requires_grad]
    if live and leaves:
        drawn = [
            torch.from_numpy(np.asarray(draw.generator.standard_normal(tuple(each.shape), np.float32))).to(each.dtype) for each in live
        ]
        found += [each for each in torch.autograd.grad(live, leaves, drawn, allow_unused=True) if each is not None]
    return found


Operand = Callable[..., Tensor]
F = functional
# by name: what is called with operands of some shapes, within autocast
CASTS: dict[str, Callable[[Operand, Draw], Any]] = {
    "linear": lambda n, _d: F.linear(n(16, 32), n(24, 32), n(24)),
    "linear3": lambda n, _d: F.linear(n(2, 8, 32), n(24, 32)),
    "matmul": lambda n, _d: n(16, 32) @ n(32, 24),
    "addmm": lambda n, _d: torch.addmm(n(24), n(16, 32), n(32, 24)),
    "baddbmm": lambda n, _d: torch.baddbmm(n(3, 16, 24), n(3, 16, 32), n(3, 32, 24)),
    "mv": lambda n, _d: torch.mv(n(16, 32), n(32)),
    "einsum": lambda n, _d: torch.einsum("bik,bkj->bij", n(3, 16, 32), n(3, 32, 24)),
    "prelu": lambda n, _d: F.prelu(n(16, 24), n(24)),
    "tensordot": lambda n, _d: torch.tensordot(n(16, 32), n(32, 24), 1),
    "softmax": lambda n, _d: F.softmax(n(16, 24), -1),
    "log_softmax": lambda n, _d: F.log_softmax(n(16, 24), -1),
    "layer_norm": lambda n, _d: F.layer_norm(n(16, 24), (24,), n(24), n(24)),
    "group_norm": lambda n, _d: F.group_norm(n(4, 24, 6), 4, n(24), n(24)),
    "sum": lambda n, _d: n(16, 24).sum(),
    "sum_dim": lambda n, _d: n(16, 24).sum(1),
    "mean": lambda n, _d: n(16, 24).mean(1),
    "norm_dim": lambda n, _d: n(16, 24).norm(dim=1),
    "vector_norm": lambda n, _d: torch.linalg.vector_norm(n(16, 24), 2, 1),
    "var": lambda n, _d: n(16, 24).var(1),
    "logsumexp": lambda n, _d: n(16, 24).logsumexp(1),
    "normalize": lambda n, _d: F.normalize(n(16, 24)),
    "exp": lambda n, _d: n(16, 24).exp(),
    "log1p": lambda n, _d: n(16, 24).log1p(),
    "rsqrt": lambda n, _d: n(16, 24).rsqrt(),
    "pow": lambda n, _d: n(16, 24) ** 2,
    "pow_t": lambda n, _d: torch.pow(n(16, 24), n(16, 24)),
    "softplus": lambda n, _d: F.softplus(n(16, 24)),
    "sigmoid": lambda n, _d: n(16, 24).sigmoid(),
    "gelu": lambda n, _d: F.gelu(n(16, 24)),
    "silu": lambda n, _d: F.silu(n(16, 24)),
    "add": lambda n, _d: n(16, 24) + n(16, 24),
    "addcmul": lambda n, _d: torch.addcmul(n(16, 24), n(16, 24), n(16, 24), value=0.3),
    "atan2": lambda n, _d: torch.atan2(n(16, 24), n(16, 24)),
    "cat": lambda n, _d: torch.cat([n(16, 24), n(16, 24)]),
    "mse": lambda n, _d: F.mse_loss(n(16, 24), n(16, 24)),
    "huber": lambda n, _d: F.huber_loss(n(16, 24), n(16, 24)),
    "kl": lambda n, _d: F.kl_div(n(16, 24), n(16, 24), log_target=True, reduction="batchmean"),
    "bcel": lambda n, d: F.binary_cross_entropy_with_logits(n(16, 24), d.uniform((16, 24), "f32")),
    "cos_sim": lambda n, _d: F.cosine_similarity(n(16, 24), n(16, 24)),
    "glu": lambda n, _d: F.glu(n(16, 24)),
    "softmax_dtype": lambda n, _d: F.softmax(n(16, 24), -1, dtype=torch.get_autocast_dtype("cuda")),
    "iadd": lambda n, _d: n(16, 24).clone().add_(n(16, 24)),
}


def _cast(draw: Draw, name: str, fmt: str, to: str) -> list[Tensor]:
    """Call within autocast; `mixed` operands are of the narrow format and of float32 in turn."""
    operands: list[Tensor | None] = []

    def operand(*shape: int) -> Tensor:
        own = fmt if fmt != "mixed" else ("f32", to)[(len(operands) + 1) % 2]
        operands.append(draw.normal(shape, own, grad=True))
        return operands[-1]  # type: ignore[return-value]

    draw.integers(24, 16)  # labels and signs, which no call here takes
    draw.generator.random(16)
    with torch.autocast("cuda", dtype=DTYPES[to]):
        found = CASTS[name](operand, draw)
    return _with_gradients(draw, found, operands)


_NORMS = {
    "layer": lambda x, g: F.layer_norm(x, (x.shape[1],), g),
    "rms": lambda x, g: F.rms_norm(x, (x.shape[1],), g),
    "none": lambda x, g: x * g,
    "norm": lambda x, g: F.normalize(x) * g,
}
_ACTIVATIONS = {
    "gelu": lambda v, _g: F.gelu(v),
    "silu": lambda v, _g: F.silu(v),
    "relu": lambda v, _g: F.relu(v),
    "tanh": lambda v, _g: torch.tanh(v),
    "softplus": lambda v, _g: F.softplus(v),
    "exp": lambda v, _g: torch.exp(v * 0.3),
    "square": lambda v, _g: F.relu(v).square(),
    "pow": lambda v, _g: v.abs() ** 1.5,
    "prelu": lambda v, g: F.prelu(v, g[:1]),
}
_LOSSES = {
    "ce": lambda y, _x, t: F.cross_entropy(y, t),
    "mse": lambda y, x, _t: F.mse_loss(y, x.detach()),
    "l1": lambda y, x, _t: F.l1_loss(y, x.detach()),
    "bcel": lambda y, x, _t: F.binary_cross_entropy_with_logits(y, x.detach().sigmoid()),
    "kl": lambda y, x, _t: F.kl_div(y.log_softmax(-1), x.detach().softmax(-1), reduction="batchmean"),
    "cos": lambda y, x, _t: 1 - F.cosine_similarity(y, x.detach()).mean(),
    "sum": lambda y, x, _t: (y * x).sum(),
    "huber": lambda y, x, _t: F.huber_loss(y, x.detach()),
    "norm": lambda y, _x, _t: y.norm(),
}


def _mlp(draw: Draw, to: str, base: str, act: str, norm: str, lossname: str, n: int, b: int, bias: bool) -> list[Tensor]:
    """Compute a norm, two layers, an activation between them and a loss, within autocast."""
    x = draw.normal((b, n), base, grad=True)
    up, down = draw.normal((2 * n, n), base, 0.1, grad=True), draw.normal((n, 2 * n), base, 0.1, grad=True)
    first, second = (draw.normal(size, base, 0.1, grad=True) if bias else None for size in (2 * n, n))
    scale = draw.normal(n, base, grad=True)
    with torch.autocast("cuda", dtype=DTYPES[to]):
        y = F.linear(_ACTIVATIONS[act](F.linear(_NORMS[norm](x, scale), up, first), scale), down, second)
        loss = _LOSSES[lossname](y, x, draw.integers(n, b))
    return _with_gradients(draw, [y, loss], [x, up, down, first, second, scale])


def _arranged(draw: Draw, fmt: str, shape: list[int], layout: list[Any]) -> Tensor:
    """Draw a tensor of a shape, that lies in memory in another way."""
    kind, *rest = layout
    if kind == "perm":
        (order,) = rest
        return draw.normal([shape[axis] for axis in order], fmt).permute([order.index(axis) for axis in range(len(shape))])
    if kind == "offset":
        return draw.normal(int(np.prod(shape)) + rest[0], fmt)[rest[0] :].view(shape)
    if kind == "expand":
        return draw.normal([1 if axis == rest[0] else size for axis, size in enumerate(shape)], fmt).expand(shape)
    if kind == "rand_perm_slice":
        order, extra = rest
        found = draw.normal([shape[axis] + more for axis, more in zip(order, extra, strict=True)], fmt)
        for place, axis in enumerate(order):
            found = found.narrow(place, extra[place] // 2, shape[axis])
        return found.permute([order.index(axis) for axis in range(len(shape))])
    axis = rest[0]
    if kind == "wide":
        full = [size + (rest[1] if place == axis else 0) for place, size in enumerate(shape)]
        return draw.normal(full, fmt).narrow(axis, rest[2], shape[axis])
    step, offset = rest[1:]
    full = [size * step + offset if place == axis else size for place, size in enumerate(shape)]
    return draw.normal(full, fmt)[
        tuple(slice(offset if place == axis else 0, None, step if place == axis else 1) for place in range(len(shape)))
    ]


REDUCTIONS: dict[str, Callable[[Tensor, list[int]], Any]] = {
    "sum": lambda x, axes: x.sum(axes),
    "mean": lambda x, axes: x.mean(axes),
    "amax": lambda x, axes: x.amax(axes),
    "var": lambda x, axes: x.var(axes),
    "std": lambda x, axes: x.std(axes, correction=0),
    "norm": lambda x, axes: torch.linalg.vector_norm(x, 2, axes),
    "norm1": lambda x, axes: torch.linalg.vector_norm(x, 1, axes),
    "logsumexp": torch.logsumexp,
    "sumf": lambda x, axes: x.sum(axes, dtype=torch.float32),
    "meanf": lambda x, axes: x.mean(axes, dtype=torch.float32),
    "nansum": torch.nansum,
    "var_mean": torch.var_mean,
    "std_mean": torch.std_mean,
}


def _strided(draw: Draw, name: str, fmt: str, shape: list[int], axes: list[int], layout: list[Any]) -> list[Tensor]:
    found = REDUCTIONS[name](_arranged(draw, fmt, shape, layout), axes)
    return list(found) if isinstance(found, tuple) else [found]


def _soft_strided(draw: Draw, fmt: str, shape: list[int], dim: int, layout: list[Any], log: bool, half: bool) -> list[Tensor]:
    x = _arranged(draw, fmt, shape, layout).requires_grad_()
    return _with_gradients(draw, (F.log_softmax if log else F.softmax)(x, dim, dtype=torch.float32 if half else None), [x])


_FUNCTIONS: dict[str, tuple[int, Callable[..., Tensor]]] = {
    "bi.div_floor": (2, lambda a, b: torch.div(a, b, rounding_mode="floor")),
    "bi.div_trunc": (2, lambda a, b: torch.div(a, b, rounding_mode="trunc")),
    "bi.remainder": (2, torch.remainder),
    "bi.huber_none": (2, lambda a, b: F.huber_loss(a, b, reduction="none", delta=0.7)),
    "bi.smooth_b0": (2, lambda a, b: F.smooth_l1_loss(a, b, reduction="none", beta=0.3)),
    "bi.logaddexp2": (2, torch.logaddexp2),
    "bi.xlog1py": (2, torch.special.xlog1py),
    "tri.bcel_w": (3, lambda a, b, v: F.binary_cross_entropy_with_logits(a, b.detach().sigmoid(), v.detach(), reduction="none")),
    "un.logit_eps": (1, lambda x: torch.logit(x, 1e-3)),
    "un.div_floor": (1, lambda x: torch.div(x, 0.37, rounding_mode="floor")),
    "un.div_trunc": (1, lambda x: torch.div(x, 0.37, rounding_mode="trunc")),
    "un.rmod": (1, lambda x: 3.7 % x),
    "un.rsub_a": (1, lambda x: torch.rsub(x, 1.3, alpha=0.7)),
}


def _point(draw: Draw, table: str, name: str, fmt: str, how: str) -> list[Tensor]:
    count, function = _FUNCTIONS[f"{table}.{name}"]
    usual = how == "usual"
    operands = [draw.normal(_BLOCK, fmt, 2.0, grad=True) if usual else draw.wild(_BLOCK, fmt) for _ in range(count)]
    try:
        return _with_gradients(draw, function(*operands), list(operands))
    except RuntimeError:  # without a derivative
        return [function(*(each.detach() for each in operands))]


def _weighted(draw: Draw, name: str, fmt: str, rows: int, cols: int, red: str) -> list[Tensor]:
    """Compute a cross entropy with weights of classes, or with a part of the targets ignored."""
    x = draw.normal((rows, cols), fmt, 3.0, grad=True)
    weight, target = draw.uniform(cols, fmt, 0.2, 1.5), draw.integers(cols, rows)
    if name == "ce_w_ign":
        target[::3] = -100
    smoothing = 0.1 if "ls" in name else 0.0
    return _with_gradients(draw, F.cross_entropy(x, target, weight, reduction=red, label_smoothing=smoothing), [x])


KINDS: dict[str, Callable[..., list[Tensor]]] = {
    "cast": _cast,
    "mlp": _mlp,
    "strided": _strided,
    "soft_strided": _soft_strided,
    "point": _point,
    "loss": _weighted,
}
WEIGHTED = ("ce_w", "ce_w_ign", "ce_w_ls")


def holds(kind: str, given: Given) -> bool:
    """Tell whether a call is one of those here."""
    names = {"cast": CASTS, "strided": REDUCTIONS, "point": _FUNCTIONS, "loss": WEIGHTED}
    name = f"{given['table']}.{given['name']}" if kind == "point" else given.get("name")
    return kind in KINDS and (kind not in names or name in names[kind])


def run(call: Call) -> list[Tensor]:
    """Compute what a call returns."""
    draw = Draw(call.seed, call.kind, json.dumps(call.given, sort_keys=True))
    return [each.detach() for each in KINDS[call.kind](draw, **call.given)]


def checksum_of_codes(codes: NDArray[Any], blocks: NDArray[np.uint32] | None = None) -> int:
    """Compute the checksum of codes, or of the checksums of blocks of them."""
    return zlib.crc32((codes if blocks is None else blocks).tobytes())


def describe(tensor: Tensor) -> tuple[str, list[int], int]:
    """Return the dtype, the shape and the checksum of a result, of all NaN as one."""
    plain = torch.where(tensor.isnan(), torch.full_like(tensor, float("nan")), tensor) if tensor.is_floating_point() else tensor
    codes = plain.contiguous().reshape(-1).view(_CODES[plain.itemsize]).numpy()
    blocks = None
    if codes.size > _BLOCK:
        padded = np.concatenate([codes, np.zeros(-codes.size % _BLOCK, codes.dtype)]).reshape(-1, _BLOCK)
        blocks = np.array([zlib.crc32(block.tobytes()) for block in padded], np.uint32)
    return str(tensor.dtype).removeprefix("torch."), list(tensor.shape), checksum_of_codes(codes, blocks)


def recorded() -> list[Call]:
    """All calls."""
    rows = json.loads(PATH.read_text())
    return [Call(seed, kind, given, [(dtype, shape, code) for dtype, shape, code in results]) for seed, kind, given, results in rows]
