"""PTX text: what the kernels that execute one opcode on raw registers have in common.

The text is derived from the instruction alone, so it can be written, read and assembled without a GPU.
"""

from __future__ import annotations

from fastmma.isa.instruction import Instruction, Movement, check_legal
from fastmma.isa.targets import target_ptx

ENTRY = "fastmma"


def ptx_version(ins: Instruction | Movement, target: str) -> tuple[int, int]:
    """The lowest PTX version that knows both the opcode and the target."""
    return max(ins.ptx, target_ptx(target))


def header(ins: Instruction | Movement, target: str, parameters: str) -> list[str]:
    """The lines up to the body of the kernel.

    Raises
    ------
    TargetError
        If the opcode is illegal on the target.
    """
    check_legal(ins, target)
    major, minor = ptx_version(ins, target)
    return [
        f".version {major}.{minor}",
        f".target {target}",
        ".address_size 64",
        f".visible .entry {ENTRY}({parameters})",
        "{",
    ]


class RegisterNames:
    """Names of consecutive registers of each operand, and the instructions that move them."""

    def __init__(self, wide: bool) -> None:
        self.letter, self.type, self.size = ("d", "f64", 8) if wide else ("r", "b32", 4)
        self.count = 0

    def take(self, count: int) -> list[str]:
        """The names of as many new registers."""
        names = [f"%{self.letter}{self.count + i}" for i in range(count)]
        self.count += count
        return names

    def load(self, names: list[str], address: str) -> list[str]:
        """Fill registers from consecutive words of global memory."""
        return [f"ld.global.{self.type} {name}, [{address}+{i * self.size}];" for i, name in enumerate(names)]

    def store(self, names: list[str], address: str) -> list[str]:
        """Write registers to consecutive words of global memory."""
        return [f"st.global.{self.type} [{address}+{i * self.size}], {name};" for i, name in enumerate(names)]


def vector(names: list[str]) -> str:
    """Registers as one operand of an opcode."""
    return "{" + ", ".join(names) + "}"


def fragment_address(target: str, base: str, index: str, registers: int, size: int) -> list[str]:
    """Address of this lane's part of fragment `index`: ``base + (index * lanes + lane) * registers * size``."""
    return [
        f"mad.lo.u64 {target}, {index}, %lanes, %lane;",
        f"mad.lo.u64 {target}, {target}, {registers * size}, {base};",
    ]
