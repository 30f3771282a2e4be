"""Sparse storage of A: which elements of a chunk are stored, and where the metadata that says so lies (PTX: Sparse matrix storage)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fastmma.host.integers import one_of
from fastmma.isa.fragments import container_bits
from fastmma.isa.instruction import Instruction
from fastmma.isa.layout import Layout, Mode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Pattern:
    """`stored` of every `chunk` elements of a row are stored, in units of `unit` neighbours; a 4-bit word tells which.

    Attributes
    ----------
    name : str
        ``"2:4"``, ``"1:2"`` or ``"4:8"``.
    words : tuple of (int, tuple of int)
        Each valid word with the places in the chunk that it names, in the order of storage. Words of ascending places come first.
    ordered : int
        How many of `words` have ascending places; only those are valid for ``sp::ordered_metadata``.
    unit : int
        Neighbours that are stored or left out together.
    """

    name: str
    chunk: int
    stored: int
    words: tuple[tuple[int, tuple[int, ...]], ...]
    ordered: int
    unit: int = 1

    def table(self, ordered: bool) -> NDArray[np.int8]:
        """Places in the chunk for each of the 16 words; -1 where a word is invalid."""
        import numpy as np

        table = np.full((16, self.stored), -1, dtype=np.int8)
        for word, places in self.words[: self.ordered if ordered else None]:
            table[word] = places
        return table


def _two_of_four(unit: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Words whose low two bits name the first stored unit of four, and whose high two bits name the second."""
    pairs = [(low, high) for low in range(4) for high in range(4) if low != high]
    pairs.sort(key=lambda pair: pair[0] > pair[1])
    return tuple((low | high << 2, tuple(unit * each + i for each in (low, high) for i in range(unit))) for low, high in pairs)


PATTERNS: dict[str, Pattern] = {
    "2:4": Pattern("2:4", 4, 2, _two_of_four(1), 6),
    "1:2": Pattern("1:2", 2, 1, ((0b0100, (0,)), (0b1110, (1,))), 2),
    "4:8": Pattern("4:8", 8, 4, _two_of_four(2), 6, unit=2),
}
# by the width of an element's container: the metadata counts 16-bit halves of tf32, and pairs of 4-bit elements
_PATTERN_OF_BITS = {32: "1:2", 16: "2:4", 8: "2:4", 4: "4:8"}
# AMD's have one pattern for all
_PATTERN_OF_OPS = {"v_smfmac": "2:4", "v_swmmac": "2:4"}


@lru_cache(4096)
def pattern_of(ins: Instruction) -> Pattern:
    """The pattern that a sparse instruction's A has."""
    return PATTERNS[_PATTERN_OF_OPS.get(ins.op) or _PATTERN_OF_BITS[container_bits(ins.formats.a, ins.kind)]]


@lru_cache(4096)
def _in_every_lane(ins: Instruction) -> Layout | None:
    """The layout of metadata that the instruction's own rule has; selectors choose bits of registers there, not lanes."""
    return ins.fragments(ins).get("metadata")


def metadata_bit(ins: Instruction, selector: int) -> int:
    """The lowest bit of the registers that hold the metadata."""
    own = _in_every_lane(ins)
    return 0 if own is None else selector * own.elements * own.bits


@lru_cache(4096)
def metadata_lanes(ins: Instruction) -> int:
    """Return how many lanes of each group of four hold the metadata: 1, 2 or 4."""
    if _in_every_lane(ins) is not None:
        return 4
    words = min(ins.m, 16) * (ins.k // pattern_of(ins).chunk)
    return words // 64


def selectors(ins: Instruction) -> range:
    """The valid sparsity selectors: which of the lanes of each group of four hold the metadata, or which bits of all lanes."""
    own = _in_every_lane(ins)
    return range(4 // metadata_lanes(ins) if own is None else own.register_bits // (own.elements * own.bits))


@lru_cache(1024)
def metadata_layout(ins: Instruction) -> Layout:
    """Place the 4-bit words (m rows, k / chunk columns) in the registers of the contributing lanes; warps of wgmma hold 16 rows each.

    Measured on an H200: PTX gives figures only. With 16-bit and wider elements, a pair of lanes shares each row's words; with narrower
    ones each lane of a pair holds whole rows.
    """
    own = _in_every_lane(ins)
    if own is not None:
        return own
    chunks = ins.k // pattern_of(ins).chunk
    group, warps = Mode(8, 1, 0), (Mode(ins.m // 16, 16, 0),) if ins.m > 16 else ()
    by_chunks, by_rows = Mode(2, 0, 4), Mode(2, 8, 0)
    modes: dict[tuple[int, bool], tuple[tuple[Mode, ...], tuple[Mode, ...]]] = {
        (1, True): ((group,), (Mode(4, 0, 1), by_rows)),
        (2, True): ((by_chunks, group), (Mode(4, 0, 1), by_rows)),
        (2, False): ((by_rows, group), (Mode(8, 0, 1),)),
        (4, False): ((by_rows, Mode(2, 0, 8), group), (Mode(8, 0, 1),)),
    }
    lane, element = modes[metadata_lanes(ins), container_bits(ins.formats.a, ins.kind) >= 16]
    return Layout((ins.m, chunks), lane + warps, element, bits=4)


def check_selector(ins: Instruction, selector: Any) -> int:
    """The sparsity selector as an int.

    Raises
    ------
    OperandError
        If it is outside the range that PTX gives for the instruction.
    """
    return one_of(selector, selectors(ins), f"{ins}: selector")
