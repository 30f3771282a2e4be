"""The gradient of an embedding's weight as torch's CUDA kernels compute it (``Embedding.cu``, PyTorch 2.11).

At most 3072 indices are taken 32 at a time: gradients of the same index are added in turn, rounded, and added to its row of the weight.
More indices are sorted: for each index, 10 gradients at a time are added in turn, then these sums likewise, and the row is rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import kernels
from fastmma.functions.arithmetic import F32, Floats, round_to, widen
from fastmma.functions.block import start_sums
from fastmma.host.errors import NotEmulatedError
from fastmma.host.float_mode import default_floats

_FEW = 3072
_CHUNK = 32
_PART = 10


def _ranks(groups: NDArray[Any]) -> NDArray[np.int64]:
    """Number the places of a sorted array within each run of equal elements."""
    places = np.arange(len(groups))
    first = np.concatenate([[True], groups[1:] != groups[:-1]])
    return places - np.maximum.accumulate(np.where(first, places, 0))


def _add_groups(rows: Floats, groups: NDArray[Any]) -> tuple[Floats, NDArray[Any]]:
    """Add rows of the same group in turn, groups being sorted; return a sum for each group, and the groups."""
    ranks = _ranks(groups)
    found = groups[ranks == 0]
    sums = start_sums(len(found), rows.shape[1])
    where = np.cumsum(ranks == 0) - 1
    for rank in range(ranks.max() + 1):
        some = ranks == rank
        sums[where[some]] += rows[some]
    return sums, found


def _add_chunks(rows: Floats, indices: NDArray[Any], weight: NDArray[Any]) -> None:
    groups = np.arange(len(indices)) // _CHUNK * len(weight) + indices
    order = np.argsort(groups, kind="stable")
    sums, found = _add_groups(rows[order], groups[order])
    parts, of_weight = widen(round_to(sums, weight.dtype)), found % len(weight)
    order = np.argsort(of_weight, kind="stable")
    ranks = _ranks(of_weight[order])
    for rank in range(ranks.max() + 1):
        some = order[ranks == rank]
        weight[of_weight[some]] = round_to(widen(weight[of_weight[some]]) + parts[some], weight.dtype)


def _add_chunks_at_once(rows: Floats, indices: NDArray[Any], count: int, dtype: Any) -> NDArray[Any]:
    """Do as `_add_chunks` does, in formats that a compiled loop rounds to."""
    weight, sums = start_sums(count, rows.shape[1]), np.empty(rows.shape[1], np.float32)
    kernels.functions.embedding.add_chunks(rows, indices, _CHUNK, sums, weight, dtype != F32)
    return round_to(weight, dtype)


def _add_sorted(rows: Floats, indices: NDArray[Any], weight: NDArray[Any]) -> None:
    order = np.argsort(indices, kind="stable")
    groups = indices[order]
    parts, found = _add_groups(rows[order], groups * (len(rows) // _PART + 1) + _ranks(groups) // _PART)
    sums, rows_of_weight = _add_groups(parts, found // (len(rows) // _PART + 1))
    weight[rows_of_weight] = round_to(sums, weight.dtype)


@default_floats
def embedding_backward(grad: NDArray[Any], indices: NDArray[Any], rows: int, padding_idx: int = -1) -> NDArray[Any]:
    """Compute ``aten::embedding_dense_backward``, not scaled by frequency.

    Parameters
    ----------
    grad : float32, float16 or bfloat16 array (..., columns)
        The incoming gradient.
    indices : integer array (...)
    rows : int
        Of the weight.
    padding_idx : int
        An index without a gradient. No element of `indices` may be equal to it, because such a call was not recorded.

    Raises
    ------
    NotEmulatedError
        If the padding index is among the indices.

    Examples
    --------
    >>> embedding_backward(np.float32([[1], [2], [4]]), np.array([1, 0, 1]), 3).tolist()
    [[2.0], [5.0], [0.0]]
    """
    if padding_idx >= 0 and bool(np.any(np.asarray(indices) == padding_idx)):
        raise NotEmulatedError("a gradient of an embedding without that of a padding index was not recorded")
    flat = np.ascontiguousarray(indices).reshape(-1).astype(np.int64)
    few, known = 0 < flat.size <= _FEW, grad.dtype != np.float16
    if few and known and grad.shape[-1] and flat.min() >= 0 and flat.max() < rows:
        return _add_chunks_at_once(widen(grad).reshape(len(flat), -1), flat, rows, grad.dtype)
    weight = np.zeros((rows, grad.shape[-1]), grad.dtype)
    if grad.size:
        (_add_chunks if flat.size <= _FEW else _add_sorted)(widen(grad).reshape(len(flat), -1), flat, weight)
    return weight
