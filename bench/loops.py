"""Loops of single vector instructions, which tell how many of each kind this CPU does at a time."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import NamedTuple

import click
import llvmlite.binding
import numpy as np
from llvmlite import ir

from fastmma.kernels.llvm import cpu
from fastmma.kernels.llvm.building import for_range
from fastmma.kernels.llvm.emit import POINTER
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.study.speed.report import describe

_COUNT = 84  # instructions in a loop, on all registers but the last two in turn
_PASSES = 20_000
_MULTIPLICATION = 3  # cycles from a multiplication of 64-bit integers to the next, which take no pipe of vectors: on all these cores


class Registers(NamedTuple):
    """The vector registers that the loops use."""

    bytes: int
    name: str  # of one, but for its number
    lower: str  # of its lower half
    count: int


_REGISTERS = {"AVX-512": Registers(64, "zmm", "ymm", 32), "AVX2": Registers(32, "ymm", "xmm", 16)}
NAME = "AVX-512" if "avx512f" in cpu.usable() else "AVX2"
_VECTOR = _REGISTERS[NAME]


class Kind(NamedTuple):
    """A kind of instruction of `bench.cores`.

    `text` is one of them on register {0}, whose lower half is {1}, and registers {2} and {3}, which stay as they are.
    """

    name: str
    text: str
    feature: str = "avx2"  # what a CPU has that executes it


# a product takes the pipes of an fma, and waits for no sum: there are few registers of 32 bytes
FMA = Kind("fma", "vmulpd {2}, {3}, {0}")
KINDS = (
    FMA,
    Kind("dot product of bytes", "vpdpbusd {2}, {3}, {0}", "avx512vnni"),
    Kind("sum of products of bytes or words", "vpmaddwd {0}, {2}, {0}"),
    Kind("population count", "vpopcntq {0}, {0}", "avx512vpopcntdq"),
    Kind("saturating sum or difference", "vpsubusb {0}, {2}, {0}"),
    Kind("sum of floats", "vaddpd {0}, {2}, {0}"),
    Kind("shift", "vpslld $$3, {0}, {0}"),
    Kind("unpack", "vpunpckldq {0}, {2}, {0}"),
    Kind("shuffle of bytes", "vpshufb {0}, {2}, {0}"),
    Kind("shuffle across the register", "vpermd {0}, {2}, {0}"),
    Kind("broadcast from memory", "vbroadcastsd 64($0), {0}"),
    Kind("load of bytes as words", "vpmovzxbd 64($0), {0}"),
    Kind("conversion", "vcvtps2pd {1}, {0}"),
    Kind("ternary logic", "vpternlogd $$248, {2}, {3}, {0}", "avx512f"),
    Kind("maximum of integers", "vpmaxub {0}, {2}, {0}"),
    Kind("logic or sum of integers", "vpaddd {0}, {2}, {0}"),
    Kind("load", "vmovaps 64($0), {0}"),
    Kind("sum with a broadcast from memory inside", "vpaddd 64($0){{1to16}}, {0}, {0}", "avx512f"),
)


_NEEDED = {"AVX2": {"avx2", "fma"}, "AVX-512": {"avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512vpopcntdq"}}


def check() -> None:
    """Raise BadParameter unless this CPU has all instructions of its loops."""
    if not cpu.usable() >= _NEEDED[NAME]:
        raise click.BadParameter(f"{describe()} has not all that is measured")


@dataclass(frozen=True)
class Mix:
    """A loop of instructions of some kinds in turn, on all registers or, in a chain, on one."""

    texts: tuple[str, ...]
    chain: bool = False


def _emit(mix: Mix, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    memory, passes = arguments
    used = _VECTOR.count - 4
    lines = []
    for place in range(_COUNT):
        own = 0 if mix.chain else place % used
        names = f"{_VECTOR.name}{own}", f"{_VECTOR.lower}{own}", f"{_VECTOR.name}{used}", f"{_VECTOR.name}{used + 1}"
        lines.append(mix.texts[place % len(mix.texts)].format(*(f"%{name}" for name in names)))
    changed = [*(f"{_VECTOR.name}{number}" for number in range(_VECTOR.count)), "rax", "flags"]
    registers = ",".join(f"~{{{each}}}" for each in changed)
    with for_range(builder, passes):
        builder.asm(ir.FunctionType(ir.VoidType(), [POINTER]), "\n".join(lines), f"r,{registers}", [memory], side_effect=True)


LOOP = MicroKernel(_emit, 1, 1)
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Loops:
    """Loops of instructions, timed against a chain of multiplications of integers."""

    def __init__(self) -> None:
        llvmlite.binding.initialize_native_asmparser()
        self._memory = AlignedMemory(256, zeroed=True)
        self._arguments = np.array([self._memory.address, _PASSES], np.int64)

    def seconds(self, *kinds: Kind, chain: bool = False) -> float:
        """The time of an instruction of these kinds in turn."""
        run = _ENTRY(LOOP.address(Mix(tuple(kind.text for kind in kinds), chain)))
        began = time.thread_time()
        run(self._arguments.ctypes.data)
        return (time.thread_time() - began) / _COUNT / _PASSES

    def cycles(self, rounds: int, *kinds: Kind, chain: bool = False) -> float:
        """Cycles of each of them, the least of some rounds."""
        return min(self.seconds(*kinds, chain=chain) for _ in range(rounds)) / min(self.cycle() for _ in range(rounds))

    def cycle(self) -> float:
        """The time of a cycle."""
        return self.seconds(CHAIN) / _MULTIPLICATION


ALL_THREE = "fma, sum of floats and load, all three"
CHAIN = Kind("", "imulq %rax, %rax")


def cycles_of_kinds(rounds: int) -> dict[str, list[float]]:
    """Cycles of every kind that this CPU has: alone, each after the one before, beside an fma, and beside a sum of floats.

    The last entry is a loop of an fma, a sum of floats and a load.
    """
    sum_, load = (next(kind for kind in KINDS if kind.name == name) for name in ("sum of floats", "load"))
    loops, beside = Loops(), (FMA, sum_)
    found = {
        kind.name: [
            loops.cycles(rounds, kind),
            loops.cycles(rounds, kind, chain=True),
            *(2 * loops.cycles(rounds, kind, other) for other in beside),
        ]
        for kind in KINDS
        if kind.feature in cpu.usable()
    }
    return {**found, ALL_THREE: [3 * loops.cycles(rounds, *beside, load)]}
