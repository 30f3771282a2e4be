"""Sums of layer norm and RMS norm, and of their gradients, as threads of a GPU add them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.simd import even_lanes, fma, load, load_scalar, odd_lanes, splat, store


@inner
def _halve_warp(lanes: int) -> Any:
    """Add the upper half of 32 lanes at an address to the lower one until one is left."""
    store(load(lanes, np.float32, 16) + load(lanes + 64, np.float32, 16), lanes)
    store(load(lanes, np.float32, 8) + load(lanes + 32, np.float32, 8), lanes)
    store(load(lanes, np.float32, 4) + load(lanes + 16, np.float32, 4), lanes)
    store(load(lanes, np.float32, 2) + load(lanes + 8, np.float32, 2), lanes)
    return load_scalar(lanes, np.float32) + load_scalar(lanes + 4, np.float32)


@inner
def _add_block(sums: int, warps: int) -> Any:
    """Add 128 threads at an address by warps, and then these as 32 lanes; warps that took nothing hold zeros."""
    zero = np.float32(0)
    first, second, third, fourth = zero, zero, zero, zero
    first = _halve_warp(sums)
    if warps > 1:
        second = _halve_warp(sums + 128)
    if warps > 2:
        third = _halve_warp(sums + 256)
    if warps > 3:
        fourth = _halve_warp(sums + 384)
    # lanes without a warp are zeros, which a negative zero is added to
    return (first + zero) + (third + zero) + ((second + zero) + (fourth + zero))


@inner
def _warps_of(columns: int) -> int:
    """Count the warps, of 4, that take vectors of 4 columns."""
    return min((columns + 127) // 128, 4)


@inner
def _clear(sums: int, warps: int) -> None:
    for place in range(sums, sums + 128 * warps, 64):
        store(splat(np.float32(0), 16), place)


@inner
def _weighted(dy: Any, factor: Any, x: Any, center: Any, scale: Any, total: Any, product: Any) -> Any:
    weighted = dy * factor
    return total + weighted, fma(weighted * (x - center), scale, product)


@compiled
def add_along_rows(
    grad: int, x: int, weight: int, mean: int, rstd: int, rows: int, columns: int, scratch: int, sums: int, products: int
) -> None:
    """Add gradients, and their products with the normalized input, by 128 threads a row, which take 4 columns at a time.

    Parameters
    ----------
    grad, x : int
        Addresses of rows, one after another.
    weight : int
        That of a factor for each column.
    mean, rstd : int
        Those of a number for each row.
    rows, columns : int
    scratch : int
        That of zeros for two lines of 128 threads.
    sums, products : int
        Those of a result for each row.
    """
    warps, of_products = _warps_of(columns), scratch + 512
    for _ in range(rows):
        _clear(scratch, warps)
        _clear(of_products, warps)
        center, scale = load_scalar(mean, np.float32), load_scalar(rstd, np.float32)
        centers, scales = splat(center, 16), splat(scale, 16)
        for first in range(0, columns, 512):
            stop = min(first + 512, columns)
            whole = first + (stop - first) // 64 * 64
            for column in range(first, whole, 64):
                at, thread = 4 * column, column - first  # of each thread 4 columns, and 4 bytes
                dy, factor, given = load(grad + at, np.float32, 64), load(weight + at, np.float32, 64), load(x + at, np.float32, 64)
                dy_even, dy_odd = even_lanes(dy), odd_lanes(dy)
                factor_even, factor_odd = even_lanes(factor), odd_lanes(factor)
                given_even, given_odd = even_lanes(given), odd_lanes(given)
                t, p = load(scratch + thread, np.float32, 16), load(of_products + thread, np.float32, 16)
                t, p = _weighted(even_lanes(dy_even), even_lanes(factor_even), even_lanes(given_even), centers, scales, t, p)
                t, p = _weighted(even_lanes(dy_odd), even_lanes(factor_odd), even_lanes(given_odd), centers, scales, t, p)
                t, p = _weighted(odd_lanes(dy_even), odd_lanes(factor_even), odd_lanes(given_even), centers, scales, t, p)
                t, p = _weighted(odd_lanes(dy_odd), odd_lanes(factor_odd), odd_lanes(given_odd), centers, scales, t, p)
                store(t, scratch + thread)
                store(p, of_products + thread)
            for column in range(whole, stop):
                at, thread = 4 * column, (column - first) // 4 * 4
                one_t, one_p = load_scalar(scratch + thread, np.float32), load_scalar(of_products + thread, np.float32)
                one_dy, one_factor = load_scalar(grad + at, np.float32), load_scalar(weight + at, np.float32)
                one_t, one_p = _weighted(one_dy, one_factor, load_scalar(x + at, np.float32), center, scale, one_t, one_p)
                store(one_t, scratch + thread)
                store(one_p, of_products + thread)
        store(_add_block(scratch, warps), sums)
        store(_add_block(of_products, warps), products)
        grad, x, mean, rstd, sums, products = grad + 4 * columns, x + 4 * columns, mean + 4, rstd + 4, sums + 4, products + 4


@compiled
def add_squares(values: int, rows: int, columns: int, scratch: int, out: int) -> None:
    """Add squares of rows of whole vectors of 4 values, each by one fused multiply-add, by 128 threads a row.

    All but numbers are addresses, as those of `add_along_rows` are; of scratch there is one line.
    """
    warps = _warps_of(columns)
    for _ in range(rows):
        _clear(scratch, warps)
        for first in range(0, columns, 512):
            taking = min(128, (columns - first) // 4)
            line = values + 4 * first
            whole = taking - taking % 16
            for place in range(0, 4 * whole, 64):
                part = load(line + 4 * place, np.float32, 64)
                even, odd = even_lanes(part), odd_lanes(part)
                each = even_lanes(even), even_lanes(odd), odd_lanes(even), odd_lanes(odd)
                kept = fma(each[0], each[0], load(scratch + place, np.float32, 16))
                kept = fma(each[1], each[1], kept)
                kept = fma(each[2], each[2], kept)
                store(fma(each[3], each[3], kept), scratch + place)
            for place in range(4 * whole, 4 * taking, 4):
                kept_one = load_scalar(scratch + place, np.float32)
                for at in range(line + 4 * place, line + 4 * place + 16, 4):
                    value = load_scalar(at, np.float32)
                    kept_one = fma(value, value, kept_one)
                store(kept_one, scratch + place)
        store(_add_block(scratch, warps), out)
        values, out = values + 4 * columns, out + 4


@compiled
def add_along_columns(grad: Any, x: Any, mean: Any, rstd: Any, products: Any, sums: Any, size: int) -> None:
    """Add gradients of weights and of biases to the sums of the threads of a column, which take `size` rows at a time."""
    height = len(sums)
    for row in range(len(x)):
        thread = row // size % height
        product, total, dy, given = products[thread], sums[thread], grad[row], x[row]
        center, scale = mean[row], rstd[row]
        for column in range(len(dy)):
            product[column] = fma(dy[column] * (given[column] - center), scale, product[column])
            total[column] += dy[column]
