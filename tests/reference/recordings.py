"""Reading recordings: the files of FASTMMA_HW_VECTORS."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


@cache
def _file(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path) as archive:
        return dict(archive)


class DotProducts(NamedTuple):
    """Dot products recorded one by one: codes a (n, k), b (n, k), c (n,) and d (n,)."""

    gpu: str
    opcode: str
    target: str
    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any]
    d: NDArray[Any]


# the instruction of each GPU whose arithmetic a recording exercised, by its format and the length of its dot products
_TARGETS = {
    "V100": "sm_70",
    "A100": "sm_80",
    "A2": "sm_86",
    "Ada": "sm_89",
    "L40S": "sm_89",
    "H100": "sm_90a",
    "H200": "sm_90a",
    "B200": "sm_100a",
}
GPUS = tuple(_TARGETS)
_MMA = "mma.sync.aligned.{shape}.row.col.{d}.{t}.{t}.{d}"
_SHAPES = {
    ("fp16", 4): "m8n8k4",
    ("fp16", 8): "m16n8k8",
    ("fp16", 16): "m16n8k16",
    ("bf16", 8): "m16n8k8",
    ("bf16", 16): "m16n8k16",
    ("tf32", 4): "m16n8k4",
    ("e4m3", 32): "m16n8k32",
    ("e5m2", 32): "m16n8k32",
}


def _opcode(gpu: str, name: str, k: int, dtype: str) -> str:
    if gpu in ("H100", "H200") and name in ("e4m3", "e5m2") and dtype == "f32":
        return f"wgmma.mma_async.sync.aligned.m64n8k32.f32.{name}.{name}"
    return _MMA.format(shape=_SHAPES[name, k], d=dtype, t=name.replace("fp16", "f16"))


def _to_half(codes: NDArray[np.uint32]) -> NDArray[np.uint16]:
    with np.errstate(all="ignore"):
        return codes.view(np.float32).astype(np.float16).view(np.uint16)


def dot_products(folder: Path, gpu: str) -> Iterator[DotProducts]:
    """The recordings of one GPU."""
    arrays = _file(folder / f"{gpu}.npz")
    for key, d in arrays.items():
        name, _, part = key.partition(".")
        if not part.startswith("d_"):
            continue
        a, b, c = (arrays[f"{name}.{each}"] for each in ("a", "b", "c_f32"))
        if part == "d_f16":
            c, d = _to_half(c), _to_half(d)
        opcode = _opcode(gpu, name, a.shape[1], part[2:])
        if opcode.startswith("wgmma"):
            c = np.zeros_like(c)  # they were recorded without an accumulator
        yield DotProducts(gpu, opcode, _TARGETS[gpu], a, b, c, d)


def register_file(folder: Path) -> dict[tuple[str, str], dict[str, NDArray[Any]]]:
    """Registers of dense opcodes on an H200, by opcode and distribution."""
    found: dict[tuple[str, str], dict[str, NDArray[Any]]] = {}
    for key, array in _file(folder / "H200_registers.npz").items():
        opcode, _, distribution, operand = key.split("|")
        found.setdefault((opcode, distribution), {})[operand] = array
    return found
