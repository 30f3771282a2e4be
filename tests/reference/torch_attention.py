"""Calls of ``scaled_dot_product_attention`` on an H200 with PyTorch 2.11 and cuDNN 9.19; their operands are drawn from seeds.

Each call was made by the kernel that torch takes, and by each that it can be forced to. Of each result there is a checksum of checksums
of pieces; `repeats` tells whether the GPU computed the same gradients twice.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

PATH = Path(__file__).parent / "torch_attention.json"
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
NAMES = "y", "dq", "dk", "dv", "dm"
_PIECES = 64
_CODES = {2: torch.int16, 4: torch.int32}
Call = dict[str, Any]


def recorded() -> dict[str, Any]:
    """Load `choices`, by seeds: the numbers of the kernels that torch took for the first calls; and `runs` with checksums."""
    found: dict[str, Any] = json.loads(PATH.read_text())
    return found


def _generator(*key: int | str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(zlib.crc32(repr(key).encode())))


def draw_call(seed: int, index: int) -> Call:
    """Draw the sizes and settings of a call."""
    rng = _generator(seed, index, "case")
    dtype = ["bf16", "f16", "f32"][int(rng.choice(3, p=[0.45, 0.35, 0.2]))]
    dimension = int(rng.choice([8, 16, 24, 32, 40, 64, 64, 64, 80, 96, 128, 128, 160, 192, 256]))
    key_heads, group = int(rng.choice([1, 2, 3, 4])), int(rng.choice([1, 1, 1, 2, 4]))
    queries = int(rng.choice([1, 2, 7, 16, 31, 33, 64, 65, 100, 127, 128, 129, 192, 200, 256, 257, 320, 384, 500, 512, 640, 700]))
    same = rng.random() < 0.8
    keys = queries if same else int(rng.choice([1, 5, 16, 64, 77, 128, 130, 256, 300, 512, 1000]))
    call = {"dtype": dtype, "dimension": dimension, "key_heads": key_heads, "heads": key_heads * group, "queries": queries, "keys": keys}
    call["batch"] = int(rng.choice([1, 1, 2, 3]))
    call["causal"] = bool(rng.random() < 0.45)
    call["mask"] = str(rng.choice(["none", "none", "none", "none", "bool", "float", "float1", "floatgrad"]))
    call["layout"] = str(rng.choice(["bhld", "blhd", "qkv"]))
    call["scale"] = [None, None, 0.1, 1.0][int(rng.integers(4))]
    call["dropout"] = float(rng.choice([0, 0, 0, 0, 0.1, 0.5]))
    call["grad"] = bool(rng.random() < 0.75)
    call["spread"] = float(rng.choice([0.3, 1.0, 1.0, 2.0]))
    return call


def operands(seed: int, index: int, call: Call, *, values: bool = True) -> tuple[list[torch.Tensor], torch.Tensor | None, torch.Tensor]:
    """Draw queries, keys and values, as leaves, a mask, and the gradient of the output; without values there are their shapes alone."""
    dtype, batch, size = DTYPES[call["dtype"]], call["batch"], call["dimension"]

    def draw(name: str, heads: int, length: int) -> torch.Tensor:
        if not values:
            return torch.empty(batch, heads, length, size, dtype=dtype)
        drawn = _generator(seed, index, name).standard_normal((batch, heads, length, size), np.float32)
        return torch.from_numpy((drawn * np.float32(call["spread"])).astype(np.float32)).to(dtype)

    shapes = {"q": (call["heads"], call["queries"]), "k": (call["key_heads"], call["keys"]), "v": (call["key_heads"], call["keys"])}
    drawn = [draw(name, *shape) for name, shape in shapes.items()]
    if call["layout"] != "bhld":
        drawn = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in drawn]
    if call["layout"] == "qkv" and call["queries"] == call["keys"]:
        whole = torch.cat([each.transpose(1, 2) for each in drawn], 2)
        drawn = [part.transpose(1, 2) for part in whole.split([heads for heads, _ in shapes.values()], 2)]
    gradient = draw("g", call["heads"], call["queries"])
    return [each.requires_grad_(call["grad"]) for each in drawn], _draw_mask(seed, index, call), gradient


def _draw_mask(seed: int, index: int, call: Call) -> torch.Tensor | None:
    rng, square = _generator(seed, index, "mask"), (call["queries"], call["keys"])
    if call["mask"] == "none":
        return None
    if call["mask"] == "bool":
        seen = rng.random((call["batch"], 1, *square)) < 0.7
        seen[..., 0] = True
        return torch.from_numpy(seen)
    shape = square if call["mask"] == "float1" else (call["batch"], call["heads"], *square)
    mask = torch.from_numpy(rng.standard_normal(shape, np.float32)).to(DTYPES[call["dtype"]])
    return mask.requires_grad_(call["mask"] == "floatgrad" and call["grad"])


def digest(tensor: torch.Tensor) -> int:
    """A checksum of the checksums of pieces of rows."""
    rows: NDArray[Any] = tensor.detach().contiguous().view(_CODES[tensor.element_size()]).numpy().reshape(-1, tensor.shape[-1])
    step = max(1, len(rows) // _PIECES)
    sums = [zlib.crc32(rows[start : start + step].tobytes()) for start in range(0, len(rows), step)]
    return zlib.crc32(np.array(sums, "<u4").tobytes())
