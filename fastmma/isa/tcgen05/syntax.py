"""The opcodes of tcgen05.mma as text, and the targets on which ptxas takes them with which operands."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fastmma.host.errors import InstructionError
from fastmma.isa.targets import specific
from fastmma.isa.tcgen05.kinds import KINDS, Kind

_OPCODE = re.compile(
    r"tcgen05\.mma(?P<ws>\.ws)?(?P<sparse>\.sp)?\.cta_group::(?P<cta_group>[12])\.kind::(?P<kind>\w+)"
    r"(?P<block_scale>\.block_scale(?:\.(?P<vector>scale_vec::\dX|block\d+))?)?(?P<ashift>\.ashift)?"
    r"(?:\.collector::(?P<collector>(?:a|b[0-3])::(?:fill|use|lastuse|discard)))?"
)
_ALL = specific("sm_100", "sm_103", "sm_107", "sm_110")
_EXACT = tuple(target for target in _ALL if target.endswith("a"))
_INTEGER = ("sm_100a", "sm_110a")
_SCALE_INPUT_D = specific("sm_100", "sm_103", "sm_107")


@dataclass(frozen=True)
class Syntax:
    """The parts of the text of an opcode.

    Attributes
    ----------
    ws : bool
        Weight stationary: B stays, and the shapes are others.
    vector : str
        The size of the scale vector as it is written, or empty.
    collector : str
        For example ``"a::fill"``; whether an operand is kept for the next instruction, which changes no result.
    """

    kind: Kind
    cta_group: int = 1
    sparse: bool = False
    ws: bool = False
    vector: str = ""
    ashift: bool = False
    collector: str = ""

    @property
    def scale_vec_size(self) -> int:
        """Scales of a row of A as the text has them, with the kind's own K; 0 without block scaling."""
        return 0 if self.kind.vectors is None else self.kind.vectors[self.vector]

    @property
    def opcode(self) -> str:
        """The text, without what changes no result."""
        scale = "" if self.kind.vectors is None else ".block_scale" + f".{self.vector}" * bool(self.vector)
        head = f"tcgen05.mma{'.ws' * self.ws}{'.sp' * self.sparse}.cta_group::{self.cta_group}"
        return f"{head}.kind::{self.kind.name}{scale}{'.ashift' * self.ashift}"

    @property
    def ptx(self) -> tuple[int, int]:
        """The first version of PTX that has it."""
        late = self.kind.vectors is not None and not self.vector.startswith("scale_vec")
        return max(self.kind.ptx, (8, 8)) if late else self.kind.ptx

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that have it."""
        if self.kind.name == "i8":
            return _INTEGER
        exact = self.vector.startswith("scale_vec") or (self.sparse and self.kind.layout == "mx4")
        return _EXACT if exact else _ALL

    def targets_with(
        self, *, a_in_tensor_memory: bool = False, lane_mask: bool = False, scale_input_d: bool = False, zero_column_mask: bool = False
    ) -> tuple[str, ...]:
        """The targets on which ptxas takes it with these operands; none where it refuses them everywhere."""
        scaled = self.kind.vectors is not None
        if self.ashift and not a_in_tensor_memory:
            return ()
        if (self.ws or scaled) and (lane_mask or scale_input_d):
            return ()
        if zero_column_mask and not self.ws:
            return ()
        if scale_input_d and self.kind.name in ("f16", "tf32"):
            return tuple(target for target in self.targets if target in _SCALE_INPUT_D)
        # with i8 a number in the place of scale-input-d is ignored, but not behind a lane mask of a sparse one
        ignored = self.kind.name == "i8" and not (self.sparse and lane_mask)
        return () if scale_input_d and not ignored else self.targets


def parsed(text: str) -> Syntax:
    """An opcode, read.

    Raises
    ------
    InstructionError
        If it is none: the message says why.

    Examples
    --------
    >>> parsed("tcgen05.mma.cta_group::1.kind::mxf4.block_scale").scale_vec_size
    2
    """

    def refuse(why: str) -> InstructionError:
        return InstructionError(f"{text!r:.300} is no legal opcode: {why}")

    found = _OPCODE.fullmatch(text)
    if found is None:
        raise refuse("it is written tcgen05.mma{.ws}{.sp}.cta_group::N.kind::K{.block_scale{.vector}}{.ashift}{.collector::C}")
    kind = KINDS.get(found["kind"])
    if kind is None:
        raise refuse(f"there is no .kind::{found['kind']}; there are {', '.join(KINDS)}")
    scaled, vector = found["block_scale"] is not None, found["vector"] or ""
    ws, collector, ashift = bool(found["ws"]), found["collector"] or "", bool(found["ashift"])
    if scaled != (kind.vectors is not None):
        raise refuse(f".kind::{kind.name} {'takes no' if scaled else 'needs'} .block_scale")
    if kind.vectors is not None and vector not in kind.vectors:
        raise refuse(f".kind::{kind.name} takes {' or '.join('.' + each if each else 'none' for each in kind.vectors)} after .block_scale")
    if ws and (scaled or found["cta_group"] == "2" or ashift):
        raise refuse(".ws takes no block scaling, no .ashift, and .cta_group::1 only")
    if collector and collector.startswith("a") == ws:
        raise refuse(".collector::a is for instructions without .ws, .collector::b0 to b3 for those with it")
    if ashift and (scaled or collector in ("a::fill", "a::use")):
        raise refuse(".ashift goes with no block scaling, and with neither .collector::a::fill nor .collector::a::use")
    return Syntax(kind, int(found["cta_group"]), bool(found["sparse"]), ws, vector, ashift, collector)
