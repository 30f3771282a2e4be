"""Loops of instructions on registers alone, which no memory bounds: what threads reach that share nothing but cores and clocks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite.binding
import numpy as np
from llvmlite import ir

from bench.loops import CHAIN, KINDS, LOOP, Kind, Mix
from fastmma.kernels.llvm import cpu
from fastmma.kernels.llvm.amx import ROW_BYTES, TILE_BYTES, Tiles
from fastmma.kernels.llvm.building import for_range
from fastmma.kernels.llvm.emit import Emitter
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.kernels.tiles import AMX, first_fit

_PASSES = 400_000  # of 84 instructions: some milliseconds
_SUM = Kind("fma", "vfmadd231pd {2}, {3}, {0}", "fma")
_LOADS = "vmovups 64($0), {2}", "vmovups 64($0), {3}"


def _emit(passes: int, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    emit = Emitter(builder)
    tiles = Tiles(emit)
    tiles.begin()
    for tile in range(8):
        tiles.load(tile, arguments[0], ROW_BYTES)
    with for_range(builder, emit.index(passes)):
        for place in range(32):
            tiles.multiply(place % 4, 4 + place % 2, 6 + place // 2 % 2, (True, True))
    tiles.end()


_TILES = MicroKernel(_emit, 1, 0)


def _of_mix(mix: Mix) -> Callable[[], None]:
    llvmlite.binding.initialize_native_asmparser()
    memory = AlignedMemory(256, zeroed=True)
    ctypes.memmove(memory.address + 64, np.full(16, 1.0009765625).ctypes.data, 128)
    arguments = np.array([memory.address, _PASSES], np.int64)
    run = LOOP.function(mix)

    def call(_memory: AlignedMemory = memory) -> None:
        run(arguments.ctypes.data)

    return call


def _of_tiles() -> Callable[[], None]:
    memory = AlignedMemory(TILE_BYTES)
    ctypes.memmove(memory.address, np.random.default_rng(0).bytes(TILE_BYTES), TILE_BYTES)
    arguments = np.array([memory.address], np.int64)
    run = _TILES.function(_PASSES // 8)

    def call(_memory: AlignedMemory = memory) -> None:
        run(arguments.ctypes.data)

    return call


TILES = "products of tiles (AMX)"
DOTS = "dot product of bytes"
COUNTS = "bits that differ, counted and added"
MULTIPLY_ADDS = {TILES: 32 * (_PASSES // 8) * 16 * ROW_BYTES * 16, DOTS: 82 * _PASSES * 64, COUNTS: 28 * _PASSES * 512}  # of a call
_COUNT_ONES = "vpxord {2}, {0}, {0}", "vpopcntd {0}, {0}", "vpaddd {0}, {2}, {0}"


def register_loops() -> dict[str, Callable[[], None]]:
    """The loops that this CPU can run, by what they are made of; the first waits for its own results, so that only the clock bounds it."""
    found = {"a chain of multiplications of integers": _of_mix(Mix((CHAIN.text,)))}
    for kind in (_SUM, next(kind for kind in KINDS if kind.name == DOTS)):
        if kind.feature in cpu.usable():
            found[kind.name] = _of_mix(Mix((*_LOADS, *(kind.text,) * 82)))
    if {"avx512f", "avx512vpopcntdq"} <= cpu.usable():
        found[COUNTS] = _of_mix(Mix(_COUNT_ONES))
    if first_fit(AMX) is not None:
        found[TILES] = _of_tiles()
    return found
