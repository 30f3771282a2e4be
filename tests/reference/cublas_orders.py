"""Samples of products of cuBLAS 13.1 on an H200, by kernels of CUTLASS or in parts; their inputs are drawn again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from reference.cancelling import KEPT, cancelled, generator, numbers

PATH = Path(__file__).parent / "cublas_orders.npz"
_DRAWN = {"bf16": (8, 6), "f16": (11, 5), "tf32": (11, 6)}  # bits of a significand, largest exponent
DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32}


class Sample(NamedTuple):
    """A product, and up to 8 x 8 elements of it: those of rows and columns spread evenly."""

    wide: bool  # whether the result is f32
    fmt: str
    layout: str
    m: int
    n: int
    k: int
    elements: NDArray[np.float32]


def samples() -> list[Sample]:
    """What was recorded."""
    with np.load(PATH) as archive:
        found = []
        for (call, fmt, layout, m, n, k), bits in zip(json.loads(archive["about"].tobytes()), archive["bits"], strict=True):
            elements = bits.view(np.float32)[: min(KEPT, m), : min(KEPT, n)]
            found.append(Sample(call == "mm32" or fmt == "tf32", fmt, layout, m, n, k, elements))
        return found


def inputs(sample: Sample) -> tuple[NDArray[Any], NDArray[Any]]:
    """The rows of a and columns of b of the elements; their products cancel in pairs, so that orders of k show."""
    rng, drawn, dtype = generator(sample.k, _DRAWN[sample.fmt][0]), _DRAWN[sample.fmt], DTYPES[sample.fmt]
    a, b = cancelled(rng, *(numbers(rng, (KEPT, sample.k), *drawn) for _ in "ab"))
    rows, columns = sample.elements.shape
    return a[:rows].astype(dtype), b[:columns].astype(dtype).T
