"""An arithmetic of a caller's own: whether an instruction can be computed by it, and how it differs from a GPU's."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_args

from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import whole
from fastmma.isa.formats import FORMATS
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.numerics.arithmetic import NO_FLOOR, AlignRounding, Arithmetic, CJoins, Rounding
from fastmma.numerics.evidence import Evidence
from fastmma.numerics.methods import METHODS

MOST_ALIGN_BITS = 1023  # more than any two exponents of terms differ by
HIGHEST_FLOOR = 127  # the largest exponent of an f32 result
_WIDER = "f16"

_KEYS = ("architectures", "ops", "atypes", "dtypes", "evidence", "sparse", "shapes", "kinds", "forms", "depths")
FIELDS = tuple(field.name for field in fields(Arithmetic) if field.name not in (*_KEYS, "method"))
_DEFAULTS = {field.name: field.default for field in fields(Arithmetic)} | {"emax_floor": 0}


def is_plain(given: Any) -> bool:
    """Tell whether all fields are of the types that they should be, so that equal arithmetics are the same."""
    if not isinstance(given, Arithmetic):
        return given is None
    try:
        hash(given)
    except TypeError:
        return False
    return all(type(getattr(given, field)) is type(_DEFAULTS[field]) for field in FIELDS)


class _Check:
    """The fields of an arithmetic for an instruction, each with its bounds."""

    def __init__(self, ins: Instruction, given: Arithmetic) -> None:
        self.ins, self.given = ins, given

    def refuse(self, field: str, bound: str) -> OperandError:
        return OperandError(f"{self.ins}: an arithmetic's {field} must be {bound}, not {getattr(self.given, field)!r}")

    def integer(self, field: str, least: int, most: int, why: str = "") -> int:
        value = whole(getattr(self.given, field))
        if value is None or not least <= value <= most:
            raise self.refuse(field, f"an integer from {least} to {most}{why and ', '}{why}")
        return value

    def name(self, field: str, names: tuple[Any, ...]) -> None:
        if getattr(self.given, field) not in names:
            raise self.refuse(field, f"one of {', '.join(map(repr, names))}")


def own(ins: Instruction, given: Any, target: str, its: Arithmetic | None) -> Arithmetic:
    """An arithmetic that a caller gave in place of that of a target (`its`, where it is known), `terms` filled in.

    Raises
    ------
    OperandTypeError
        If it is no Arithmetic.
    OperandError
        If the instruction cannot be computed by it: the field and its bounds are named.
    """
    if not isinstance(given, Arithmetic):
        raise OperandTypeError(
            f"{ins}: arithmetic must be an Arithmetic, not {type(given).__name__}; fastmma.arithmetic returns one, and "
            "dataclasses.replace changes it"
        )
    fits = [method.name for method in METHODS.values() if method.takes(ins)]
    check = _Check(ins, given)
    for field in ("method", *FIELDS):
        if not isinstance(getattr(given, field), str | int | float) and whole(getattr(given, field)) is None:
            raise check.refuse(field, "a number or a name")
    if given.method not in fits:
        raise check.refuse("method", " or ".join(map(repr, fits)))
    method = METHODS[given.method]
    for field in FIELDS:
        if field not in method.fields and getattr(given, field) != _DEFAULTS[field]:
            raise check.refuse(field, f"{_DEFAULTS[field]!r} where the method is {given.method!r}, which has none")
    found = _steps(ins, given, check) if method.in_steps else given
    return replace(found, evidence=Evidence("own", f"claims no GPU; {_differences(found, target, its)}"))


def _steps(ins: Instruction, given: Arithmetic, check: _Check) -> Arithmetic:
    """One whose terms are aligned and summed in steps."""
    check.name("align_rounding", get_args(AlignRounding))
    check.name("rounding", get_args(Rounding))
    check.name("c_joins", get_args(CJoins))
    for field in ("flush_inputs", "flush_results", "negative_zero"):
        check.name(field, (False, True))
    check.name("widened", ("", _WIDER))
    if given.widened and (ins.stype or not all(FORMATS[_WIDER].holds(fmt) for fmt in ins.formats[:2])):
        raise check.refuse("widened", f"empty, as {ins.atype} and {ins.btype} are not converted to {_WIDER}")
    check.name("native_c", (False,) if ins.ctype == ins.accumulator else (False, True))
    pattern = pattern_of(ins) if ins.sparse else None
    stored, chunk = (pattern.stored, pattern.chunk) if pattern else (1, 1)
    split = check.integer("split", 0, ins.k // 2, "in k")
    if split and (ins.stype or ins.k % (2 * split) or split % chunk):
        raise check.refuse("split", "0" if ins.stype else f"0 or a multiple of {chunk} that divides half of the {ins.k} k")
    products = ins.stored_k // 2 if split else ins.stored_k
    shared = ins.k // ins.scale_vec_size if ins.scale_vec_size else products
    group = check.integer("group", 1, 1 if split else shared, "in products that are not lowered")
    if shared % group or products % group or (group > 1 and group % stored):
        raise check.refuse("group", f"a divisor of {shared}{f' and a multiple of {stored}' if stored > 1 else ''}")
    terms = check.integer("terms", 0, products // group, f"0 meaning all {products // group}") or products // group
    if given.native_c and (split or terms * group != products):
        raise check.refuse("native_c", "False where products are taken in more than one step")
    if terms * group % stored:
        raise check.refuse("terms", f"a multiple of {stored}, as many products as metadata choose at a time")
    interleave = check.integer("interleave", 0, ins.k // 2, "in k")
    steps, rest = divmod(products, terms * group)
    if interleave and (split or ins.stype or rest or ins.k % (interleave * steps) or interleave % chunk):
        many = f" and a multiple of {chunk}" if chunk > 1 else ""
        allowed = not (split or ins.stype or rest)
        raise check.refuse(
            "interleave", f"0 or a divisor of {ins.k // steps}{many}" if allowed else "0 but for whole steps that are not lowered"
        )
    return replace(
        given,
        join_bits=check.integer("join_bits", 0, *((MOST_ALIGN_BITS,) if given.c_joins != "terms" else (0, "0 where c is a term"))),
        terms=terms,
        group=group,
        split=split,
        interleave=interleave,
        align_bits=check.integer("align_bits", 0, MOST_ALIGN_BITS),
        emax_floor=check.integer("emax_floor", NO_FLOOR, HIGHEST_FLOOR),
        keep_bits=check.integer("keep_bits", 0, ins.formats.sums.mantissa_bits, f"the fraction bits of {ins.accumulator}"),
    )


def _differences(found: Arithmetic, target: str, its: Arithmetic | None) -> str:
    """Return what a target has otherwise."""
    if its is None:
        return f"what {target} computes is not known"
    others = [f"{name} {getattr(its, name)}" for name in ("method", *FIELDS) if getattr(its, name) != getattr(found, name)]
    return f"{target} has {', '.join(others)}" if others else f"{target} computes so, too"
