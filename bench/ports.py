"""What bounds the micro-kernels: ``python -m bench.ports`` measures how many vector instructions of each kind this CPU does at a time, and
how near products come to what the instructions of their innermost loops allow."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import click
import llvmlite.binding
import numpy as np
from llvmlite import ir

from bench.cores import bound, tables, this_core
from bench.instructions import CPUS, KERNELS, Kernel, Stored
from bench.instructions import FMA as MULTIPLIES
from bench.shapes import SPARSE, sparse_product
from fastmma.kernels.llvm import cpu
from fastmma.kernels.llvm.building import for_range
from fastmma.kernels.llvm.emit import POINTER
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.study.speed.cases import CASES, Case
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
_NAME = "AVX-512" if "avx512f" in cpu.usable() else "AVX2"
_CPU, _VECTOR = CPUS[_NAME], _REGISTERS[_NAME]


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


_LOOP = MicroKernel(_emit, 1, 1)
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Loops:
    """Loops of instructions, timed against a chain of multiplications of integers."""

    def __init__(self) -> None:
        self._memory = AlignedMemory(256, zeroed=True)
        self._arguments = np.array([self._memory.address, _PASSES], np.int64)

    def seconds(self, *kinds: Kind, chain: bool = False) -> float:
        """The time of an instruction of these kinds in turn."""
        run = _ENTRY(_LOOP.address(Mix(tuple(kind.text for kind in kinds), chain)))
        began = time.thread_time()
        run(self._arguments.ctypes.data)
        return (time.thread_time() - began) / _COUNT / _PASSES

    def cycles(self, rounds: int, *kinds: Kind, chain: bool = False) -> float:
        """Cycles of each of them, the least of some rounds."""
        return min(self.seconds(*kinds, chain=chain) for _ in range(rounds)) / min(self.cycle() for _ in range(rounds))

    def cycle(self) -> float:
        """The time of a cycle."""
        return self.seconds(_CHAIN) / _MULTIPLICATION


_CHAIN = Kind("", "imulq %rax, %rax")


def throughput(rounds: int) -> list[str]:
    """A Markdown table: cycles of instructions alone, each after the one before, and of one beside an fma and beside a sum of floats."""
    sum_, load = (next(kind for kind in KINDS if kind.name == name) for name in ("sum of floats", "load"))
    loops, beside, core = Loops(), (FMA, sum_), this_core()
    lines = [
        f"| cycles, {_VECTOR.bytes} bytes | alone | latency | with an fma | with a sum of floats | pipes |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind in KINDS:
        if kind.feature not in cpu.usable():
            continue
        found = [
            loops.cycles(rounds, kind),
            loops.cycles(rounds, kind, chain=True),
            *(2 * loops.cycles(rounds, kind, other) for other in beside),
        ]
        pipes = "" if core is None else ", ".join(core.pipes.get(kind.name, "")) or "none"
        lines.append(f"| {kind.name} | {' | '.join(f'{each:.2f}' for each in found)} | {pipes} |")
    return [*lines, f"| fma, sum of floats and load, all three | {3 * loops.cycles(rounds, *beside, load):.2f} | | | | |"]


def _product(family: str) -> Callable[[], Any]:
    case: Case = next(case for case in CASES if case.title == family)
    return partial(case.product.run(case.shape), 1)


# families and their micro-kernels
_FAMILIES = {
    "f16, sm_90a": "f16, bf16 with f32 sums, sm_90",
    "f16, sm_80": "f16, bf16 with f32 sums, sm_80",
    "tf32, sm_90a": "tf32, sm_90",
    "e4m3, sm_90a (wgmma)": "e4m3, sm_90",
    "e4m3, sm_120a": "e4m3, sm_120",
    "MXFP8, sm_100a (tcgen05)": "e4m3, sm_120",
    "NVFP4, sm_120a": "NVFP4, MXFP4, exact",
    "f64, sm_90a": "f64",
    "s8, sm_90a": "s8, u8",
    "b1, sm_90a, K = 8192": "b1",
}


def _families() -> list[tuple[str, Kernel, Callable[[], Any], float]]:
    """Names of products, their micro-kernels, what computes them, and the multiply-adds that this takes."""
    kernels = {kernel.name: kernel for kernel in KERNELS}
    shapes = {case.title: case.shape for case in CASES}
    found = [(family, kernels[name], _product(family), float(np.prod(shapes[family]))) for family, name in _FAMILIES.items()]
    if _NAME == "AVX-512":
        for case in SPARSE[:2]:
            kernel = Stored(case.name, MULTIPLIES, case.atype, "sm_90a", opcode=case.opcode)
            found.append((f"{case.name}, sparse A", kernel, sparse_product(case, 1536), 1536.0**3))
    return found


def reached(rounds: int) -> list[str]:
    """A Markdown table: bounds of micro-kernels in cycles, and how much of them whole products reach, packing and all else included."""
    loops, core = Loops(), this_core()
    if core is None or core.cpu != _NAME:
        return ["This core is not in the table of bench/cores.py with these registers, so that nothing bounds its products."]
    lines = [
        "| product, n = 1536, 1 thread | vector instructions for 64 multiply-adds | cycles at least | taken by | cycles | reached |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for family, kernel, run, products in _families():
        run()
        taken = []
        for _ in range(rounds):
            cycle = loops.cycle()
            began = time.thread_time()
            run()
            taken.append((time.thread_time() - began) / cycle * 64 / products)
        least, cycles = bound(kernel, core), statistics.median(taken)
        count = 64 * kernel.loop(_CPU).vectors / kernel.products(_CPU)
        lines.append(f"| {family} | {count:.3g} | {least.cycles:.2f} | {least.by} | {cycles:.2f} | {least.cycles / cycles:.2f} |")
    return lines


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=9, help="Rounds of every measurement.")
def main(
    rounds: int,
) -> None:
    """Measure pipes, and print the tables of docs/speed.md; with FASTMMA_CPU=avx2 those of AVX2."""
    if not cpu.usable() >= ({"avx2", "fma"} if _NAME == "AVX2" else {"avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512vpopcntdq"}):
        raise click.BadParameter(f"{describe()} has not all that is measured")
    llvmlite.binding.initialize_native_asmparser()
    click.echo("\n".join([f"{describe()}.", "", *throughput(rounds), "", *reached(rounds), "", *tables()]))


if __name__ == "__main__":
    main()
