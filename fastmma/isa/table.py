"""All instructions: the rows expanded, looked up by text, and the nearest legal opcodes when the text is none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cache
from typing import Any, NamedTuple

from fastmma.host.errors import InstructionError
from fastmma.isa.formats import FORMATS
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.rows import block_scale, mma, mma_sp, wgmma, wmma
from fastmma.isa.rows.family import PART_PTX, Family, sizes
from fastmma.isa.rows.moves import MOVEMENTS
from fastmma.isa.targets import architecture

FAMILIES: tuple[Family, ...] = (*mma.FAMILIES, *mma_sp.FAMILIES, *block_scale.FAMILIES, *wmma.FAMILIES, *wgmma.FAMILIES)
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


class _Spelling(NamedTuple):
    """What identifies an opcode: ptxas takes its modifiers in any order, but types, layouts and operations in theirs."""

    op: str
    modifiers: frozenset[str]
    layouts: tuple[str, ...]
    types: tuple[str, ...]
    operations: tuple[str, ...]
    repeated: tuple[str, ...]


_LAYOUTS = ("row", "col")
_BIT_OPERATIONS = ("xor", "and", "or", "popc")
_OPERATIONS = (*_BIT_OPERATIONS, "b8x16", "b6x16_p32", "b4x16_p64")
# ptxas does not mind if these are written again
_REPEATABLE = ("sync", "satfinite")
_SPARSE = {"sp", "sp::ordered_metadata"}
# instructions whose name has a second part, and those that have a third one, the operand
_TWO_PARTS = ("wgmma", "wmma")
_THREE_PARTS = ("wmma.load", "wmma.store")


def _spelling(text: str) -> _Spelling:
    op, *tokens = text.split(".")
    for names in (_TWO_PARTS, _THREE_PARTS):
        if op in names and tokens:
            op = f"{op}.{tokens.pop(0)}"
    types = tuple(token for token in tokens if token in FORMATS)
    layouts = tuple(token for token in tokens if token in _LAYOUTS)
    operations = tuple(token for token in tokens if token in _OPERATIONS)
    if op == "mma" and {"s4", "u4"} & set(types) and not _SPARSE & set(tokens) and operations[:1] in (("xor",), ("and",), ("or",)):
        operations = tuple(token for token in operations if token not in _BIT_OPERATIONS)  # ptxas takes and ignores them
    modifiers = [token for token in tokens if token not in (*FORMATS, *_LAYOUTS, *_OPERATIONS)]
    repeated = tuple(dict.fromkeys(token for token in modifiers if modifiers.count(token) > 1 and token not in _REPEATABLE))
    return _Spelling(op, frozenset(modifiers), layouts, types, operations, repeated)


def _instruction(family: Family, chosen: dict[str, Any]) -> Instruction:
    m, n, k = sizes(chosen["shape"])
    types = chosen["types"].split(".")
    dtype, atype, btype = types[:3]
    return Instruction(
        opcode=chosen["opcode"],
        op=family.op,
        m=m,
        n=n,
        k=k,
        dtype=dtype,
        atype=atype,
        btype=btype,
        ctype=types[3] if len(types) > 3 else dtype,
        alayout=chosen.get("alayout", "row"),
        blayout=chosen.get("blayout", "col"),
        rounding=(chosen["rounding"].removeprefix(".") or "rn") if "rounding" in chosen else "",
        satfinite=bool(chosen.get("satfinite")),
        bit_op=chosen.get("bit_op", "").removeprefix(".").removesuffix(".popc"),
        kind=family.kind,
        targets=family.targets,
        ptx=max(family.ptx, *(version for part, version in PART_PTX.items() if part in chosen["opcode"])),
        heading=family.heading,
        fragments=family.fragments,
        lanes=family.lanes,
        sparse=next((token for token in ("sp::ordered_metadata", "sp") if f".{token}." in chosen["opcode"]), ""),
        scale_vec_size=family.scale_vec_size,
        stype=types[4] if len(types) > 4 else "",
    )


@cache
def _table() -> dict[_Spelling, Instruction | Movement]:
    """Every accepted spelling; what may be written or left out (a default, a state space) has an entry with it and one without."""
    table: dict[_Spelling, Instruction | Movement] = {}
    for movement in MOVEMENTS:
        spelling = _spelling(movement.opcode)
        for space in ("", *movement.spaces):
            each = spelling._replace(modifiers=spelling.modifiers | {space}) if space else spelling
            if each in table:
                raise ValueError(f"two rows describe {movement.opcode}")
            table[each] = movement
    for family in FAMILIES:
        for chosen in family.expand():
            ins = _instruction(family, chosen)
            spelling = _spelling(ins.opcode)
            spellings = [spelling]
            if not chosen.get("rounding"):
                spellings += [spelling._replace(modifiers=spelling.modifiers | {token}) for token in family.defaults]
            spellings += [each._replace(modifiers=each.modifiers - {token}) for each in spellings for token in family.optional]
            for each in spellings:
                if each in table:
                    raise ValueError(f"two rows describe {ins.opcode}")
                table[each] = ins
    return table


@cache
def _all() -> tuple[Instruction | Movement, ...]:
    return tuple(dict.fromkeys(_table().values()))


def instructions(target: str | None = None, *, op: str | None = None) -> tuple[Instruction | Movement, ...]:
    """Every instruction, or those that are legal on a target.

    Parameters
    ----------
    target : str, optional
        For example ``"sm_90a"``.
    op : str, optional
        ``"mma"``, ``"wmma"`` or ``"wgmma"`` (`Instruction`); ``"ldmatrix"``, ``"stmatrix"``, ``"movmatrix"``, ``"wmma.load"`` or
        ``"wmma.store"`` (`Movement`).

    Raises
    ------
    TargetError
        If ptxas knows no such target.

    Examples
    --------
    >>> len(instructions("sm_75", op="mma"))
    31
    """
    if target is not None:
        architecture(target)
    return tuple(ins for ins in _all() if (target is None or target in ins.targets) and (op is None or ins.op == op))


def instruction(text: str | Instruction | Movement) -> Instruction | Movement:
    """The instruction that an opcode names, in any spelling that ptxas takes.

    Parameters
    ----------
    text : str
        For example ``"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"``. White space around it and a final semicolon are ignored.

    Raises
    ------
    InstructionError
        If there is no such opcode: the message says what is wrong with it and names the two nearest ones.

    Examples
    --------
    >>> ins = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> ins.m, ins.n, ins.k, ins.atype, ins.operands["a"].registers
    (16, 8, 16, 'f16', 4)
    """
    if isinstance(text, Instruction | Movement):
        return text
    if not isinstance(text, str):
        raise InstructionError(f"an opcode must be a string, not {type(text).__name__}")
    stripped = text.strip().removesuffix(";").strip()
    found = _table().get(_spelling(stripped))
    if found is None:
        raise InstructionError(_explain(stripped))
    return found


def multiply(text: str | Instruction) -> Instruction:
    """As `instruction`, for opcodes that multiply matrices.

    Raises
    ------
    InstructionError
        Also if the opcode only moves them.
    """
    found = instruction(text)
    if isinstance(found, Movement):
        raise InstructionError(f"{found}: the instruction moves matrices and multiplies nothing")
    return found


def movement(text: str | Movement, op: str) -> Movement:
    """As `instruction`, for opcodes that move matrices.

    Raises
    ------
    InstructionError
        Also if the opcode is not of the kind `op`.
    """
    found = instruction(text)
    if not isinstance(found, Movement) or found.op != op:
        raise InstructionError(f"{found}: the instruction is no {op}")
    return found


@cache
def multiplications(target: str | None = None) -> tuple[Instruction, ...]:
    """The instructions that multiply matrices, all or those legal on a target."""
    return tuple(ins for ins in instructions(target) if isinstance(ins, Instruction))


def _nearest(text: str, count: int = 2) -> list[str]:
    """The legal opcodes whose tokens match best; ties go to the closest text."""
    tokens = set(text.split("."))
    op = text.split(".")[0]
    opcodes = [ins.opcode for ins in _all() if ins.opcode.split(".")[0] == op] or [ins.opcode for ins in _all()]
    different = {opcode: len(tokens.symmetric_difference(opcode.split("."))) for opcode in opcodes}
    most = sorted(different.values())[:count][-1]
    close = [opcode for opcode in opcodes if different[opcode] <= most]  # comparing texts is slow
    return sorted(close, key=lambda opcode: (different[opcode], -SequenceMatcher(None, text[:300], opcode).ratio()))[:count]


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else text[:300] + "..."


def _unknown(label: str, tokens: Iterable[str], known: set[str]) -> list[str]:
    return [f"{label} .{token}" for token in dict.fromkeys(tokens) if token not in known]


def _explain(text: str) -> str:
    """What is illegal about an opcode, for the error message."""
    wanted = _spelling(text)
    legal = list(_table())
    same_op = [each for each in legal if each.op == wanted.op]
    if not same_op:
        reason = f"there is no instruction {wanted.op or '(empty)'!r}; there are {', '.join(sorted({each.op for each in legal}))}"
    else:
        known = {token for each in same_op for token in each.modifiers}
        unknown = _unknown("there is no", wanted.modifiers, known)
        shape = next((token for token in sorted(wanted.modifiers) if _SHAPE.fullmatch(token)), None)
        same_shape = [each for each in same_op if shape in each.modifiers]
        same_types = [each for each in same_op if each.types == wanted.types]
        both = [each for each in same_shape if each.types == wanted.types]
        if unknown:
            reason = ", ".join(unknown)
        elif wanted.repeated:
            reason = f".{wanted.repeated[0]} is written twice"
        elif shape is None:
            reason = "the shape is missing"
        elif not same_types:
            reason = f"the types .{'.'.join(wanted.types)} do not go together" if wanted.types else "the types are missing"
        elif not both:
            reason = f"{shape} does not take the types .{'.'.join(wanted.types)}"
        elif all(each.layouts != wanted.layouts for each in both):
            reason = f"{shape} with these types needs the layouts " + " or ".join(
                sorted({"." + ".".join(each.layouts) if each.layouts else "(none)" for each in both})
            )
        elif all(each.operations != wanted.operations for each in both):
            allowed = sorted({"." + ".".join(each.operations) if each.operations else "no operation" for each in both})
            written = ", not ." + ".".join(wanted.operations) if wanted.operations else ""
            reason = f"{shape} with these types needs {' or '.join(allowed)}{written}"
        else:
            closest = min(both, key=lambda each: len(each.modifiers ^ wanted.modifiers))
            extra = sorted("." + token for token in wanted.modifiers - closest.modifiers)
            missing = sorted("." + token for token in closest.modifiers - wanted.modifiers)
            reason = "; ".join(
                part
                for part in (f"{', '.join(extra)} is not allowed here" * bool(extra), f"{', '.join(missing)} is missing" * bool(missing))
                if part
            )
    nearest = " and ".join(_nearest(text))
    return f"{_shortened(text)!r} is no legal opcode: {_shortened(reason)}. The nearest are {nearest}"
