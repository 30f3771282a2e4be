"""Convolutions that PyTorch 2.11 with cuDNN 9.19 computed on an H200: cases by seed, and the checksums of results and gradients.

Of a case the operands are drawn by NumPy; ``PATH`` has, for each, the CRC-32 of the codes of the result, of both gradients and of the
bias's, and which of them the GPU itself did not repeat.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

PATH = Path(__file__).parent / "convolutions.json"
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "tf32": torch.float32}
NAMES = ("y", "dx", "dw", "db")


class Case(NamedTuple):
    """A convolution, by what its numbers are drawn from."""

    seed: int
    number: int
    kind: str
    mode: str

    @property
    def last(self) -> bool:
        """Tell whether channels lie last."""
        return self.mode.endswith("last")


class Drawn(NamedTuple):
    """The operands of a case."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    stride: int
    grad: Tensor


def _pick(rng: np.random.Generator, *values: int) -> int:
    return values[int(rng.integers(len(values)))]


def drawn(case: Case) -> Drawn:
    """Draw the operands of a case."""
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(repr(("conv", *case)).encode())))
    images, channels = _pick(rng, 1, 2, 3, 4), _pick(rng, 8, 16, 24, 32, 64, 96, 128)
    results, height, width = _pick(rng, 8, 16, 32, 48, 64, 128), _pick(rng, 7, 8, 14, 16, 20, 28), _pick(rng, 7, 8, 14, 16, 24)
    groups = _pick(rng, 2, 4, 8)
    assert groups  # drawn for all kinds
    size = 1
    if case.kind == "patch":
        size = _pick(rng, 4, 8, 14, 16)
        channels = _pick(rng, 1, 3, 3, 4)
        height, width = size * _pick(rng, 4, 6, 7, 14), size * _pick(rng, 4, 5, 14)
        results = _pick(rng, 64, 96, 128, 192, 384, 768)
    elif case.kind == "1x1":
        height *= 2
    has_bias = bool(rng.integers(2))
    dtype = DTYPES[case.mode.split()[0]]

    def numbers(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape, np.float32)).to(dtype)

    kernel = (size, size) if case.kind != "1d1" else (1,)
    x = numbers(images, channels, *((height, width) if len(kernel) == 2 else (height * width,)))
    weight, bias = numbers(results, channels, *kernel), numbers(results)
    places = [each // size for each in x.shape[2:]]
    grad = numbers(images, results, *places)
    if case.last and x.dim() == 4:
        x, weight, grad = (each.contiguous(memory_format=torch.channels_last) for each in (x, weight, grad))
    return Drawn(x, weight, bias if has_bias else None, size, grad)


def computed(operands: Drawn) -> list[Tensor]:
    """Compute the result and the gradients of the input, of the weight and of the bias."""
    x, weight, bias, stride, grad = operands
    leaves = [each.detach().requires_grad_() for each in (x, weight, *(() if bias is None else (bias,)))]
    convolve = functional.conv2d if x.dim() == 4 else functional.conv1d
    y = convolve(leaves[0], leaves[1], leaves[2] if bias is not None else None, stride)
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


def checksum(tensor: Tensor) -> int:
    """Return the CRC-32 of the codes of a tensor, in the order of its dimensions."""
    plain = tensor.detach().contiguous()
    return zlib.crc32(plain.view(torch.int16 if plain.itemsize == 2 else torch.int32).numpy().tobytes())


def recorded() -> list[tuple[Case, dict[str, int], list[str]]]:
    """All cases, the checksums of what the H200 computed, and what it did not repeat."""
    rows: list[Any] = json.loads(PATH.read_text())
    return [(Case(*case), dict(zip(NAMES, sums, strict=False)), unrepeated) for case, sums, unrepeated in rows]
