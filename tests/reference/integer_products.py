"""Products of integers and of single bits in int64 arithmetic, their operands, and the paths that their kernels can take."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastmma.kernels.integer import words
from fastmma.kernels.llvm import cpu

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
SHAPES = [
    (1, 1, 1),
    (1, 7, 3),
    (5, 1, 2),
    (16, 8, 32),
    (7, 5, 31),
    (13, 70, 129),
    (64, 64, 64),
    (37, 131, 1031),
    (100, 17, 67),
    (6, 64, 400),
]
TYPES = list(itertools.product((np.int8, np.uint8), repeat=2))
# the features with which the paths are forced; all but "host" use only vectors that LLVM legalises anywhere
PATHS = {"host": None, "portable": "", "avx2": "avx2", "avx512bw": "avx512bw"}


def force(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the kernels take the path."""
    monkeypatch.setenv("FASTMMA_PORTABLE", "1" if path == "portable" else "0")
    monkeypatch.setattr(words, "_THREADED_WORDS", 0)  # small problems use threads too ...
    monkeypatch.setattr(words, "_LONG_SLICES", {})  # ... and several slices of k
    if PATHS[path] is not None:
        monkeypatch.setattr(cpu, "features", lambda: frozenset({PATHS[path]}))


def wrapped(exact: NDArray[np.int64]) -> NDArray[np.int32]:
    """The low 32 bits."""
    return exact.astype(np.uint64).astype(np.uint32).view(np.int32)


def expected(a: Any, b: Any, c: Any, period: int | None = None) -> NDArray[np.int32]:
    """``c + a b`` wrapped, or clamped after every `period` elements of k."""
    a, b = a.astype(np.int64), b.astype(np.int64)
    d = np.zeros((*a.shape[:-1], b.shape[-1]), np.int64) if c is None else c.astype(np.int64)
    if period is None:
        return wrapped(d + a @ b)
    for k in range(0, a.shape[-1], period):
        d = np.clip(d + a[..., k : k + period] @ b[..., k : k + period, :], INT_MIN, INT_MAX)
    return d.astype(np.int32)


def expected_bits(a: Any, b: Any, c: Any, operation: str) -> NDArray[np.int32]:
    """``c`` plus the count of ones, wrapped."""
    a, b = (x.astype(bool).astype(np.int64) for x in (a, b))
    both = a @ b
    count = both if operation == "and" else a.sum(-1)[..., :, None] + b.sum(-2)[..., None, :] - 2 * both
    return wrapped(count + (0 if c is None else c.astype(np.int64)))


def numbers(seed: int, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Random elements, a third of them the type's ends and zero."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    drawn = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    special = rng.choice(np.array([info.min, info.max, 0], dtype), shape)
    return np.where(rng.random(shape) < 1 / 3, special, drawn).astype(dtype)


def bits(seed: int, shape: tuple[int, ...], dtype: Any = np.uint8) -> NDArray[Any]:
    """Random zeros and ones."""
    return np.random.default_rng(seed).integers(0, 2, shape).astype(dtype)


def accumulators(seed: int, shape: tuple[int, ...]) -> NDArray[np.int32]:
    """int32 numbers at, near and far from the ends."""
    return np.random.default_rng(seed).choice(np.array([INT_MIN, INT_MAX, 0, -1, INT_MAX - 5000, INT_MIN + 5000], np.int32), shape)
