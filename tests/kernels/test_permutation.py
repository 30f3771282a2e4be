"""Permutations of the elements of rows, by vectors and one by one."""

from __future__ import annotations

import numpy as np
import pytest
from reference.cases import cases

from fastmma.kernels.matrices.permutation import permutation, permute


@cases("size", [1, 2, 4, 8])
@cases("kind", ["near", "far", "words", "copies", "short"])
def test_every_row_is_permuted(size: int, kind: str) -> None:
    rng = np.random.default_rng(size)
    dtype = np.dtype(f"u{size}")
    count = 512 // size
    origin = np.arange(count)
    if kind == "near":
        origin = origin ^ 1
    elif kind == "far":
        origin = rng.permutation(count)
    elif kind == "words" and size < 4:
        origin = rng.permutation(count * size // 4)[:, None] * (4 // size) + np.arange(4 // size)
    elif kind == "copies":
        origin = np.concatenate([origin[::-1], origin])
    else:
        origin = origin[: count // 2 - 1]
    source = rng.integers(0, 256, (7, count * size), np.uint8).view(dtype)
    how = permutation(origin, size)
    for given in (source, source[::-1], np.repeat(source, 2, axis=1)[:, ::2], np.broadcast_to(source[:1], source.shape)):
        found = np.zeros((7, origin.size), dtype)
        permute(given, how, found)
        np.testing.assert_array_equal(found, given[:, origin.ravel()])


def test_no_plan_means_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMMA_PORTABLE", "1")
    origin = np.random.default_rng(0).permutation(128)
    how = permutation(origin, 2)
    assert not how.vectors
    source = np.arange(256, dtype=np.uint16).reshape(2, 128)
    found = np.zeros_like(source)
    permute(source, how, found)
    np.testing.assert_array_equal(found, source[:, origin])
