"""Loops that add as threads of a GPU do: rows of values join the sums that threads keep, one after another.

Rows lie in the first dimension; sums of a row's threads lie in the second dimension of `sums`. Values from `start` to `stop` are taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.simd import any_lane, bitcast, even_lanes, extract, fma, load, load_scalar, odd_lanes, select, splat, store

_LEAST_EXACT = np.uint32(((127 - 100) << 23) - 1)  # the code of 2^-100, less 1
_LEAST_VALUE = np.float32(float.fromhex("0x1p-100"))
_MOST = np.float32(2**25)  # of a sum: a quotient of 2^-100 is far above the subnormal numbers


@compiled
def add_vectors(values: Any, sums: Any, start: int, stop: int, size: int) -> None:
    """Add each vector of `size` values, in order, to the sum of the next thread, the first one after the last."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads * size):
            part = values[row, first : min(first + threads * size, stop)]
            if size == 1:  # of which a compiler knows that they lie side by side
                for thread in range(part.size):
                    kept[thread] += part[thread]
            else:
                for element in range(size):
                    for thread in range(part.size // size):
                        kept[thread] += part[thread * size + element]


@inner
def _join_vectors(kept: Any, threads: int, vector: int, total: Any) -> None:
    """Join the 4 or 8 sums of each thread, which lie side by side, in turn; of such numbers a compiler takes several threads at once."""
    if vector == 4:
        for thread in range(threads):
            first = 4 * thread
            total[thread] = kept[first] + kept[first + 1] + kept[first + 2] + kept[first + 3]
    else:
        for thread in range(threads):
            first = 8 * thread
            half = kept[first] + kept[first + 1] + kept[first + 2] + kept[first + 3]
            total[thread] = half + kept[first + 4] + kept[first + 5] + kept[first + 6] + kept[first + 7]


@compiled
def add_thread_vectors(values: Any, vector: int, together: int, out: Any) -> None:
    """Add each row by threads, of which each takes every vector as far on as there are threads, and joins its sums in turn.

    Rows have whole vectors. So many threads `together` keep their sums in a cache.
    """
    threads = out.shape[1]
    kept = np.empty(together * vector, np.float32)
    for row in range(len(values)):
        line = values[row]
        for begin in range(0, threads, together):
            count = min(together, threads - begin)
            kept[:] = np.float32(0)
            for first in range(begin * vector, line.size, threads * vector):
                part = line[first : min(first + count * vector, line.size)]
                for index in range(part.size):
                    kept[index] += part[index]
            _join_vectors(kept, count, vector, out[row, begin : begin + count])


@compiled
def add_block_rows(values: Any, shifts: Any, threads: int, vector: int, sums: int, width: int, out: Any) -> None:
    """Add each row by the threads of a block, which take vectors, or single elements into `sums` sums each.

    A row begins `shifts` elements after an aligned address: its first elements up to the next one, and its last ones, join the first sums
    of threads. A thread joins its sums in turn; then threads are halved in groups of `width`, and then the groups.
    """
    kept, total = np.empty(sums * threads, np.float32), np.empty(threads, np.float32)
    for row in range(len(values)):
        line, shift = values[row], shifts[row]
        kept[:] = np.float32(0)
        head = min((vector - shift) % vector, line.size)
        tail = line.size - (line.size - head) % vector
        for index in range(head):
            kept[(shift + index) * vector] += line[index]
        for first in range(head, tail, kept.size):
            part = line[first : min(first + kept.size, tail)]
            for index in range(part.size):
                kept[index] += part[index]
        for index in range(line.size - tail):
            kept[index * vector] += line[tail + index]
        if vector > 1:
            _join_vectors(kept, threads, vector, total)
        else:
            for thread in range(threads):
                total[thread] = kept[thread]
            for index in range(1, sums):
                for thread in range(threads):
                    total[thread] += kept[index * threads + thread]
        half = width // 2
        while half:
            for first in range(0, threads, width):
                for thread in range(first, first + half):
                    total[thread] += total[thread + half]
            half //= 2
        half = threads // width // 2
        while half:
            for group in range(half):
                total[group * width] += total[(group + half) * width]
            half //= 2
        out[row] = total[0]


@compiled
def add_products(values: Any, factors: Any, sums: Any, start: int, stop: int) -> None:
    """Add products of two arrays, each to the sum of the next thread by one fused multiply-add, the first thread after the last."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            other = factors[row, first : min(first + threads, stop)]
            for thread in range(part.size):
                kept[thread] = fma(part[thread], other[thread], kept[thread])


@compiled
def keep_largest(values: Any, sums: Any, start: int, stop: int) -> None:
    """Keep the larger one, or NaN, of what a thread has and its next value."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            for thread in range(len(part)):
                if not (np.isnan(kept[thread]) or kept[thread] > part[thread]):
                    kept[thread] = part[thread]


@compiled
def add_rows(values: Any, sums: Any) -> None:
    """Add rows of matrices, each to the next row of sums, the first one after the last."""
    for matrix in range(len(values)):
        kept = sums[matrix]
        for row in range(values.shape[1]):
            total, part = kept[row % len(kept)], values[matrix, row]
            for column in range(len(part)):
                total[column] += part[column]


@compiled
def keep_smallest(values: Any, sums: Any, start: int, stop: int) -> None:
    """Keep the smaller one, or NaN, of what a thread has and its next value."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            for thread in range(len(part)):
                if not (np.isnan(kept[thread]) or kept[thread] < part[thread]):
                    kept[thread] = part[thread]


@compiled
def multiply_strided(values: Any, sums: Any, start: int, stop: int) -> None:
    """Multiply the product of the next thread by each value, the first one after the last."""
    threads = sums.shape[1]
    for row in range(len(values)):
        kept = sums[row]
        for first in range(start, stop, threads):
            part = values[row, first : min(first + threads, stop)]
            for thread in range(len(part)):
                kept[thread] *= part[thread]


@compiled
def add_warps(values: Any, lanes: int, out: Any) -> None:
    """Add rows by the lanes of a warp, of which each takes every `lanes`-th value, and halve them."""
    kept = np.empty(lanes, np.float32)
    for row in range(len(values)):
        line = values[row]
        kept[:] = np.float32(0)
        for first in range(0, line.size, lanes):
            part = line[first : first + lanes]
            for lane in range(part.size):
                kept[lane] += part[lane]
        half = lanes // 2
        while half:
            for lane in range(half):
                kept[lane] += kept[lane + half]
            half //= 2
        out[row] = kept[0]


@compiled
def add_whole_warps(values: int, rows: int, columns: int, scratch: int, out: int) -> None:
    """Add rows as `add_warps` does by 32 lanes, of which all take as many; all are addresses, and of scratch there are 64 bytes."""
    for row in range(rows):
        line = values + 4 * columns * row
        lower, upper = splat(np.float32(0), 16), splat(np.float32(0), 16)
        for place in range(line, line + 4 * columns, 128):
            lower, upper = lower + load(place, np.float32, 16), upper + load(place + 64, np.float32, 16)
        store(lower + upper, scratch)
        store(load(scratch, np.float32, 8) + load(scratch + 32, np.float32, 8), scratch)
        store(load(scratch, np.float32, 4) + load(scratch + 16, np.float32, 4), scratch)
        store(load(scratch, np.float32, 2) + load(scratch + 8, np.float32, 2), scratch)
        store(load_scalar(scratch, np.float32) + load_scalar(scratch + 4, np.float32), out + 4 * row)


@inner
def _larger(kept: Any, values: Any) -> Any:
    """The larger ones of lanes, or NaN where one of them is."""
    return select(kept != kept, kept, select(kept >= values, kept, values))


@compiled
def find_largest(values: int, rows: int, columns: int, out: int) -> None:
    """Find the largest number of each row, or NaN where it has one; rows and results are at addresses, one after another."""
    lanes = 16
    for row in range(rows):
        line = values + 4 * columns * row
        first = second = third = fourth = splat(np.float32(-np.inf), lanes)
        whole = columns - columns % (4 * lanes)
        for place in range(line, line + 4 * whole, 16 * lanes):
            first = _larger(first, load(place, np.float32, lanes))
            second = _larger(second, load(place + 4 * lanes, np.float32, lanes))
            third = _larger(third, load(place + 8 * lanes, np.float32, lanes))
            fourth = _larger(fourth, load(place + 12 * lanes, np.float32, lanes))
        of_lanes = _larger(_larger(first, third), _larger(second, fourth))
        of_8 = _larger(even_lanes(of_lanes), odd_lanes(of_lanes))
        of_4 = _larger(even_lanes(of_8), odd_lanes(of_8))
        of_2 = _larger(even_lanes(of_4), odd_lanes(of_4))
        found, other = extract(of_2, 0), extract(of_2, 1)
        found = found if found >= other or found != found else other
        for place in range(line + 4 * whole, line + 4 * columns, 4):
            value = load_scalar(place, np.float32)
            found = found if found >= value or found != found else value
        store(found, out + 4 * row)


@inner
def _corrected(value: Any, reciprocal: Any, negated: Any) -> Any:
    """Divide as one rounding does: a product with the reciprocal, corrected twice (P. Markstein, 1990)."""
    near = value * reciprocal
    nearer = fma(fma(near, negated, value), reciprocal, near)
    return fma(fma(nearer, negated, value), reciprocal, nearer)


@compiled
def divide_rows(values: int, rows: int, columns: int, divisors: int, out: int) -> bool:
    """Divide exponentials of each row, which are at most 1, by their sum; all are addresses, one row after another.

    Return False, and leave results undefined, where a sum is no usual number, or an exponential is below 2^-100 but not 0: what corrections
    add up would be subnormal.
    """
    lanes = 16
    whole = columns - columns % lanes
    least = splat(_LEAST_EXACT, lanes)
    for row in range(rows):
        divisor = load_scalar(divisors + 4 * row, np.float32)
        if not (divisor >= np.float32(1) and divisor <= _MOST):
            return False
        line, result, reciprocal = values + 4 * columns * row, out + 4 * columns * row, np.float32(1) / divisor
        reciprocals, negated = splat(reciprocal, lanes), splat(-divisor, lanes)
        for place in range(0, 4 * whole, 4 * lanes):
            part = load(line + place, np.float32, lanes)
            if any_lane(bitcast(part, np.uint32) - splat(np.uint32(1), lanes) < least):
                return False
            store(_corrected(part, reciprocals, negated), result + place)
        for place in range(4 * whole, 4 * columns, 4):
            value = load_scalar(line + place, np.float32)
            if value < _LEAST_VALUE and value != np.float32(0):
                return False
            store(_corrected(value, reciprocal, -divisor), result + place)
    return True


@compiled
def halve(sums: Any, out: Any) -> None:
    """Add the upper half of each row to the lower one until one is left."""
    kept = np.empty(max(sums.shape[1] // 2, 1), np.float32)
    for row in range(len(sums)):
        line, half = sums[row], sums.shape[1] // 2
        for place in range(half):
            kept[place] = line[place] + line[place + half]
        while half > 1:
            half //= 2
            for place in range(half):
                kept[place] += kept[place + half]
        out[row] = kept[0] if sums.shape[1] > 1 else line[0]
