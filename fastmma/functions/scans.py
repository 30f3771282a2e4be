"""Cumulative sums, products, and logarithms of sums as torch's CUDA kernels compute them (``ScanUtils.cuh`` and CUB, PyTorch 2.11).

Every step is rounded to the format of the array. Along another axis than the last one a thread takes its elements in turn. Along the last
axis of several rows a block scans 2T elements at a time (T threads to a row, 16 to 512), the first of which has joined the total before:
neighbours, then pairs and so on take what the last element of the half before them has (Sklansky). An array of one row goes through CUB:
128 threads scan 60 bytes each, a warp's lanes take what 1, 2, 4, 8 and 16 lanes before them have, and warps what the ones before have
in turn. Each later block of elements begins with what those before it have; of the fourth one that depends on which block ends first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.functions.arithmetic import F32, apply, round_to, widen
from fastmma.functions.block import WARP
from fastmma.host.errors import NotEmulatedError
from fastmma.host.float_mode import default_floats

Operation = Callable[[Any, Any], NDArray[Any]]

_LOG_THREADS = (4, 9)  # the fewest and the most of a row
_ONE_ROW_THREADS, _ONE_ROW_BYTES = 128, 60
_BLOCKS = 3  # of one row, whose totals join in one order


def _add(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Add, and round halves; NaN of float32 is `_settled` when all is scanned."""
    return a + b if a.dtype == F32 else round_to(widen(a) + widen(b), a.dtype)


def _multiply(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Multiply, as `_add` adds."""
    return a * b if a.dtype == F32 else round_to(widen(a) * widen(b), a.dtype)


def _settled(values: NDArray[Any], operation: Operation) -> NDArray[Any]:
    """Give NaN the bits that it has after sums and products of float32."""
    return round_to(values, F32) if values.dtype == F32 and operation in (_add, _multiply) else values


def _add_exponentials(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    first, second = np.broadcast_arrays(a, b)
    return apply("log_add_exp", np.ascontiguousarray(first), np.ascontiguousarray(second), out_dtype=a.dtype)


def _along_outer(x: NDArray[Any], operation: Operation, neutral: float) -> NDArray[Any]:
    """Scan along the first axis."""
    result = np.empty_like(x)
    total = np.full(x.shape[1:], neutral, x.dtype)
    for index, part in enumerate(x):
        result[index] = total = operation(total, part)
    return result


def _log_threads(rows: int, size: int) -> int:
    difference = 9 + (size - 1).bit_length() - (rows - 1).bit_length()
    least, most = _LOG_THREADS
    return most if difference < 0 else min(max(least, difference // 2), most)  # it is unsigned: below zero it is large


def _along_rows(rows: NDArray[Any], operation: Operation, neutral: float) -> NDArray[Any]:
    log_threads = _log_threads(*rows.shape)
    result = np.empty_like(rows)
    total = np.full(len(rows), neutral, rows.dtype)
    for first in range(0, rows.shape[1], 2 << log_threads):
        part = rows[:, first : first + (2 << log_threads)]
        block = np.full((len(rows), 2 << log_threads), neutral, rows.dtype)
        block[:, : part.shape[1]] = part
        block[:, 0] = operation(block[:, 0], total)
        for step in range(log_threads + 1):
            halves = block.reshape(len(rows), -1, 2, 1 << step)
            halves[:, :, 1] = operation(halves[:, :, 1], halves[:, :, 0, -1:])
        result[:, first : first + part.shape[1]] = block[:, : part.shape[1]]
        total = block[:, -1].copy()
    return result


def _in_turn(values: NDArray[Any], operation: Operation) -> NDArray[Any]:
    """Scan along the last axis, one after another."""
    result = values.copy()
    for index in range(1, values.shape[-1]):
        result[..., index] = operation(result[..., index - 1], values[..., index])
    return result


def _one_block(row: NDArray[Any], operation: Operation, before: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scan what a block of one row has, after what those before it have; also return what it has in all."""
    items = _ONE_ROW_BYTES // row.itemsize
    padded = np.concatenate([row, np.repeat(row[-1:], items * _ONE_ROW_THREADS - row.size)]).reshape(_ONE_ROW_THREADS, items)
    lanes = _in_turn(padded, operation)[:, -1].reshape(-1, WARP)
    for offset in (1, 2, 4, 8, 16):
        lanes = np.concatenate([lanes[:, :offset], operation(lanes[:, :-offset], lanes[:, offset:])], 1)
    warps = _in_turn(lanes[:, -1], operation)
    lower = lanes[:, :-1].copy()
    lower[1:] = operation(np.broadcast_to(warps[:-1, None], lower[1:].shape), lower[1:])
    prefixes = np.concatenate([np.concatenate([lower[:1, :1], warps[:-1, None]]), lower], 1).reshape(-1)  # the first thread has none
    if before is not None:
        prefixes = np.concatenate([before, operation(np.broadcast_to(before, prefixes[1:].shape), prefixes[1:])])
    firsts = operation(prefixes, padded[:, 0])
    if before is None:
        firsts[0] = padded[0, 0]
    scanned = _in_turn(np.concatenate([firsts[:, None], padded[:, 1:]], 1), operation)
    return scanned.reshape(-1)[: row.size], warps[-1:]


def _one_row(row: NDArray[Any], operation: Operation) -> NDArray[Any]:
    size = _ONE_ROW_BYTES // row.itemsize * _ONE_ROW_THREADS
    if row.size > _BLOCKS * size:
        raise NotEmulatedError(f"a GPU scans one row of more than {_BLOCKS * size} elements in an order that it does not repeat")
    found = list[NDArray[Any]]()
    before: NDArray[Any] | None = None
    for first in range(0, row.size, size):
        scanned, total = _one_block(row[first : first + size], operation, before)
        before = total if before is None else operation(before, total)
        found.append(scanned)
    whole = np.concatenate(found)
    whole[1:] = _settled(whole[1:], operation)  # the first one is the operand
    return whole


def _scan(x: NDArray[Any], axis: int, operation: Operation, neutral: float) -> NDArray[Any]:
    if not x.size or not x.ndim:
        return x.copy()
    size = x.shape[axis]
    with np.errstate(all="ignore"):
        if size == x.size:
            return _one_row(np.ascontiguousarray(x).reshape(-1), operation).reshape(x.shape)
        if axis % x.ndim == x.ndim - 1:
            found = _along_rows(np.ascontiguousarray(x).reshape(-1, size), operation, neutral).reshape(x.shape)
        else:
            found = np.ascontiguousarray(np.moveaxis(_along_outer(np.moveaxis(x, axis, 0), operation, neutral), 0, axis))
        return _settled(found, operation)


@default_floats
def cumulate_sum(x: NDArray[Any], axis: int) -> NDArray[Any]:
    """Compute ``aten::cumsum``.

    Parameters
    ----------
    x : float32, float16 or bfloat16 array
        As if contiguous.
    axis : int

    Raises
    ------
    NotEmulatedError
        Of one row of more than 5,760 float32 or 11,520 halves.

    Examples
    --------
    >>> cumulate_sum(np.float32([[1, 2, 3], [4, 5, 6]]), 1).tolist()
    [[1.0, 3.0, 6.0], [4.0, 9.0, 15.0]]
    """
    return _scan(x, axis, _add, 0)


@default_floats
def cumulate_product(x: NDArray[Any], axis: int) -> NDArray[Any]:
    """Compute ``aten::cumprod``. Parameters and errors are those of `cumulate_sum`.

    Examples
    --------
    >>> cumulate_product(np.float32([1, 2, 3]), 0).tolist()
    [1.0, 2.0, 6.0]
    """
    return _scan(x, axis, _multiply, 1)


@default_floats
def cumulate_logsumexp(x: NDArray[Any], axis: int) -> NDArray[Any]:
    """Compute ``aten::logcumsumexp``. Parameters and errors are those of `cumulate_sum`.

    Examples
    --------
    >>> cumulate_logsumexp(np.float32([0, 0]), 0).tolist()  # doctest: +SKIP
    [0.0, 0.6931471824645996]
    """
    return _scan(x, axis, _add_exponentials, -np.inf)
