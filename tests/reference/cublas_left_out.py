"""Products of which cuBLAS 13.1 leaves the end of k out, on an H200: what they sum, and elements of some."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from reference import cancelling

PATH = Path(__file__).parent / "cublas_left_out.npz"
DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn}


class Count(NamedTuple):
    """A product of ones in so many parts, which cuBLASLt was told to take (algorithm 66); its elements are f32, and all alike."""

    fmt: str
    fast: bool
    m: int
    n: int
    k: int
    parts: int
    summed: int


class Sample(NamedTuple):
    """A product of numbers that cancel, through PyTorch, in the parts that cuBLASLt chose; or, where `forced`, in those it was told."""

    fmt: str
    fast: bool
    m: int
    n: int
    k: int
    parts: int
    forced: bool
    call: str  # mm, addmm with alpha = -1.25 and beta = 0.75, or linear with a bias
    out: str
    seed: int
    elements: NDArray[np.uint32]  # as f32 codes

    def inputs(self) -> tuple[NDArray[Any], NDArray[Any], dict[str, Any]]:
        """The rows of a, the columns of b, and what is added."""
        a, b = cancelling.vectors(self.fmt, self.fmt, self.k, self.seed)
        rows, columns = (min(cancelling.KEPT, size) for size in (self.m, self.n))
        dtype, rng = DTYPES[self.fmt], cancelling.generator(self.seed, 77)
        bits = 8 if self.fmt == "bf16" else 11
        c, bias = cancelling.numbers(rng, (rows, columns), bits, 4, -6), cancelling.numbers(rng, (columns,), bits, 4, -6)
        added = {"addmm": {"c": c, "alpha": -1.25, "beta": 0.75}, "linear": {"bias": bias}}.get(self.call, {})
        return a[:rows].astype(dtype), b[:columns].astype(dtype).T, added


def counts() -> list[Count]:
    """What was summed of ones."""
    with np.load(PATH) as archive:
        formats = json.loads(archive["formats"].tobytes())
        return [Count(formats[fmt], bool(fast), *sizes) for fmt, fast, *sizes in archive["counts"].tolist()]


def samples() -> Iterator[Sample]:
    """Elements of products."""
    with np.load(PATH) as archive:
        about, bits = json.loads(archive["about"].tobytes()), archive["bits"]
    place = 0
    for fields in about:
        size = min(fields[2], cancelling.KEPT) * min(fields[3], cancelling.KEPT)
        yield Sample(*fields, bits[place : place + size])
        place += size
