"""A Llama and a GPT of one or two layers that PyTorch 2.11 trained a step of on an H200: losses, logits, hidden states, all gradients.

Attention is math attention (``SDPBackend.MATH``), and ``allow_fp16_bf16_reduction_math_sdp`` is on.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from reference.torch_functions import DTYPES, SEED, bits, generator

PATH = Path(__file__).parent / "torch_models.json"
VOCABULARY = 512


class Model(NamedTuple):
    """A model, its input, and the format of its weights."""

    kind: str
    width: int
    heads: int
    layers: int
    length: int
    batch: int
    fmt: str


class _RmsNorm(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _modules(model: Model) -> torch.nn.ModuleDict:
    width, is_llama = model.width, model.kind == "llama"
    norm = _RmsNorm if is_llama else torch.nn.LayerNorm
    made: dict[str, torch.nn.Module] = {
        "emb": torch.nn.Embedding(VOCABULARY, width),
        "head": torch.nn.Linear(width, VOCABULARY, bias=False),
    }
    for layer in range(model.layers):
        made |= {f"n1{layer}": norm(width), f"n2{layer}": norm(width)}
        made |= {f"qkv{layer}": torch.nn.Linear(width, 3 * width, bias=not is_llama)}
        made |= {f"o{layer}": torch.nn.Linear(width, width, bias=not is_llama)}
        wide = 3 * width if is_llama else 4 * width
        if is_llama:
            made |= {f"g{layer}": torch.nn.Linear(width, wide, bias=False)}
        made |= {f"u{layer}": torch.nn.Linear(width, wide, bias=not is_llama)}
        made |= {f"d{layer}": torch.nn.Linear(wide, width, bias=not is_llama)}
    made["nf"] = norm(width)
    if not is_llama:
        made["pos"] = torch.nn.Embedding(model.length, width)
    return torch.nn.ModuleDict(made)


def build(model: Model) -> tuple[torch.nn.ModuleDict, torch.Tensor, torch.Tensor]:
    """Build a model, its input and its targets."""
    rng, modules = generator(SEED, model.kind, model.width, model.fmt, "model"), _modules(model)
    with torch.no_grad():
        for name, weight in modules.named_parameters():
            scale, shift = (0.06, 0) if weight.ndim > 1 else (0.1, 0 if "bias" in name else 1)
            values = rng.standard_normal(tuple(weight.shape), np.float32) * np.float32(scale) + np.float32(shift)
            weight.copy_(torch.from_numpy(values))
    shape = (model.batch, model.length)
    x, y = (torch.from_numpy(rng.integers(0, VOCABULARY, shape)) for _ in range(2))
    return modules.to(DTYPES[model.fmt]), x, y


def _rotate(model: Model) -> Any:
    size = model.width // model.heads
    inverse = 1.0 / (10000.0 ** (torch.arange(0, size, 2).float() / size))
    angles = torch.outer(torch.arange(model.length).float(), inverse)
    cosines, sines = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()

    def rotate(t: torch.Tensor) -> torch.Tensor:
        half = torch.cat([-t[..., size // 2 :], t[..., : size // 2]], -1)
        return t * cosines.to(t.dtype) + half * sines.to(t.dtype)

    return rotate


def step(model: Model, built: tuple[torch.nn.ModuleDict, torch.Tensor, torch.Tensor]) -> list[torch.Tensor]:
    """Compute hidden states, logits, the loss, and the gradients of all weights."""
    modules, x, y = built
    width, shape = model.width, (model.batch, model.length, model.heads, model.width // model.heads)
    rotate, hidden = _rotate(model), []
    with sdpa_kernel(SDPBackend.MATH):
        h = modules["emb"](x)
        if model.kind == "gpt":
            h = h + modules["pos"](torch.arange(model.length))
        for layer in range(model.layers):
            z = modules[f"n1{layer}"](h)
            q, k, v = (t.view(shape).transpose(1, 2) for t in modules[f"qkv{layer}"](z).split(width, -1))
            if model.kind == "llama":
                q, k = rotate(q), rotate(k)
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + modules[f"o{layer}"](attended.transpose(1, 2).reshape(model.batch, model.length, width))
            hidden.append(h.detach())
            z = modules[f"n2{layer}"](h)
            if model.kind == "llama":
                found = functional.silu(modules[f"g{layer}"](z)) * modules[f"u{layer}"](z)
            else:
                found = functional.gelu(modules[f"u{layer}"](z), approximate="tanh")
            h = h + modules[f"d{layer}"](found)
            hidden.append(h.detach())
        logits = modules["head"](modules["nf"](h))
        loss = functional.cross_entropy(logits.float().view(-1, VOCABULARY), y.view(-1))
    loss.backward()
    gradients = [weight.grad for weight in modules.parameters()]
    return [*hidden, logits.detach(), loss.detach(), *(each for each in gradients if each is not None)]


def checksums(results: list[torch.Tensor]) -> list[int]:
    """Return the CRC-32 of the codes of each result."""
    return [zlib.crc32(bits(each).tobytes()) for each in results]


def recorded() -> list[tuple[Model, list[int]]]:
    """All models, and the checksums of what the H200 computed."""
    return [(Model(*model), sums) for model, sums in json.loads(PATH.read_text())]
