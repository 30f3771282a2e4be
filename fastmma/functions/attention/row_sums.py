"""Sums of products of rows, ``(grad_out * out).sum(-1)``, as the kernels before attention's backward kernels add them of 16-bit types."""

from __future__ import annotations

import numpy as np

from fastmma.functions.arithmetic import flush, fuse
from fastmma.functions.attention.operands import Array, Floats
from fastmma.functions.block import halve

_LOADED = 8  # elements that a thread loads at once
_KEYS = 32  # of a block of memory-efficient attention, for each thread that shares a row


def _deal(lanes: int, *rows: Array) -> list[Floats]:
    """Deal elements of rows (head, row, element) to threads, 8 in turn: (step, head, row, thread), filled up with zeros."""
    heads, count, size = rows[0].shape
    found = []
    for each in rows:
        padded = np.zeros((heads, count, -(-size // (_LOADED * lanes)) * _LOADED * lanes), np.float32)
        padded[..., :size] = each.astype(np.float32)
        steps = padded.reshape(heads, count, -1, lanes, _LOADED).transpose(2, 4, 0, 1, 3)
        found.append(steps.reshape(-1, heads, count, lanes))
    return found


def add_in_pairs(grad_out: Array, out: Array, keys: int) -> Floats:
    """Sum as memory-efficient attention does for blocks of so many keys: threads take 8 elements in turn, and join in pairs."""
    x, y = _deal(keys // _KEYS, out, grad_out)
    total: Floats = np.zeros_like(x[0])
    for a, b in zip(x, y, strict=True):
        total = fuse(a, b, total)
    while total.shape[-1] > 1:
        total = total[..., 0::2] + total[..., 1::2]
    return total[..., 0]


def add_by_threads(grad_out: Array, out: Array, dimension: int) -> Floats:
    """Sum as flash attention does: 8 threads (4 of dimensions that are no multiple of 64) take 8 elements in turn, and are halved."""
    x, y = _deal(8 if dimension % 64 == 0 else 4, grad_out, out)
    total = x[0] * y[0]
    for a, b in zip(x[1:], y[1:], strict=True):
        total = fuse(a, b, total)
    return halve(total)


def add_neighbours(grad_out: Array, out: Array) -> Floats:
    """Sum as cuDNN does: a thread adds 8 neighbouring products in pairs, and a power of two of threads are halved; all is flushed."""
    x, y = (flush(each) for each in _deal(1 << (-(-out.shape[2] // _LOADED) - 1).bit_length(), grad_out, out))
    pairs = flush(fuse(x[0::2], y[0::2], flush(x[1::2] * y[1::2])))
    total = pairs[0]
    for more in pairs[1:]:
        total = flush(total + more)
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = flush(total[..., :half] + total[..., half:])
    return np.asarray(total[..., 0])
