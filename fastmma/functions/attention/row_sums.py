"""Sums of products of rows, ``(grad_out * out).sum(-1)``, which memory-efficient attention's backward kernel subtracts.

Of 16-bit types the kernel computes them itself; of float32 torch's reduction kernel does before it.
"""

from __future__ import annotations

import numpy as np

from fastmma.functions.attention.operands import Array, Floats
from fastmma.functions.attention.products import fuse

_LOADED = 8  # elements of 16 bits that a thread loads at once
_WARP, _THREADS = 32, 512
_SUMS = 4  # of a thread of the reduction kernel
_VECTOR_FROM = 128  # elements from which it loads vectors
_KEYS = 32  # of a block, for each thread that shares a row


def sum_halves(grad_out: Array, out: Array, keys: int) -> Floats:
    """Sum as the backward kernel for blocks of so many keys does: threads take 8 elements in turn, and join in pairs."""
    lanes = keys // _KEYS
    heads, count, size = grad_out.shape
    padded = np.zeros((2, heads, count, -(-size // (_LOADED * lanes)) * _LOADED * lanes), np.float32)
    padded[..., :size] = out.astype(np.float32), grad_out.astype(np.float32)
    x, y = padded.reshape(2, heads, count, -1, lanes, _LOADED).transpose(0, 3, 5, 1, 2, 4).reshape(2, -1, heads, count, lanes)
    total = np.zeros((heads, count, lanes), np.float32)
    for a, b in zip(x, y, strict=True):
        total = fuse(a, b, total)
    while total.shape[-1] > 1:
        total = total[..., 0::2] + total[..., 1::2]
    return total[..., 0]


def _power(count: int, most: int) -> int:
    return min(1 << (count.bit_length() - 1), most)


def sum_floats(grad_out: Array, out: Array) -> Floats:
    """Sum as torch's reduction kernel does: threads of a row keep four sums, join these in order, and then each other by halves."""
    products = grad_out * out
    heads, count, size = products.shape
    vector = _SUMS if size >= _VECTOR_FROM else 1
    width = _power(size // vector, _WARP)
    height = _power(heads * count, _THREADS // width)
    width = _power(size // vector, _THREADS // height)
    steps = -(-size // (width * vector))
    padded = np.zeros((heads, count, -(-steps * vector // _SUMS) * _SUMS // vector * width * vector), np.float32)
    padded[..., :size] = products
    # steps of four sums, each of one vector or of four elements that lie a step apart
    loads = padded.reshape(heads, count, -1, width, vector) if vector > 1 else padded.reshape(heads, count, -1, _SUMS, width).swapaxes(3, 4)
    sums = np.zeros((heads, count, width, _SUMS), np.float32)
    for step in range(loads.shape[2]):
        sums = sums + loads[:, :, step]
    total = sums[..., 0]
    for index in range(1, _SUMS):
        total = total + sums[..., index]
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = total[..., :half] + total[..., half:]
    return total[..., 0]
