"""Short opcodes: what an opcode that leaves out its obvious parts can mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.rows.family import is_shape
from fastmma.isa.spelling import Spelling, spelling_of

# what every opcode of a kind has, and which is left out together
_IMPLIED = frozenset({"sync", "aligned"})
_SECOND_PARTS = {"wgmma": "wgmma.mma_async", "wmma": "wmma.mma"}
_SHOWN = 6


def _read(text: str) -> Spelling | None:
    """The spelling of a text that may be short: neither .sync nor .aligned is written, and no token twice."""
    op, _, rest = text.partition(".")
    whole = _SECOND_PARTS.get(op)
    second = rest.split(".")[0]
    if whole is not None and second not in (whole.partition(".")[2], "load", "store"):
        text = f"{whole}.{rest}"
    found = spelling_of(text)
    return None if found.repeated or found.modifiers & _IMPLIED or not (found.modifiers or found.types) else found


def _types(full: tuple[str, ...], given: tuple[str, ...]) -> bool:
    """Tell whether types are the first ones, or one alone that of D or A, and those left out are as usual: B as A, C as D."""
    if not given:
        return True
    if len(full) == 2:  # D and C
        return full[: len(given)] == given and full[-1] == (given[-1] if len(given) == 2 else full[0])
    if full[: len(given)] != given and (len(given) > 1 or full[1:2] != given):
        return False
    usual = {1: 1, 2: 1, 3: 0}  # in the order D, A, B, C
    return all(place in usual and full[place] == full[usual[place]] for place in range(len(given), len(full)))


def _obvious(spelling: Spelling, ins: Instruction | Movement) -> tuple[bool, int, bool, bool, int, str]:
    """Return a key that sorts instructions: A by rows and B by columns, nothing else added, sums in f32, of f16, the deepest k."""
    turned, deep = spelling.layouts not in ((), ("row", "col")), ins.k if isinstance(ins, Instruction) else 0
    return turned, len(spelling.modifiers), "f32" not in spelling.types, "f16" not in spelling.types, -deep, ins.opcode


def meant(text: str, table: Callable[[str], Mapping[Spelling, Instruction | Movement]]) -> tuple[Instruction | Movement, ...]:
    """The instructions that a short opcode can mean, the obvious ones first; empty where the text is no short opcode.

    Parameters
    ----------
    text : str
    table : callable
        Takes what opcodes begin with, and returns the spellings of those that do.
    """
    wanted = _read(text)
    if wanted is None:
        return ()
    shaped = any(is_shape(token) for token in wanted.modifiers)
    found: dict[Instruction | Movement, tuple[bool, int, bool, bool, int, str]] = {}
    for spelling, ins in table(wanted.op).items():
        if (
            wanted.modifiers <= spelling.modifiers
            and wanted.layouts in ((), spelling.layouts)
            and spelling.operations[: len(wanted.operations)] == wanted.operations
            and _types(spelling.types, wanted.types)
            and all(is_shape(token) and not shaped for token in spelling.modifiers - wanted.modifiers - _IMPLIED)
        ):
            found[ins] = _obvious(spelling, ins)
    return tuple(sorted(found, key=found.__getitem__))


def several(text: str, found: tuple[Instruction | Movement, ...]) -> str:
    """The message for a short opcode that can mean more than one."""
    more = f" and {len(found) - _SHOWN} others" if len(found) > _SHOWN else ""
    return f"{text!r} can mean {len(found)} opcodes: {', '.join(str(ins) for ins in found[:_SHOWN])}{more}"
