"""The micro-kernel of chains of IEEE fused multiply-adds, to nearest: tiles of sums in registers over ascending k, one k after another."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from fastmma.host.addresses import address_of
from fastmma.kernels.llvm.architecture import NEAREST
from fastmma.kernels.llvm.building import for_range
from fastmma.kernels.llvm.emit import F32, F64, HALF, Emitter, Variables, vector
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.tiles import ChainTile

DEPTH = 4  # k that the kernel takes at a time

Vectors = list[ir.Value]


@dataclass(frozen=True)
class FmaConfig:
    """A chain: its work on `DEPTH` k, and its register tile.

    Attributes
    ----------
    bits : int
        Of an element: 64 or 32.
    links : int
        0: every product joins the sum itself. Else chains of so many k start at zero and are added to the sum; of two links, at -0.
    half : bool
        Whether the sum is rounded to f16 after `DEPTH` k.
    joined : int
        Chains that are added to one another before they are added to the sum.
    vector_bytes, rows, vectors : int
    """

    bits: int
    links: int
    half: bool
    joined: int
    vector_bytes: int
    rows: int
    vectors: int

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return 8 * self.vector_bytes // self.bits

    @property
    def columns(self) -> int:
        """Of a tile."""
        return self.vectors * self.lanes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its elements."""
        return np.dtype(f"f{self.bits // 8}")


def config_on(tile: ChainTile, bits: int, links: int = 0, half: bool = False, joined: int = 1) -> FmaConfig:
    """A chain on the register tile of a CPU."""
    rows, vectors = tile.joined if links else tile.plain
    return FmaConfig(bits, links, half, joined, tile.vector_bytes, rows, vectors)


class TileEmitter(Emitter):
    """Emission of a tile of sums."""

    def __init__(self, chain: FmaConfig, builder: ir.IRBuilder) -> None:
        super().__init__(builder)
        self.chain, self.size = chain, chain.bits // 8
        self.element = F64 if chain.bits == 64 else F32
        self.kind = vector(self.element, chain.lanes)

    def row_of(self, base: ir.Value) -> Vectors:
        """A row of a tile, or the elements of B of one k."""
        return [self.load(self.kind, base, v * self.chain.vector_bytes, self.chain.vector_bytes) for v in range(self.chain.vectors)]

    def step(self, a: ir.Value, b: ir.Value, totals: list[Vectors]) -> list[Vectors]:
        """`DEPTH` k."""
        chain = self.chain
        lines = [self.row_of(self.at(b, k * chain.columns * self.size)) for k in range(DEPTH)]
        places = [[self.at(a, (k * chain.rows + row) * self.size) for k in range(DEPTH)] for row in range(chain.rows)]
        if not chain.links:
            for k, line in enumerate(lines):
                totals = [
                    [self.call("fma", self.broadcast(self.kind, places[row][k]), x, total) for x, total in zip(line, sums, strict=True)]
                    for row, sums in enumerate(totals)
                ]
            return totals
        return [self._linked(places[row], lines, sums) for row, sums in enumerate(totals)]

    def _added(self, first: Vectors, second: Vectors) -> Vectors:
        return [self.builder.fadd(x, y) for x, y in zip(first, second, strict=True)]

    def _linked(self, places: Vectors, lines: list[Vectors], sums: Vectors) -> Vectors:
        """A row of sums, to which chains of their own are added."""
        zero = self.constant(self.kind, -0.0 if self.chain.links == 2 else 0.0)
        chains: list[Vectors] = []
        for first in range(0, DEPTH, self.chain.links):
            links = [zero] * self.chain.vectors
            for k in range(first, first + self.chain.links):
                x = self.broadcast(self.kind, places[k])
                links = [self.call("fma", x, y, link) for y, link in zip(lines[k], links, strict=True)]
            chains.append(links)
        if self.chain.joined == 2:
            chains = [self._added(*chains)]
        for links in chains:
            sums = self._added(sums, links)
        if not self.chain.half:
            return sums
        halves = vector(HALF, self.chain.lanes)
        return [self.builder.fpext(self.builder.fptrunc(total, halves), self.kind) for total in sums]


def _emit(chain: FmaConfig, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    """Blocks of rows of A, [k][row] each, times panels of B, [k][column] each: added to sums, [panel][block][row][column]."""
    a, b, sums, blocks, fours, stride, panels, panel_b, panel_sums = arguments
    tile = TileEmitter(chain, builder)
    row_bytes = chain.columns * tile.size
    totals = Variables(builder, [[tile.kind] * chain.vectors] * chain.rows)
    with for_range(builder, panels) as panel, for_range(builder, blocks) as block:
        block_a = tile.at(a, builder.mul(block.index, stride))
        own_b = tile.at(b, builder.mul(panel.index, panel_b))
        own_sums = tile.at(sums, builder.mul(panel.index, panel_sums))
        block_sums = tile.at(own_sums, tile.scaled(block.index, chain.rows * row_bytes))
        totals.put([tile.row_of(tile.at(block_sums, row * row_bytes)) for row in range(chain.rows)])
        with for_range(builder, fours) as four:
            at_a = tile.at(block_a, tile.scaled(four.index, DEPTH * chain.rows * tile.size))
            at_b = tile.at(own_b, tile.scaled(four.index, DEPTH * row_bytes))
            totals.put(tile.step(at_a, at_b, totals.get()))
        for row, values in enumerate(totals.get()):
            for v, value in enumerate(values):
                tile.store(value, block_sums, row * row_bytes + v * chain.vector_bytes, chain.vector_bytes)


CHAIN = MicroKernel(_emit, 3, 6, mode=lambda _: NEAREST)
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def run(chain: FmaConfig, a: NDArray[Any], b: NDArray[Any], sums: NDArray[Any]) -> None:
    """Add the products of A (blocks, k, rows) and of B (panels, k, columns) to sums (panels, blocks, rows, columns), in place.

    All are of `chain.dtype`. Panels of B and of sums start at cache lines and are C-contiguous, and they and A's blocks are apart by any
    stride. k is a multiple of `DEPTH`.
    """
    places = [address_of(array) for array in (a, b, sums)]
    strides = len(b), b.strides[0], sums.strides[0]
    arguments = np.array([*places, len(a), a.shape[1] // DEPTH, a.strides[0], *strides], np.int64)
    _ENTRY(CHAIN.address(chain))(arguments.ctypes.data)
