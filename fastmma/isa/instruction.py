"""Instructions as frozen records, filled by the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fastmma.host.errors import TargetError
from fastmma.isa.formats import FORMATS, Format, Formats
from fastmma.isa.layout import Layout
from fastmma.isa.targets import WARP, target_of


@dataclass(frozen=True)
class Operand:
    """One matrix operand of an instruction: its format and how its fragment lies in registers."""

    name: str
    format: Format
    layout: Layout

    @property
    def registers(self) -> int:
        """32-bit registers a lane holds (64-bit ones for f64)."""
        return self.layout.registers

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.layout.shape


@dataclass(frozen=True)
class Instruction:
    """One opcode, as PTX or a document of AMD's defines it.

    Attributes
    ----------
    opcode : str
        Canonical text. Modifiers that only state a default (``.rn``) are left out; that of tcgen05 ends with its descriptor word.
    op : str
        ``"mma"``, ``"wmma"``, ``"wgmma"``, ``"tcgen05"``, or ``"fma"`` off the tensor cores; of AMD's ``"v_mfma"``, ``"v_smfmac"``,
        ``"v_wmma"`` or ``"v_swmmac"``.
    m, n, k : int
        Matrix shape: a is m x k, b is k x n, c and d are m x n.
    dtype, atype, btype, ctype : str
        PTX names of the element formats of d, a, b and c.
    alayout, blayout : str
        ``"row"`` or ``"col"``.
    rounding : str
        f64 only: ``"rn"``, ``"rz"``, ``"rm"`` or ``"rp"``; else empty.
    satfinite : bool
        Whether an integer result is clamped and not wrapped.
    bit_op : str
        b1 only: ``"xor"`` or ``"and"``; else empty.
    kind : str
        PTX's ``.kind::`` qualifier without its prefix, or empty.
    targets : tuple of str
        Exactly the targets on which ptxas accepts the opcode.
    ptx : (int, int)
        PTX ISA version that introduced it.
    heading : str
        The PTX heading that defines its fragments.
    fragments : callable
        How operands lie in registers: a rule of `fastmma.isa.fragments`.
    lanes : int
        32 for a warp, 128 for a warpgroup; for tcgen05 the lanes of Tensor Memory that hold D.
    sparse : str
        ``"sp"`` or ``"sp::ordered_metadata"`` where A is stored without its zeros, else empty.
    scale_vec_size : int
        Scales a row of A (and a column of B) has: 1, 2 or 4 where there is block scaling, else 0.
    stype : str
        Format of the scales, or empty.
    cta_group : int
        tcgen05 only: CTAs that work together, 1 or 2; else 0.
    ws : bool
        tcgen05 only: weight stationary.
    idesc : int
        tcgen05 only: the instruction descriptor.
    blocks : int
        Products that an instruction of AMD's computes side by side; else 1.
    """

    opcode: str
    op: str
    m: int
    n: int
    k: int
    dtype: str
    atype: str
    btype: str
    ctype: str
    alayout: str
    blayout: str
    rounding: str
    satfinite: bool
    bit_op: str
    kind: str
    targets: tuple[str, ...] = field(repr=False)
    ptx: tuple[int, int] = field(repr=False)
    heading: str = field(repr=False)
    fragments: Callable[[Any], dict[str, Layout]] = field(repr=False, compare=False)
    lanes: int = WARP
    sparse: str = ""
    scale_vec_size: int = 0
    stype: str = ""
    cta_group: int = 0
    ws: bool = False
    idesc: int = 0
    blocks: int = 1

    @cached_property
    def stored_k(self) -> int:
        """Columns of A as it is stored: half of k when A is sparse."""
        return self.k // 2 if self.sparse else self.k

    @property
    def ordered_metadata(self) -> bool:
        """True if the metadata words of sparse A must name ascending places."""
        return self.in_place or self.sparse == "sp::ordered_metadata"

    @property
    def in_place(self) -> bool:
        """True if D is C, and B lies in shared memory: wgmma and tcgen05."""
        return self.op in ("wgmma", "tcgen05")

    @property
    def in_registers(self) -> bool:
        """True if a warp or a wave holds all operands in its registers."""
        return not self.in_place and self.op != "fma"

    @property
    def form(self) -> str:
        """tcgen05 only: ``"cta_group::1"``, ``"cta_group::2"`` or ``"ws"``; else empty."""
        return "ws" if self.ws else f"cta_group::{self.cta_group}" if self.cta_group else ""

    @cached_property
    def accumulator(self) -> str:
        """The format that sums are kept in: f32 where C or D is f32, else that of D."""
        return "f32" if "f32" in (self.ctype, self.dtype) else self.dtype

    @property
    def shape(self) -> str:
        """The shape as PTX writes it, for example ``"m16n8k16"``."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def types(self) -> str:
        """The element types as PTX writes them: ``dtype.atype.btype.ctype``."""
        return f"{self.dtype}.{self.atype}.{self.btype}.{self.ctype}"

    @cached_property
    def formats(self) -> Formats:
        """The records of the formats that `dtype`, `atype`, `btype`, `ctype`, `accumulator` and `stype` name."""
        a, b, c, d, sums = (FORMATS[name] for name in (self.atype, self.btype, self.ctype, self.dtype, self.accumulator))
        return Formats(a, b, c, d, sums, FORMATS.get(self.stype))

    @cached_property
    def operands(self) -> Mapping[str, Operand]:
        """The operands by name: ``"a"``, ``"b"``, ``"c"`` and ``"d"``."""
        return {name: Operand(name, getattr(self.formats, name), layout) for name, layout in self.fragments(self).items() if name in "abcd"}

    def __hash__(self) -> int:
        return hash(self.opcode)

    @property
    def tiles(self) -> int:
        """Matrix products one execution computes: 4 for m8n8k4 with f16, else 1."""
        return self.operands["d"].layout.tiles

    def __str__(self) -> str:
        return self.opcode


@dataclass(frozen=True)
class Movement:
    """One opcode that moves matrices.

    Attributes
    ----------
    opcode : str
        Canonical text, without a state space.
    op : str
        ``"ldmatrix"``, ``"stmatrix"``, ``"movmatrix"``, ``"wmma.load"``, ``"wmma.store"``, ``"tcgen05.ld"``, ``"tcgen05.ld.red"`` or
        ``"tcgen05.st"``.
    rows, cols : int
        Of one matrix, as PTX's shape says; for wmma, of the operand.
    num : int
        Matrices moved.
    bits : int
        Width of an element in a register.
    fragment : callable
        How one matrix lies in registers.
    source_bits : int
        Width of an element in memory: 6 or 4 for the formats that expand to 8 bits, else `bits`.
    trans : bool
        Whether matrices in memory are column-major.
    operand, layout_in_memory : str
        wmma only: ``"a"``, ``"b"``, ``"c"`` or ``"d"``; ``"row"`` or ``"col"``.
    shape : str
        The shape of the wmma, or that of tcgen05, for example ``"16x64b"``.
    dtype : str
        PTX name of the element format of wmma, or of what tcgen05.ld.red compares.
    reduction : str
        tcgen05.ld.red only: ``"min"`` or ``"max"``, with ``".abs"`` and ``".NaN"`` behind it.
    unknown : str
        Why it cannot be executed; empty where it can.
    """

    opcode: str
    op: str
    rows: int
    cols: int
    num: int
    bits: int
    targets: tuple[str, ...] = field(repr=False)
    ptx: tuple[int, int] = field(repr=False)
    heading: str = field(repr=False)
    fragment: Callable[[Any], Layout] = field(repr=False, compare=False)
    spaces: tuple[str, ...] = field(repr=False, default=())
    source_bits: int = 0
    trans: bool = False
    operand: str = ""
    layout_in_memory: str = ""
    shape: str = ""
    dtype: str = ""
    reduction: str = ""
    unknown: str = ""

    @cached_property
    def layout(self) -> Layout:
        """Where the elements of one matrix lie in registers."""
        return self.fragment(self)

    @cached_property
    def lanes(self) -> int:
        """Lanes of a warp on the targets that have it."""
        return target_of(self.targets[0]).lanes

    @property
    def lines(self) -> int:
        """Addresses a matrix takes: one for each of its rows in memory (columns when it is column-major there)."""
        return self.cols if self.trans else self.rows

    @property
    def registers(self) -> int:
        """Registers a lane takes or gives: 32-bit ones, 64-bit for f64."""
        return self.num * self.layout.registers

    def __str__(self) -> str:
        return self.opcode


def check_legal(ins: Instruction | Movement, target: str) -> None:
    """Raise TargetError unless ptxas takes the opcode on the target."""
    if target not in ins.targets:
        raise TargetError(f"{ins}: illegal on {target}; it needs one of {', '.join(ins.targets)}")
