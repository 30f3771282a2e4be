"""TF32 products of which an H200 and an H100 cut the k of the last tiles: which tiles, by elements at every 64th row and column.

All rows of a are alike, and all columns of b, so that nothing but the order of k tells elements apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from fastmma.cublas import Choice
from numpy.typing import NDArray

PATH = Path(__file__).with_name("cublas_last_waves.npz")
STEP = 64


class Waves(NamedTuple):
    """A product by the algorithm of an answer: which of two values its elements have, and the codes of both."""

    gpu: str
    layout: str
    m: int
    n: int
    k: int
    seed: int
    choice: Choice
    codes: tuple[int, int]
    map: NDArray[np.bool_]


def recorded() -> Iterator[Waves]:
    """All products."""
    with np.load(PATH) as archive:
        about, bits = json.loads(archive["about"].tobytes()), np.unpackbits(archive["maps"]).astype(bool)
    start = 0
    for gpu, layout, m, n, k, seed, *numbers in about:
        shape = -(-m // STEP), -(-n // STEP)
        stop = start + shape[0] * shape[1]
        choice = Choice(*numbers[:9], workspace=numbers[9])
        yield Waves(gpu, layout, m, n, k, seed, choice, (numbers[10], numbers[11]), bits[start:stop].reshape(shape))
        start = stop
