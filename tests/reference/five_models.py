"""Five small models as people write them, and ten steps of AdamW of each that PyTorch 2.11 ran on an H200.

``python tests/reference/five_models.py`` prints the table of the page on training steps; with ``--record`` and a file it records the steps
on the GPU of this machine. Weights, inputs and targets are drawn by NumPy, so that any machine has them. cuDNN's attention is off, as its
order is not known; so attention is torch's flash attention, and memory-efficient attention for float32 and where there is a mask.
"""

from __future__ import annotations

import io
import math
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import fastmma.torch as ft

PATH = Path(__file__).parent / "five_models.npz"
STEPS = 10
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "autocast": torch.float32}


@dataclass(frozen=True)
class Case:
    """A model, and the format of its weights; ``autocast`` has float32 weights and products of bfloat16."""

    kind: str
    fmt: str
    width: int = 128
    heads: int = 4
    shared: int = 2  # heads of keys and values
    layers: int = 2
    batch: int = 2
    length: int = 48
    words: int = 256

    def __str__(self) -> str:
        return f"{self.kind} {self.fmt}"


CASES = tuple(Case(kind, fmt) for kind in ("Llama", "GPT-2", "BERT", "ViT", "mixture of experts") for fmt in DTYPES)


class RmsNorm(nn.Module):
    """As transformers has it, in float32."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Rotation(nn.Module):
    """The cosines and sines of positions."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.frequencies = 1.0 / (10000.0 ** (torch.arange(0, size, 2).float() / size))

    def forward(self, x: Tensor, length: int) -> tuple[Tensor, Tensor]:
        with torch.autocast("cuda", enabled=False):
            places = torch.arange(length, device=x.device)[None, None].float()
            angles = (self.frequencies.to(x.device)[None, :, None] @ places).transpose(1, 2)
            angles = torch.cat((angles, angles), -1)
            return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cosines[:, None] + torch.cat((-x[..., half:], x[..., :half]), -1) * sines[:, None]


class SharedAttention(nn.Module):
    """Attention whose heads share keys and values."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.size, self.groups = case.width // case.heads, case.heads // case.shared
        self.q_proj = nn.Linear(case.width, case.width, bias=False)
        self.k_proj = nn.Linear(case.width, case.shared * self.size, bias=False)
        self.v_proj = nn.Linear(case.width, case.shared * self.size, bias=False)
        self.o_proj = nn.Linear(case.width, case.width, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        rows = (*x.shape[:2], -1, self.size)
        q, k, v = (layer(x).view(rows).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotated(q, cosines, sines), rotated(k, cosines, sines)
        k, v = (each.repeat_interleave(self.groups, 1) for each in (k, v))
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(found.transpose(1, 2).reshape(x.shape))  # type: ignore[no-any-return]


class GatedLinear(nn.Module):
    """A SwiGLU."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(width, wide, bias=False), nn.Linear(width, wide, bias=False)
        self.down_proj = nn.Linear(wide, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class Experts(nn.Module):
    """Eight experts, two of which a router gives each token to."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.gate = nn.Linear(case.width, 8, bias=False)
        self.experts = nn.ModuleList(GatedLinear(case.width, case.width) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.view(-1, x.shape[-1])
        weights, chosen = functional.softmax(self.gate(tokens), 1, dtype=torch.float32).topk(2, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        result = torch.zeros_like(tokens)
        masks = functional.one_hot(chosen, 8).permute(2, 1, 0)
        for mask, expert in zip(masks, self.experts, strict=True):
            rank, place = torch.where(mask)
            result.index_add_(0, place, (expert(tokens[place]) * weights[place, rank, None]).to(x.dtype))
        return result.view(x.shape)


class LlamaLayer(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(case.width), RmsNorm(case.width)
        self.self_attn = SharedAttention(case)
        self.mlp = GatedLinear(case.width, 3 * case.width) if case.kind == "Llama" else Experts(case)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosines, sines)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Llama(nn.Module):
    """Also with experts in place of its multilayer perceptrons."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.embed_tokens, self.rotary_emb = nn.Embedding(case.words, case.width), Rotation(case.width // case.heads)
        self.layers = nn.ModuleList(LlamaLayer(case) for _ in range(case.layers))
        self.norm, self.lm_head = RmsNorm(case.width), nn.Linear(case.width, case.words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        cosines, sines = self.rotary_emb(x, tokens.shape[1])
        for layer in self.layers:
            x = layer(x, cosines, sines)
        return self.lm_head(self.norm(x)).float()  # type: ignore[no-any-return]


class Columns(nn.Module):
    """GPT-2's linear layer, whose weight lies the other way round."""

    def __init__(self, results: int, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(width, results)), nn.Parameter(torch.zeros(results))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    """Attention of heads of their own; GPT-2's is causal."""

    def __init__(self, case: Case, linear: Any, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = case.heads, causal
        self.qkv, self.proj = linear(case.width, 3 * case.width), linear(case.width, case.width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        found = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.proj(found.transpose(1, 2).reshape(x.shape))  # type: ignore[no-any-return]


class PreNormLayer(nn.Module):
    """A layer of GPT-2, whose GELU is a formula of its own, or of a ViT."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.is_gpt = case.kind == "GPT-2"

        def linear(width: int, results: int) -> nn.Module:
            return Columns(results, width) if self.is_gpt else nn.Linear(width, results)

        self.ln_1, self.ln_2 = nn.LayerNorm(case.width), nn.LayerNorm(case.width)
        self.attn = Attention(case, linear, self.is_gpt)
        self.up, self.down = linear(case.width, 4 * case.width), linear(4 * case.width, case.width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        z = self.up(self.ln_2(x))
        if self.is_gpt:
            z = 0.5 * z * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (z + 0.044715 * torch.pow(z, 3.0))))
        else:
            z = functional.gelu(z)
        return x + self.down(z)  # type: ignore[no-any-return]


class Gpt(nn.Module):
    """GPT-2, whose last weight is its first."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(case.words, case.width), nn.Embedding(case.length, case.width)
        self.h = nn.ModuleList(PreNormLayer(case) for _ in range(case.layers))
        self.ln_f, self.lm_head = nn.LayerNorm(case.width), nn.Linear(case.width, case.words, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device)[None])
        for layer in self.h:
            x = layer(x)
        return self.lm_head(self.ln_f(x))  # type: ignore[no-any-return]


class BertLayer(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.attention = Attention(case, nn.Linear, False)
        self.up, self.down = nn.Linear(case.width, 4 * case.width), nn.Linear(4 * case.width, case.width)
        self.ln_1, self.ln_2 = nn.LayerNorm(case.width, eps=1e-12), nn.LayerNorm(case.width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.ln_1(self.attention(x, mask) + x)
        return self.ln_2(self.down(functional.gelu(self.up(x))) + x)  # type: ignore[no-any-return]


class Bert(nn.Module):
    """BERT with a mask of what only fills sequences up."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(case.words, case.width), nn.Embedding(case.length, case.width)
        self.ln = nn.LayerNorm(case.width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(case) for _ in range(case.layers))
        self.transform, self.ln_t = nn.Linear(case.width, case.width), nn.LayerNorm(case.width, eps=1e-12)
        self.decoder = nn.Linear(case.width, case.words)

    def forward(self, tokens: Tensor) -> Tensor:
        count = tokens.shape[1]
        mask = (torch.arange(count, device=tokens.device)[None] < count - 8)[:, None, None].expand(len(tokens), 1, count, count)
        x = self.ln(self.words(tokens) + self.positions(torch.arange(count, device=tokens.device)[None]))
        for layer in self.layers:
            x = layer(x, mask)
        return self.decoder(self.ln_t(functional.gelu(self.transform(x))))  # type: ignore[no-any-return]


class Vit(nn.Module):
    """A ViT of patches of 16 x 16."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, case.width, 16, 16)
        self.cls, self.positions = nn.Parameter(torch.zeros(1, 1, case.width)), nn.Parameter(torch.zeros(1, 17, case.width))
        self.layers = nn.ModuleList(PreNormLayer(case) for _ in range(case.layers))
        self.norm, self.head = nn.LayerNorm(case.width), nn.Linear(case.width, case.words)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(len(images), -1, -1), x), 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])  # type: ignore[no-any-return]


KINDS: dict[str, Any] = {"Llama": Llama, "GPT-2": Gpt, "BERT": Bert, "ViT": Vit, "mixture of experts": Llama}


def built(case: Case, device: str = "cpu") -> dict[str, Any]:
    """Build what `fastmma.torch.record` and `assert_same_step` are given."""
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(repr(astuple(case)).encode())))
    model = KINDS[case.kind](case)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            scale, shift = (0.06, 0.0) if weight.ndim > 1 else (0.1, 0.0 if "bias" in name else 1.0)
            drawn = rng.standard_normal(tuple(weight.shape), np.float32) * np.float32(scale) + np.float32(shift)
            weight.copy_(torch.from_numpy(drawn))
    model = model.to(device=device, dtype=DTYPES[case.fmt])
    if case.kind == "ViT":
        inputs = torch.from_numpy(rng.standard_normal((8 * case.batch, 3, 64, 64), np.float32)).to(device, DTYPES[case.fmt])
    else:
        inputs = torch.from_numpy(rng.integers(0, case.words, (case.batch, case.length))).to(device)
    rows = len(inputs) if case.kind == "ViT" else inputs.numel()
    targets = torch.from_numpy(rng.integers(0, case.words, rows)).to(device)

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits.view(-1, case.words), targets)

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {"model": model, "inputs": inputs, "loss": loss, "optimizer": optimizer}


def record(path: str, cases: tuple[Case, ...] = CASES, **options: Any) -> Iterator[str]:
    """Record cases into one file, and tell of each."""
    held = {}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.enable_cudnn_sdp(False)
    for case in cases:
        autocast = torch.bfloat16 if case.fmt == "autocast" else None
        found = ft.record(**built(case, device), steps=STEPS, autocast=autocast, keep=2, **options)
        with tempfile.TemporaryDirectory() as folder:
            found.save(file := Path(folder) / "one.npz")
            held[str(case)] = np.frombuffer(file.read_bytes(), np.uint8)
        yield f"{case}: {found}, not repeated by the GPU: {len(found.unrepeated)}"
    np.savez(path, **held)


def recording(case: Case) -> ft.Recording:
    """Read what the H200 computed."""
    with np.load(PATH) as file:
        return ft.Recording.load(io.BytesIO(file[str(case)].tobytes()))


def table() -> Iterator[str]:
    """Run every case again, and say what came of it, as rows of a table."""
    for case in CASES:
        try:
            found = ft.assert_same_step(recording(case), **built(case), unknown="one")
            counts = {status: getattr(found.report, status) for status in ("emulated", "assumed", "passed", "unseen")}
            told = ", ".join(f"{number} {status}" for status, number in counts.items() if number)
            yield f"| {case.kind} | {case.fmt} | all {found.compared:,} | {told} |"
        except ft.StepDiffersError as error:
            yield f"| {case.kind} | {case.fmt} | not all | {error.name} differs first |"


if __name__ == "__main__":
    for line in record(sys.argv[2]) if sys.argv[1:2] == ["--record"] else table():
        print(line, flush=True)
