"""Sparse A, as PTX's text (Sparse matrix storage) and measurements on an H200 state it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, permutations
from typing import Any, NamedTuple

from fastmma import Instruction
from reference.fragments import CONTAINER_BITS

ORDERED_WORDS = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
INVALID_WORDS = (0b0000, 0b0101, 0b1010, 0b1111)
TF32_WORDS = {0b0100: 0, 0b1110: 1}
# threads of a group of four that contribute metadata: shape and width of an element of A in registers
CONTRIBUTORS = {
    ("m16n8k16", 16): 1,
    ("m16n8k32", 16): 2,
    ("m16n8k8", 32): 1,
    ("m16n8k16", 32): 2,
    ("m16n8k32", 8): 2,
    ("m16n8k64", 8): 4,
    ("m16n8k64", 4): 2,
    ("m16n8k128", 4): 4,
}


class Granularity(NamedTuple):
    """`stored` of `chunk` elements are stored, in sub-chunks of `unit`."""

    chunk: int
    stored: int
    unit: int


GRANULARITIES = {"1:2": Granularity(2, 1, 1), "2:4": Granularity(4, 2, 1), "4:8": Granularity(8, 4, 2)}


def width(ins: Instruction) -> int:
    """Bits of an element of A in a register."""
    return 4 if ins.atype == "e2m1" and ins.kind in ("mxf4", "mxf4nvf4") else CONTAINER_BITS[ins.atype]


def pattern(ins: Instruction) -> str:
    return {32: "1:2", 16: "2:4", 8: "2:4", 4: "4:8"}[width(ins)]


def contributors(ins: Instruction) -> int:
    return CONTRIBUTORS[f"m16n8k{ins.k}", width(ins)]


def word_at(ins: Instruction, lane: int, selector: int, nibble: int) -> tuple[int, int] | None:
    """Row and chunk of A whose word is nibble 0 to 7 of a thread's metadata, or None if the thread contributes none."""
    count = contributors(ins)
    warp, thread = divmod(lane, 32)
    group, place = divmod(thread, 4)
    j = place - selector * count
    if not 0 <= j < count:
        return None
    if count == 1:
        row, chunk = group + 8 * (nibble >= 4), nibble % 4
    elif count == 2 and width(ins) >= 16:
        row, chunk = group + 8 * (nibble >= 4), 4 * j + nibble % 4
    elif count == 2:
        row, chunk = group + 8 * j, nibble
    else:
        row, chunk = group + 8 * (j & 1), 8 * (j >> 1) + nibble
    return 16 * warp + row, chunk


def places(word: int, name: str) -> list[int]:
    """The places in a chunk of the elements that are stored, in the order of storage."""
    if name == "1:2":
        return [TF32_WORDS[word]]
    unit = GRANULARITIES[name].unit
    return [unit * index + i for index in (word & 3, word >> 2) for i in range(unit)]


def words(name: str, *, ordered: bool) -> tuple[int, ...]:
    """The valid words."""
    if name == "1:2":
        return tuple(TF32_WORDS)
    if ordered:
        return ORDERED_WORDS
    return tuple(word for word in range(16) if word not in INVALID_WORDS)


def dense_row(stored: Sequence[Any], metadata: Sequence[int], name: str, zero: Any) -> list[Any]:
    """A row with its zeros."""
    rule = GRANULARITIES[name]
    row = [zero] * (len(metadata) * rule.chunk)
    for index, word in enumerate(metadata):
        for i, place in enumerate(places(word, name)):
            row[index * rule.chunk + place] = stored[index * rule.stored + i]
    return row


def kept_units(magnitudes: Sequence[float], name: str) -> set[tuple[int, ...]]:
    """Every choice of units of a chunk whose magnitudes add up to the most."""
    rule = GRANULARITIES[name]
    units = [Fraction(sum(magnitudes[start : start + rule.unit])) for start in range(0, rule.chunk, rule.unit)]
    choices = list(combinations(range(len(units)), rule.stored // rule.unit))
    most = max(sum(units[unit] for unit in choice) for choice in choices)
    return {choice for choice in choices if sum(units[unit] for unit in choice) == most}


def unordered_words() -> tuple[int, ...]:
    """Words whose indices descend."""
    return tuple(low | high << 2 for low, high in permutations(range(4), 2) if low > high)
