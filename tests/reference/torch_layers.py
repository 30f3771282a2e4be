"""Layers that PyTorch 2.11 computed on an H100: batch norms, and attention of head dimensions that torch fills up, or of tiny numbers.

Operands are drawn for a call from its seed, its kind and what it was given. Of each result there is a checksum of the checksums of each
256 codes; nothing where the GPU itself did not repeat it.
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
from torch.nn.attention import SDPBackend, sdpa_kernel

from reference.torch_autocast import Draw

PATH = Path(__file__).parent / "torch_layers.json"
_BLOCK = 256
_CODES = {2: torch.int16, 4: torch.int32}
_KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "flashdet": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
Given = dict[str, Any]


class Call(NamedTuple):
    """A call, and the checksum of each result."""

    seed: int
    kind: str
    given: Given
    checksums: list[int | None]


def _with_gradients(draw: Draw, result: Tensor, operands: list[Tensor | None]) -> list[Tensor]:
    leaves = [each for each in operands if each is not None]
    gradient = torch.from_numpy(draw.generator.standard_normal(tuple(result.shape), np.float32)).to(result.dtype)
    return [result, *torch.autograd.grad(result, leaves, gradient)]


def _batch_norm(draw: Draw, given: Given) -> list[Tensor]:
    shape, weights = given["shape"], given["weights"]
    x = draw.normal(shape, given["fmt"], 2.0)
    x = (x.contiguous(memory_format=torch.channels_last) if given["channels_last"] else x).requires_grad_()
    weight, bias = (draw.normal(shape[1], weights, grad=True) if given["affine"] else None for _ in range(2))
    mean, variance = (draw.normal(shape[1], weights), draw.uniform(shape[1], weights, 0.3, 2.0)) if given["running"] else (None, None)
    with torch.backends.cudnn.flags(enabled=given["cudnn"], allow_tf32=False):
        y = functional.batch_norm(x, mean, variance, weight, bias, given["train"], 0.1, 1e-5)
        found = _with_gradients(draw, y, [x, weight, bias])
    return found + [each for each in (mean, variance) if each is not None]


def _attention(draw: Draw, given: Given) -> list[Tensor]:
    def operand(heads: int, length: int) -> Tensor:
        x = draw.normal((given["batch"], length, heads, given["size"]), given["fmt"])
        x = (x * given["tiny"] if given.get("tiny") else x).transpose(1, 2)
        return (x if given["layout"] == "blhd" else x.contiguous()).requires_grad_()

    sizes = (given["heads"], given["queries"]), (given["shared"], given["keys"]), (given["shared"], given["keys"])
    q, k, v = (operand(*each) for each in sizes)
    torch.use_deterministic_algorithms(given["kernel"] == "flashdet")
    try:
        with sdpa_kernel(_KERNELS[given["kernel"]]):
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=given["causal"], enable_gqa=given["gqa"])
            return _with_gradients(draw, y, [q, k, v])
    finally:
        torch.use_deterministic_algorithms(False)


KINDS: dict[str, Callable[[Draw, Given], list[Tensor]]] = {"batch_norm": _batch_norm, "attention": _attention}


def run(call: Call) -> list[Tensor]:
    """Compute what a call returns."""
    draw = Draw(call.seed, call.kind, json.dumps(call.given, sort_keys=True))
    return [each.detach() for each in KINDS[call.kind](draw, call.given)]


def checksum(tensor: Tensor) -> int:
    """Return the checksum of a result, of all NaN as one."""
    plain = torch.where(tensor.isnan(), torch.full_like(tensor, float("nan")), tensor)
    codes: NDArray[Any] = plain.contiguous().reshape(-1).view(_CODES[tensor.itemsize]).numpy()
    sums = [zlib.crc32(codes[start : start + _BLOCK].tobytes()) for start in range(0, codes.size, _BLOCK)]
    return zlib.crc32(np.array(sums, np.uint32).tobytes())


def recorded() -> list[Call]:
    """All calls."""
    return [Call(*row) for row in json.loads(PATH.read_text())]
