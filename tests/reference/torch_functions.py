"""Functions that PyTorch 2.11 computed on an H200, forward and backward: calls, a part of their results, and checksums of all codes.

``python tests/reference/torch_functions.py --exhaustive`` compares all 2^32 results of libdevice's functions with the checksums.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

PATH = Path(__file__).parent / "torch_functions.npz"
SEED = 2
KEPT = 21  # every so many elements
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_ALONE = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma sqrt rsqrt "
    "reciprocal sigmoid logit sinc square floor trunc frac"
)
_ACTIVATIONS = "relu silu mish softplus elu selu celu hardswish hardsigmoid logsigmoid softsign tanhshrink softshrink hardshrink gelu"
UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {name: getattr(torch, name) for name in _ALONE.split()}
UNARY |= {name: getattr(functional, name) for name in _ACTIVATIONS.split()}
UNARY |= {
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "ndtr": torch.special.ndtr,
    "entr": torch.special.entr,
    "mul_0.3": lambda x: x * 0.3,
    "div_0.3": lambda x: x / 0.3,
    "add_0.3": lambda x: x + 0.3,
    "rsub": lambda x: 1 - x,
    "rdiv": lambda x: 3.0 / x,
    "softplus_b": lambda x: functional.softplus(x, 2.0, 5.0),
    "elu_a": lambda x: functional.elu(x, 0.3),
    "fmod_0.7": lambda x: torch.fmod(x, 0.7),
    "remainder_0.7": lambda x: torch.remainder(x, 0.7),
}
UNARY |= {f"pow_{power}": (lambda x, power=power: torch.pow(x, power)) for power in (2, 3, 4, 0.5, -0.5, -1, -2, 1.5, 0.3, 5, -3)}
UNARY |= {f"rpow_{base}": (lambda x, base=base: torch.pow(base, x)) for base in (2.0, 10000.0, 0.5)}
BINARY: dict[str, Callable[..., torch.Tensor]] = {
    name: getattr(torch, name) for name in ["add", "sub", "mul", "div", "pow", "atan2", "hypot", "maximum", "minimum", "logaddexp", "xlogy"]
}
BINARY |= {
    "add_a": lambda a, b: torch.add(a, b, alpha=0.3),
    "sub_a": lambda a, b: torch.sub(a, b, alpha=1.7),
    "lerp_0.3": lambda a, b: torch.lerp(a, b, 0.3),
    "lerp_0.7": lambda a, b: torch.lerp(a, b, 0.7),
    "mse_none": lambda a, b: functional.mse_loss(a, b, reduction="none"),
    "smooth_none": lambda a, b: functional.smooth_l1_loss(a, b, reduction="none"),
    "bcel_none": lambda a, b: functional.binary_cross_entropy_with_logits(a, b.detach().sigmoid(), reduction="none"),
    "silu_mul": lambda a, b: functional.silu(a) * b,
    "glu": lambda a, b: functional.glu(torch.cat([a, b])),
}
TERNARY: dict[str, Callable[..., torch.Tensor]] = {
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=0.3),
    "addcmul1": torch.addcmul,
    "addcdiv": lambda a, b, c: torch.addcdiv(a, b, c, value=0.3),
    "addcdiv1": torch.addcdiv,
    "lerp_t": torch.lerp,
    "mul_add": lambda a, b, c: a * b + c,
}
KINDS = ("unary", "unary_grad", "binary")


class Call(NamedTuple):
    """A recorded call, and the codes of every `KEPT`-th element of its results."""

    kind: str
    name: str
    fmt: str
    results: list[NDArray[Any]]


def generator(*seeds: Any) -> np.random.Generator:
    """A generator that draws the same on every machine."""
    return np.random.Generator(np.random.PCG64([each if isinstance(each, int) else zlib.crc32(str(each).encode()) for each in seeds]))


def codes(fmt: str, count: int, rng: np.random.Generator) -> torch.Tensor:
    """Numbers of all magnitudes, zeros, infinities and NaN among them."""
    if fmt == "f32":
        half = count // 2
        bits = rng.integers(0, 1 << 32, half, dtype=np.uint64).astype(np.uint32)
        near = rng.standard_normal(count - half, np.float32) * np.exp2(rng.integers(-6, 7, count - half)).astype(np.float32)
        return torch.from_numpy(np.concatenate([bits.view(np.float32), near]))
    return torch.from_numpy(rng.integers(0, 65536, count).astype(np.uint16).view(np.int16)).view(DTYPES[fmt])


def _with_gradients(function: Callable[..., torch.Tensor], operands: list[torch.Tensor], rng: np.random.Generator) -> list[torch.Tensor]:
    found = function(*operands)
    gradient = torch.from_numpy(rng.standard_normal(tuple(found.shape), np.float32)).to(found.dtype)
    gradients = torch.autograd.grad([found], operands, [gradient], allow_unused=True) if found.requires_grad else ()
    return [found.detach(), *(each for each in gradients if each is not None)]


def run(kind: str, name: str, fmt: str) -> list[torch.Tensor]:
    """Run a call."""
    if kind == "unary":
        return [UNARY[name](codes(fmt, 8192, generator(SEED, name, fmt)))]
    if kind == "unary_grad":
        rng = generator(SEED, name, fmt, "b")
        return _with_gradients(UNARY[name], [codes(fmt, 4096, rng).clone().requires_grad_()], rng)[1:]
    rng, count = generator(SEED, name, fmt), 3 if name in TERNARY else 2
    function = (BINARY | TERNARY)[name]
    wild = [codes(fmt, 4096, rng).clone().requires_grad_() for _ in range(count)]
    usual = [torch.from_numpy(rng.standard_normal(4096, np.float32) * np.float32(2)).to(DTYPES[fmt]).requires_grad_() for _ in range(count)]
    return _with_gradients(function, wild, rng) + _with_gradients(function, usual, rng)


def bits(tensor: torch.Tensor) -> NDArray[Any]:
    """The codes of a tensor, of all NaN one."""
    plain = torch.where(tensor.isnan(), torch.full_like(tensor, float("nan")), tensor).detach().contiguous().reshape(-1)
    wide = plain.dtype is torch.float32
    return plain.view(torch.int32 if wide else torch.int16).numpy().view(np.uint32 if wide else np.uint16)


def recorded() -> Iterator[Call]:
    """All calls."""
    with np.load(PATH) as archive:
        calls, wide, narrow = json.loads(archive["calls"].tobytes()), archive["wide"], archive["narrow"]
    places = {4: 0, 2: 0}
    for kind, name, fmt, sizes in calls:
        source, item = (wide, 4) if fmt == "f32" else (narrow, 2)
        results = []
        for size in sizes:
            results.append(source[places[item] : places[item] + size])
            places[item] += size
        yield Call(kind, name, fmt, results)


def checksum(results: NDArray[np.float32]) -> int:
    """Sum the codes of 2^24 results, each with a weight of its own, modulo 2^64."""
    weights = (np.arange(1 << 24, dtype=np.int64) * 2654435761 % (1 << 31)) | 1
    wide = np.where(np.isnan(results), np.int64(0x7FFFFFFF), results.view(np.int32).astype(np.int64))
    with np.errstate(over="ignore"):
        return int((wide * weights).sum(dtype=np.int64))


def chunk(number: int) -> NDArray[np.float32]:
    """The float32 numbers whose codes begin with a byte."""
    return (np.arange(1 << 24, dtype=np.uint32) + np.uint32(number << 24)).view(np.float32)


def checksums() -> dict[str, NDArray[np.int64]]:
    """Of libdevice's functions, by the first byte of the codes."""
    with np.load(PATH) as archive:
        return {name.removeprefix("sum."): archive[name] for name in archive.files if name.startswith("sum.")}


def main() -> None:
    """Compare all results with the checksums."""
    from fastmma.functions import libdevice

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exhaustive", action="store_true", required=True)
    parser.parse_args()
    print(libdevice.release())
    for name, sums in checksums().items():
        differ = [f"{number:#x}" for number in range(256) if checksum(libdevice.call(name, chunk(number))) != sums[number]]
        print(f"{name:8} {256 - len(differ)} of 256 chunks are equal {' '.join(differ)}", flush=True)


if __name__ == "__main__":
    main()
