"""The PTX of a kernel as steps in basic blocks, whose operands are taken apart."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Register:
    """A register, by its number among those of the kernel, and its bytes; ``negated`` for predicates alone."""

    number: int
    size: int
    negated: bool = False


@dataclass(frozen=True)
class Immediate:
    """A number in the text: an integer, or the bits of a float with its bytes."""

    value: int
    size: int = 0


@dataclass(frozen=True)
class Special:
    """A register that the hardware fills, such as ``%tid.x``."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """The address of a name: a parameter, shared memory, a label."""

    name: str


@dataclass(frozen=True)
class Address:
    """A base and an offset in bytes."""

    base: Register | Symbol | Immediate
    offset: int


@dataclass(frozen=True)
class Vector:
    """Operands in braces."""

    parts: tuple[Operand, ...]


Operand = Register | Immediate | Special | Symbol | Address | Vector | None  # None is the sink, an underscore


@dataclass(frozen=True, eq=False)
class Step:
    """One instruction: its opcode, operands, who executes it, and where it stands, in the PTX and in the kernel's source."""

    opcode: str
    operands: tuple[Operand, ...]
    predicate: Register | None
    place: int
    line: tuple[str, int]


@dataclass
class Block:
    """Steps that are executed one after another."""

    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Parameter:
    """A parameter of the kernel: its place among the bytes of all, and its size."""

    place: int
    size: int


@dataclass(frozen=True)
class Code:
    """A kernel.

    Attributes
    ----------
    blocks : tuple of Block
        The last block ends with a return.
    labels : dict
        Blocks by label.
    parameters : dict
        By name, in their order.
    sizes : tuple of int
        Bytes of each register; 1 for predicates.
    threads : int
        Of a block.
    local : int
        Bytes of local memory of a thread, at addresses of 32 bits.
    tables : dict
        Bytes of the module's tables, by name.
    """

    blocks: tuple[Block, ...]
    labels: dict[str, int]
    parameters: dict[str, Parameter]
    sizes: tuple[int, ...]
    threads: int
    local: int = 0
    tables: dict[str, bytes] = field(default_factory=dict)
