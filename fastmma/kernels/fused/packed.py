"""The fast path of the fused dot-product-add on x86 and AArch64: what it covers, and a product cut into macro tiles for threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for, worth_waking
from fastmma.kernels.fused.lanes import PanelConfig, PanelShape
from fastmma.kernels.fused.macro_tile import Extent, Limits, Promoting, WorkerMemory, run_macro_tile
from fastmma.kernels.fused.magnitudes import spread_of_matrix
from fastmma.kernels.fused.micro_kernel import SLAB
from fastmma.kernels.fused.panel_packing import pack_rows
from fastmma.kernels.fused.panels import NO_MAGNITUDE, BlockScales, PanelElementSpec, Panels
from fastmma.kernels.fused.reach import (
    F32_LOWEST,
    SINGLE_LARGEST_C,
    ExponentBytes,
    Spread,
    byte_excess,
    exact_in_lanes,
    exponent_bytes,
    first_bad,
    floor_byte,
    lowest_emax,
    lowest_product,
    mask_c,
    single_lanes,
    smallest_c,
)
from fastmma.kernels.fused.sparse_kernel import SPARSE
from fastmma.kernels.fused.sparse_rows import Selection, pack_stored_rows
from fastmma.kernels.fused.word_packing import scratch_of_rows
from fastmma.kernels.fused.worker_memory import addresses, ahead, sizes_of_worker
from fastmma.kernels.llvm import kinds
from fastmma.kernels.llvm.direct import emitted
from fastmma.kernels.llvm.kinds import kind_of
from fastmma.kernels.macro_tiles import FallbackMask, MacroTile, OfWorkers, cut
from fastmma.kernels.matrices.addresses import NOWHERE, matrix
from fastmma.kernels.matrices.loans import Loan
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.params import PROMOTIONS, Element, Fused, Promotion
from fastmma.kernels.tiles import FUSED, FusedTile, first_fit, tile_of_cpu

CHUNK_ROWS = 2048  # of A and of the running sums that go with one packed panel of B
PACK_ROWS = 32
WAKING_ELEMENTS = 1 << 16  # of A, packed in the time of waking a thread
MACRO_TILES_PER_THREAD = 2


def supported(p: Fused) -> bool:
    """Tell whether this CPU has a fast path for these parameters."""
    return p.split == 0 and exact_in_lanes(p) and first_fit(FUSED) is not None


def supports_sparse(p: Fused) -> bool:
    """Tell whether `multiply` takes A without its zeros."""
    tiles = first_fit(FUSED)
    whole = not p.half and p.align_bits >= p.keep_bits and p.terms >= 16
    return supported(p) and whole and tiles is not None and tiles.sparse


@lru_cache(1024)
def config_of(p: Fused, tiles: FusedTile, added: bool = True, sparse: bool = False) -> PanelConfig:
    """The micro-kernel of these parameters on a CPU's register tile; `added` where exponent bytes are, `sparse` where A is."""
    single = single_lanes(p)
    rows, groups = (2, 4) if sparse else tiles.single if single else tiles.double
    return PanelConfig(
        terms=p.terms,
        align_bits=p.align_bits,
        keep_bits=p.keep_bits,
        half=bool(p.half),
        floor=floor_byte(p),
        single=single,
        vector_bytes=tiles.vector_bytes,
        rows=rows,
        groups=groups,
        depth=p.terms if sparse else tiles.depth,
        sparse=sparse,
        added=added,
    )


def spec_of(element: Element, config: PanelConfig, right: bool, depth: int, how: ExponentBytes) -> PanelElementSpec:
    """The decoding of A, or of B, the `right` operand."""
    scale = config.scale // 2 if right else config.scale - config.scale // 2
    excess = byte_excess(config.excess)[right]
    return PanelElementSpec(
        element=element,
        value_offset=scale - element.bias - element.mantissa_bits,
        byte_offset=how.offsets[right] - element.bias,
        highest_byte=how.highest[right],
        flip=255 if right and not how.added else 0,
        first_bad=first_bad(element, excess, depth),
        growth=1 + 2.0**-config.extra_bits if right else 1.0,
        tiny=2.0**-126 if config.single else 2.0 ** (scale - 300),
    )


def limits_of(p: Fused, config: PanelConfig, how: ExponentBytes) -> Limits:
    """The limits within which sums are exact."""
    if p.half:
        smallest, largest = 0, 0x7F800000
    else:
        lowest = max(smallest_c(p), how.zeros)
        smallest = (127 + lowest) << 23 if lowest >= F32_LOWEST else 0
        largest = (127 + (SINGLE_LARGEST_C if config.single else 126)) << 23
    return Limits(
        lowest_sum=p.a.bias + p.b.bias + lowest_product(p),
        lowest_byte=config.excess + lowest_emax(p),
        smallest_c=smallest,
        largest_c=largest,
        mask_c=-1 if p.half else mask_c(p),
        surplus=how.surplus,
        deficit=how.deficit,
    )


def slab_depth_of(config: PanelConfig, depth: int, promotion: Promotion | None) -> int:
    """Return how many k go into a slab: at most `config.depth`, and whole slabs between promotions."""
    unit = max(8, config.terms)
    padded = -(-depth // unit) * unit
    if promotion is None or promotion.every >= padded:
        return min(config.depth, padded)
    return max(units * unit for units in range(1, config.depth // unit + 1) if promotion.every % (units * unit) == 0)


def promotes(p: Fused, every: int) -> bool:
    """Tell whether promotions every so many k are `supported`, too."""
    return supported(p) and not p.half and every % max(8, p.terms) == 0


def _promoting(promotion: Promotion, columns: int) -> tuple[Promoting, NDArray[Any] | None]:
    """Promotions as a kernel knows them, and the array that they point into: B's scales filled up to whole panels of columns."""
    rule = PROMOTIONS.index(promotion.rule)
    if promotion.scale_a is None or promotion.scale_b is None:
        return Promoting(promotion.every, rule, 0, 0, 0, 0), None
    a, b = promotion.scale_a, np.pad(promotion.scale_b, ((0, 0), (0, columns - promotion.scale_b.shape[1])))
    return Promoting(promotion.every, rule, a.ctypes.data, b.ctypes.data, a.strides[0], b.strides[0]), b


@lru_cache(1024)
def packer(dtype: type, scaled: bool) -> Callable[..., None]:
    """`pack_rows` for such arguments."""
    given = _HOW, NOWHERE, *[0] * 5, Panels(*[0] * 6), dtype, 0
    return emitted(pack_rows, *map(kind_of, given), kinds.Array(kinds.int32, 2), kind_of(_SCALES if scaled else None))


@lru_cache(1024)
def runner(shape: PanelShape, dtype: type, promoted: bool, scaled: bool) -> Callable[..., None]:
    """`run_macro_tile` for such arguments."""
    first = shape, 0, 0, Extent(*[0] * 5), Promoting(*[0] * 6) if promoted else None, Panels(*[0] * 6)
    second = _HOW, *[NOWHERE] * 3, Limits(*[0] * 7), WorkerMemory(*[0] * 10), dtype
    marks = [kinds.Array(kinds.uint8, 1)] * 2
    return emitted(
        run_macro_tile,
        *map(kind_of, first),
        kinds.Array(kinds.int32, 1),
        *map(kind_of, second),
        *marks,
        kind_of(_SCALES if scaled else None),
    )


_SCALES = BlockScales(NOWHERE, 0, 0, 0)  # these stand for any
_HOW = PanelElementSpec(Element(0, 0, 0, 0, 0), 0, 0, 0, 0, 0, 0.0, 0.0)


def multiply(
    p: Fused,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any] | None,
    out: NDArray[Any],
    threads: int,
    promotion: Promotion | None = None,
    scales: tuple[BlockScales, BlockScales] | None = None,
    spreads: tuple[Spread, Spread] | None = None,
    chosen: Selection | None = None,
) -> FallbackMask:
    """Write the fused product of codes `a` (M, K) and `b` (K, N) plus `c` into `out`, for `supported` parameters and at least one k.

    `c` and `out` are f32 bits (f16 bits for half results), which do not overlap, and no `c` is +0. What is out of reach here
    (infinities, NaNs, overflow, bits below the smallest f32) is marked. With a `promotion` (see `promotes`) the sums of its chunks of k
    start at zero and join the total that starts from `c`. Of sparse `a`, what is `chosen` is stored.
    With `scales` it is for the caller to know which sums might overflow or have bits below the smallest f32, and the exponents' `spreads`.
    """
    rows, (depth, columns) = len(a), b.shape
    scales_a, scales_b = (None, None) if scales is None else scales
    place_a, place_b, place_out = matrix(a), matrix(b), matrix(out)
    spread_a, spread_b = spreads or (
        spread_of_matrix(p.a, place_a, rows, a.shape[1], threads),
        spread_of_matrix(p.b, place_b, depth, columns, threads),
    )
    bytes_ = exponent_bytes(p, spread_a, spread_b)
    config = config_of(p, tile_of_cpu(FUSED), bytes_.added, chosen is not None)
    shape, kernel = config.shape, (SPARSE if config.sparse else SLAB).address(config)
    dtype = np.float32 if config.single else np.float64

    macro_tiles = cut(rows, columns, (config.rows, config.panel), threads, CHUNK_ROWS, MACRO_TILES_PER_THREAD)
    slab_depth = slab_depth_of(config, depth, promotion)
    held_rows = -(-rows // config.rows) * config.rows + ahead(config)
    held = held_rows * -(-depth // slab_depth) * slab_depth
    beside = 0 if config.sparse else held
    loan = Loan()
    storage = loan.memory(held * config.left_bytes, beside * 4, beside // min(config.terms, 8) * 4)
    values, exponents, signs = storage.addresses
    packed = Panels(values, exponents, signs, slab_depth, held_rows, config.rows)
    extremes = np.empty((rows, 2), np.int32)
    how_a, how_b = spec_of(p.a, config, False, depth, bytes_), spec_of(p.b, config, True, depth, bytes_)
    place_c = NOWHERE if c is None else matrix(c)

    pack_lines = packer(dtype, scales_a is not None)

    def pack(start: int, stop: int, worker: int) -> None:
        scratch = AlignedMemory(scratch_of_rows(stop - start))
        if chosen is not None:
            pack_stored_rows(
                how_a,
                place_a,
                chosen,
                start,
                stop,
                rows,
                a.shape[1],
                config.terms,
                config.panel,
                packed,
                dtype,
                scratch.addresses[0],
                extremes,
            )
            return
        pack_lines(how_a, place_a, start, stop, rows, depth, config.terms, packed, dtype, scratch.addresses[0], extremes, scales_a)

    parallel_for(pack, held_rows, worth_waking(threads, held // WAKING_ELEMENTS), PACK_ROWS)
    fallback = FallbackMask(macro_tiles)
    fallback.rows[:] = extremes[:, 1] >= how_a.first_bad
    smallest_a = np.maximum(extremes[:, 0] >> p.a.mantissa_bits, 1)
    smallest_a[fallback.rows] = NO_MAGNITUDE >> 8

    limits = limits_of(p, config, bytes_)
    if scales is not None:
        limits = limits._replace(lowest_sum=0)
    promoting, _scales = (None, None) if promotion is None else _promoting(promotion, macro_tiles.panels * config.panel)
    parts, fallback_columns = fallback.parts.view(np.uint8), fallback.columns.view(np.uint8)

    run = runner(shape, dtype, promoting is not None, scales_b is not None)

    def compute(macro_tile: MacroTile, work: AlignedMemory) -> None:
        lines = slice(macro_tile.row, macro_tile.last_row)
        high = -(-(macro_tile.last_row - macro_tile.row) // config.rows) * config.rows
        run(
            shape,
            kernel,
            config.terms,
            Extent(macro_tile.row, macro_tile.row + high, macro_tile.column, columns, depth),
            promoting,
            packed,
            smallest_a[lines],
            how_b,
            place_b,
            place_c,
            place_out,
            limits,
            addresses(config, work),
            dtype,
            parts[macro_tile.column // config.panel, lines],
            fallback_columns[macro_tile.column : macro_tile.last_column],
            scales_b,
        )

    sizes = sizes_of_worker(config, macro_tiles.height, promotion is not None)
    macro_tiles.run(threads, OfWorkers(lambda: loan.memory(*sizes)), compute)
    loan.end()
    return fallback
