"""The exponents of a matrix's elements, by its smallest and its largest magnitude."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from fastmma.host.addresses import address_of
from fastmma.host.threads import parallel_for, worth_waking
from fastmma.kernels.fused.reach import Spread, spread_of
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.direct import emitted
from fastmma.kernels.llvm.simd import bitcast, highest_lane, load, lowest_lane, maximum, minimum, splat, store
from fastmma.kernels.matrices.addresses import LINES, NOWHERE, Lines, Matrix, load_codes
from fastmma.kernels.params import Element

_WAKING_ELEMENTS = 1 << 20  # looked at in the time of waking a thread
_WORDS = 32  # codes of 16 bits that are looked at together
_FEW_BITS = 5  # of an exponent, whose bytes can always be added


@compiled
def scan_lines(lines: Lines, count: int, length: int, mask: int, found: int) -> None:
    """Find the least magnitude that is not zero, less 1, and the largest one; 2**32 - 1 and 0 where there is none."""
    smallest, largest = splat(np.uint32(0xFFFFFFFF), LINES), splat(np.uint32(0), LINES)
    least, most = splat(np.uint16(0xFFFF), _WORDS), splat(np.uint16(0), _WORDS)
    many = length // _WORDS * _WORDS if lines.itemsize == 2 and lines.stride == 2 else 0
    for line in range(count):
        start = lines.address + line * lines.line_stride
        for place in range(0, many, _WORDS):
            words = load(start + 2 * place, np.uint16, _WORDS) & mask
            least, most = minimum(least, words - 1), maximum(most, words)
        for place in range(many, length, LINES):
            codes = load_codes(start + place * lines.stride, lines.stride, lines.itemsize, min(length - place, LINES))
            magnitude = bitcast(codes & mask, np.uint32)
            smallest, largest = minimum(smallest, magnitude - 1), maximum(largest, magnitude)
    if np.int64(highest_lane(most)) != 0:
        smallest = minimum(smallest, splat(np.uint32(lowest_lane(least)), LINES))
        largest = maximum(largest, splat(np.uint32(highest_lane(most)), LINES))
    store(lowest_lane(smallest), found)
    store(highest_lane(largest), found + 4)


@cache
def _scan() -> Callable[..., None]:
    """`scan_lines`, compiled."""
    return emitted(scan_lines, kinds.kind_of(Lines(*NOWHERE)), *[kinds.int64] * 4)


def spread_of_matrix(element: Element, matrix: Matrix, rows: int, columns: int, threads: int) -> Spread:
    """The exponents of a matrix's elements, or all that they can have where those are few."""
    if element.exponent_bits <= _FEW_BITS:
        return spread_of(element)
    address, down, along, itemsize = matrix
    count, length = (rows, columns) if abs(down) >= abs(along) else (columns, rows)
    down, along = max(down, along, key=abs), min(down, along, key=abs)
    mask = ((1 << element.width) - 1) << element.shift
    threads = worth_waking(threads, count * length // _WAKING_ELEMENTS)
    found = np.empty((1 if threads == 1 else 4 * threads, 2), np.uint32)
    scan, place = _scan(), address_of(found)
    if threads == 1:
        scan(Lines(address, down, along, itemsize), count, length, mask, place)
        smallest, largest = found[0].tolist()
    else:
        grain = -(-count // len(found))

        def work(start: int, stop: int, _worker: int) -> None:
            scan(
                Lines(address + start * down, down, along, itemsize), stop - start, length, mask, place + start // grain * found.strides[0]
            )

        parallel_for(work, count, threads, grain)
        parts = found[: -(-count // grain)]
        smallest, largest = int(parts[:, 0].min()), int(parts[:, 1].max())
    if largest == 0:
        return Spread(0, 0)
    width = element.mantissa_bits + element.shift
    fields = (min(max(code >> width, 1), (1 << element.exponent_bits) - 2) for code in (smallest + 1, largest))
    return Spread(*(field - element.bias for field in fields))
