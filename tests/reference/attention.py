"""Calls of scaled dot product attention, recorded on an H200 with PyTorch 2.11; their inputs are drawn again.

A call is a dictionary of sizes and settings, of the seeds of its inputs, and of a digest of each whole result (output, gradients of
queries, keys and values); `wide` tells whether 16-bit operands of math attention become float32, `repeats` whether the GPU computed the
same gradient of the queries twice.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

PATH = Path(__file__).parent / "attention.npz"
DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16), "f32": np.dtype(np.float32)}
_BLOCK = 1024
Call = dict[str, Any]


class Inputs(NamedTuple):
    """What a call was given, and the gradient of its output."""

    q: NDArray[Any]
    k: NDArray[Any]
    v: NDArray[Any]
    bias: NDArray[Any] | None
    grad_out: NDArray[Any]


def recorded() -> Iterator[tuple[Call, list[NDArray[np.uint32]]]]:
    """Calls with the first codes of each result."""
    with np.load(PATH) as archive:
        calls, sizes, codes = json.loads(archive["calls"].tobytes()), archive["sizes"], archive["codes"]
    parts = np.split(codes, np.cumsum(sizes)[:-1])
    for index, call in enumerate(calls):
        yield call, parts[4 * index : 4 * index + 4]


def inputs(call: Call) -> Inputs:
    """Draw the inputs of a call."""
    rng = np.random.Generator(np.random.PCG64(call["seeds"]))
    dtype = DTYPES[call["dtype"]]

    def draw(*shape: int) -> NDArray[Any]:
        return rng.standard_normal(shape, np.float32).astype(dtype)

    batch, heads, size = call["batch"], call["heads"], call["dimension"]
    q = draw(batch, heads, call["queries"], size)
    k, v = (draw(batch, call["key_heads"], call["keys"], size) for _ in range(2))
    bias = draw(call["queries"], call["keys"]) if call["bias"] else None
    return Inputs(q, k, v, bias, draw(*q.shape))


def codes_of(result: NDArray[Any]) -> NDArray[np.uint32]:
    """The bits of a result, in order."""
    return np.ascontiguousarray(result).view(f"u{result.itemsize}").ravel().astype(np.uint32)


def digest(result: NDArray[Any]) -> int:
    """A checksum of the checksums of each 1024 elements, filled up with zeros."""
    bits = np.ascontiguousarray(result).view(f"u{result.itemsize}").ravel()
    padded = np.concatenate([bits, np.zeros(-len(bits) % _BLOCK, bits.dtype)]).reshape(-1, _BLOCK)
    sums = np.array([zlib.crc32(block.tobytes()) for block in padded], "<u4")
    return zlib.crc32(sums.tobytes())
