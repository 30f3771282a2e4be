"""Spellings of opcodes: ptxas takes modifiers in any order, some of them twice, and some that it ignores."""

from __future__ import annotations

from typing import NamedTuple

from fastmma.isa.formats import FORMATS


class Spelling(NamedTuple):
    """The identity of an opcode: ptxas takes its modifiers in any order, but types, layouts and operations in theirs."""

    op: str
    modifiers: frozenset[str]
    layouts: tuple[str, ...]
    types: tuple[str, ...]
    operations: tuple[str, ...]
    repeated: tuple[str, ...]


_LAYOUTS = ("row", "col")
_BIT_OPERATIONS = ("xor", "and", "or", "popc")
_OPERATIONS = (*_BIT_OPERATIONS, "b8x16", "b6x16_p32", "b4x16_p64")
_IN_ORDER = frozenset((*FORMATS, *_LAYOUTS, *_OPERATIONS))
# ptxas does not mind if these are written again
_REPEATABLE = ("sync", "satfinite")
_SPARSE = {"sp", "sp::ordered_metadata"}
# instructions whose name has a second part, and those that have a third one, the operand
_TWO_PARTS = ("wgmma", "wmma")
_THREE_PARTS = ("wmma.load", "wmma.store")


def spelling_of(text: str) -> Spelling:
    """The spelling of an opcode, legal or not."""
    op, *tokens = text.split(".")
    for names in (_TWO_PARTS, _THREE_PARTS):
        if op in names and tokens:
            op = f"{op}.{tokens.pop(0)}"
    types = tuple(token for token in tokens if token in FORMATS)
    layouts = tuple(token for token in tokens if token in _LAYOUTS)
    operations = tuple(token for token in tokens if token in _OPERATIONS)
    if op == "mma" and {"s4", "u4"} & set(types) and not _SPARSE & set(tokens) and operations[:1] in (("xor",), ("and",), ("or",)):
        operations = tuple(token for token in operations if token not in _BIT_OPERATIONS)  # ptxas takes and ignores them
    modifiers = [token for token in tokens if token not in _IN_ORDER]
    repeated = tuple(dict.fromkeys(token for token in modifiers if modifiers.count(token) > 1 and token not in _REPEATABLE))
    return Spelling(op, frozenset(modifiers), layouts, types, operations, repeated)
