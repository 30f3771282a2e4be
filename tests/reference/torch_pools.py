"""Pools and interpolations that PyTorch 2.11 computed on an H100 and an H200, calls with gradients, and checksums of results.

Of linear and cubic interpolations and pools of three dimensions there is the result alone: a GPU adds up their gradients in any order.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

PATH = Path(__file__).with_suffix(".json")
BLOCK = 256  # elements of which a checksum is taken
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class Call(NamedTuple):
    """A call: by what its operands were drawn, and a checksum of each result's checksums."""

    seed: int
    kind: str
    given: dict[str, Any]
    sums: list[int]


def recorded() -> Iterator[Call]:
    """Read all calls."""
    return (Call(*each) for each in json.loads(PATH.read_text()))


def _tensor(array: Any, fmt: str) -> torch.Tensor:
    return torch.from_numpy(np.asarray(array)).to(DTYPES[fmt])


def run(call: Call) -> list[torch.Tensor]:
    """Run a call, and its gradient if it was recorded."""
    given = call.given
    seeds = call.seed, zlib.crc32(call.kind.encode()), zlib.crc32(json.dumps(given, sort_keys=True).encode())
    rng = np.random.Generator(np.random.PCG64(seeds))
    x = _tensor(rng.standard_normal(given["shape"], np.float32) * np.float32(2), given["fmt"])
    if call.kind == "pool" and "max" in given["op"]:
        x = (x * 4).round() / 4  # many are equal
    x = (x.contiguous(memory_format=torch.channels_last) if given["channels_last"] else x).requires_grad_()
    if call.kind == "pool":
        places = [tuple(each) if isinstance(each, list) else each for each in given["args"]]
        found = getattr(functional, given["op"])(x, *places, **given["kw"])
    else:
        scale = {} if given["scale"] is None else {"scale_factor": given["scale"], "recompute_scale_factor": False}
        corners = {} if given["mode"].startswith("nearest") else {"align_corners": given["align"]}
        found = functional.interpolate(x, size=given["size"], mode=given["mode"], **scale, **corners)
    results = list(found) if isinstance(found, tuple) else [found]
    if len(call.sums) == len(results):
        return [each.detach() for each in results]
    grad = _tensor(rng.standard_normal(tuple(results[0].shape), np.float32), given["fmt"])
    return [*(each.detach() for each in results), *torch.autograd.grad(results[0], x, grad)]


def checksum(tensor: torch.Tensor) -> int:
    """Take the checksum of the checksums of blocks of elements."""
    sizes = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    codes = tensor.contiguous().reshape(-1).view(sizes[tensor.element_size()]).numpy()
    sums = [zlib.crc32(codes[first : first + BLOCK].tobytes()) for first in range(0, codes.size, BLOCK)]
    return zlib.crc32(np.array(sums, np.uint32).tobytes())
