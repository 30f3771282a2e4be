"""Vector instructions of the micro-kernels for x86 and AArch64, counted in the code that LLVM makes: ``python -m bench.instructions``."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir

from fastmma.backends.parameters import element_specs, fused_parameters
from fastmma.backends.resolve import operation_of
from fastmma.kernels.fma.chain_kernel import CHAIN, DEPTH, config_on
from fastmma.kernels.fused.batch import BLOCKS, block_config
from fastmma.kernels.fused.micro_kernel import SLAB as FUSED_SLAB
from fastmma.kernels.fused.packed import config_of as fused_config_of
from fastmma.kernels.fused.sparse_kernel import SPARSE
from fastmma.kernels.integer.config import WordsConfig
from fastmma.kernels.integer.micro_kernel import Multiply
from fastmma.kernels.llvm.micro_kernel import MicroKernel
from fastmma.kernels.scaled.group_micro_kernel import SLAB as GROUPS_SLAB
from fastmma.kernels.scaled.group_micro_kernel import TERMS, GroupConfig
from fastmma.kernels.tiles import BITS, BYTES, CHAINS, FUSED, GROUPS, fit
from fastmma.products.choice import default_instruction


class Cpu(NamedTuple):
    """A CPU as LLVM knows it, and the features that choose its register tiles."""

    triple: str
    name: str
    features: str  # by LLVM's names, after each a space
    vector_bytes: int
    vector: re.Pattern[str]  # in the operands of an instruction on vectors
    stack: re.Pattern[str]  # in those of one that reads or writes the stack

    @property
    def flags(self) -> str:
        """The features as LLVM wants them."""
        return ",".join(f"+{feature}" for feature in self.features.split())

    def tile(self, table: Any) -> Any:
        """The register tile of a table that it takes."""
        return fit(table, frozenset(self.features.split()))


_X86 = re.compile(r"%[xyz]mm\d"), re.compile(r"\(%r[sb]p")
_ARM = re.compile(r"\b[vqds]\d+\b"), re.compile(r"\[(sp|x29)\b")
CPUS = {
    "AVX-512": Cpu(
        "x86_64-unknown-linux-gnu",
        "znver4",
        "avx512f avx512bw avx512dq avx512vl avx512vnni avx512vpopcntdq avx2 fma f16c",
        64,
        *_X86,
    ),
    "AVX2": Cpu("x86_64-unknown-linux-gnu", "haswell", "avx2 fma f16c", 32, *_X86),
    "NEON": Cpu("aarch64-unknown-linux-gnu", "neoverse-v1", "neon fp-armv8 dotprod", 16, *_ARM),
}


class Loop(NamedTuple):
    """The innermost loop of a micro-kernel that multiplies most."""

    instructions: list[str]
    multiplies: int  # instructions
    vectors: int  # instructions on vectors, loads and stores included
    stack: int  # instructions that read or write the stack


@dataclass(frozen=True)
class Counted(ABC):
    """A loop whose instructions are counted.

    Attributes
    ----------
    name : str
    multiply : str
        What the mnemonics of instructions begin with that multiply and add, or of one in each count of bits, as a regular expression.
    """

    name: str
    multiply: str

    @abstractmethod
    def products(self, cpu: Cpu) -> int:
        """Multiply-adds of one pass of its innermost loop."""

    @abstractmethod
    def assembly(self, cpu: Cpu) -> str:
        """Its code for a CPU, whole."""

    def loop(self, cpu: Cpu) -> Loop:
        """Its innermost loop on a CPU."""
        return max((_counted(body, cpu, self.multiply) for body in innermost(self.assembly(cpu))), key=lambda loop: loop.multiplies)


@dataclass(frozen=True)
class Kernel(Counted):
    """A micro-kernel, for every CPU by its own register tile."""

    @abstractmethod
    def record(self, cpu: Cpu) -> Any:
        """What it is compiled for."""

    @abstractmethod
    def kernel(self) -> MicroKernel:
        """What emits it."""

    def assembly(self, cpu: Cpu) -> str:
        return self.kernel().assembly(self.record(cpu), cpu.triple, cpu.name, cpu.flags)


@dataclass(frozen=True)
class Fused(Kernel):
    """Of truncated sums, for a type of A and B, a target and an accumulator."""

    atype: str
    target: str
    accumulator: str = "f32"

    def record(self, cpu: Cpu) -> Any:
        instruction = default_instruction(self.atype, self.atype, self.accumulator, self.target)
        return fused_config_of(fused_parameters(operation_of(instruction, self.target)), cpu.tile(FUSED))

    def products(self, cpu: Cpu) -> int:
        config = self.record(cpu)
        return int(config.rows * config.tile * config.terms)

    def kernel(self) -> MicroKernel:
        return FUSED_SLAB


@dataclass(frozen=True)
class Blocks(Fused):
    """Of truncated sums of tiles and small products."""

    def record(self, cpu: Cpu) -> Any:
        operation = operation_of(default_instruction(self.atype, self.atype, self.accumulator, self.target), self.target)
        return block_config(fused_parameters(operation), element_specs(operation), 256, False, cpu.tile(FUSED))

    def products(self, cpu: Cpu) -> int:
        return int(self.loop(cpu).multiplies * cpu.vector_bytes // self.record(cpu).value_bytes)

    def kernel(self) -> MicroKernel:
        return BLOCKS


@dataclass(frozen=True)
class Stored(Fused):
    """Of truncated sums of sparse A, whose zeros are not there, for an opcode; on CPUs whose tile has room for a row of a panel."""

    opcode: str = ""

    def record(self, cpu: Cpu) -> Any:
        return fused_config_of(fused_parameters(operation_of(self.opcode, self.target)), cpu.tile(FUSED), sparse=True)

    def products(self, cpu: Cpu) -> int:
        return super().products(cpu) // 2

    def kernel(self) -> MicroKernel:
        return SPARSE


@dataclass(frozen=True)
class Groups(Kernel):
    """Of exact sums of groups of e2m1 elements."""

    aligned: bool
    group: int
    terms: int = TERMS

    def record(self, cpu: Cpu) -> Any:
        row = cpu.tile(GROUPS)
        return GroupConfig(self.aligned, self.group, 35, row.dot, row.lanes, *(row.aligned if self.aligned else row.exact), self.terms)

    def products(self, cpu: Cpu) -> int:
        tile = self.record(cpu)
        return int(tile.rows * tile.columns * tile.step)

    def kernel(self) -> MicroKernel:
        return GROUPS_SLAB


@dataclass(frozen=True)
class Chains(Kernel):
    """Of IEEE fused multiply-adds."""

    bits: int
    links: int = 0
    half: bool = False

    def record(self, cpu: Cpu) -> Any:
        return config_on(cpu.tile(CHAINS), self.bits, self.links, self.half)

    def products(self, cpu: Cpu) -> int:
        config = self.record(cpu)
        return int(config.rows * config.columns * DEPTH)

    def kernel(self) -> MicroKernel:
        return CHAIN


def _emit_words(tile: WordsConfig, builder: ir.IRBuilder, arguments: list[ir.Value]) -> None:
    """The loop over words, which the kernels of integers have inside."""
    a, b, starts, out, count = arguments
    words = Multiply(builder, tile)
    words.begin(starts)
    words.run(tile.operations[0], a, b, count)
    for row, totals in enumerate(words.totals):
        for v, total in enumerate(totals):
            words.store(builder.load(total), out, 4 * (row * tile.columns + v * tile.lanes))


@dataclass(frozen=True)
class Words(Kernel):
    """Of integers or bits."""

    table: Any

    def record(self, cpu: Cpu) -> Any:
        row = cpu.tile(self.table)
        return WordsConfig(row.words, *row.wide)

    def products(self, cpu: Cpu) -> int:
        # LLVM may take several words in a pass
        return int(self.loop(cpu).multiplies * cpu.vector_bytes * self.record(cpu).elements // 4)

    def kernel(self) -> MicroKernel:
        return MicroKernel(_emit_words, 4, 1)


FMA = r"v?fn?m(la|add)"
KERNELS: tuple[Kernel, ...] = (
    Fused("f16, bf16 with f32 sums, sm_90", FMA, "f16", "sm_90a"),
    Fused("f16, bf16 with f32 sums, sm_80", FMA, "f16", "sm_80"),
    Fused("tf32, sm_90", FMA, "tf32", "sm_90a"),
    Fused("f16 with f16 sums, sm_90", FMA, "f16", "sm_90a", "f16"),
    Fused("e4m3, sm_90", FMA, "e4m3", "sm_90a"),
    Fused("e4m3, sm_120", FMA, "e4m3", "sm_120a"),
    Blocks("f16, sm_90, tiles and small products", FMA, "f16", "sm_90a"),
    Groups("NVFP4, exact", r"vpdpbusd|vpmaddubsw|sdot", False, 16),
    Groups("MXFP4, exact", r"vpdpbusd|vpmaddubsw|sdot", False, 32, 2),
    Groups("NVFP4, MXFP4, truncating", r"vpdpbusd|vpmaddubsw|sdot", True, 16),
    Chains("f64", FMA, 64),
    Chains("f32 chains (m8n8k4)", FMA, 32, 4),
    Words("s8, u8", r"vpdpbusd|vpmaddwd|sdot", BYTES),
    Words("b1", r"vpopcnt|vpsrlw|cnt", BITS),
)


def innermost(text: str) -> list[list[str]]:
    """The bodies of the loops of assembly language that have no other loop inside."""
    labels: dict[str, int] = {}
    instructions: list[str] = []
    jumps = []
    for line in text.splitlines():
        label = re.match(r"(\.L\w+):", line)
        if label:
            labels[label[1]] = len(instructions)
        elif re.match(r"\t[a-z]", line):
            target = re.search(r"(\.L\w+)$", line)
            if target and target[1] in labels and re.match(r"\t(j|b\.|b\t|cb|tb)", line):
                jumps.append((labels[target[1]], len(instructions)))
            instructions.append(line.strip())
    inner = [loop for loop in jumps if not any(loop != other and loop[0] <= other[0] and other[1] <= loop[1] for other in jumps)]
    return [instructions[first : last + 1] for first, last in inner]


def _counted(instructions: list[str], cpu: Cpu, multiply: str) -> Loop:
    return Loop(
        instructions,
        sum(re.match(multiply, each) is not None for each in instructions),
        sum(cpu.vector.search(each) is not None for each in instructions),
        sum(cpu.stack.search(each) is not None for each in instructions),
    )


def table() -> list[str]:
    """A Markdown table: vector instructions for 64 multiply-adds, and how many NEON takes where AVX-512 takes one of its length."""
    lines = [
        f"| vector instructions for 64 multiply-adds | {' | '.join(CPUS)} | NEON over AVX-512 at equal length | NEON, on the stack |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kernel in KERNELS:
        loops = [kernel.loop(cpu) for cpu in CPUS.values()]
        each = [64 * loop.vectors / kernel.products(cpu) for loop, cpu in zip(loops, CPUS.values(), strict=True)]
        ratio = each[-1] / each[0] * CPUS["NEON"].vector_bytes / CPUS["AVX-512"].vector_bytes
        stack = 100 * loops[-1].stack / loops[-1].vectors
        lines.append(f"| {kernel.name} | {' | '.join(f'{number:.3g}' for number in each)} | {ratio:.2f} | {stack:.0f} % |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
