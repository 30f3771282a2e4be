"""Promotion: partial sums of a tensor core join a running f32 total, with or without scales, by IEEE operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.simd import bitcast, extract, fma, load_scalar, select, splat, store
from fastmma.kernels.matrices.addresses import LINES, load_codes
from fastmma.kernels.params import PROMOTIONS, Promotion

_NAN = 0x7FFFFFFF
_ADD, _FMA, _MULTIPLY_ADD, _FMA_EACH, _MULTIPLY_ADD_EACH = range(len(PROMOTIONS))
_ROWS = 32


class _Sums(NamedTuple):
    """Addresses of the rows' partial sums and totals, and of a chunk's scales; strides from row to row in bytes."""

    partial: int
    total: int
    partial_stride: int
    total_stride: int
    scale_a: int
    scale_b: int
    columns: int


@inner
def promoted(rule: int, partial: Any, scale_a: Any, scale_b: Any, total: Any) -> Any:
    """The new totals of some lanes; NaN is canonical."""
    if rule == _ADD:
        result = total + partial
    elif rule == _FMA:
        result = fma(scale_a * scale_b, partial, total)
    elif rule == _MULTIPLY_ADD:
        result = total + (scale_a * scale_b) * partial
    elif rule == _FMA_EACH:
        result = fma(partial * scale_a, scale_b, total)
    else:
        result = total + (partial * scale_a) * scale_b
    return bitcast(select(result != result, _NAN, bitcast(result, np.int32)), np.float32)


@compiled
def _run(rule: int, sums: _Sums, first: int, last: int) -> None:
    """Rows first to last."""
    for row in range(first, last):
        scale_a = np.float32(1)
        if rule != _ADD:
            scale_a = load_scalar(sums.scale_a + 4 * row, np.float32)
        left = splat(scale_a, LINES)
        right = left
        for column in range(0, sums.columns, LINES):
            count = min(sums.columns - column, LINES)
            total = sums.total + row * sums.total_stride + 4 * column
            partial = bitcast(load_codes(sums.partial + row * sums.partial_stride + 4 * column, 4, 4, count), np.float32)
            if rule != _ADD:
                right = bitcast(load_codes(sums.scale_b + 4 * column, 4, 4, count), np.float32)
            result = promoted(rule, partial, left, right, bitcast(load_codes(total, 4, 4, count), np.float32))
            if count == LINES:
                store(result, total)
            else:
                for lane in range(count):
                    store(extract(result, lane), total + 4 * lane)


def promote(promotion: Promotion, chunk: int, partial: NDArray[Any], total: NDArray[Any], threads: int) -> None:
    """The partial sums of a chunk join the totals, in place: two f32 matrices (M, N), each row contiguous."""
    rows, columns = total.shape
    scale_a = scale_b = 0
    if promotion.scale_a is not None and promotion.scale_b is not None:
        left, right = (np.ascontiguousarray(scales[chunk]) for scales in (promotion.scale_a, promotion.scale_b))
        scale_a, scale_b = left.ctypes.data, right.ctypes.data
    sums = _Sums(partial.ctypes.data, total.ctypes.data, partial.strides[0], total.strides[0], scale_a, scale_b, columns)
    rule = PROMOTIONS.index(promotion.rule)

    def work(start: int, stop: int, _worker: int) -> None:
        _run(rule, sums, start, stop)

    parallel_for(work, rows, threads, _ROWS)


def by_chunks(
    multiply: Callable[[int, int, NDArray[Any]], None],
    depth: int,
    c: NDArray[Any] | None,
    out: NDArray[Any],
    promotion: Promotion,
    threads: int,
) -> None:
    """Write the promoted sums of ``multiply(start, stop, partial)`` over all chunks of k, in ascending order from `c`, to `out` (f32)."""
    total = np.zeros(out.shape, np.uint32)
    if c is not None:
        total[...] = c
    partial = np.empty(out.shape, np.uint32)
    for chunk, start in enumerate(range(0, depth, promotion.every)):
        multiply(start, min(start + promotion.every, depth), partial)
        promote(promotion, chunk, partial, total, threads)
    out[...] = total
