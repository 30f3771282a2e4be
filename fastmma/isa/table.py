"""All instructions: the rows expanded, looked up by text, and the nearest legal opcodes when the text is none."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from fastmma.errors import InstructionError
from fastmma.formats import FORMATS
from fastmma.isa import block_scale, mma, mma_sp, wgmma
from fastmma.isa.family import Family
from fastmma.isa.model import Instruction
from fastmma.isa.targets import architecture

FAMILIES: tuple[Family, ...] = (*mma.FAMILIES, *mma_sp.FAMILIES, *block_scale.FAMILIES, *wgmma.FAMILIES)
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


class _Spelling(NamedTuple):
    """What identifies an opcode: ptxas takes its modifiers in any order, but types and layouts in theirs."""

    op: str
    modifiers: frozenset[str]
    layouts: tuple[str, ...]
    types: tuple[str, ...]


def _spelling(text: str) -> _Spelling:
    op, *tokens = text.replace(".xor.popc", ".xor+popc").replace(".and.popc", ".and+popc").split(".")
    types = tuple(token for token in tokens if token in FORMATS)
    layouts = tuple(token for token in tokens if token in ("row", "col"))
    modifiers = [token for token in tokens if token not in FORMATS and token not in ("row", "col")]
    if len(set(modifiers)) != len(modifiers):
        repeated = next(token for token in modifiers if modifiers.count(token) > 1)
        raise InstructionError(f"{text!r}: .{repeated} is written twice")
    return _Spelling(op, frozenset(modifiers), layouts, types)


def _instruction(family: Family, chosen: dict[str, Any]) -> Instruction:
    matched = _SHAPE.fullmatch(chosen["shape"])
    if matched is None:
        raise ValueError(f"{chosen['shape']!r} is no shape")
    m, n, k = map(int, matched.groups())
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
        ptx=family.ptx,
        heading=family.heading,
        lanes=family.lanes,
        sparse=chosen.get("variant", "sp::ordered_metadata" if ".sp::ordered_metadata." in chosen["opcode"] else ""),
        scale_vec_size=family.scale_vec_size,
        stype=types[4] if len(types) > 4 else "",
    )


@cache
def _table() -> dict[_Spelling, Instruction]:
    """Every accepted spelling; a default that may be written has an entry with it and one without."""
    table: dict[_Spelling, Instruction] = {}
    for family in FAMILIES:
        for chosen in family.expand():
            ins = _instruction(family, chosen)
            spelling = _spelling(ins.opcode)
            spellings = [spelling]
            if not chosen.get("rounding"):
                spellings += [spelling._replace(modifiers=spelling.modifiers | {token}) for token in family.defaults]
            for each in spellings:
                if each in table:
                    raise ValueError(f"two rows describe {ins.opcode}")
                table[each] = ins
    return table


@cache
def _all() -> tuple[Instruction, ...]:
    return tuple(dict.fromkeys(_table().values()))


def instructions(target: str | None = None, *, op: str | None = None) -> tuple[Instruction, ...]:
    """Every instruction, or those that are legal on a target.

    Parameters
    ----------
    target : str, optional
        For example ``"sm_90a"``.
    op : str, optional
        ``"mma"`` or ``"wgmma"``.

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


def instruction(text: str | Instruction) -> Instruction:
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
    if isinstance(text, Instruction):
        return text
    if not isinstance(text, str):
        raise InstructionError(f"an opcode must be a string, not {type(text).__name__}")
    stripped = text.strip().removesuffix(";").strip()
    found = _table().get(_spelling(stripped))
    if found is None:
        raise InstructionError(_explain(stripped))
    return found


def multiply(text: str | Instruction) -> Instruction:
    """As `instruction`, for opcodes that multiply matrices."""
    return instruction(text)


def _nearest(text: str, count: int = 2) -> list[str]:
    """The legal opcodes whose tokens match best; ties go to the closest text."""
    tokens = text.split(".")

    def distance(opcode: str) -> tuple[int, float]:
        return len(set(tokens).symmetric_difference(opcode.split("."))), -difflib.SequenceMatcher(None, text[:300], opcode).ratio()

    same_op = [ins.opcode for ins in _all() if ins.opcode.split(".")[0] == tokens[0]]
    return sorted(same_op or [ins.opcode for ins in _all()], key=distance)[:count]


def _unknown(label: str, tokens: Iterable[str], known: set[str]) -> list[str]:
    return [f"{label} .{token}" for token in dict.fromkeys(tokens) if token not in known]


def _explain(text: str) -> str:
    """What is illegal about an opcode, for the error message."""
    shown = text if len(text) <= 200 else text[:200] + "..."
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
            reason = ", ".join(unknown).replace("+", ".")
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
        else:
            closest = min(both, key=lambda each: len(each.modifiers ^ wanted.modifiers))
            extra = sorted("." + token.replace("+", ".") for token in wanted.modifiers - closest.modifiers)
            missing = sorted("." + token.replace("+", ".") for token in closest.modifiers - wanted.modifiers)
            reason = "; ".join(
                part
                for part in (f"{', '.join(extra)} is not allowed here" * bool(extra), f"{', '.join(missing)} is missing" * bool(missing))
                if part
            )
    nearest = " and ".join(_nearest(text))
    return f"{shown!r} is no legal opcode: {reason}. The nearest are {nearest}"
