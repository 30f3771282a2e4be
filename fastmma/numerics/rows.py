"""The arithmetic of silicon: one row per (architecture, family of instructions), each with its evidence.

A row is looked up by the architecture (the target without its suffix), the kind of instruction, the multiplicands' formats and the type of
the result. `fastmma.arithmetic` turns it into the exact recipe for one instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from fastmma.isa.formats import FNUZ, FP8, NARROW
from fastmma.isa.targets import AMD
from fastmma.numerics import evidence as known
from fastmma.numerics.arithmetic import ALL_OF_K, NO_FLOOR, Arithmetic
from fastmma.numerics.evidence import Evidence

_M884 = ("m8n8k4",)
_AMPERE_UP = ("sm_80", "sm_86", "sm_89")
_AMPERE_KIN = ("sm_87", "sm_88")
_BLACKWELL_KIN = ("sm_103", "sm_107", "sm_110")
_CONSUMER = ("sm_120", "sm_121")
_LATER = ("sm_100", *_BLACKWELL_KIN, *_CONSUMER)
_ALL = ("sm_75", *_AMPERE_UP, *_AMPERE_KIN, "sm_90", *_LATER)
_16BIT = ("f16", "bf16")
# shapes whose f16 forms are one machine instruction everywhere they are legal
_WMMA = ("m16n16k16", "m8n32k16", "m32n8k16")
_NOT_M884 = ("m16n8k8", "m16n8k16", *_WMMA)
_BOTH = ("mma", "wmma")
_TCGEN05 = ("tcgen05",)
_ONE, _OTHERS = ("cta_group::1",), ("cta_group::2", "ws")


class FusedStep(NamedTuple):
    """The addition of the products of a step by a generation of tensor cores."""

    align_bits: int
    floors: tuple[int, int]  # of emax, with f32 and with f16 output
    keep_bits: int = 23


VOLTA = FusedStep(23, (NO_FLOOR, -19))
AMPERE = FusedStep(24, (-132, -20))
HOPPER = FusedStep(25, (-133, -21))
# the short sums of 8-bit floats
ADA_FP8 = FusedStep(13, (-132, -20), keep_bits=13)
HOPPER_FP8 = FusedStep(13, (-133, -21), keep_bits=13)


def _fused(
    architectures: tuple[str, ...],
    atypes: tuple[str, ...],
    terms: int,
    step: FusedStep,
    evidence: Evidence,
    *,
    ops: tuple[str, ...] = ("mma",),
    split: int = 0,
    shapes: tuple[str, ...] = (),
    sparse: bool = False,
    kinds: tuple[str, ...] = ("", "f8f6f4"),
    forms: tuple[str, ...] = (),
    half: Evidence | None = None,
    native_c: bool = False,
) -> tuple[Arithmetic, Arithmetic]:
    """The rows of a fused step with f32 and with f16 output, whose evidence is `half` where it differs."""
    row = Arithmetic(
        architectures,
        ops,
        atypes,
        ("f32",),
        "fused",
        evidence,
        terms,
        step.align_bits,
        step.floors[0],
        step.keep_bits,
        split=split,
        widened="f16" if split else "",
        sparse=sparse,
        shapes=shapes,
        kinds=kinds,
        forms=forms,
        native_c=native_c,
    )
    half_row = replace(row, dtypes=("f16",), emax_floor=step.floors[1], keep_bits=10, rounding="rn", evidence=half or evidence)
    return row, replace(half_row, native_c=False)


def _tcgen05(
    architectures: tuple[str, ...], forms: tuple[str, ...], sparse: bool, evidence: Evidence, half: Evidence
) -> tuple[Arithmetic, ...]:
    """The rows of tcgen05.mma: 16-bit operands as mma.sync has them on sm_100, all others in one step."""
    found: list[Arithmetic] = []
    for kind, atypes in (("f16", ("f16",)), ("f16", ("bf16",)), ("tf32", ("tf32",)), ("f8f6f4", NARROW)):
        rows = _fused(architectures, atypes, ALL_OF_K, HOPPER, evidence, ops=_TCGEN05, sparse=sparse, kinds=(kind,), forms=forms, half=half)
        found += rows if "f16" in atypes or kind == "f8f6f4" else rows[:1]
    scaled = replace(found[-2], kinds=("mxf8f6f4",))
    fours = replace(scaled, atypes=("e2m1",), method="grouped", terms=4, align_bits=35, emax_floor=-139, group=16)
    fours = replace(fours, kinds=("mxf4", "mxf4nvf4"), depths=(128,) if sparse else (64,))
    integers = Arithmetic(
        architectures, _TCGEN05, ("s8", "u8"), ("s32",), "integer", known.EXACT, sparse=sparse, kinds=("i8",), forms=forms
    )
    return *found, scaled, fours, integers


def _cdna() -> Iterator[Arithmetic]:
    """The rows of AMD's matrix cores: exact sums of CDNA1, trees of CDNA2, two windows of CDNA3, chains of f32 and f64, and integers."""
    mfma, f32, any_bf16 = ("v_mfma",), ("f32",), ("", "1k")
    nearest: dict[str, Any] = {"rounding": "rn", "negative_zero": True}
    for atype, terms in (("f16", 4), ("bf16", 2)):
        yield Arithmetic(("gfx908",), mfma, (atype,), f32, "fused", known.CDNA1, terms, align_rounding="exact", **nearest)
    for atypes, kind, terms in ((("f16",), "", 4), (("bf16",), "", 2), (("bf16",), "1k", 4)):
        yield Arithmetic(("gfx90a",), mfma, atypes, f32, "f32-tree", known.CDNA2, terms, kinds=(kind,))
    windows = Arithmetic(("gfx942",), mfma, _16BIT, f32, "fused", known.CDNA3, 8, 24, NO_FLOOR, c_joins="sum", join_bits=31, **nearest)
    yield replace(windows, kinds=any_bf16)
    yield replace(windows, atypes=("tf32",), terms=4)
    yield replace(windows, atypes=FNUZ, terms=16, c_joins="halves")
    for target, evidence in known.CDNA_CHAINS.items():
        yield Arithmetic((target,), mfma, f32, f32, "f32-fma-from-c", evidence)
        if target != "gfx908":
            yield Arithmetic((target,), mfma, ("f64",), ("f64",), "f64-fma", evidence)
    every, integers = tuple(row.name for row in AMD), ("s8", "u8", "s4", "u4")
    for ops, sparse in ((("v_mfma", "v_wmma"), False), (("v_smfmac", "v_swmmac"), True)):
        yield Arithmetic(every, ops, integers, ("s32",), "integer", known.AMD_INTEGERS, sparse=sparse)


ROWS: tuple[Arithmetic, ...] = (
    # tensor cores, 16- and 32-bit floats
    *_fused(("sm_70",), ("f16",), 4, VOLTA, known.V100, shapes=_M884, native_c=True),
    *_fused(("sm_70",), ("f16",), 4, VOLTA, known.V100, ops=("wmma",), shapes=_WMMA),
    *_fused(("sm_75",), ("f16",), 8, AMPERE, known.TURING, ops=_BOTH, shapes=_NOT_M884),
    *_fused(("sm_75",), ("f16",), 4, VOLTA, known.TURING, shapes=_M884, native_c=True),
    *_fused(_AMPERE_UP, _16BIT, 8, AMPERE, known.AMPERE, ops=_BOTH, shapes=_NOT_M884),
    *_fused(_AMPERE_UP, ("tf32",), 4, AMPERE, known.AMPERE, ops=_BOTH),
    *_fused(_AMPERE_KIN, _16BIT, 8, AMPERE, known.LIKE_AMPERE, ops=_BOTH, shapes=_NOT_M884),
    *_fused(_AMPERE_KIN, ("tf32",), 4, AMPERE, known.LIKE_AMPERE, ops=_BOTH),
    *_fused(("sm_90",), _16BIT, ALL_OF_K, HOPPER, known.H200, ops=_BOTH, shapes=_NOT_M884),
    *_fused(("sm_90",), ("tf32",), 4, HOPPER, known.H200, ops=("wmma",)),
    *_fused(("sm_90",), ("tf32",), ALL_OF_K, HOPPER, known.H200),
    *_fused(("sm_90",), (*_16BIT, "tf32"), ALL_OF_K, HOPPER, known.H200, ops=("wgmma",)),
    *_fused(("sm_100",), _16BIT, ALL_OF_K, HOPPER, known.B200, ops=_BOTH, shapes=_NOT_M884),
    *_fused(("sm_100",), ("tf32",), ALL_OF_K, HOPPER, known.B200),
    *_fused(("sm_100",), ("tf32",), 4, HOPPER, known.B200, ops=("wmma",)),
    *_fused(_BLACKWELL_KIN, _16BIT, ALL_OF_K, HOPPER, known.LIKE_B200, ops=_BOTH, shapes=_NOT_M884),
    *_fused(_BLACKWELL_KIN, ("tf32",), ALL_OF_K, HOPPER, known.LIKE_B200),
    *_fused((*_BLACKWELL_KIN, *_CONSUMER), ("tf32",), 4, HOPPER, known.LIKE_B200, ops=("wmma",)),
    *_fused(_CONSUMER, _16BIT, ALL_OF_K, HOPPER, known.SM120, ops=_BOTH, shapes=_NOT_M884),
    *_fused(_CONSUMER, ("tf32",), ALL_OF_K, HOPPER, known.SM120),
    # 8-bit floats and narrower
    *_fused(("sm_89",), FP8, 16, ADA_FP8, known.ADA_FP8),
    *_fused(("sm_90",), FP8, ALL_OF_K, HOPPER_FP8, known.H200_FP8, ops=("wgmma",)),
    *_fused(("sm_90",), FP8, ALL_OF_K, HOPPER, known.H200, split=2),
    *_fused(("sm_100",), FP8, ALL_OF_K, HOPPER, known.B200, split=2),
    *_fused(_BLACKWELL_KIN, FP8, ALL_OF_K, HOPPER, known.LIKE_B200, split=2),
    *_fused(_CONSUMER, NARROW, ALL_OF_K, HOPPER, known.SM120),
    # m8n8k4 with f16 has no machine instruction after sm_75
    Arithmetic(("sm_90",), ("mma",), ("f16",), ("f32",), "f32-fma", known.H200, shapes=_M884),
    Arithmetic(("sm_90",), ("mma",), ("f16",), ("f16",), "f32-fma-pairs", known.H200, shapes=_M884),
    Arithmetic((*_AMPERE_UP, *_AMPERE_KIN, *_LATER), ("mma",), ("f16",), ("f32",), "f32-fma", known.LIKE_H200, shapes=_M884),
    Arithmetic((*_AMPERE_UP, *_AMPERE_KIN, *_LATER), ("mma",), ("f16",), ("f16",), "f32-fma-pairs", known.LIKE_H200, shapes=_M884),
    # sparse A
    *_fused((*_AMPERE_UP, *_AMPERE_KIN), _16BIT, 8, AMPERE, known.LIKE_DENSE, sparse=True),
    *_fused((*_AMPERE_UP, *_AMPERE_KIN), ("tf32",), 4, AMPERE, known.LIKE_DENSE, sparse=True),
    *_fused(("sm_90",), (*_16BIT, "tf32"), ALL_OF_K, HOPPER, known.H200, sparse=True),
    *_fused(_LATER, (*_16BIT, "tf32"), ALL_OF_K, HOPPER, known.LIKE_DENSE, sparse=True),
    *_fused(("sm_90",), (*_16BIT, "tf32"), ALL_OF_K, HOPPER, known.H200, ops=("wgmma",), sparse=True),
    *_fused(("sm_90",), FP8, ALL_OF_K, HOPPER_FP8, known.H200_FP8, ops=("wgmma",), sparse=True),
    *_fused(("sm_89",), FP8, 16, ADA_FP8, known.LIKE_DENSE, sparse=True),
    *_fused(("sm_90",), FP8, ALL_OF_K, HOPPER, known.H200, split=4, sparse=True),
    *_fused(("sm_100", *_BLACKWELL_KIN), FP8, ALL_OF_K, HOPPER, known.LIKE_DENSE, split=4, sparse=True),
    *_fused(_CONSUMER, NARROW, ALL_OF_K, HOPPER, known.LIKE_DENSE, sparse=True),
    # block scaling
    Arithmetic(_CONSUMER, ("mma",), NARROW, ("f32",), "fused", known.SM120, ALL_OF_K, 25, -133, kinds=("mxf8f6f4",)),
    Arithmetic(_CONSUMER, ("mma",), ("e2m1",), ("f32",), "grouped", known.SM120_GROUPS, 4, 35, -139, group=16, kinds=("mxf4", "mxf4nvf4")),
    Arithmetic(_CONSUMER, ("mma",), NARROW, ("f32",), "fused", known.LIKE_DENSE, ALL_OF_K, 25, -133, sparse=True, kinds=("mxf8f6f4",)),
    Arithmetic(
        _CONSUMER,
        ("mma",),
        ("e2m1",),
        ("f32",),
        "grouped",
        known.LIKE_DENSE,
        4,
        35,
        -139,
        group=16,
        sparse=True,
        kinds=("mxf4", "mxf4nvf4"),
    ),
    # tcgen05
    *_tcgen05(("sm_100",), _ONE, False, known.TCGEN05, known.TCGEN05_F16),
    *_tcgen05(("sm_100",), _ONE, True, known.TCGEN05_FORMS, known.TCGEN05_ASSUMED),
    *(row for sparse in (False, True) for row in _tcgen05(("sm_100",), _OTHERS, sparse, known.TCGEN05_FORMS, known.TCGEN05_ASSUMED)),
    *(row for sparse in (False, True) for row in _tcgen05(_BLACKWELL_KIN, (), sparse, known.LIKE_TCGEN05, known.TCGEN05_ASSUMED)),
    Arithmetic(
        ("sm_103",),
        _TCGEN05,
        ("e2m1",),
        ("f32",),
        "grouped",
        known.TCGEN05_K96,
        6,
        35,
        -139,
        group=16,
        kinds=("mxf4", "mxf4nvf4"),
        depths=(96,),
    ),
    *_cdna(),
    # f64
    Arithmetic(("sm_90",), _BOTH, ("f64",), ("f64",), "f64-fma", known.H200),
    Arithmetic((*_AMPERE_UP, *_AMPERE_KIN, *_LATER), _BOTH, ("f64",), ("f64",), "f64-fma", known.IEEE),
    # off the tensor cores
    Arithmetic(("sm_70", *_ALL), ("fma",), ("f32",), ("f32",), "f32-fma-from-c", known.FMA),
    # exact integers
    Arithmetic(_ALL, ("mma", "wmma", "wgmma"), ("s8", "u8"), ("s32",), "integer", known.EXACT),
    Arithmetic(_ALL, _BOTH, ("s4", "u4"), ("s32",), "integer", known.EXACT),
    Arithmetic(_ALL, ("mma", "wgmma"), ("s8", "u8", "s4", "u4"), ("s32",), "integer", known.EXACT, sparse=True),
    Arithmetic(_ALL, ("mma", "wmma", "wgmma"), ("b1",), ("s32",), "bit", known.EXACT),
)

# the fragments that these architectures have are those of `fastmma.isa.fragments.wmma_layouts`
WMMA_FRAGMENTS = {
    "sm_90": known.FRAGMENTS,
    **dict.fromkeys((*_AMPERE_UP, *_AMPERE_KIN, *_LATER), known.SAME_FRAGMENTS),
}
