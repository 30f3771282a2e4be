"""The fast x86 path of block scaling for terms that are single products: FMA chains, as `fastmma.kernels.fused.x86` runs them."""

from __future__ import annotations

from math import ldexp

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.fused import x86
from fastmma.kernels.fused.lanes import Chain
from fastmma.kernels.fused.micro_kernel import UNIT
from fastmma.kernels.fused.reach import byte_excess
from fastmma.kernels.matrices.memory import aligned_empty
from fastmma.kernels.params import Element, Fused, Scaled, Specials
from fastmma.kernels.pieces import Missed, OfWorkers, Piece, cut
from fastmma.kernels.scaled.lines import Codes, Operands, Slow, extremes, fixed, fixed_right, redo, write
from fastmma.kernels.scaled.portable import NAN, scale_tables, tables
from fastmma.kernels.scaled.product_panels import Elements, Packed, Scales, Slab, pack_rows, run_piece
from fastmma.kernels.tiles import FUSED, first_fit

_CHUNK_ROWS = 1024
_PACK_ROWS = 32
_PIECES_PER_THREAD = 4
_HIGHEST = 126  # sums that stay below 2**126 never overflow
_SMALLEST = -149  # exponent of the last bit of float32
_NEVER = -4096  # an exponent that stays below every byte


def fused(p: Scaled) -> Fused:
    """What is computed, without its scales."""
    return Fused(p.a, p.b, p.step, p.align_bits, p.emax_floor, 23, 0, 0)


def supported(p: Scaled) -> bool:
    """Whether this CPU has a fast path for these parameters."""
    return (
        p.group == 1
        and p.block % p.step == 0
        and p.scale.specials == Specials.POWERS_OF_TWO
        and p.align_bits == 25
        and x86.supported(fused(p))
    )


def lowest_bit(element: Element) -> int:
    """The exponent of the last bit of the smallest element."""
    return 1 - element.bias - element.mantissa_bits


class _Product:
    """One product: its packed rows, and how a piece of it is computed."""

    def __init__(self, p: Scaled, operands: Operands, threads: int) -> None:
        self.p, self.c, self.out = p, operands.c, operands.out
        registers = first_fit(FUSED)
        assert registers is not None
        self.chain: Chain = x86.chain_of(fused(p), registers)
        a, scale_a = fixed(operands.a), fixed(operands.scale_a)
        self.b, self.scale_b, self.turned = fixed_right(operands.b, operands.scale_b)
        self.rows = extremes(p.a, p.scale, a, scale_a, p.block, False, threads)
        if self.turned:
            self.columns = extremes(p.b, p.scale, self.b, fixed(self.scale_b.T), p.block, False, threads)
        else:
            self.columns = extremes(p.b, p.scale, self.b, self.scale_b, p.block, True, threads)
        self.depth = a.shape[1]
        self.padded_rows = -(-len(a) // self.chain.rows) * self.chain.rows
        excess_a, excess_b = byte_excess(self.chain.excess)
        self.room_a, self.room_b = 255 - excess_a, 255 - excess_b  # the highest exponents that bytes can hold
        self.elements, self.scales = self._tables(p.b, excess_b, self.chain.scale // 2, 1 + ldexp(1, -self.chain.extra_bits))
        self.packed = self._packed(a, scale_a, excess_a, threads)

    def _tables(self, element: Element, excess: int, scale: int, growth: float) -> tuple[Elements, Scales]:
        values, exponents = tables(element)
        powers, shifts = scale_tables(self.p.scale)
        signs = np.signbit(values).astype(np.uint8)
        fine = np.isfinite(values) & (values != 0)
        bytes_ = np.where(fine, exponents + excess, _NEVER).astype(np.int32)
        return (
            Elements(np.where(fine, values, 0.0) * growth, bytes_, signs, ldexp(1, scale - 300)),
            Scales(np.where(np.isnan(powers), 1.0, powers) * ldexp(1, scale), shifts),
        )

    def _packed(self, a: Codes, scale_a: Codes, excess: int, threads: int) -> Packed:
        # the exponents of a block are read while the one before it is computed
        rows = self.padded_rows + self.chain.rows
        depth = min(self.chain.depth, -(-self.depth // self.p.step) * self.p.step)
        shape = (-(-self.depth // depth), rows // self.chain.rows, depth // UNIT, self.chain.rows)
        packed = Packed(
            aligned_empty((*shape, UNIT), np.float64),
            aligned_empty((*shape, UNIT), np.uint32),
            aligned_empty(shape, np.uint32),
        )
        elements, scales = self._tables(self.p.a, excess, self.chain.scale - self.chain.scale // 2, 1.0)

        def pack(start: int, stop: int, _worker: int) -> None:
            pack_rows(a, scale_a, elements, scales, self.p.block, start, stop, packed)

        parallel_for(pack, rows, threads, _PACK_ROWS)
        return packed

    def slab(self, rows: int) -> Slab:
        """A worker's memory for pieces of so many rows."""
        this, depth = self.chain, self.packed.values.shape[2] * UNIT
        return Slab(
            aligned_empty((this.panel // this.tile, this.depth, this.tile), np.float64),
            aligned_empty((depth, this.panel), np.uint8),
            aligned_empty((depth // 8, this.panel), np.uint8),
            aligned_empty((rows, this.panel), np.float32),
            aligned_empty((2 * (depth // this.terms + 1) * this.rows * 2 * this.panel,), np.uint8),
            aligned_empty(((rows + this.rows) * this.panel,), np.uint8),
        )

    def piece(self, piece: Piece, slab: Slab) -> NDArray[np.bool_]:
        """Compute a piece; which of its rows have to be done another way."""
        first, last, column, last_column = piece
        lines, panel = slice(first, last), slice(column, last_column)
        lowest = self.rows.lowest[lines] + self.columns.lowest[panel].min()
        high_a, high_b = (
            self.rows.highest[lines] + self.p.a.highest_exponent,
            int(self.columns.highest[panel].max()) + self.p.b.highest_exponent,
        )
        redo: NDArray[np.bool_] = lowest + lowest_bit(self.p.a) + lowest_bit(self.p.b) < _SMALLEST
        redo |= high_a + high_b + 2 + self.depth.bit_length() > _HIGHEST
        redo |= (high_a > self.room_a) | (high_b > self.room_b)
        slab.state[...] = 0
        if self.c is not None:
            start = np.array(self.c[lines, panel], np.uint32)
            redo |= ((start & NAN) >= (127 + _HIGHEST) << 23).any(axis=1)
            start[redo] = 0
            start[start == 1 << 31] = 0
            slab.state[: last - first, : last_column - column] = start.view(np.float32)
        if redo.all():
            return redo
        end = min(first + len(slab.state), self.padded_rows)
        where = (self.elements, self.scales, self.p.block, column, slab)
        run_piece(self.chain, self.packed, first, end, self.b, self.turned, self.scale_b, *where)
        write(slab.state.view(np.uint32), self.out[lines, panel])
        return redo


def gemm(p: Scaled, operands: Operands, threads: int, slow: Slow) -> None:
    """A product of at least one k for `supported` parameters; `out` overlaps nothing.

    What is out of reach here (infinities and NaNs, exponents near the ends of float32's range) is done by ``slow(p, *operands, threads)``.
    """
    product = _Product(p, operands, threads)
    rows, columns = operands.out.shape
    pieces = cut(rows, columns, (product.chain.rows, product.chain.panel), threads, _CHUNK_ROWS, _PIECES_PER_THREAD)
    missed = Missed(pieces)

    def compute(piece: Piece, slab: Slab) -> None:
        missed.parts[piece.column // pieces.width, piece.row : piece.last_row] = product.piece(piece, slab)

    pieces.run(threads, OfWorkers(lambda: product.slab(pieces.height)), compute)
    redo(p, operands, product.rows, product.columns, missed, threads, slow)
