"""What bounds the micro-kernels: ``python -m bench.ports`` measures how many vector instructions of each kind this CPU does at a time, and
how near products come to what the instructions of their innermost loops allow."""

from __future__ import annotations

import ctypes
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import click
import llvmlite.binding
import numpy as np
from llvmlite import ir

from bench.instructions import CPUS, KERNELS, Cpu, Kernel, Stored
from bench.instructions import FMA as MULTIPLIES
from bench.shapes import SPARSE, sparse_product
from fastmma.kernels.llvm import cpu
from fastmma.kernels.llvm.emit import POINTER
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.llvm.numba_internals import for_range
from fastmma.kernels.matrices.memory import AlignedMemory
from fastmma.study.speed.cases import CASES, Case
from fastmma.study.speed.report import describe

_NARROW = re.compile(r"broadcast|\{1to|pmov[sz]x")  # loads of fewer bytes than a vector, of which Zen 4 does two a cycle
_COUNT = 84  # instructions in a loop, on all registers but the last two in turn
_PASSES = 20_000
_MODEL = "A cycle is the time of an fma of 64 bytes on AMD's Zen 4, and the pipes are its own: on another CPU the bounds say nothing."
_ISSUED = 4  # vector instructions in a cycle, loads included unless they are an operand of another


class Registers(NamedTuple):
    """The vector registers that the loops use."""

    bytes: int
    name: str  # of one, but for its number
    lower: str  # of its lower half
    count: int
    cycles: float  # of an fma, if they are issued one after the other


_REGISTERS = {"AVX-512": Registers(64, "zmm", "ymm", 32, 1.0), "AVX2": Registers(32, "ymm", "xmm", 16, 0.5)}
_NAME = "AVX-512" if "avx512f" in cpu.usable() else "AVX2"
_CPU, _VECTOR = CPUS[_NAME], _REGISTERS[_NAME]


class Kind(NamedTuple):
    """Instructions that take the same pipes: AMD's Zen 4 has four, and one is busy for two cycles with 64 bytes, for one with 32.

    `text` is one of them on register {0}, whose lower half is {1}, and registers {2} and {3}, which stay as they are; `pipes` may all
    execute it; a `load` takes a path to the memory, too.
    """

    name: str
    mnemonics: str  # a regular expression of all
    text: str
    pipes: str
    load: bool = False
    weight: float = 1.0  # of the time that a pipe is busy with others
    feature: str = "avx2"  # what a CPU has that executes it


# a product takes the pipes of an fma, and waits for no sum: there are few registers of 32 bytes
FMA = Kind("fma", r"vf[n]?m(add|sub)|vmul", "vmulpd {2}, {3}, {0}", "01")
KINDS = (
    FMA,
    Kind("dot product of bytes", r"vpdp", "vpdpbusd {2}, {3}, {0}", "01", feature="avx512vnni"),
    Kind("sum of products of bytes or words", r"vpmadd|vpmull", "vpmaddwd {0}, {2}, {0}", "01"),
    Kind("population count", r"vpopcnt", "vpopcntq {0}, {0}", "01", feature="avx512vpopcntdq"),
    Kind("saturating sum or difference", r"vp(add|sub)us", "vpsubusb {0}, {2}, {0}", "01"),
    Kind("sum of floats", r"v(add|sub|max|min)[ps][sd]", "vaddpd {0}, {2}, {0}", "23"),
    Kind("shift", r"vps[lr][la]", "vpslld $$3, {0}, {0}", "23"),
    Kind("unpack", r"vpunpck|vunpck|vshuf|vpshufd", "vpunpckldq {0}, {2}, {0}", "123"),
    Kind("shuffle of bytes", r"vpshufb|vpalignr|valign", "vpshufb {0}, {2}, {0}", "12"),
    Kind("shuffle across the register", r"vperm|vextract|vinsert", "vpermd {0}, {2}, {0}", "12"),
    Kind("broadcast from memory", r"vp?broadcast", "vbroadcastsd 64($0), {0}", "12", load=True),
    Kind("load of bytes as words", r"vpmov[sz]x", "vpmovzxbd 64($0), {0}", "12", load=True),
    Kind("conversion", r"vcvt", "vcvtps2pd {1}, {0}", "12", weight=4 / 3),
    Kind("ternary logic", r"vptern", "vpternlogd $$248, {2}, {3}, {0}", "0123", weight=5 / 4, feature="avx512f"),
    Kind("logic, sum or maximum of integers", r"vp|v(and|or|xor)|vblend", "vpmaxub {0}, {2}, {0}", "0123"),
    Kind("load", r"vmov", "vmovaps 64($0), {0}", "", load=True),
    Kind("sum with a broadcast from memory inside", r"(?!)", "vpaddd 64($0){{1to16}}, {0}, {0}", "0123", feature="avx512f"),
)


@dataclass(frozen=True)
class Mix:
    """A loop of instructions of some kinds in turn."""

    texts: tuple[str, ...]


def _emit(mix: Mix, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    memory, passes = arguments
    used = _VECTOR.count - 4
    lines = []
    for place in range(_COUNT):
        names = f"{_VECTOR.name}{place % used}", f"{_VECTOR.lower}{place % used}", f"{_VECTOR.name}{used}", f"{_VECTOR.name}{used + 1}"
        lines.append(mix.texts[place % len(mix.texts)].format(*(f"%{name}" for name in names)))
    registers = ",".join(f"~{{{_VECTOR.name}{number}}}" for number in range(_VECTOR.count))
    with for_range(builder, passes):
        builder.asm(ir.FunctionType(ir.VoidType(), [POINTER]), "\n".join(lines), f"r,{registers}", [memory], side_effect=True)


_LOOP = MicroKernel(_emit, 1, 1)
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Loops:
    """Loops of instructions, timed against a loop of fma, of which a CPU does one of 64 bytes or two of 32 in a cycle."""

    def __init__(self) -> None:
        self._memory = AlignedMemory(256, zeroed=True)
        self._arguments = np.array([self._memory.address, _PASSES], np.int64)

    def seconds(self, *kinds: Kind) -> float:
        """The time of an instruction of these kinds in turn."""
        run = _ENTRY(_LOOP.address(Mix(tuple(kind.text for kind in kinds))))
        began = time.perf_counter()
        run(self._arguments.ctypes.data)
        return (time.perf_counter() - began) / _COUNT / _PASSES

    def cycles(self, rounds: int, *kinds: Kind) -> float:
        """Cycles of each of them, the least of some rounds."""
        return min(self.seconds(*kinds) for _ in range(rounds)) / min(self.cycle() for _ in range(rounds))

    def cycle(self) -> float:
        """The time of a cycle."""
        return self.seconds(FMA) / _VECTOR.cycles


def throughput(rounds: int) -> list[str]:
    """A Markdown table: cycles of instructions alone, and of one beside an fma and beside a sum of floats."""
    sum_, load = (next(kind for kind in KINDS if kind.name == name) for name in ("sum of floats", "load"))
    loops, beside = Loops(), (FMA, sum_)
    lines = [f"| cycles, {_VECTOR.bytes} bytes | alone | with an fma | with a sum of floats | pipes |", "| --- | --- | --- | --- | --- |"]
    for kind in KINDS:
        if kind.feature not in cpu.usable():
            continue
        found = [loops.cycles(rounds, kind), *(2 * loops.cycles(rounds, kind, other) for other in beside)]
        lines.append(f"| {kind.name} | {' | '.join(f'{each:.2f}' for each in found)} | {', '.join(kind.pipes) or 'none'} |")
    return [*lines, f"| fma, sum of floats and load, all three | {3 * loops.cycles(rounds, *beside, load):.2f} | | | |"]


class Bound(NamedTuple):
    """The least cycles of 64 multiply-adds, and what takes them."""

    cycles: float
    by: str


def bound(kernel: Kernel, on: Cpu) -> Bound:
    """What the instructions of a kernel's innermost loop allow, if they never wait for each other or for memory."""
    share = 64 / kernel.products(on)
    busy: dict[str, float] = {}
    loads, count = 0.0, 0
    for line in kernel.loop(on).instructions:
        mnemonic, _, operands = line.replace("\t", " ").partition(" ")
        if on.vector.search(operands) is None:
            continue
        length = 1.0 if "%zmm" in operands else 0.5
        kind = next((each for each in KINDS if re.match(each.mnemonics, mnemonic)), None)
        if kind is None:
            raise ValueError(f"{mnemonic} has no row")
        memory = "(" in operands
        if kind.pipes and (memory or not kind.load):
            busy[kind.pipes] = busy.get(kind.pipes, 0.0) + kind.weight * length * share
        loads += (0.5 if _NARROW.search(line) else length) * share * memory
        count += 1
    bounds = [Bound(loads, "loads"), Bound(count * share / _ISSUED, "issue")]
    for size in (2, 3, 4):
        for chosen in combinations("0123", size):
            within = sum(time_ for pipes, time_ in busy.items() if set(pipes) <= set(chosen))
            bounds.append(Bound(2 * within / size, f"pipes {', '.join(chosen)}"))
    return max(bounds)


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
    loops = Loops()
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
        least, cycles = bound(kernel, _CPU), statistics.median(taken)
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
    click.echo("\n".join([f"{describe()}.", _MODEL, "", *throughput(rounds), "", *reached(rounds)]))


if __name__ == "__main__":
    main()
