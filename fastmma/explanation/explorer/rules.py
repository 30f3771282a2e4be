"""Describe instructions for the adder of the pages: the numbers of an arithmetic, and the formats of operands."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from fastmma.host.errors import TargetError
from fastmma.isa.formats import FORMATS, Format
from fastmma.isa.instruction import Instruction
from fastmma.isa.targets import ARCHITECTURES
from fastmma.numerics.arithmetic import CANONICAL_NAN, Arithmetic
from fastmma.numerics.lookup import arithmetic
from fastmma.numerics.methods import METHODS, STEP_FIELDS
from fastmma.products.choice import usual_instruction

_READ = ("name", "kind", "bits", "exponent_bits", "mantissa_bits", "bias", "padding", "signed", "first_special", "has_zero")


def rule_of(ins: Instruction, arithmetic: Arithmetic) -> dict[str, Any]:
    """Return the rule by which an instruction sums.

    Examples
    --------
    >>> from fastmma import arithmetic, instruction
    >>> ins = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> found = rule_of(ins, arithmetic(ins, "sm_90a"))
    >>> found["sum"], found["terms"], found["align_bits"]
    ('steps', 16, 25)
    """
    method = METHODS[arithmetic.method]
    formats = {"a": ins.atype, "b": ins.btype, "c": ins.ctype, "d": ins.dtype, "scale": ins.stype, "sums": ins.formats.sums.name}
    others = {"bit_op": ins.bit_op, "saturates": bool(ins.satfinite), "rounding_of_fma": ins.rounding or "rn"}
    chain = None if method.chain is None else method.chain._asdict()
    numbers = {name: getattr(arithmetic, name) for name in STEP_FIELDS}
    return {**formats, **others, "sum": method.sums, "by_scales": method.by_scales, "chain": chain, **numbers}


def formats() -> dict[str, dict[str, Any]]:
    """Return the formats that rules name."""
    return {name: _format(fmt) for name, fmt in FORMATS.items()}


def _format(fmt: Format) -> dict[str, Any]:
    read = {name: getattr(fmt, name) for name in _READ}
    exponents = {"emin": fmt.emin, "emax": fmt.emax} if fmt.kind == "float" else {}
    lone = fmt.signed and fmt.kind == "float" and not fmt.has_negative_zero
    nan = fmt.nan if lone else CANONICAL_NAN.get(fmt.name, 0)
    return {**read, **exponents, "infinite": fmt.infinity is not None, "nan_is_negative_zero": lone, "nan": nan}


# one for each kind of tensor cores
_KNOWN_GPUS = ("V100", "T4", "A100", "RTX 3090", "Orin", "L40S", "H100", "B200", "B300", "Thor", "RTX 5090", "GB10")


class Kind(NamedTuple):
    """Products of one type: its name for readers and in addresses, formats of operands, of sums and of scales."""

    title: str
    name: str
    fmt: str
    sums: str
    scale: str = ""


KINDS = (
    Kind("f16", "f16", "f16", "f32"),
    Kind("f16, sums in f16", "f16.f16", "f16", "f16"),
    Kind("bf16", "bf16", "bf16", "f32"),
    Kind("tf32", "tf32", "tf32", "f32"),
    Kind("f64", "f64", "f64", "f64"),
    Kind("e4m3", "e4m3", "e4m3", "f32"),
    Kind("e5m2", "e5m2", "e5m2", "f32"),
    Kind("e3m2", "e3m2", "e3m2", "f32"),
    Kind("e2m3", "e2m3", "e2m3", "f32"),
    Kind("e2m1", "e2m1", "e2m1", "f32"),
    Kind("s8", "s8", "s8", "s32"),
    Kind("MXFP8", "mxfp8", "e4m3", "f32", "ue8m0"),
    Kind("MXFP4", "mxfp4", "e2m1", "f32", "ue8m0"),
    Kind("NVFP4", "nvfp4", "e2m1", "f32", "ue4m3"),
)


VENDORS = ("NVIDIA", "AMD")


def usual_of(kind: Kind, vendors: Collection[str] = VENDORS[:1]) -> dict[str, tuple[Instruction, Arithmetic]]:
    """Return the instruction that libraries take for a kind of products, and what it computes, by target; targets without one are left out.

    Examples
    --------
    >>> [target for target in usual_of(KINDS[5]) if target < "sm_2"]
    ['sm_100a', 'sm_103a', 'sm_107a', 'sm_110a', 'sm_120a', 'sm_121a']
    """
    found = {}
    for row in ARCHITECTURES:
        ins = usual_instruction(kind.fmt, kind.fmt, kind.sums, row.usual, stype=kind.scale) if row.vendor in vendors else None
        if ins is None:
            continue
        try:
            found[row.usual] = ins, arithmetic(ins, row.usual, strict=False)
        except TargetError:  # nothing is known of it
            continue
    return found


def kinds() -> list[dict[str, Any]]:
    """Return what the page of one sum needs of each kind without scales: rules, and which GPU has which."""
    found = []
    for kind in KINDS:
        rules: list[dict[str, Any]] = []
        targets = {}
        for target, (ins, own) in usual_of(kind, VENDORS).items():
            rule = {**rule_of(ins, own), "k": ins.k}
            if rule not in rules:
                rules.append(rule)
            targets[target] = {"rule": rules.index(rule), "instruction": ins.opcode, "arithmetic": own.family, "known": own.evidence.level}
        if not kind.scale:
            found.append({"name": kind.name, "title": kind.title, "rules": rules, "targets": targets})
    return found


def gpus() -> dict[str, str]:
    """Return the names of targets as people say them.

    Examples
    --------
    >>> gpus()["sm_90a"]
    'H100'
    """
    usual = {row.usual: row.gpus[0] if row.vendor == "AMD" and row.gpus else row.usual for row in ARCHITECTURES}
    return usual | {row.usual: name for row in ARCHITECTURES for name in reversed(_KNOWN_GPUS) if name in row.gpus}
