"""Inputs whose products cancel in pairs: what is left of a sum is what was rounded off, so that every order of k shows in its bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 8  # rows of a and columns of b that are not zero
PAIRED = 32  # from so many k on
# bits of a significand that are drawn, and the largest exponent
DRAWN = {"bf16": (8, 6), "f16": (11, 5), "tf32": (24, 6), "f32": (24, 6), "e4m3": (4, 3), "e5m2": (3, 5)}
SMALL = {"f16": (11, 1)}  # where sums are float16


def kept(size: int) -> NDArray[np.int64]:
    """The rows or columns of a matrix where the vectors are put."""
    return np.unique(np.linspace(0, size - 1, min(KEPT, size)).astype(np.int64))


def numbers(rng: np.random.Generator, shape: tuple[int, ...], bits: int, most: int, base: int = 0) -> NDArray[np.float32]:
    """Numbers of so many bits, whose exponents spread by `most` to both sides of `base`."""
    significands = rng.integers(1 << (bits - 1), 1 << bits, shape)
    exponents = rng.integers(-most, most + 1, shape)
    signs = 1 - 2 * rng.integers(0, 2, shape)
    powers = np.ldexp(1.0, np.arange(-most, most + 1) - (bits - 1) + base)
    return np.asarray(significands * signs * powers[exponents + most], np.float32)


def generator(*seeds: int) -> np.random.Generator:
    """A generator that draws the same on every machine."""
    return np.random.Generator(np.random.PCG64(list(seeds)))


def cancelled(rng: np.random.Generator, a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Let half of the k, drawn at random, take away again what the others add: in place."""
    depth = a.shape[1]
    places = rng.permutation(depth)
    first, second = places[: depth // 2], places[depth // 2 : depth // 2 * 2]
    a[:, second], b[:, second] = a[:, first], -b[:, first]
    return a, b


def vectors(fmt_a: str, fmt_b: str, depth: int, seed: int, *, small: bool = False) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows of a and columns of b, (KEPT, depth) each, as float32."""
    rng = generator(seed, depth)
    if "s8" in (fmt_a, fmt_b):
        return rng.integers(-128, 128, (KEPT, depth)).astype(np.float32), rng.integers(-128, 128, (KEPT, depth)).astype(np.float32)
    table = DRAWN | (SMALL if small else {})
    a, b = (numbers(rng, (KEPT, depth), *table[fmt]) for fmt in (fmt_a, fmt_b))
    return cancelled(rng, a, b) if depth >= PAIRED else (a, b)
