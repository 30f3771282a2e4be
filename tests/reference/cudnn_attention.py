"""Calls of cuDNN's attention, recorded on an H200 with PyTorch 2.11 and cuDNN 9.19; their inputs are drawn again.

A call is a dictionary of sizes and settings with the seed and the index from which its inputs are drawn; of dropout it has the probability,
and the seed and the offset of the generator. Each result (output, logsumexp, gradients of queries, keys and values, as far as they were
computed) is kept as a checksum of each 16 rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

PATH = Path(__file__).parent / "cudnn_attention.npz"
DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
RESULTS = "y", "lse", "dq", "dk", "dv"
_ROWS = 16
Call = dict[str, Any]


def recorded() -> Iterator[tuple[Call, dict[str, NDArray[np.uint32]]]]:
    """Calls with the checksums of their results."""
    with np.load(PATH) as archive:
        calls, sums = json.loads(archive["calls"].tobytes()), archive["sums"]
    at = 0
    for call, counts in calls:
        results = {}
        for name, count in counts.items():
            results[name] = sums[at : at + count]
            at += count
        yield call, results


def _generator(call: Call, name: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(zlib.crc32(repr((call["seed"], call["index"], name)).encode())))


def draw(call: Call, name: str) -> NDArray[Any]:
    """Draw an operand: q, k, v, or g, the gradient of the output."""
    heads = call["heads"] if name in "qg" else call["key_heads"]
    length = call["queries"] if name in "qg" else call["keys"]
    values = _generator(call, name).standard_normal((call["batch"], heads, length, call["dimension"]), np.float32)
    return (values * np.float32(call["factors"].get(name, 1))).astype(DTYPES[call["dtype"]])


def bias(call: Call) -> NDArray[Any] | None:
    """Draw a bias; of one that hides, some rows see nothing, and some nothing of the first or of the last 128 keys."""
    if not call["bias"]:
        return None
    shape = (call["batch"], call["heads"], call["queries"], call["keys"])
    rng = _generator(call, "m")
    values = rng.standard_normal(shape, np.float32)
    if call["bias"] == "hide":
        values[rng.random(shape) < 0.5] = -np.inf
        kind = rng.integers(5, size=shape[:3])
        values[kind == 0] = -np.inf
        values[..., :128][kind == 1] = -np.inf
        values[..., -(call["keys"] % 128 or 128) :][kind == 2] = -np.inf
    return values.astype(DTYPES[call["dtype"]])


def checksums(result: NDArray[Any]) -> NDArray[np.uint32]:
    """A checksum of each 16 rows."""
    rows = np.ascontiguousarray(result).reshape(-1, result.shape[-1])
    return np.array([zlib.crc32(rows[start : start + _ROWS].tobytes()) for start in range(0, len(rows), _ROWS)], np.uint32)
