"""The fast path of the fused dot-product-add for few rows: A is packed, B is read where it is."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.decode.tables import parts_of
from fastmma.kernels.fused.reach import first_bad, loses_subnormals, lowest_emax, lowest_product, mask_c
from fastmma.kernels.fused.thin_config import WORD, ThinConfig
from fastmma.kernels.fused.thin_kernel import KERNEL
from fastmma.kernels.macro_tiles import FallbackMask, MacroTiles
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.params import Fused
from fastmma.kernels.tiles import THIN, ThinTile, tile_of_cpu

_WIDTH = 64  # columns of a row that are computed again together
_GROUPS = 4  # of columns, the most that are computed together
_MACRO_TILES_PER_THREAD = 4
_FLOOR = -150  # of emax, where there is none
_TINY = float.fromhex("0x1p-300")  # what a zero of A is packed as: its products are below the unit of that floor
_LOW = -16000  # and its exponent
_INFINITY = 0x7F800000

Codes = NDArray[Any]


class Rows(NamedTuple):
    """A as the kernel reads it; `bad` are rows that it cannot take."""

    values: NDArray[np.float64]
    exponents: NDArray[np.uint32]
    signs: NDArray[np.uint32]
    bad: NDArray[np.bool_]


@lru_cache(1024)
def _config_of(p: Fused, tile: ThinTile, rows: int, along: bool) -> ThinConfig:
    rows = min(1 << (rows - 1).bit_length(), tile.rows)
    return ThinConfig(
        element=p.b,
        along=along,
        bounded=_lowest(p) > 0,
        terms=p.terms,
        align_bits=p.align_bits,
        keep_bits=p.keep_bits,
        half=bool(p.half),
        # a floor at which nothing is truncated that an f32 result could hold is as good as any lower one
        floor=1023 + (p.emax_floor if p.half or p.emax_floor > p.align_bits - 149 else _FLOOR),
        vector_bytes=tile.vector_bytes,
        rows=rows,
        groups=min(tile.sums // rows, _GROUPS),
    )


def _lowest(p: Fused) -> int:
    """The word of the smallest emax at which no bit below 2**-149 can matter; 0 if it may be any."""
    smallest = 2 - p.a.bias - p.b.bias
    return 0 if p.half or smallest >= lowest_product(p) or p.emax_floor >= lowest_emax(p) else lowest_emax(p) + 1023


def _packed(p: Fused, config: ThinConfig, codes: Codes) -> Rows:
    """Pack A, zeros past its rows and columns."""
    element = p.a
    rows, depth = codes.shape
    blocks, steps = -(-rows // config.rows), -(-depth // config.terms)
    filled = np.zeros((steps * config.terms, blocks * config.rows), np.int32)
    filled[:depth, :rows] = codes.T
    filled >>= element.shift
    bad = (filled & ((1 << element.width) - 1)).max(axis=0) >= first_bad(element, 0, depth)
    filled[:, bad] = 0
    magnitude, field, significand = parts_of(element, filled)
    nonzero = magnitude != 0
    # B's values are lower than they should be by a power of two, so A's are higher
    power = field - (element.bias + element.mantissa_bits) + p.b.decoded_scale + 1023
    values = significand * (power.astype(np.int64) << 52).view(np.float64)
    values *= 1 + 2.0**-30
    negative = (filled >> element.width & 1 != 0) & nonzero
    np.negative(values, out=values, where=negative)
    values[~nonzero] = _TINY
    exponents = np.where(nonzero, field + (1023 - element.bias - p.b.bias), _LOW)
    bits = np.zeros((steps, config.words * WORD, blocks * config.rows), np.uint32)
    bits[:, : config.terms] = negative.reshape(steps, config.terms, -1)
    signs = (bits.reshape(steps, config.words, WORD, -1) << np.arange(WORD, dtype=np.uint32)[:, None]).sum(axis=2, dtype=np.uint32)

    def by_blocks(array: Codes) -> Codes:
        return np.ascontiguousarray(array.reshape(steps, -1, blocks, config.rows).swapaxes(1, 2))

    twice = np.uint32(0x10001)
    return Rows(by_blocks(values), by_blocks((exponents & 0xFFFF).astype(np.uint32) * twice), by_blocks(signs * twice), bad[:rows])


def _read_sums(p: Fused, c: Codes, state: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Put c into the state; which of its elements the kernel cannot take."""
    if p.half:
        with np.errstate(invalid="ignore"):  # AArch64 signals NaNs here
            bits = c.view(np.float16).astype(np.float32).view(np.uint32)
        smallest, largest = 0, _INFINITY
    else:
        bits = c & np.uint32(mask_c(p) & 0xFFFFFFFF)
        smallest, largest = 1 << 23 if loses_subnormals(p) else 0, 127 + 126 << 23
    magnitude = bits & 0x7FFFFFFF
    bad = (magnitude >= largest) | ((magnitude != 0) & (magnitude < smallest))
    np.copyto(state, bits, where=~bad & (magnitude != 0))
    return np.asarray(bad)


def _halves(bits: NDArray[np.uint32]) -> Codes:
    """The f16 codes of sums that hold f16 values; infinities may be NaNs here, and a zero is +0, also what rounded to it from below."""
    with np.errstate(invalid="ignore"):
        codes: Codes = bits.view(np.float32).astype(np.float16).view(np.uint16)
    magnitude = np.minimum(codes & 0x7FFF, 0x7C00)
    return np.where(magnitude == 0, 0, codes & 0x8000 | magnitude).astype(np.uint16)


class _Part(NamedTuple):
    """Some adjacent columns of B, whole tiles: its codes, and those of the last step filled up with zeros if it has not enough k."""

    b: Codes
    tail: Codes
    first: int


def _parts(config: ThinConfig, b: Codes) -> list[_Part]:
    """All columns; the last ones, if they are no tile, filled up with zeros."""
    depth, columns = b.shape
    order: Any = "F" if config.along else "C"
    steps, whole = -(-depth // config.terms), columns // config.tile * config.tile
    tail = np.zeros((config.terms, whole), b.dtype, order)
    cut = depth // config.terms * config.terms
    tail[: depth - cut] = b[cut:, :whole]
    found = [_Part(b[:, :whole], tail, 0)]
    if whole < columns:
        last = np.zeros((steps * config.terms, config.tile), b.dtype, order)
        last[:depth, : columns - whole] = b[:, whole:]
        found.append(_Part(last, last, whole))
    return found


class _Sums:
    """The sums that the kernel reads and writes, by columns of B."""

    def __init__(self, config: ThinConfig, rows: int, columns: int) -> None:
        self.state: NDArray[np.uint32] = _zeros((rows, columns), np.uint32)
        self.min_emax: NDArray[np.uint16] = _zeros((rows, columns), np.uint16)  # emax
        self.largest: NDArray[np.uint16] = _zeros((1, columns), np.uint16)
        self.overflown: NDArray[np.bool_] = np.zeros(columns, np.bool_)
        self.min_emax[...] = 0xFFFF


def _zeros(shape: tuple[int, int], dtype: Any) -> NDArray[Any]:
    return AlignedMemory(shape[0] * shape[1] * np.dtype(dtype).itemsize, zeroed=True).array(shape, dtype)


def _compute(config: ThinConfig, a: Rows, part: _Part, first: int, last: int, sums: _Sums) -> None:
    """Columns first to last of a part."""
    max_sum_exponent = AlignedMemory(config.vector_bytes, config.terms * config.tile * config.element.itemsize, zeroed=True)
    column, (steps, blocks) = part.first + first, a.signs.shape[:2]
    addresses = (
        part.b.ctypes.data + first * part.b.strides[1],
        part.tail.ctypes.data + first * part.tail.strides[1],
        *(array.ctypes.data for array in (a.values, a.exponents, a.signs)),
        *(array.ctypes.data + column * array.itemsize for array in (sums.state, sums.min_emax, sums.largest)),
        *max_sum_exponent.addresses,
    )
    along = int(config.along)
    numbers = (
        part.b.strides[along],
        part.tail.strides[along],
        sums.state.strides[0],
        (last - first) // config.tile,
        blocks,
        len(part.b) // config.terms,
        steps,
        steps if config.along else max(config.rows // 2, 1),  # one row alone takes B as fast as memory gives whole lines of it
    )
    arguments = np.array(addresses + numbers, np.int64)
    KERNEL.function(config)(arguments.ctypes.data)
    sums.overflown[column : part.first + last] = (max_sum_exponent.array((config.lanes,), np.uint32) >= _INFINITY).any()


def multiply(p: Fused, a: Codes, b: Codes, c: Codes | None, out: Codes, threads: int) -> FallbackMask:
    """Write the fused product as `fastmma.kernels.fused.packed.multiply` does, for B with adjacent rows or columns; no overlap of `c`."""
    rows, columns = out.shape
    config = _config_of(p, tile_of_cpu(THIN), rows, b.strides[0] == b.itemsize)
    packed = _packed(p, config, a)
    sums = _Sums(config, packed.signs.shape[1] * config.rows, -(-columns // config.tile) * config.tile)
    bad = np.zeros((rows, -(-columns // _WIDTH) * _WIDTH), np.bool_)
    if c is not None:
        bad[:, :columns] = _read_sums(p, c, sums.state[:rows, :columns])
    for part in _parts(config, b):
        wide = part.tail.shape[1]
        share = -(-wide // (_MACRO_TILES_PER_THREAD * threads) // config.tile) * config.tile if threads > 1 else wide

        def work(first: int, last: int, _worker: int, part: _Part = part) -> None:
            _compute(config, packed, part, first, last, sums)

        parallel_for(work, wide, threads, max(share, config.tile))
    results = sums.state[:rows, :columns]
    out[...] = _halves(results) if p.half else results
    fallback = FallbackMask(MacroTiles(rows, columns, rows, _WIDTH))
    fallback.rows[:] = packed.bad
    fallback.columns[:] = (sums.largest[0, :columns] >= first_bad(p.b, 0, len(b)) >> config.dropped) | sums.overflown[:columns]
    bad[:, :columns] |= sums.min_emax[:rows, :columns] < _lowest(p)
    fallback.parts[:] = bad.reshape(rows, -1, _WIDTH).any(axis=2).T
    return fallback
