"""All instructions: the rows expanded, looked up by text, and the nearest opcodes for other text."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from fastmma.host.calls import named_keywords
from fastmma.host.errors import InstructionError
from fastmma.isa.amd import table as amd
from fastmma.isa.gpus import TargetName, target_named
from fastmma.isa.illegal import explain
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.rows import block_scale, mma, mma_sp, wgmma, wmma
from fastmma.isa.rows.family import PART_PTX, Family, sizes
from fastmma.isa.rows.moves import MOVEMENTS
from fastmma.isa.scalar import FMA
from fastmma.isa.short import meant, several
from fastmma.isa.spelling import Spelling, spelling_of
from fastmma.isa.tcgen05 import instruction as tcgen05
from fastmma.isa.tcgen05 import moves as tcgen05_moves

FAMILIES: tuple[Family, ...] = (*mma.FAMILIES, *mma_sp.FAMILIES, *block_scale.FAMILIES, *wmma.FAMILIES, *wgmma.FAMILIES)


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


@lru_cache(256)
def _expanded(number: int) -> tuple[dict[str, Any], ...]:
    """The parts of a family's opcodes."""
    return tuple(FAMILIES[number].expand())


@lru_cache(4096)
def _member(number: int, place: int) -> Instruction:
    """An instruction of a family, made when it is needed: there are some 1,600 in all."""
    return _instruction(FAMILIES[number], _expanded(number)[place])


@lru_cache(1024)
def _members(number: int, types: tuple[str, str] | None = None) -> tuple[Instruction, ...]:
    """List the instructions of a family, all or those of two types of A and B."""
    places = enumerate(_expanded(number))
    return tuple(_member(number, place) for place, chosen in places if types is None or tuple(chosen["types"].split(".")[1:3]) == types)


@lru_cache(256)
def _op(number: int) -> str:
    """Return what all opcodes of a family begin with."""
    return spelling_of(FAMILIES[number].syntax).op


@cache
def _movements() -> tuple[tuple[Spelling, Movement], ...]:
    """List what is no member of a family, with its spelling."""
    return tuple((spelling_of(movement.opcode), movement) for movement in MOVEMENTS)


@lru_cache(64)  # the first word of any text
def _table(op: str | None = None) -> dict[Spelling, Instruction | Movement]:
    """Every accepted spelling, or those that begin with `op`; what may be written or left out (a default, a state space) has an entry
    with it and one without."""
    table: dict[Spelling, Instruction | Movement] = {}
    for spelling, movement in _movements():
        if op not in (None, spelling.op):
            continue
        for space in ("", *movement.spaces):
            each = spelling._replace(modifiers=spelling.modifiers | {space}) if space else spelling
            if each in table:
                raise ValueError(f"two rows describe {movement.opcode}")
            table[each] = movement
    for number, family in enumerate(FAMILIES):
        if op not in (None, _op(number)):
            continue
        for ins in _members(number):
            spelling = spelling_of(ins.opcode)
            spellings = [spelling]
            if ins.rounding not in ins.opcode.split("."):
                spellings += [spelling._replace(modifiers=spelling.modifiers | {token}) for token in family.defaults]
            spellings += [each._replace(modifiers=each.modifiers - {token}) for each in spellings for token in family.optional]
            for each in spellings:
                if each in table:
                    raise ValueError(f"two rows describe {ins.opcode}")
                table[each] = ins
    return table


@cache
def _opcodes() -> tuple[str, ...]:
    return tuple(ins.opcode for ins in _all())


@cache
def _all() -> tuple[Instruction | Movement, ...]:
    return tuple(dict.fromkeys(_table().values()))


@named_keywords
def instructions(target: TargetName | None = None, *, op: str | None = None) -> tuple[Instruction | Movement, ...]:
    """List every instruction of PTX, or all that are legal on a target.

    Parameters
    ----------
    target : str, optional
        For example ``"sm_90a"``, or ``"gfx942"``.
    op : str, optional
        ``"mma"``, ``"wmma"`` or ``"wgmma"`` (`Instruction`); ``"ldmatrix"``, ``"stmatrix"``, ``"movmatrix"``, ``"wmma.load"`` or
        ``"wmma.store"`` (`Movement`). On AMD's targets ``"v_mfma"``, ``"v_smfmac"``, ``"v_wmma"`` or ``"v_swmmac"``.

    Raises
    ------
    TargetError
        If there is no such target.

    Examples
    --------
    >>> len(instructions("sm_75", op="mma"))
    31
    """
    if target is not None:
        target = target_named(target)
    if op is not None and not isinstance(op, str):
        raise InstructionError(f"op must be a string, not {type(op).__name__}")
    known = _all() if target is None else (*_all(), *amd.every())
    return tuple(ins for ins in known if (target is None or target in ins.targets) and (op is None or ins.op == op))


@named_keywords
def instruction(text: str | Instruction | Movement, *, idesc: int | None = None) -> Instruction | Movement:
    """Return the instruction that an opcode names, in any spelling that ptxas takes, or a short one.

    Parameters
    ----------
    text : str
        For example ``"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"``, or ``"v_mfma_f32_32x32x8_f16"``, also spelled as in AMD's
        earlier documents. White space around it and a final semicolon are ignored. A short opcode of PTX leaves out ``.sync.aligned`` and
        whatever else only one instruction has: the layouts, the type of B where it is A's, that of C where it is D's.
    idesc : int, optional
        tcgen05.mma only: the 32-bit instruction descriptor. It may also stand behind the opcode, as ``idesc=0x08200490``.

    Raises
    ------
    InstructionError
        If there is no such opcode: the message says what is wrong with it and names the two nearest ones. If a short opcode can mean
        several, the message lists them, the obvious one first.

    Examples
    --------
    >>> ins = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> ins.m, ins.n, ins.k, ins.atype, ins.operands["a"].registers
    (16, 8, 16, 'f16', 4)
    >>> instruction("mma.m16n8k16.f32.f16") is ins
    True
    """
    if isinstance(text, Instruction | Movement):
        return text
    if not isinstance(text, str):
        raise InstructionError(f"an opcode must be a string, not {type(text).__name__}")
    stripped = text.strip().removesuffix(";").strip()
    if stripped == FMA.opcode:
        return FMA
    if tcgen05.is_mma(stripped):
        return tcgen05.read(stripped, idesc)
    if idesc is not None:
        raise InstructionError(f"{stripped!r:.300}: idesc belongs to tcgen05.mma")
    if amd.is_amd(stripped):
        return amd.read(stripped)
    if tcgen05_moves.is_move(stripped):
        return tcgen05_moves.read(stripped)
    spelling = spelling_of(stripped)
    found = _table(spelling.op).get(spelling)
    return _from_short(stripped) if found is None else found


@lru_cache(1024)
def _from_short(text: str) -> Instruction | Movement:
    """The instruction that a text must mean that is no opcode as it stands.

    Raises
    ------
    InstructionError
        If it means none, or more than one.
    """
    found = meant(text, _table)
    if len(found) > 1:
        raise InstructionError(several(text, found))
    if not found:
        raise InstructionError(explain(text, _table(), _opcodes()))
    return found[0]


def multiply(text: str | Instruction) -> Instruction:
    """The instruction that an opcode names, which must multiply matrices.

    Raises
    ------
    InstructionError
        If there is no such opcode, or it only moves matrices.
    """
    found = instruction(text)
    if isinstance(found, Movement):
        raise InstructionError(f"{found}: the instruction moves matrices and multiplies nothing")
    return found


def movement(text: str | Movement, op: str) -> Movement:
    """The instruction that an opcode names, which must move matrices.

    Raises
    ------
    InstructionError
        If there is no such opcode, it is not of the kind `op`, or what it does is not known.
    """
    found = instruction(text)
    if not isinstance(found, Movement) or found.op != op:
        raise InstructionError(f"{found}: the instruction is no {op}")
    if found.unknown:
        raise InstructionError(f"{found}: {found.unknown}, so there is nothing to emulate")
    return found


@lru_cache(256)
def multiplications(target: str | None = None, types: tuple[str, str] | None = None) -> tuple[Instruction, ...]:
    """The instructions that multiply matrices, all or those legal on a target, of all types or those of A and B."""
    found: list[Instruction] = []
    for number, family in enumerate(FAMILIES):
        of_types = types is None or any(tuple(each.split(".")[1:3]) == types for each in family.types)
        if of_types and (target is None or target in family.targets):
            found += _members(number, types)
    return *(ins for ins in found if target is None or target in ins.targets), *amd.every(target, types)
