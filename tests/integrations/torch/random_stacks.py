"""Stacks of float32 matrices without TF32, of random shapes: the same calls of torch.bmm on a GPU and under emulation.

``python random_stacks.py OUT.npz SEED...`` on a GPU records checksums; `h200_stacks.npz` has those of seeds 2 and 3 with PyTorch 2.11.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

PATH = Path(__file__).parent / "h200_stacks.npz"
COUNT = 900  # calls of a seed
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_LARGEST = 60_000_000  # products of two numbers
_USUAL = (64, 128, 256, 32, 16, 8)
_SHARES = (0.06, 0.12, 0.16, 0.18, 0.1, 0.11, 0.1, 0.05, 0.06, 0.03, 0.03)


class Call(NamedTuple):
    """A call: its seed and place, how many matrices, their sizes; along which dimension a and b are contiguous, n rows, t columns."""

    seed: int
    place: int
    matrices: int
    m: int
    n: int
    k: int
    layout: str

    def operands(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw the operands."""
        rng = _generator(self.seed, "bmmvalues", self.place)
        sizes = (self.m, self.k), (self.k, self.n)
        drawn = []
        for shape, by in zip(sizes, self.layout, strict=True):
            numbers = rng.standard_normal((self.matrices, *(shape if by == "n" else shape[::-1])), np.float32)
            drawn.append(torch.from_numpy(numbers) if by == "n" else torch.from_numpy(numbers).mT)
        return drawn[0], drawn[1]


def _generator(*seeds: int | str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([each if isinstance(each, int) else zlib.crc32(each.encode()) for each in seeds]))


def _size(rng: np.random.Generator) -> int:
    ranges = (2, 40), (2, 130), (64, 500), (200, 1100)
    drawn = [int(rng.integers(*each)) for each in ranges]
    return [1, *drawn, *_USUAL][int(rng.choice(11, p=_SHARES))]


def _call(seed: int, place: int) -> Call:
    rng = _generator(seed, "bmm", place)
    count, m, n, k = int(rng.choice(_COUNTS)), _size(rng), _size(rng), _size(rng)
    while count * m * n * k > _LARGEST:
        if count > 2:
            count //= 2
        elif m >= max(n, k):
            m //= 2
        elif n >= k:
            n //= 2
        else:
            k //= 2
    return Call(seed, place, count, m, n, k, str(rng.choice(["n", "t"], p=[0.7, 0.3])) + str(rng.choice(["n", "t"])))


def calls(seed: int) -> Iterator[Call]:
    """All calls of a seed."""
    return (_call(seed, place) for place in range(COUNT))


def checksum(result: torch.Tensor) -> int:
    """The checksum of a result's bits."""
    return zlib.crc32(np.ascontiguousarray(result.cpu().numpy()).tobytes())


def recorded() -> Iterator[tuple[Call, int]]:
    """All recorded calls with the checksums of their results."""
    with np.load(PATH) as archive:
        for name in archive.files:
            yield from zip(calls(int(name)), archive[name].tolist(), strict=True)


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = False
    found = {}
    for seed in sys.argv[2:]:
        drawn = (call.operands() for call in calls(int(seed)))
        found[seed] = np.array([checksum(torch.bmm(a.cuda(), b.cuda())) for a, b in drawn], np.uint32)
    np.savez_compressed(sys.argv[1], **found)
