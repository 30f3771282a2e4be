"""Functions of libdevice that Triton 3.6 called on an H200: symbols, and checksums of their results for operands drawn from seeds."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PATH = Path(__file__).parent / "triton_functions.json"
SEEDS = (2, 3)  # of others than those by which the rules were found
COUNT = 1024
_DTYPES = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


class Call(NamedTuple):
    """A call: the symbol, what its operands are drawn for, which of three they are, and a checksum a seed."""

    symbol: str
    label: str
    fmt: str
    operands: list[int]
    checksums: list[int]


def operands(seed: int, label: str, fmt: str) -> list[NDArray[Any]]:
    """Draw three vectors: a quarter of each is of any bits, the others are usual numbers."""
    dtype = _DTYPES[fmt]
    generator = np.random.Generator(np.random.PCG64([seed, zlib.crc32(label.encode()), zlib.crc32(fmt.encode())]))
    found = []
    with np.errstate(all="ignore"):
        for _ in range(3):
            usual = (generator.standard_normal(COUNT) * np.exp2(generator.integers(-3, 4, COUNT))).astype(dtype)
            codes = generator.integers(0, 1 << 8 * dtype.itemsize, COUNT, dtype=np.uint64)
            wild = codes.astype(np.uint32).view(dtype) if dtype.itemsize == 4 else codes.view(dtype)
            found.append(np.where(np.arange(COUNT) % 4 == 0, wild, usual))
    return found


def checksum(result: NDArray[Any]) -> int:
    """Compute the checksum of results, of all NaN as one."""
    return zlib.crc32(np.where(np.isnan(result), np.full((), np.nan, result.dtype), result).tobytes())


def recorded() -> list[Call]:
    """All calls."""
    return [Call(*row) for row in json.loads(PATH.read_text())]
