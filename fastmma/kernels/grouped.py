"""The fast x86 path for terms that are exact sums of groups of e2m1 products: what it covers, and a product cut into pieces for threads."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels import cpu
from fastmma.kernels.group_panels import NO_EXPONENT, Rows, ScaleTables, Slab, pack_rows, run_piece, scale_codes
from fastmma.kernels.group_tile import EXCESS, GROWTH, TERMS, GroupTile
from fastmma.kernels.params import Element, Scaled
from fastmma.threads import parallel_for

Codes = NDArray[Any]
Slow = Callable[..., None]

_E2M1 = Element(2, 1, 1, 0, 0)
_LINE = 64
_CHUNK_ROWS = 1024
_PACK_ROWS = 64
_SLAB_STEPS = 8
_NAN = 0x7FFFFFFF
_DOT_BITS = 12  # a term's significand is below 2**12
_HIGHEST = 126  # sums that stay below 2**126 never overflow
_SMALLEST = -149  # exponent of the last bit of float32
_HEADROOM = 10  # exponents by which sums typically exceed their terms'
_SCALE_A, _SCALE_B = -437, -436  # aligned kernels hold sums times 2 to their sum, so that float64 has the exponent field of EXCESS


class _Row(NamedTuple):
    """The register tiles of one instruction set: rows and vectors of exact and of aligned kernels."""

    features: frozenset[str]
    vnni: bool
    lanes: int
    exact: tuple[int, int]
    aligned: tuple[int, int]


_TILES = (
    _Row(frozenset({"avx512vnni", "avx512bw", "avx512dq", "avx512vl"}), True, 16, (4, 2), (2, 2)),
    _Row(frozenset({"avx512bw", "avx512dq", "avx512vl"}), False, 16, (4, 2), (2, 2)),
    _Row(frozenset({"avxvnni", "avx2", "fma"}), True, 8, (2, 2), (1, 2)),
    _Row(frozenset({"avx2", "fma"}), False, 8, (2, 2), (1, 2)),
)


@cache
def _row(features: frozenset[str]) -> _Row | None:
    return next((row for row in _TILES if row.features <= features), None)


def supported(p: Scaled) -> bool:
    """Whether this CPU has a fast path for these parameters."""
    if cpu.portable() or platform.machine().lower() not in ("x86_64", "amd64") or _row(cpu.features()) is None:
        return False
    return (
        p.a == p.b == _E2M1
        and p.group in (16, 32)
        and p.step == TERMS * p.group
        and p.block % p.group == 0
        and p.align_bits == 35
        and p.emax_floor <= _SMALLEST + p.align_bits
    )


def _tile(p: Scaled, aligned: bool) -> GroupTile:
    row = _row(cpu.features())
    assert row is not None
    return GroupTile(aligned, p.group, p.align_bits, row.vnni, row.lanes, *(row.aligned if aligned else row.exact))


def _empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array that starts on a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def _zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    array = _empty(shape, dtype)
    array[...] = 0
    return array


class _Extremes(NamedTuple):
    """For lines (rows of A, columns of B): the exponents of their scales, and which lines have a NaN scale."""

    lowest: NDArray[np.int32]
    highest: NDArray[np.int32]
    nan: NDArray[np.bool_]


def _extremes(codes: Codes, tables: ScaleTables, scale: Element, axis: int) -> _Extremes:
    alive = tables.alive[codes] != 0
    exponents = tables.exponents[codes]
    dead_is_nan = np.full(256, scale.specials == 3)
    width = scale.exponent_bits + scale.mantissa_bits
    dead_is_nan[np.arange(256) & ((1 << width) - 1) == (1 << width) - 1] = True
    return _Extremes(
        np.where(alive, exponents, NO_EXPONENT).min(axis=axis),
        np.where(alive, exponents, -NO_EXPONENT).max(axis=axis),
        (~alive & dead_is_nan[codes]).any(axis=axis),
    )


def _packed_rows(p: Scaled, a: Codes, scales: Codes, tables: ScaleTables, lowest: int, padded_rows: int, threads: int) -> Rows:
    rows, depth = a.shape
    steps = -(-depth // p.step)
    elements = _empty((padded_rows, steps * p.step), np.uint8)
    a = np.ascontiguousarray(a)

    def pack(start: int, stop: int, _worker: int) -> None:
        pack_rows(a, scales, tables.alive, p.block, p.group, start, stop, elements)

    parallel_for(pack, padded_rows, threads, _PACK_ROWS)
    groups = np.minimum(np.arange(steps * TERMS) * p.group // p.block, scales.shape[1] - 1)
    codes = np.zeros((padded_rows, len(groups)), np.uint8)
    codes[:rows] = scales[:, groups]
    return Rows(
        elements,
        (tables.values * 2.0**-lowest)[codes],
        (tables.values * (2.0**_SCALE_A * (1 + 2.0**-GROWTH)))[codes],
        ((tables.exponents + EXCESS // 2) << 20).astype(np.int32)[codes],
    )


def _slab(tile: GroupTile, steps: int, rows: int) -> Slab:
    steps = min(steps, _SLAB_STEPS)
    terms = steps * TERMS
    return Slab(
        _zeros((terms * tile.group // 4, tile.columns), np.int32),
        _zeros((terms, tile.columns), np.int32),
        _zeros((terms, tile.columns), np.float64),
        _zeros((terms, tile.columns), np.int32),
        _empty((rows, tile.columns), np.float32),
    )


def _runs(marks: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The first and the last-plus-one of each run of true marks."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], marks.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


class _Product:
    """One product: its packed rows, and how a piece of it is computed."""

    def __init__(self, p: Scaled, a: Codes, b: Codes, c: Codes | None, out: Codes, scale_a: Codes, scale_b: Codes, threads: int) -> None:
        self.p, self.c, self.out = p, c, out
        self.exact, self.aligned = _tile(p, False), _tile(p, True)
        self.tables = scale_codes(p.scale)
        rows, depth = a.shape
        self.steps = -(-depth // p.step)
        self.padded_rows = -(-rows // self.exact.rows) * self.exact.rows
        self.turned = not b.flags.c_contiguous and b.T.flags.c_contiguous
        self.b = b.T if self.turned else np.ascontiguousarray(b)
        scale_a, self.scale_b = np.ascontiguousarray(scale_a), np.ascontiguousarray(scale_b)
        self.of_rows, self.of_columns = (
            _extremes(codes, self.tables, p.scale, axis) for codes, axis in ((scale_a, 1), (self.scale_b, 0))
        )
        self.lowest_a = min(int(self.of_rows.lowest.min()), NO_EXPONENT - 1)
        if self.lowest_a == NO_EXPONENT - 1:
            self.lowest_a = 0
        self.rows = _packed_rows(p, a, scale_a, self.tables, self.lowest_a, self.padded_rows, threads)
        self.last_bit = 2 * p.scale.mantissa_bits + p.a.mantissa_bits + p.b.mantissa_bits  # of a term, below its exponent

    def piece(self, first: int, column: int, slab: Slab) -> NDArray[np.bool_]:
        """Compute a piece; which of its rows have to be done another way."""
        rows, columns = self.out.shape
        last, width = min(first + len(slab.state), rows), min(self.exact.columns, columns - column)
        lines, panel = slice(first, last), slice(column, column + width)
        lowest_b, highest_b = int(self.of_columns.lowest[panel].min()), int(self.of_columns.highest[panel].max())
        lowest, highest = self.of_rows.lowest[lines] + lowest_b, self.of_rows.highest[lines] + highest_b
        growth = _DOT_BITS + (TERMS * self.steps).bit_length()
        redo = (lowest - self.last_bit < _SMALLEST) | (highest + growth > _HIGHEST)
        start: Codes | None = None
        if self.c is not None:
            start = np.array(self.c[lines, panel], np.uint32)
            redo |= ((start & _NAN) >= (127 + _HIGHEST) << 23).any(axis=1)
            start[redo] = 0
            start[start == 1 << 31] = 0
        if redo.all():
            return redo
        low, high = int(lowest[~redo].min()), int(highest[~redo].max())
        if not self._exactly(first, column, low, high, start, slab):
            self._begin(start, slab)
            self._run(self.aligned, first, column, 2.0 ** (_SCALE_B - 2), (2.0**_SCALE_A, 2.0**_SCALE_B), slab)
        self.out[lines, panel] = slab.state[: last - first, :width].view(np.uint32)
        return redo

    @staticmethod
    def _begin(start: Codes | None, slab: Slab) -> None:
        slab.state[...] = 0
        if start is not None:
            slab.state[: len(start), : start.shape[1]] = start.view(np.float32)

    def _run(self, tile: GroupTile, first: int, column: int, factor: float, state_factors: tuple[float, float], slab: Slab) -> None:
        last = min(first + len(slab.state), self.padded_rows)
        run_piece(
            tile,
            self.rows,
            first,
            last,
            self.b,
            self.turned,
            self.scale_b,
            self.tables,
            self.p.block,
            column,
            factor,
            state_factors,
            slab,
        )

    def _exactly(self, first: int, column: int, low: int, high: int, start: Codes | None, slab: Slab) -> bool:
        """Compute a piece without alignment, if nothing is truncated there."""
        slack = self.p.align_bits - self.last_bit  # exponents up to this much above the lowest do not truncate its terms
        if high - low > slack - _HEADROOM:
            return False
        top = min(low + slack + 1, 128)
        if start is not None:
            values = start.view(np.float32).astype(np.float64)
            units = np.ldexp(values, self.last_bit - low)
            if (units != np.trunc(units)).any() or (np.abs(values) >= 2.0**top).any():
                return False
        self._begin(start, slab)
        power = 1024 - top
        factors = 2.0 ** (power // 2), 2.0 ** (power - power // 2)
        self._run(self.exact, first, column, 2.0 ** (power + self.lowest_a - 2), factors, slab)
        return bool(np.isfinite(slab.state).all())


def gemm(p: Scaled, a: Codes, b: Codes, c: Codes | None, out: Codes, scale_a: Codes, scale_b: Codes, threads: int, slow: Slow) -> None:
    """A product of at least one k for `supported` parameters; `out` overlaps nothing.

    What is out of reach here (exponents near the ends of float32's range, special c) is done by ``slow`` with the same arguments.
    """
    product = _Product(p, a, b, c, out, scale_a, scale_b, threads)
    rows, columns = out.shape
    chunk = min(_CHUNK_ROWS, product.padded_rows)
    panels, chunks = -(-columns // product.exact.columns), -(-rows // chunk)
    redo = np.zeros((panels, rows), np.bool_)
    slabs: dict[int, Slab] = {}

    def compute(start: int, stop: int, worker: int) -> None:
        if worker not in slabs:
            slabs[worker] = _slab(product.exact, product.steps, chunk)
        for index in range(start, stop):
            panel, first = index % panels, index // panels * chunk
            redo[panel, first : first + chunk] = product.piece(first, panel * product.exact.columns, slabs[worker])

    parallel_for(compute, panels * chunks, threads)
    nan_rows, nan_columns = product.of_rows.nan, product.of_columns.nan
    for panel in np.flatnonzero(redo.any(axis=1)).tolist():
        part = slice(panel * product.exact.columns, min((panel + 1) * product.exact.columns, columns))
        for first, last in _runs(redo[panel] & ~nan_rows):
            lines = slice(first, last)
            slow(p, a[lines], b[:, part], None if c is None else c[lines, part], out[lines, part], scale_a[lines], scale_b[:, part], threads)
    out[nan_rows] = _NAN
    out[:, nan_columns] = _NAN
