"""``python -m bench.functions``: functions between products, and a training step, in CPU time of one thread, beside torch's own.

torch's functions have other bits: what is compared is what a caller waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import click
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

import fastmma.torch
from bench.product_bounds import seconds_at_least
from fastmma.study.speed.measure import interleaved
from fastmma.torch.functions import place
from fastmma.torch.kept_products import kept_by
from fastmma.torch.settings import settings_of

_WIDTHS, _HEADS, _VOCABULARY = (64, 256), 4, 512
Function = Callable[[torch.Tensor], Any]
_FUNCTIONS: dict[str, Function] = {
    "exp": torch.exp,
    "log": torch.log,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "cos": torch.cos,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu, tanh": partial(functional.gelu, approximate="tanh"),
    "softmax": partial(torch.softmax, dim=-1),
    "log_softmax": partial(torch.log_softmax, dim=-1),
    "sum": partial(torch.sum, dim=-1),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: functional.rms_norm(x, x.shape[-1:]),
}


def _repeated(function: Function, x: torch.Tensor, calls: int) -> None:
    for _ in range(calls):
        function(x)


def _emulated(function: Function, x: torch.Tensor, calls: int) -> None:
    with fastmma.torch.emulate("H200", threads=1, unknown="one"):
        _repeated(function, x, calls)


def _seconds(name: str, dtype: torch.dtype, quick: bool, rounds: int) -> dict[str, float]:
    """Seconds of an element of a function, torch's and ours."""
    rows, columns, calls = (4, 64, 1) if quick else (512, 512, 64)
    x = torch.rand((rows, columns), generator=torch.Generator().manual_seed(1)).to(dtype)
    runs = {which: partial(run, _FUNCTIONS[name], x, calls) for which, run in (("torch", _repeated), ("ours", _emulated))}
    return {which: seconds / calls / x.numel() for which, seconds in interleaved(runs, rounds, time.thread_time).items()}


def over_torch(name: str, quick: bool, rounds: int) -> float:
    """How many times as long as torch's a function of float32 takes within an emulation."""
    found = _seconds(name, torch.float32, quick, rounds)
    return found["ours"] / found["torch"]


def functions(quick: bool, rounds: int) -> list[str]:
    """Nanoseconds of an element of each function, and how many times torch's these are."""
    lines = ["| of each element, 1 thread | f32, ns | times torch | bf16, ns | times torch |", "| --- | --- | --- | --- | --- |"]
    for name in _FUNCTIONS:
        cells = []
        for dtype in (torch.float32, torch.bfloat16):
            found = _seconds(name, dtype, quick, rounds)
            cells.append(f"{found['ours'] * 1e9:.2f} | {found['ours'] / found['torch']:.1f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


class _Block(torch.nn.Module):
    """A layer of a Llama without rotations, or of a GPT."""

    def __init__(self, width: int, is_llama: bool) -> None:
        super().__init__()
        wide = (3 if is_llama else 4) * width
        norm = torch.nn.RMSNorm if is_llama else torch.nn.LayerNorm
        self.width, self.first, self.second = width, norm(width), norm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width, bias=False), torch.nn.Linear(width, width, bias=False)
        self.gate = torch.nn.Linear(width, wide, bias=False) if is_llama else None
        self.up, self.down = torch.nn.Linear(width, wide, bias=False), torch.nn.Linear(wide, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, and take the layers behind."""
        batch, length, _ = x.shape
        heads = (batch, length, _HEADS, self.width // _HEADS)
        q, k, v = (each.reshape(heads).transpose(1, 2) for each in self.qkv(self.first(x)).split(self.width, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        y = self.second(x)
        return x + self.down(functional.gelu(self.up(y)) if self.gate is None else functional.silu(self.gate(y)) * self.up(y))


def _step(model: torch.nn.Module, tokens: torch.Tensor, emulated: bool) -> None:
    model.zero_grad()
    with sdpa_kernel(SDPBackend.MATH):
        if emulated:
            with fastmma.torch.emulate("H200", threads=1, unknown="one"):
                functional.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten()).backward()
        else:
            functional.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten()).backward()


def models(quick: bool, rounds: int) -> list[str]:
    """Milliseconds of a training step of two layers, and how many times plain torch's these are."""
    shape = (1, 16) if quick else (4, 128)
    tokens = torch.randint(0, _VOCABULARY, shape, generator=torch.Generator().manual_seed(2))
    lines = [f"| {shape[0]} x {shape[1]} tokens, forward and backward, 1 thread | f32, ms | times torch | bf16, ms | times torch |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for width, (name, is_llama) in product(_WIDTHS, (("Llama", True), ("GPT", False))):
        cells = []
        for dtype in (torch.float32, torch.bfloat16):
            model = _model(width, is_llama, dtype)
            runs = {"torch": partial(_step, model, tokens, False), "ours": partial(_step, model, tokens, True)}
            found = interleaved(runs, rounds, time.thread_time)
            cells.append(f"{found['ours'] * 1e3:.0f} | {found['ours'] / found['torch']:.1f}")
        lines.append(f"| {name}, 2 layers of width {width} | {' | '.join(cells)} |")
    return lines


class _Operands(TorchDispatchMode):
    """A mode that keeps the operands of all matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func is torch.ops.aten.mm.default:
            self.kept.append((args[0].detach(), args[1].detach()))
        return func(*args, **(kwargs or {}))


def _multiply(operands: list[tuple[torch.Tensor, torch.Tensor]], emulated: bool) -> None:
    with fastmma.torch.emulate("H200", threads=1, unknown="one") if emulated else nullcontext():
        for a, b in operands:
            a @ b


def _least(runs: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """CPU seconds of each, the least of interleaved rounds: whoever else is on the core only adds to them."""
    found = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds + 1):
        for name, run in runs.items():
            began = time.thread_time()
            run()
            found[name] = min(found[name], time.thread_time() - began)
    return found


class Step(NamedTuple):
    """Seconds of a training step in bfloat16, and of its products of linear layers alone.

    `least` is how many times torch's step it takes if these products never wait, and all else takes as long as torch's: None if unknown.
    """

    name: str
    torch: float
    ours: float
    products: float
    work: int  # multiply-adds of these products
    least: float | None


def steps(quick: bool, rounds: int) -> Iterator[Step]:
    """Measure the step of each model, interleaved with torch's."""
    tokens = torch.randint(0, _VOCABULARY, (1, 16) if quick else (4, 128), generator=torch.Generator().manual_seed(2))
    for width, (name, is_llama) in product(_WIDTHS, (("Llama", True), ("GPT", False))):
        model = _model(width, is_llama, torch.bfloat16)
        with _Operands() as mode:
            _step(model, tokens, False)
        runs = {"torch": partial(_step, model, tokens, False), "ours": partial(_step, model, tokens, True)}
        runs |= {"products": partial(_multiply, mode.kept, True), "torch's products": partial(_multiply, mode.kept, False)}
        found = _least(runs, rounds)
        shapes = [(a.shape[0], b.shape[1], a.shape[1]) for a, b in mode.kept]
        seconds = seconds_at_least(shapes, rounds)
        least = None if seconds is None else (seconds + found["torch"] - found["torch's products"]) / found["torch"]
        work = sum(m * n * k for m, n, k in shapes)
        yield Step(f"{name}, 2 layers of width {width}", found["torch"], found["ours"], found["products"], work, least)


def bounds(quick: bool, rounds: int) -> list[str]:
    """How many times torch's step one takes, the products of linear layers alone, and the least that these instructions allow."""
    lines = [
        "| bf16, 1 thread | step, ms | times torch | products alone, ms | times torch's step | GMAC/s | part | at least, times torch |",
        f"| {'--- | ' * 8}".rstrip(),
    ]
    for step in steps(quick, rounds):
        over = [f"{each * 1e3:.0f} | {each / step.torch:.1f}" for each in (step.ours, step.products)]
        speed, part = step.work / step.products / 1e9, step.products / step.ours
        least = "" if step.least is None else f"{step.least:.1f}"
        lines.append(f"| {step.name} | {' | '.join(over)} | {speed:.1f} | {part:.2f} | {least} |")
    return lines


def _model(width: int, is_llama: bool, dtype: torch.dtype) -> torch.nn.Module:
    """Make a model of two layers."""
    torch.manual_seed(3)
    ends = torch.nn.Embedding(_VOCABULARY, width), torch.nn.Linear(width, _VOCABULARY, bias=False)
    return torch.nn.Sequential(ends[0], _Block(width, is_llama), _Block(width, is_llama), ends[1]).to(dtype)


def small(quick: bool, rounds: int) -> list[str]:
    """Microseconds of small operators within an emulation, and of torch's own."""
    calls = 10 if quick else 400
    lines = ["| 64 x 64 elements, 1 thread, us | f32 | torch's | bf16 | torch's |", "| --- | --- | --- | --- | --- |"]
    for name, function in _SMALL.items():
        cells = []
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.rand((64, 64), generator=torch.Generator().manual_seed(1)).to(dtype)
            runs = {"torch": partial(_repeated, function, x, calls), "ours": partial(_emulated, function, x, calls)}
            found = interleaved(runs, rounds, time.thread_time)
            cells.append(f"{found['ours'] / calls * 1e6:.1f} | {found['torch'] / calls * 1e6:.1f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


class _Empty(TorchDispatchMode):
    """A mode that computes every operator as torch does, or, given a result, makes memory for one like it."""

    def __init__(self, result: torch.Tensor | None = None) -> None:
        super().__init__()
        self._result = result

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return func(*args, **(kwargs or {})) if self._result is None else torch.empty_like(self._result)


def _within(mode: Any, function: Function, x: torch.Tensor, calls: int) -> None:
    with mode:
        _repeated(function, x, calls)


def _kernel_of(function: Function, x: torch.Tensor, out: torch.Tensor) -> Callable[[], Any] | None:
    """Return what runs the kernel of a call on addresses, of which `out` has the result; None where torch computes it."""
    kept = kept_by(settings_of("H200", {"threads": 1, "unknown": "one"}))
    for each in kept:
        each.clear()
    with fastmma.torch.emulate("H200", threads=1, unknown="one"):
        function(x)
    if kept.products:
        (computation,) = kept.products.values()
        return partial(computation.fixed, x.data_ptr(), x.data_ptr(), out.data_ptr())
    if not kept.calls:
        return None
    placed = place(getattr(torch.ops.aten, function.__name__).default, (x,), {})
    return partial(placed.applied.run, [x.data_ptr()], out.data_ptr(), 1) if placed else None


def _call(run: Callable[[], Any], calls: int) -> None:
    for _ in range(calls):
        run()


def dispatch(quick: bool, rounds: int) -> list[str]:
    """Microseconds of a call that are neither a kernel's nor those of a mode that makes memory, or calls torch's kernel."""
    calls = 10 if quick else 2000
    lines = ["| 32 x 32 elements, 1 thread, us | emulated | empty mode | kernel | fastmma's own |", "| --- | --- | --- | --- | --- |"]
    for dtype in (torch.float32, torch.bfloat16):
        for name, function in _DISPATCHED.items():
            x = torch.rand((32, 32), generator=torch.Generator().manual_seed(1)).to(dtype)
            result = function(x)
            kernel = _kernel_of(function, x, result)
            emulation = fastmma.torch.emulate("H200", threads=1, unknown="one")
            runs: dict[str, Callable[[], Any]] = {
                "ours": partial(_within, emulation, function, x, calls),
                "empty": partial(_within, _Empty(None if kernel is None else result), function, x, calls),
                "kernel": partial(_call, kernel, calls) if kernel else int,
            }
            found = {each: seconds / calls * 1e6 for each, seconds in interleaved(runs, rounds, time.thread_time).items()}
            own = found["ours"] - found["empty"] - (found["kernel"] if kernel else 0)
            alone = f"{found['kernel']:.1f}" if kernel else "torch's"
            kind = str(dtype).removeprefix("torch.")
            lines.append(f"| {name}, {kind} | {found['ours']:.1f} | {found['empty']:.1f} | {alone} | {own:.1f} |")
    return lines


_DISPATCHED: dict[str, Function] = {
    "x @ x": lambda x: x @ x,
    "view": lambda x: x.view(-1),
    "add": lambda x: x + x,
    "mul": lambda x: x * x,
    "relu": torch.relu,
    "exp": torch.exp,
}
_SMALL: dict[str, Function] = {
    "x @ x": lambda x: x @ x,
    "linear, with a bias": lambda x: functional.linear(x, x, x[0]),
    "view": lambda x: x.view(-1),
    "relu": torch.relu,
    "exp": torch.exp,
    "sum of columns": partial(torch.sum, dim=0),
}


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes: only checks that everything runs.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, help="Rounds, of which the median counts.")
def measure(
    quick: bool,
    rounds: int,
) -> None:
    """Measure functions and models."""
    torch.set_num_threads(1)
    click.echo("\n\n".join("\n".join(section(quick, rounds)) for section in (functions, models, bounds, small, dispatch)))


if __name__ == "__main__":
    measure()
