"""Layers as models have them, by category, that PyTorch 2.11 computed on an H200: models, attention, functions, each with its gradients.

``python tests/reference/whole_layers.py`` prints the table of the page on PyTorch: how many results have the GPU's bits, and how many are
called emulated; a target and another recording may be named. With ``--record`` and a file it records them on the GPU of this machine.
Shapes and numbers are drawn by NumPy.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

PATH = Path(__file__).parent / "whole_layers.json"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_FLASH, _MATH = SDPBackend.FLASH_ATTENTION, SDPBackend.MATH
_EFFICIENT, _CUDNN = SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION
_FLASH_HEADS, _HEADS = (32, 64, 80, 96, 128, 192, 256), (32, 64, 128)  # elements of a head
Results = Tensor | list[Tensor]


class Draw:
    """Numbers for one case, which are the same on any machine."""

    def __init__(self, seed: int, name: str, device: str) -> None:
        self.generator = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
        self.device = device
        self.leaves: list[Tensor] = []

    def numbers(self, *shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
        """Draw normal numbers."""
        values = np.asarray(self.generator.standard_normal(shape, np.float32) * np.float32(scale))
        return torch.from_numpy(values).to(dtype).to(self.device)

    def between(self, low: float, high: float, *shape: int, dtype: torch.dtype) -> Tensor:
        """Draw numbers between two others."""
        values = np.asarray(self.generator.random(shape, np.float32) * np.float32(high - low) + np.float32(low))
        return torch.from_numpy(values).to(dtype).to(self.device)

    def leaf(self, tensor: Tensor) -> Tensor:
        """Keep a tensor as one whose gradient is asked for."""
        self.leaves.append(tensor.requires_grad_())
        return tensor

    def weight(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Draw a weight, whose gradient is asked for."""
        return self.leaf(self.numbers(*shape, dtype=dtype, scale=float(shape[-1]) ** -0.5 if len(shape) > 1 else 1.0))

    def integers(self, limit: int, *shape: int) -> Tensor:
        """Draw integers from 0."""
        return torch.from_numpy(np.asarray(self.generator.integers(0, limit, shape))).to(self.device)

    def pick(self, *values: Any) -> Any:
        """Take one of some values."""
        return values[int(self.generator.integers(0, len(values)))]

    def size(self, low: int, high: int) -> int:
        """Draw a size; small ones are as frequent as large ones."""
        return int(np.exp(self.generator.uniform(np.log(low), np.log(high))))

    def shape(self) -> tuple[int, ...]:
        """Draw a shape of one to three dimensions."""
        found: tuple[int, ...] = self.pick(
            (self.size(1, 300), self.size(1, 2000)), (self.size(1, 9), self.size(1, 40), self.size(1, 300)), (self.size(1, 9000),)
        )
        return found


class Case(NamedTuple):
    """What runs: its category, its name, and a function that draws operands and returns results."""

    category: str
    name: str
    run: Callable[[Draw], Results]


class _Size(NamedTuple):
    width: int
    heads: int
    wide: int
    dtype: torch.dtype  # of the weights
    attention: SDPBackend


def _attend(x: Tensor, parts: list[Tensor], size: _Size, turn: Callable[[Tensor], Tensor]) -> Tensor:
    batch, length, width = x.shape
    q, k, v = (each.view(batch, length, size.heads, width // size.heads).transpose(1, 2) for each in parts)
    with sdpa_kernel(size.attention):
        found = functional.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
    return found.transpose(1, 2).reshape(x.shape)


def _llama(draw: Draw, x: Tensor, size: _Size) -> Tensor:
    length, width, half = x.shape[1], size.width, size.width // size.heads // 2
    norms = [draw.weight(width, dtype=size.dtype) for _ in range(2)]
    q, k, v, o = (draw.weight(width, width, dtype=size.dtype) for _ in range(4))
    up, gate, down = (draw.weight(*shape, dtype=size.dtype) for shape in ((size.wide, width), (size.wide, width), (width, size.wide)))
    angles = torch.outer(torch.arange(length, device=x.device).float(), 10000.0 ** (-torch.arange(half, device=x.device).float() / half))
    cosines, sines = (torch.cat([each, each], -1).to(x.dtype) for each in (angles.cos(), angles.sin()))

    def turn(z: Tensor) -> Tensor:
        return z * cosines + torch.cat([-z[..., half:], z[..., :half]], -1) * sines

    h = functional.rms_norm(x, (width,), norms[0], 1e-6)
    x = x + functional.linear(_attend(x, [functional.linear(h, each) for each in (q, k, v)], size, turn), o)
    h = functional.rms_norm(x, (width,), norms[1], 1e-6)
    return x + functional.linear(functional.silu(functional.linear(h, gate)) * functional.linear(h, up), down)


def _gpt(draw: Draw, x: Tensor, size: _Size) -> Tensor:
    width = size.width

    def vector(length: int) -> Tensor:
        return draw.weight(length, dtype=size.dtype)

    def matrix(rows: int, columns: int) -> Tensor:
        return draw.weight(rows, columns, dtype=size.dtype)

    h = functional.layer_norm(x, (width,), vector(width), vector(width))
    parts = list(functional.linear(h, matrix(3 * width, width), vector(3 * width)).chunk(3, -1))
    x = x + functional.linear(_attend(x, parts, size, lambda z: z), matrix(width, width), vector(width))
    h = functional.layer_norm(x, (width,), vector(width), vector(width))
    h = functional.gelu(functional.linear(h, matrix(size.wide, width), vector(size.wide)), approximate="tanh")
    return x + functional.linear(h, matrix(width, size.wide), vector(width))


def _model(layer: Callable[[Draw, Tensor, _Size], Tensor], dtype: torch.dtype, autocast: bool, attention: SDPBackend) -> Any:
    def run(draw: Draw) -> Results:
        batch, length, heads = draw.pick(1, 2, 3), draw.pick(16, 32, 48, 64, 96, 128), draw.pick(1, 2, 4)
        width, words = heads * draw.pick(32, 64), draw.pick(96, 128, 200, 512)
        size = _Size(width, heads, width * draw.pick(2, 3, 4), torch.float32 if autocast else dtype, attention)
        tokens, labels = draw.integers(words, batch, length), draw.integers(words, batch, length)
        table = draw.leaf(draw.numbers(words, width, dtype=size.dtype))
        with torch.autocast("cuda", dtype, enabled=autocast):
            x = functional.embedding(tokens, table)
            for _ in range(draw.pick(1, 2)):
                x = layer(draw, x, size)
            logits = functional.linear(functional.layer_norm(x, (width,)), draw.weight(words, width, dtype=size.dtype))
            loss = functional.cross_entropy(logits.float().view(-1, words), labels.view(-1))
        return [logits, loss]

    return run


def _attention(kind: SDPBackend, dtype: torch.dtype) -> Callable[[Draw], Results]:
    def run(draw: Draw) -> Results:
        batch, heads = draw.pick(1, 2, 3), draw.pick(1, 2, 3, 6)
        width = draw.pick(*(_FLASH_HEADS if kind is _FLASH else _HEADS))
        length, keys = (draw.pick(17, 32, 64, 96, 130, 200, 256) for _ in range(2))
        is_causal = draw.pick(False, True)
        shapes = [(batch, heads, each, width) for each in (length, *[length if is_causal else keys] * 2)]
        q, k, v = (draw.leaf(draw.numbers(*shape, dtype=dtype)) for shape in shapes)
        with sdpa_kernel(kind):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    return run


Function = Callable[[Draw, torch.dtype], Results]


def _each(function: Callable[[Tensor], Results]) -> Function:
    return lambda draw, dtype: function(draw.leaf(draw.numbers(*draw.shape(), dtype=dtype, scale=2.0)))


def _positive(function: Callable[[Tensor], Results]) -> Function:
    return lambda draw, dtype: function(draw.leaf(draw.between(0.05, 9.0, *draw.shape(), dtype=dtype)))


def _pair(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    def run(draw: Draw, dtype: torch.dtype) -> Tensor:
        shape = draw.shape()
        first, second = (draw.leaf(draw.between(0.1, 5.0, *shape, dtype=dtype)) for _ in range(2))
        return function(first, second)

    return run


def _along(function: Callable[[Tensor, int], Tensor]) -> Function:
    def run(draw: Draw, dtype: torch.dtype) -> Tensor:
        x = draw.leaf(draw.numbers(*draw.shape(), dtype=dtype))
        return function(x, draw.pick(*range(x.dim())))

    return run


def _loss(function: Callable[..., Tensor]) -> Function:
    def run(draw: Draw, dtype: torch.dtype) -> Tensor:
        shape = draw.size(1, 200), draw.size(2, 900)
        x, target = draw.leaf(draw.numbers(*shape, dtype=dtype)), draw.between(0.1, 0.9, *shape, dtype=dtype)
        return function(x, target, reduction=draw.pick("mean", "sum", "none"))

    return run


def _normed(function: Callable[..., Tensor], weights: int) -> Function:
    def run(draw: Draw, dtype: torch.dtype) -> Tensor:
        rows, columns = draw.size(1, 600), draw.size(2, 3000)
        x = draw.leaf(draw.numbers(rows, columns, dtype=dtype, scale=draw.pick(0.1, 1, 10)))
        return function(x, (columns,), *(draw.weight(columns, dtype=dtype) for _ in range(weights)))

    return run


def _group_norm(draw: Draw, dtype: torch.dtype) -> Tensor:
    channels, groups = draw.pick((12, 3), (8, 4), (32, 8), (6, 1))
    x = draw.leaf(draw.numbers(draw.size(1, 9), channels, draw.size(2, 90), dtype=dtype))
    return functional.group_norm(x, groups, draw.weight(channels, dtype=dtype), draw.weight(channels, dtype=dtype))


def _cross_entropy(draw: Draw, dtype: torch.dtype) -> Tensor:
    rows, classes = draw.size(1, 300), draw.size(2, 6000)
    x, smoothing, how = draw.leaf(draw.numbers(rows, classes, dtype=dtype)), draw.pick(0.0, 0.0, 0.1), draw.pick("mean", "sum", "none")
    return functional.cross_entropy(x, draw.integers(classes, rows), label_smoothing=smoothing, reduction=how)


def _embedding(draw: Draw, dtype: torch.dtype) -> Tensor:
    words = draw.size(2, 400)
    indices = draw.integers(words, draw.size(1, 8), draw.size(1, 300))
    return functional.embedding(indices, draw.leaf(draw.numbers(words, draw.size(1, 200), dtype=dtype)))


def _optimizer(kind: type[torch.optim.Optimizer], **options: Any) -> Function:
    def run(draw: Draw, dtype: torch.dtype) -> list[Tensor]:
        shapes = (draw.size(1, 300), draw.size(1, 300)), (draw.size(1, 500),)
        weights = [nn.Parameter(draw.numbers(*shape, dtype=dtype)) for shape in shapes]
        optimizer = kind(weights, **options)
        for _ in range(3):
            for weight in weights:
                weight.grad = draw.numbers(*weight.shape, dtype=dtype)
            optimizer.step()
        return [weight.detach() for weight in weights]

    return run


def _clip(draw: Draw, dtype: torch.dtype) -> list[Tensor]:
    weights = [nn.Parameter(draw.numbers(draw.size(1, 300), draw.size(1, 300), dtype=dtype)) for _ in range(3)]
    for weight in weights:
        weight.grad = draw.numbers(*weight.shape, dtype=dtype)
    return [nn.utils.clip_grad_norm_(weights, 1.0), *(weight.grad for weight in weights if weight.grad is not None)]


def _drawn(function: Callable[[Tensor], Tensor]) -> Function:
    return lambda draw, dtype: function(draw.numbers(draw.size(1, 300), draw.size(1, 700), dtype=dtype))


_EACH = "exp expm1 exp2 sigmoid tanh sin cos tan erf atan sinh cosh asinh square"
_POSITIVE = "log log2 log10 log1p sqrt rsqrt lgamma digamma"
_ACTIVATIONS = "gelu silu mish softplus elu selu celu hardswish hardsigmoid logsigmoid leaky_relu relu6 tanhshrink softsign"
_PAIRS = "pow atan2 hypot logaddexp xlogy mul div maximum"
_ALONG = "sum mean var std amax logsumexp softmax log_softmax cumsum prod"
_LOSSES = "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits"
_ADAM, _ADAMW = torch.optim.Adam, torch.optim.AdamW
FUNCTIONS: dict[str, Function] = {
    **{name: _each(getattr(torch, name)) for name in _EACH.split()},
    **{name: _positive(getattr(torch, name)) for name in _POSITIVE.split()},
    **{name: _each(getattr(functional, name)) for name in _ACTIVATIONS.split()},
    "gelu, tanh": _each(lambda x: functional.gelu(x, approximate="tanh")),
    "powers": _positive(lambda x: [x**exponent for exponent in (2, 3, 0.5, -0.5, -1, 1.7)]),
    **{name: _pair(getattr(torch, name)) for name in _PAIRS.split()},
    "lerp": _pair(lambda a, b: torch.lerp(a, b, 0.3)),
    "addcmul": _pair(lambda a, b: torch.addcmul(a, a, b, value=0.7)),
    "addcdiv": _pair(lambda a, b: torch.addcdiv(a, a, b + 3, value=0.7)),
    "add, alpha": _pair(lambda a, b: torch.add(a, b, alpha=0.3)),
    **{name: _along(getattr(torch, name)) for name in _ALONG.split()},
    "sum of all": _each(torch.sum),
    "mean of all": _each(torch.mean),
    "norm of order 2": _along(lambda x, dim: torch.linalg.vector_norm(x, 2, dim)),
    "norm of order 1": _along(lambda x, dim: torch.linalg.vector_norm(x, 1, dim)),
    "layer_norm": _normed(functional.layer_norm, 2),
    "rms_norm": _normed(functional.rms_norm, 1),
    "group_norm": _group_norm,
    "cross_entropy": _cross_entropy,
    "embedding": _embedding,
    **{name: _loss(getattr(functional, name)) for name in _LOSSES.split()},
    "AdamW": _optimizer(_ADAMW),
    "AdamW, one by one": _optimizer(_ADAMW, foreach=False),
    "AdamW, fused": _optimizer(_ADAMW, fused=True),
    "Adam": _optimizer(_ADAM, weight_decay=0.1),
    "Adam, fused": _optimizer(_ADAM, weight_decay=0.1, fused=True),
    "SGD": _optimizer(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01),
    "clip_grad_norm_": _clip,
    "dropout": lambda draw, dtype: functional.dropout(draw.leaf(draw.numbers(*draw.shape(), dtype=dtype)), draw.pick(0.1, 0.3, 0.5)),
    "bernoulli": _drawn(lambda x: torch.bernoulli(torch.full_like(x, 0.3))),
    "randn_like": _drawn(torch.randn_like),
    "rand_like": _drawn(torch.rand_like),
    "trunc_normal_": _drawn(lambda x: nn.init.trunc_normal_(x, std=0.02)),
    "kaiming_uniform_": _drawn(nn.init.kaiming_uniform_),
    "xavier_normal_": _drawn(nn.init.xavier_normal_),
}


def _models() -> Iterator[Case]:
    for name, layer in (("Llama", _llama), ("GPT", _gpt)):
        for fmt, dtype in DTYPES.items():
            for autocast in (False, True) if fmt != "float32" else (False,):
                for kind in (_MATH, _FLASH) if fmt != "float32" else (_MATH, _EFFICIENT):
                    for index in range(2):
                        text = f"{name} {fmt} {'autocast ' * autocast}{kind.name} {index}"
                        yield Case("Llamas and GPTs: logits, loss, gradients", text, _model(layer, dtype, autocast, kind))


_ATTENTION: dict[str, tuple[SDPBackend, int]] = {
    "flash attention, forward and gradients": (_FLASH, 10),
    "math attention, the same": (_MATH, 6),
    "memory-efficient attention, the same": (_EFFICIENT, 6),
    "cuDNN's attention, the same": (_CUDNN, 6),
}


def every_case() -> Iterator[Case]:
    """All cases, in the order of the table."""
    yield from _models()
    for category, (kind, count) in _ATTENTION.items():
        for fmt, dtype in DTYPES.items():
            if fmt != "float32" or kind in (_MATH, _EFFICIENT):
                for index in range(count):
                    yield Case(category, f"{kind.name} {fmt} {index}", _attention(kind, dtype))
    for name, function in FUNCTIONS.items():
        for fmt, dtype in DTYPES.items():
            for index in range(2):
                run = lambda draw, function=function, dtype=dtype: function(draw, dtype)  # noqa: E731
                yield Case("functions, norms, softmax, sums, losses, steps, draws", f"{name} {fmt} {index}", run)


def _checksum(tensor: Tensor) -> int:
    x = tensor.detach()
    x = torch.where(x.isnan(), torch.full_like(x, float("nan")), x)  # no standard says which NaN it is
    return zlib.crc32(x.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())


def computed(case: Case, seed: int, device: str = "cpu") -> list[int]:
    """Return the checksums of what a case computes, and of the gradients of what it was given."""
    draw = Draw(seed, case.name, device)
    torch.manual_seed(seed % 1000)
    found = case.run(draw)
    results = [found] if isinstance(found, Tensor) else found
    live = [each for each in results if each.requires_grad]
    incoming = [draw.numbers(*each.shape, dtype=each.dtype) for each in live]
    gradients = torch.autograd.grad(live, draw.leaves, incoming) if live else ()
    return [_checksum(each) for each in (*results, *gradients)]


def record(path: str, *seeds: int) -> None:
    """Record all cases on the GPU of this machine, each twice: None stands for what it did not repeat."""
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "seeds": {}}
    for seed in seeds:
        sums: dict[str, list[int | None]] = {}
        found["seeds"][str(seed)] = sums
        for case in every_case():
            runs = [computed(case, seed, "cuda") for _ in range(2)]
            sums[case.name] = [first if first == second else None for first, second in zip(*runs, strict=True)]
        Path(path).write_text(json.dumps(found, separators=(",", ":")).replace('],"', '],\n"'))


class Count(NamedTuple):
    """Of a category: results that the GPU repeats, how many are equal, called emulated, and both."""

    results: int
    equal: int
    claimed: int
    right: int


def compare(target: str = "H200", path: Path = PATH, cases: Iterable[Case] | None = None) -> tuple[dict[str, Count], list[str]]:
    """Compute cases under emulation, by default all; also name those with other bits that are called emulated."""
    import fastmma.torch as ft  # not on the machine that records

    chosen = list(every_case() if cases is None else cases)
    counts: Counter[tuple[str, bool, bool]] = Counter()
    wrong = []
    for seed, sums in json.loads(path.read_text())["seeds"].items():
        for case in chosen:
            with ft.emulate(target, unknown="one") as gpu:
                found = computed(case, int(seed))
            claimed = not (gpu.report.assumed or gpu.report.passed or gpu.report.unseen)
            pairs = [(here, there) for here, there in zip(found, sums[case.name], strict=True) if there is not None]
            counts.update((case.category, here == there, claimed) for here, there in pairs)
            wrong += [f"{seed} {case.name}"] * (claimed and any(here != there for here, there in pairs))
    table = {}
    for category in dict.fromkeys(case.category for case in chosen):
        right, unclaimed = counts[category, True, True], counts[category, True, False]
        claimed, others = right + counts[category, False, True], unclaimed + counts[category, False, False]
        table[category] = Count(claimed + others, right + unclaimed, claimed, right)
    return table, wrong


def main() -> None:
    """Print the table, or record."""
    if sys.argv[1:2] == ["--record"]:
        record(sys.argv[2], *map(int, sys.argv[3:]))
        return
    table, wrong = compare(*sys.argv[1:2], *map(Path, sys.argv[2:3]))
    table["all"] = Count(*map(sum, zip(*table.values(), strict=True)))
    print("| | results | equal | called emulated | of these equal |\n| --- | --- | --- | --- | --- |")
    for category, count in table.items():
        print(f"| {category} | {' | '.join(f'{each:,}' for each in count)} |")
    print("\n".join(["", *wrong]))


if __name__ == "__main__":
    main()
