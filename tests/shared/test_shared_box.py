"""Boxes of tensors, element by element."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from fastmma import OperandError, OperandTypeError
from fastmma.shared import Box


@pytest.mark.parametrize("start", [(0, 0, 0), (-1, 3, 20), (2, -9, -4), (1, 4, 40), (-3, 0, 0), (9, 0, 0), (0, 0, -32)])
@pytest.mark.parametrize("swizzle", [0, 64])
def test_loaded_and_stored(start: tuple[int, int, int], swizzle: int) -> None:
    box = Box((2, 8, 32), "f16", swizzle=swizzle)
    tensor = np.arange(1, 3 * 10 * 45 + 1).reshape(3, 10, 45).astype(np.float16)
    noise = np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8)
    memory = box.load(noise, tensor, start, address=1024)
    held = box.tile(1024).load(memory).reshape(box.shape)
    stored = box.store(memory, np.zeros_like(tensor), start, address=1024)
    wanted = np.zeros_like(tensor)
    for place in product(*map(range, box.shape)):
        there = tuple(np.add(start, place))
        inside = all(0 <= each < extent for each, extent in zip(there, tensor.shape, strict=True))
        assert held[place] == (tensor[there] if inside else 0)
        if inside:
            wanted[there] = tensor[there]
    assert (stored == wanted).all()
    assert box.bytes == 2 * 8 * 32 * 2
    assert (memory[:1024] == noise[:1024]).all()
    assert (memory[1024 + box.bytes :] == noise[1024 + box.bytes :]).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Box((8, 4), "f16"), "multiple of 16 bytes, not 8"),
        (lambda: Box((8, 32), "f16", swizzle=128), "the 128 bytes of the swizzle, not 64"),
        (lambda: Box((8, 257), "f16"), "1 to 256 elements"),
        (lambda: Box((1, 1, 1, 1, 1, 16), "f16"), "1 to 5 dimensions"),
        (lambda: Box((8, 8), "f16").load(np.zeros(256, np.uint8), np.zeros((9, 9), np.float16), (0,)), "start 2 integers"),
        (lambda: Box((8, 8), "f16").load(np.zeros(256, np.uint8), np.zeros((9, 9), np.float16), (0, 0), address=16), "multiple of 128"),
        (lambda: Box((8, 8), "f16").load(np.zeros(100, np.uint8), np.zeros((9, 9), np.float16), (0, 0)), "reaches byte 127"),
    ],
)
def test_errors(make: Any, message: str) -> None:
    with pytest.raises(OperandError, match=message):
        make()


def test_dtypes_are_not_cast() -> None:
    with pytest.raises(OperandTypeError, match="tensor must have dtype float16, not float32"):
        Box((8, 8), "f16").load(np.zeros(256, np.uint8), np.zeros((9, 9), np.float32), (0, 0))
