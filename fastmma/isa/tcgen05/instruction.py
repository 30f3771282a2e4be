"""tcgen05.mma as instructions: an opcode and a descriptor word, or a kind, types and a shape."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product
from typing import Any

from fastmma.host.calls import named_keywords
from fastmma.host.errors import InstructionError
from fastmma.host.integers import flag
from fastmma.isa.gpus import target_named
from fastmma.isa.instruction import Instruction
from fastmma.isa.tcgen05.descriptor import InstructionDescriptor
from fastmma.isa.tcgen05.kinds import K96, KINDS, Kind, columns, rows
from fastmma.isa.tcgen05.syntax import Syntax, parsed
from fastmma.isa.tcgen05.tensor_memory import tensor_memory_layouts

OP = "tcgen05"
HEADING = "Tensor Core 5th Generation Instructions: tcgen05.mma"
_TEXT = re.compile(r"(?P<opcode>tcgen05\.mma\S*?)(?:,?\s+idesc\s*=\s*(?P<word>0[xX][0-9a-fA-F]{1,8}|\d{1,10}))?")


def is_mma(text: str) -> bool:
    """Tell whether a text names a tcgen05.mma."""
    return text.startswith("tcgen05.mma")


def read(text: str, idesc: int | None = None) -> Instruction:
    """The instruction of an opcode and a descriptor word, which may stand behind the opcode as ``idesc=0x08200490``.

    Raises
    ------
    InstructionError
        If the opcode or a field of the descriptor is wrong, or there is no descriptor.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InstructionError(f"{text!r:.300} is no legal opcode: behind tcgen05.mma there may stand idesc= and the descriptor's word")
    written = int(found["word"], 0) if found["word"] else None
    if idesc is not None and written is not None and idesc != written:
        raise InstructionError(f"{text!r:.300} has another descriptor than idesc={idesc!r:.60}")
    word = written if idesc is None else idesc
    syntax = parsed(found["opcode"])
    if word is None:
        raise InstructionError(
            f"{syntax.opcode}: types and shape stand in the instruction descriptor: give idesc=0x..., or use fastmma.tcgen05.instruction"
        )
    descriptor = InstructionDescriptor.decode(syntax.kind.name, word)
    if descriptor.negate_a or descriptor.negate_b:
        raise InstructionError(f"{syntax.opcode}: negate_a and negate_b are for fastmma.tcgen05.mma; here, negate the operand")
    return _instruction(syntax, descriptor)


@lru_cache(4096)
def _instruction(syntax: Syntax, descriptor: InstructionDescriptor) -> Instruction:
    descriptor.check(syntax)
    deep = descriptor.k * (2 if descriptor.sparse else 1)
    word = descriptor.encode()
    size = syntax.scale_vec_size
    only_103 = descriptor.k == K96
    return Instruction(
        opcode=f"{syntax.opcode} idesc={word:#010x}",
        op=OP,
        m=descriptor.m,
        n=descriptor.n,
        k=deep,
        dtype=descriptor.dtype,
        atype=descriptor.atype,
        btype=descriptor.btype,
        ctype=descriptor.dtype,
        alayout="col" if descriptor.transpose_a else "row",
        blayout="row" if descriptor.transpose_b else "col",
        rounding="",
        satfinite=descriptor.saturate,
        bit_op="",
        kind=syntax.kind.name,
        targets=tuple(each for each in syntax.targets if not only_103 or each == "sm_103a"),
        ptx=syntax.ptx,
        heading=HEADING,
        fragments=tensor_memory_layouts,
        lanes=descriptor.m,
        sparse="sp" if descriptor.sparse else "",
        scale_vec_size=size * K96 // 64 if only_103 else size,
        stype=descriptor.stype,
        cta_group=syntax.cta_group,
        ws=syntax.ws,
        idesc=word,
    )


def _vector(kind: str, scale: str | None, block: int | None) -> tuple[str, str]:
    """The scale vector's token and the format of scales that a call asks for."""
    found = KINDS[kind]
    if found.vectors is None or found.stypes is None:
        if scale is not None or block is not None:
            raise InstructionError(f"tcgen05.mma kind::{kind}: there is no block scaling, and so no scale and no block")
        return "", ""
    stype = scale
    if stype is None:
        stype = "ue4m3" if "ue4m3" in found.stypes and block != 32 else "ue8m0"
    if not isinstance(stype, str) or stype not in found.stypes:
        raise InstructionError(f"tcgen05.mma kind::{kind}: scale must be {' or '.join(found.stypes)}, not {scale!r:.60}")
    sizes = {64 // size if found.k == 64 else 32: size for size in found.stypes[stype]}
    length = max(sizes) if block is None else block
    if isinstance(length, bool) or length not in sizes:
        shown = " or ".join(map(str, sizes))
        raise InstructionError(f"tcgen05.mma kind::{kind} with {stype} scales: block must be {shown}, not {block!r:.60}")
    return f"block{length}", stype


@named_keywords
def tcgen05_instruction(
    kind: str,
    d: str,
    a: str,
    b: str,
    *,
    m: int = 128,
    n: int = 256,
    cta_group: int = 1,
    sparse: bool = False,
    ws: bool = False,
    scale: str | None = None,
    block: int | None = None,
    saturate: bool = False,
    k: int | None = None,
) -> Instruction:
    """Return the tcgen05.mma of a kind, element types and a shape.

    Parameters
    ----------
    kind : str
        ``"f16"``, ``"tf32"``, ``"f8f6f4"``, ``"i8"``, ``"mxf8f6f4"``, ``"mxf4"`` or ``"mxf4nvf4"``.
    d, a, b : str
        PTX names of the formats.
    m, n : int
    cta_group : int
        1, or 2 for a pair of CTAs.
    sparse : bool
        Whether A is stored without its zeros.
    ws : bool
        Weight stationary (``.ws``).
    scale : str, optional
        The format of scales: ``"ue8m0"`` or ``"ue4m3"``.
    block : int, optional
        Elements of k that share a scale where A is dense: 16 or 32.
    saturate : bool
        Only for i8: whether the result is clamped instead of wrapped.
    k : int, optional
        96 for mxf4 and mxf4nvf4 on sm_103a; otherwise a kind has only one K.

    Returns
    -------
    Instruction

    Raises
    ------
    InstructionError
        If there is no such instruction; the message says why.

    Examples
    --------
    >>> ins = tcgen05_instruction("mxf4nvf4", "f32", "e2m1", "e2m1")
    >>> print(ins)
    tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 idesc=0x08400480
    >>> ins.shape, ins.stype, ins.scale_vec_size
    ('m128n256k64', 'ue4m3', 4)
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise InstructionError(f"tcgen05.mma: there is no kind {kind!r:.60}; there are {', '.join(KINDS)}")
    if isinstance(cta_group, bool) or cta_group not in (1, 2):
        raise InstructionError(f"tcgen05.mma kind::{kind}: cta_group must be 1 or 2, not {cta_group!r:.60}")
    vector, stype = _vector(kind, scale, block)
    given: dict[str, Any] = {"sparse": flag(sparse, "sparse"), "saturate": flag(saturate, "saturate"), "stype": stype}
    descriptor = InstructionDescriptor(kind, d, a, b, m, n, KINDS[kind].k if k is None else k, **given)
    head = Syntax(KINDS[kind], int(cta_group), bool(sparse), flag(ws, "ws"), vector)
    return _instruction(parsed(head.opcode), descriptor)


def _scalings(kind: Kind) -> list[tuple[str | None, int | None]]:
    """The formats of scales and the lengths of blocks that a kind has."""
    return [(stype, 64 // size if kind.k == 64 else 32) for stype, sizes in (kind.stypes or {}).items() for size in sizes]


_FORMS = ((1, False), (2, False), (1, True))  # CTAs, and whether it is weight stationary


@named_keywords
@lru_cache(64)
def largest(target: str | None = None, *, every_form: bool = False) -> tuple[Instruction, ...]:
    """List the tcgen05.mma of all kinds and types, dense and sparse, in the largest shape. Given a target, list those legal on it.

    Parameters
    ----------
    target : str, optional
        For example ``"sm_100a"``.
    every_form : bool
        Also list those on two CTAs, weight-stationary ones, and those with K of 96. By default only those on one CTA.
    """
    if target is not None:
        target = target_named(target)
    found = []
    forms = _FORMS if every_form else _FORMS[:1]
    for kind in KINDS.values():
        types = [(d, a, b) for d in kind.dtypes for a in kind.codes for b in kind.codes if not kind.same or a == b]
        scalings = [(None, None)] if kind.stypes is None else _scalings(kind)
        for (cta_group, ws), (d, a, b), sparse, (stype, block) in product(forms, types, (False, True), scalings):
            if (kind.name, d, a) == ("f16", "f16", "bf16") or (ws and kind.vectors is not None):
                continue
            m, n = (choices(kind, cta_group, ws, sparse, kind.k)[-1] for choices in (rows, columns))
            form: dict[str, Any] = {"m": m, "n": n, "cta_group": cta_group, "sparse": sparse, "ws": ws, "scale": stype, "block": block}
            found.append(tcgen05_instruction(kind.name, d, a, b, **form))
            if every_form and kind.layout == "mx4" and not sparse:
                found.append(tcgen05_instruction(kind.name, d, a, b, **form, k=K96))
    return tuple(ins for ins in found if target is None or target in ins.targets)
