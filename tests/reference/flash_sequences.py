"""Flash attention of several sequences in one array, and in windows, that PyTorch 2.11 computed on an H100 and an H200 with one result.

A call is kept by what its operands were drawn from; of each result (output, logarithms, gradients of queries, keys and values) there is a
checksum of the checksums of blocks of elements.
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

PATH = Path(__file__).with_suffix(".json")
BLOCK = 256  # elements of which a checksum is taken
DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
Array = NDArray[Any]


class Call(NamedTuple):
    """A call: by what its operands were drawn, and a checksum of each result's checksums."""

    seeds: list[int | str]
    kind: str
    given: dict[str, Any]
    sums: list[int]


def recorded() -> Iterator[Call]:
    """Read all calls."""
    return (Call(*each) for each in json.loads(PATH.read_text()))


def operands(call: Call) -> list[Array]:
    """Draw queries, keys, values and the gradient of the output: (place, head, head dimension), or those of a batch."""
    given = call.given
    keys = [*call.seeds, call.kind, json.dumps(given, sort_keys=True)]
    codes = [each if isinstance(each, int) else zlib.crc32(each.encode()) for each in keys]
    rng = np.random.Generator(np.random.PCG64(codes))
    if call.kind.startswith("varlen"):
        first = (sum(lengths(call)),), (sum(given["keys"]),)
    else:
        first = (given["batch"], given["queries"]), (given["batch"], given["keys"])
    q, k = ((*each, heads, given["size"]) for each, heads in zip(first, (given["heads"], given["shared"]), strict=True))
    return [rng.standard_normal(shape, np.float32).astype(DTYPES[given["fmt"]]) for shape in (q, k, k, q)]


def lengths(call: Call) -> list[int]:
    """Return how many queries each sequence has."""
    given = call.given
    found: list[int] = given["lengths"] if "lengths" in given else [1] * given["count"]
    return found


def checksum(array: Array) -> int:
    """Take the checksum of the checksums of blocks of elements."""
    codes = np.ascontiguousarray(array).reshape(-1)
    sums = [zlib.crc32(codes[first : first + BLOCK].tobytes()) for first in range(0, codes.size, BLOCK)]
    return zlib.crc32(np.array(sums, "<u4").tobytes())
