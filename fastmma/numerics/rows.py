"""What the silicon computes: one row per (architecture, family of instructions), each with its evidence.

A row is looked up by the architecture (the target without its suffix), the kind of instruction, the multiplicands' formats and the type of
the result. `arithmetic` turns it into the exact recipe for one instruction.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from fastmma.host.errors import TargetError
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.table import multiply
from fastmma.isa.targets import architecture

Method = Literal["fused", "grouped", "f32-fma", "f32-fma-pairs", "f64-fma", "integer", "bit"]
Level = Literal["measured", "recorded", "reported"]


@dataclass(frozen=True)
class Evidence:
    """How a row is known: measured by us on the GPU named, checked against others' recordings, or only reported."""

    level: Level
    source: str

    def __str__(self) -> str:
        return f"{self.level}: {self.source}"


@dataclass(frozen=True)
class Arithmetic:
    """How one instruction computes.

    Sums are kept in the instruction's `accumulator`: c is converted to it first, and the result to d's format last, to nearest even.

    Attributes
    ----------
    architectures, ops, atypes, dtypes : tuple of str
        The questions that the row answers.
    method : str
        ``"fused"``: fused dot-product-add steps, a product's exponent being that of its factors and of their scales; ``"grouped"``:
        likewise, but the terms are exact sums of `group` products times the significands of their scales, and their exponent is that of
        the scales alone; ``"f32-fma"``: a chain of IEEE f32 fma from zero, then one add of c;
        ``"f32-fma-pairs"``: two such chains of two products, ``(c + first) + second``; ``"f64-fma"``: a chain of IEEE fma from c;
        ``"integer"`` and ``"bit"``: exact.
    terms : int
        Products a step (only stored ones count where A is sparse); 0 means all that the instruction has.
    align_bits : int
        Terms are truncated toward zero to a multiple of ``2 ** (emax - align_bits)``.
    emax_floor : int
        emax is never lower.
    keep_bits : int
        Fraction bits kept of an f32 result.
    split : int
        0: c is a term of the first step. Else the form is lowered: products whose k has ``(k // split) % 2 == 0`` make the first step,
        the others the second; the sum starts at zero, and c is added at the end by one IEEE add.
    group : int
        Products a term.
    widened : str
        The format that multiplicands are converted to (exactly) before they are multiplied, or empty. It decides their exponents: a
        subnormal e4m3 is a normal f16.
    evidence : Evidence
    """

    architectures: tuple[str, ...]
    ops: tuple[str, ...]
    atypes: tuple[str, ...]
    dtypes: tuple[str, ...]
    method: Method
    evidence: Evidence
    terms: int = 0
    align_bits: int = 0
    emax_floor: int = 0
    keep_bits: int = 23
    split: int = 0
    group: int = 1
    widened: str = ""
    sparse: bool = False
    shapes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("", "f8f6f4")

    def answers(self, ins: Instruction, base: str) -> bool:
        """Whether this row is about an instruction on a base architecture."""
        return (
            base in self.architectures
            and ins.op in self.ops
            and ins.atype in self.atypes
            and ins.btype in self.atypes
            and ins.accumulator in self.dtypes
            and ins.kind in self.kinds
            and bool(ins.sparse) == self.sparse
            and (not self.shapes or ins.shape in self.shapes)
        )

    @property
    def family(self) -> str:
        """One line for tables: the method and its parameters."""
        if self.method not in ("fused", "grouped"):
            return self.method
        terms = self.terms or "k"
        lowered = f", lowered in halves of {self.split}" if self.split else ""
        floor = "" if self.emax_floor == _NO_FLOOR else f", emax >= {self.emax_floor}"
        return f"{self.method}: L = {terms}, F = {self.align_bits}{floor}, keep {self.keep_bits}{lowered}"


_NO_FLOOR = -1000
_V100 = Evidence("recorded", "V100, 10,000 dot products")
_AMPERE = Evidence("recorded", "A100, A2, Ada and L40S, 5,000 dot products a format")
_ADA_FP8 = Evidence("recorded", "Ada and L40S, 5,000 dot products a format")
_B200 = Evidence("recorded", "B200, 5,000 dot products a format")
_H200 = Evidence("measured", "H200, registers of every opcode on adversarial inputs")
_TURING = Evidence("reported", "MMA-Sim; no recording of an sm_75 part")
_LIKE_AMPERE = Evidence("reported", "the machine instruction of sm_80 and sm_86; no recording of this part")
_LIKE_B200 = Evidence("reported", "the machine instruction of sm_100; no recording of this part")
_SM120 = Evidence("reported", "MMA-Sim and an independent model of the RTX 5090")
_EXACT = Evidence("measured", "exact by definition; H200, registers of every opcode")
_LIKE_DENSE = Evidence("reported", "as the dense instruction of the target, stored products for products; no recording")
_LIKE_H200 = Evidence("reported", "the instruction sequence that ptxas emits for sm_90, measured on an H200")
_IEEE = Evidence("reported", "IEEE fma, as measured on an H200; NaN bits of other parts are not measured")

_M884 = ("m8n8k4",)
_AMPERE_UP = ("sm_80", "sm_86", "sm_89")
_AMPERE_KIN = ("sm_87", "sm_88")
_BLACKWELL_KIN = ("sm_103", "sm_110")
_CONSUMER = ("sm_120", "sm_121")
_LATER = ("sm_100", *_BLACKWELL_KIN, *_CONSUMER)
_ALL = ("sm_75", *_AMPERE_UP, *_AMPERE_KIN, "sm_90", *_LATER)
_FP8 = ("e4m3", "e5m2")
_NARROW = (*_FP8, "e3m2", "e2m3", "e2m1")
_16BIT = ("f16", "bf16")
# shapes whose f16 forms are one machine instruction everywhere they are legal
_WMMA = ("m16n16k16", "m8n32k16", "m32n8k16")
_NOT_M884 = ("m16n8k8", "m16n8k16", *_WMMA)
_BOTH = ("mma", "wmma")


def _fused(
    architectures: tuple[str, ...],
    atypes: tuple[str, ...],
    terms: int,
    align_bits: int,
    floors: tuple[int, int],
    evidence: Evidence,
    *,
    ops: tuple[str, ...] = ("mma",),
    keep_bits: int = 23,
    split: int = 0,
    shapes: tuple[str, ...] = (),
    sparse: bool = False,
) -> tuple[Arithmetic, Arithmetic]:
    """The rows of a fused step with f32 and with f16 output; `floors` are those of emax, in that order."""
    row = Arithmetic(
        architectures,
        ops,
        atypes,
        ("f32",),
        "fused",
        evidence,
        terms,
        align_bits,
        floors[0],
        keep_bits,
        split=split,
        widened="f16" if split else "",
        sparse=sparse,
        shapes=shapes,
    )
    return row, replace(row, dtypes=("f16",), emax_floor=floors[1], keep_bits=10)


ROWS: tuple[Arithmetic, ...] = (
    # tensor cores, 16- and 32-bit floats
    *_fused(("sm_70",), ("f16",), 4, 23, (_NO_FLOOR, -19), _V100, ops=_BOTH, shapes=(*_M884, *_WMMA)),
    *_fused(("sm_75",), ("f16",), 4, 24, (-132, -20), _TURING, ops=_BOTH),
    *_fused(_AMPERE_UP, _16BIT, 8, 24, (-132, -20), _AMPERE, ops=_BOTH, shapes=_NOT_M884),
    *_fused(_AMPERE_UP, ("tf32",), 4, 24, (-132, -20), _AMPERE, ops=_BOTH),
    *_fused(_AMPERE_KIN, _16BIT, 8, 24, (-132, -20), _LIKE_AMPERE, ops=_BOTH, shapes=_NOT_M884),
    *_fused(_AMPERE_KIN, ("tf32",), 4, 24, (-132, -20), _LIKE_AMPERE, ops=_BOTH),
    *_fused(("sm_90",), _16BIT, 0, 25, (-133, -21), _H200, ops=_BOTH, shapes=_NOT_M884),
    *_fused(("sm_90",), ("tf32",), 4, 25, (-133, -21), _H200, ops=("wmma",)),
    *_fused(("sm_90",), ("tf32",), 0, 25, (-133, -21), _H200),
    *_fused(("sm_90",), (*_16BIT, "tf32"), 0, 25, (-133, -21), _H200, ops=("wgmma",)),
    *_fused(("sm_100",), _16BIT, 0, 25, (-133, -21), _B200, ops=_BOTH, shapes=_NOT_M884),
    *_fused(("sm_100",), ("tf32",), 0, 25, (-133, -21), _B200),
    *_fused(("sm_100",), ("tf32",), 4, 25, (-133, -21), _B200, ops=("wmma",)),
    *_fused(_BLACKWELL_KIN, _16BIT, 0, 25, (-133, -21), _LIKE_B200, ops=_BOTH, shapes=_NOT_M884),
    *_fused(_BLACKWELL_KIN, ("tf32",), 0, 25, (-133, -21), _LIKE_B200),
    *_fused((*_BLACKWELL_KIN, *_CONSUMER), ("tf32",), 4, 25, (-133, -21), _LIKE_B200, ops=("wmma",)),
    *_fused(_CONSUMER, _16BIT, 0, 25, (-133, -21), _SM120, ops=_BOTH, shapes=_NOT_M884),
    *_fused(_CONSUMER, ("tf32",), 0, 25, (-133, -21), _SM120),
    # 8-bit floats and narrower
    *_fused(("sm_89",), _FP8, 16, 13, (-132, -20), _ADA_FP8, keep_bits=13),
    *_fused(("sm_90",), _FP8, 0, 13, (-133, -21), _H200, ops=("wgmma",), keep_bits=13),
    *_fused(("sm_90",), _FP8, 0, 25, (-133, -21), _H200, split=2),
    *_fused(("sm_100",), _FP8, 0, 25, (-133, -21), _B200, split=2),
    *_fused(_BLACKWELL_KIN, _FP8, 0, 25, (-133, -21), _LIKE_B200, split=2),
    *_fused(_CONSUMER, _NARROW, 0, 25, (-133, -21), _SM120),
    # m8n8k4 with f16 has no machine instruction after sm_75
    Arithmetic(("sm_90",), ("mma",), ("f16",), ("f32",), "f32-fma", _H200, shapes=_M884),
    Arithmetic(("sm_90",), ("mma",), ("f16",), ("f16",), "f32-fma-pairs", _H200, shapes=_M884),
    Arithmetic((*_AMPERE_UP, *_AMPERE_KIN, *_LATER), ("mma",), ("f16",), ("f32",), "f32-fma", _LIKE_H200, shapes=_M884),
    Arithmetic((*_AMPERE_UP, *_AMPERE_KIN, *_LATER), ("mma",), ("f16",), ("f16",), "f32-fma-pairs", _LIKE_H200, shapes=_M884),
    # sparse A
    *_fused((*_AMPERE_UP, *_AMPERE_KIN), _16BIT, 8, 24, (-132, -20), _LIKE_DENSE, sparse=True),
    *_fused((*_AMPERE_UP, *_AMPERE_KIN), ("tf32",), 4, 24, (-132, -20), _LIKE_DENSE, sparse=True),
    *_fused(("sm_90",), (*_16BIT, "tf32"), 0, 25, (-133, -21), _H200, sparse=True),
    *_fused(_LATER, (*_16BIT, "tf32"), 0, 25, (-133, -21), _LIKE_DENSE, sparse=True),
    *_fused(("sm_90",), (*_16BIT, "tf32"), 0, 25, (-133, -21), _H200, ops=("wgmma",), sparse=True),
    *_fused(("sm_90",), _FP8, 0, 13, (-133, -21), _H200, ops=("wgmma",), keep_bits=13, sparse=True),
    *_fused(("sm_89",), _FP8, 16, 13, (-132, -20), _LIKE_DENSE, keep_bits=13, sparse=True),
    *_fused(("sm_90",), _FP8, 0, 25, (-133, -21), _H200, split=4, sparse=True),
    *_fused(("sm_100", *_BLACKWELL_KIN), _FP8, 0, 25, (-133, -21), _LIKE_DENSE, split=4, sparse=True),
    *_fused(_CONSUMER, _NARROW, 0, 25, (-133, -21), _LIKE_DENSE, sparse=True),
    # block scaling
    Arithmetic(_CONSUMER, ("mma",), _NARROW, ("f32",), "fused", _SM120, 0, 25, -133, kinds=("mxf8f6f4",)),
    Arithmetic(_CONSUMER, ("mma",), ("e2m1",), ("f32",), "grouped", _SM120, 4, 35, -133, group=16, kinds=("mxf4", "mxf4nvf4")),
    Arithmetic(_CONSUMER, ("mma",), _NARROW, ("f32",), "fused", _LIKE_DENSE, 0, 25, -133, sparse=True, kinds=("mxf8f6f4",)),
    Arithmetic(
        _CONSUMER, ("mma",), ("e2m1",), ("f32",), "grouped", _LIKE_DENSE, 4, 35, -133, group=16, sparse=True, kinds=("mxf4", "mxf4nvf4")
    ),
    # f64
    Arithmetic(("sm_90",), _BOTH, ("f64",), ("f64",), "f64-fma", _H200),
    Arithmetic((*_AMPERE_UP, *_AMPERE_KIN, *_LATER), _BOTH, ("f64",), ("f64",), "f64-fma", _IEEE),
    # exact integers
    Arithmetic(_ALL, ("mma", "wmma", "wgmma"), ("s8", "u8"), ("s32",), "integer", _EXACT),
    Arithmetic(_ALL, _BOTH, ("s4", "u4"), ("s32",), "integer", _EXACT),
    Arithmetic(_ALL, ("mma", "wgmma"), ("s8", "u8", "s4", "u4"), ("s32",), "integer", _EXACT, sparse=True),
    Arithmetic(_ALL, ("mma", "wmma", "wgmma"), ("b1",), ("s32",), "bit", _EXACT),
)


@cache
def _row(ins: Instruction, base: str) -> Arithmetic | None:
    rows = [row for row in ROWS if row.answers(ins, base)]
    if len(rows) > 1:
        raise ValueError(f"two numerics rows answer {ins} on {base}")
    return rows[0] if rows else None


def _strict(strict: bool | None) -> bool:
    return os.environ.get("FASTMMA_STRICT", "") not in ("", "0") if strict is None else strict


def arithmetic(ins: str | Instruction, target: str, *, strict: bool | None = None) -> Arithmetic:
    """How a target computes an instruction, `terms` filled in.

    Parameters
    ----------
    ins : str or Instruction
    target : str
        For example ``"sm_90a"``.
    strict : bool, optional
        Refuse what is only reported; default is whether ``FASTMMA_STRICT`` is set to something other than 0.

    Raises
    ------
    TargetError
        If the target is unknown, does not take the opcode, or has no row; or, when strict, only a reported one.

    Examples
    --------
    >>> arithmetic("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80").align_bits
    24
    """
    ins = multiply(ins)
    base = architecture(target)
    if target not in ins.targets:
        raise TargetError(f"{ins}: illegal on {target}; it needs one of {', '.join(ins.targets)}")
    row = _row(ins, base)
    if row is None:
        raise TargetError(f"{ins}: what {target} computes is not known, so there is nothing to emulate")
    if row.evidence.level == "reported" and _strict(strict):
        raise TargetError(f"{ins}: the arithmetic of {target} is only reported ({row.evidence.source}), which strict mode refuses")
    if row.method != "fused" or row.terms:
        return row
    return replace(row, terms=ins.stored_k // 2 if row.split else ins.stored_k)


def fidelity(ins: str | Instruction, target: str) -> Evidence:
    """How well the arithmetic of an instruction on a target is known.

    Returns
    -------
    Evidence
        ``level`` is ``"measured"`` (on our own GPU), ``"recorded"`` (equals others' recordings) or ``"reported"``; ``source`` says by what.

    Raises
    ------
    TargetError
        As `arithmetic`.

    Examples
    --------
    >>> fidelity("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90a").level
    'measured'
    """
    return arithmetic(ins, target, strict=False).evidence


# PTX leaves the fragments of wmma unspecified; these architectures have those of `fastmma.isa.fragments.wmma_layouts`
_SAME_FRAGMENTS = Evidence("reported", "the fragments of the mma instructions that wmma is made of; not measured on this part")
_WMMA_FRAGMENTS = {
    "sm_90": Evidence("measured", "H200, every load and store, element by element"),
    **dict.fromkeys((*_AMPERE_UP, *_AMPERE_KIN, *_LATER), _SAME_FRAGMENTS),
}


def fragment_evidence(ins: Instruction | Movement, target: str, *, strict: bool | None = None) -> Evidence:
    """How the fragments of a wmma instruction on a target are known.

    Raises
    ------
    TargetError
        If they are not known (sm_70, sm_75), or, when strict, only reported.
    """
    evidence = _WMMA_FRAGMENTS.get(architecture(target))
    if target not in ins.targets:
        raise TargetError(f"{ins}: illegal on {target}; it needs one of {', '.join(ins.targets)}")
    if evidence is None:
        raise TargetError(f"{ins}: PTX leaves the fragments of wmma unspecified, and those of {target} are not known; use matrices")
    if evidence.level == "reported" and _strict(strict):
        raise TargetError(f"{ins}: the fragments of {target} are only reported ({evidence.source}), which strict mode refuses")
    return evidence
