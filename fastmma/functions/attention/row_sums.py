"""Sums of products of rows, ``(grad_out * out).sum(-1)``, as memory-efficient attention's backward kernel computes them of 16-bit types."""

from __future__ import annotations

import numpy as np

from fastmma.functions.arithmetic import fuse
from fastmma.functions.attention.operands import Array, Floats

_LOADED = 8  # elements that a thread loads at once
_KEYS = 32  # of a block, for each thread that shares a row


def add_in_pairs(grad_out: Array, out: Array, keys: int) -> Floats:
    """Sum as the kernel for blocks of so many keys does: threads take 8 elements in turn, and join in pairs."""
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
