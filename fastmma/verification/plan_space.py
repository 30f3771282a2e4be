"""The plans that `identify` tries: instructions of some targets, orders of k, and epilogues, as rows of data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fastmma.backends.resolve import operation_of
from fastmma.host.errors import FastmmaError, OperandTypeError
from fastmma.isa.codes import encode
from fastmma.isa.formats import FORMATS, Format, format_of
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiplications
from fastmma.products.choice import default_instruction
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.order import NARROW_JOINS, split
from fastmma.products.steps import OUTPUTS, trimmed

# a target for each kind of tensor cores, the likeliest first
TARGETS = ("sm_90a", "sm_80", "sm_89", "sm_100a", "sm_120a", "sm_75", "sm_70")


@dataclass(frozen=True)
class Orders:
    """Orders of k that are tried together: all combinations of what the fields list.

    Attributes
    ----------
    name : str
    split_k : tuple of int
    line : tuple of int
        Bytes that the length of a part is a multiple of; 0 means the instruction's k.
    first_tile : tuple of int
    promote_every : tuple of int or None
    join : tuple of str
        Of those with a format, that of the result is tried.
    ops : tuple of str
        The instructions they are tried with; empty: all.
    leaves_out : tuple of bool
        Whether equal parts may end before K; such plans are tried where they do.
    """

    name: str
    split_k: tuple[int, ...] = (1,)
    line: tuple[int, ...] = (0,)
    first_tile: tuple[int, ...] = (0,)
    promote_every: tuple[int | None, ...] = (None,)
    join: tuple[str, ...] = ("ascending",)
    ops: tuple[str, ...] = ()
    leaves_out: tuple[bool, ...] = (False,)


_CUTLASS: dict[str, Any] = {"line": (16, 128, 0), "first_tile": (0, 32, 64, 128, 16), "join": ("ascending", *NARROW_JOINS), "ops": ("mma",)}
# from the likeliest to the least likely; a search ends with the first rows of which a plan has every bit
ORDERS: tuple[Orders, ...] = (
    Orders("one part", promote_every=(None, 128)),
    Orders("one part, the remainder after whole tiles first", first_tile=(32, 64, 128, 16), ops=("mma",)),
    Orders("a few equal parts", tuple(range(2, 17)), (128, 0), leaves_out=(False, True)),
    Orders("promotion", promote_every=(16, 32, 64, 256, 512)),
    Orders("a few parts as CUTLASS cuts them", tuple(range(2, 17)), **_CUTLASS),
    Orders("parts added pairwise", (4, 8, 16), (128, 0), join=("pairwise",)),
    Orders("parts promoted within", tuple(range(2, 13)), (128,), promote_every=(128,)),
    Orders("many equal parts", tuple(range(17, 65)), (128, 0, 16), leaves_out=(False, True)),
    Orders("many parts as CUTLASS cuts them", tuple(range(17, 65)), **_CUTLASS),
)
# what libraries do with the sums; steps whose operands a call lacks are left out
EPILOGUES: tuple[tuple[str, ...], ...] = (
    ("alpha", "bias", "round"),
    ("alpha+bias", "round"),
    ("alpha", "round", "bias"),
    ("alpha+c", "bias", "round"),
    ("alpha", "beta*c", "bias", "round"),
    ("alpha+bias", "beta*c", "round"),
    ("alpha", "bias", "c", "round"),
    ("alpha", "round", "c", "bias"),
    ("alpha", "bias", "round", "c"),
)


def multiplied(array: Any, what: str) -> Format:
    """The format in which an operand is multiplied: its own, and for float32 tf32.

    Raises
    ------
    OperandTypeError
    """
    try:
        fmt = format_of(array.dtype)
    except FastmmaError:
        raise OperandTypeError(f"{what} has dtype {array.dtype}, which no instruction multiplies") from None
    return FORMATS["tf32"] if fmt.name == "f32" else fmt


class Family(NamedTuple):
    """Instructions whose sums have the same bits: one on one target for each kind of instruction, and the names of all."""

    members: dict[str, tuple[str, Instruction]]  # target and instruction by op, the likeliest first
    names: tuple[str, ...]

    def member(self, ops: tuple[str, ...]) -> tuple[str, Instruction] | None:
        """The first that is of one of these kinds, if there is one; of any kind where none is named."""
        return next((found for op, found in self.members.items() if not ops or op in ops), None)


def families(a: Format, b: Format, targets: tuple[str, ...]) -> list[Family]:
    """The instructions of some targets that multiply these formats, those of like arithmetic together; the usual ones come first."""
    found: dict[tuple[Any, ...], tuple[dict[str, tuple[str, Instruction]], list[str]]] = {}
    for target in targets:
        try:
            usual = default_instruction(a.name, b.name, None, target)
        except FastmmaError:
            continue
        fitting = [ins for ins in multiplications(target) if _fits(ins, a, b)]
        for ins in sorted({usual, *fitting}, key=lambda each: (each != usual, -each.k, -each.formats.d.bits, each.op)):
            try:
                family = operation_of(ins.opcode, target).arithmetic.family
            except FastmmaError:
                continue
            members, names = found.setdefault((family, ins.k, ins.dtype), ({}, []))
            members.setdefault(ins.op, (target, ins))
            name = f"{ins.op} k{ins.k} on {target}"
            names.extend([] if name in names else [name])
    return [Family(members, tuple(names)) for members, names in found.values()]


def _fits(ins: Instruction, a: Format, b: Format) -> bool:
    plain = not ins.sparse and not ins.scale_vec_size and not ins.satfinite and ins.rounding in ("", "rn")
    return plain and (ins.atype, ins.btype) == (a.name, b.name) and ins.ctype == ins.dtype and (ins.alayout, ins.blayout) == ("row", "col")


def epilogues(ins: Instruction, out: Format, given: set[str]) -> list[tuple[tuple[str, ...], str]]:
    """Steps with the format of the result: none where the result is the accumulator."""
    if out.name == ins.dtype and given <= {"c"}:
        plain: list[tuple[tuple[str, ...], str]] = [((), "")]
        if not given:
            return plain
    else:
        plain = []
    if out.name not in OUTPUTS or ins.dtype not in ("f32", "f16"):
        return plain
    kept = (trimmed(steps, given) for steps in EPILOGUES if given <= {part for step in steps for part in step.replace("*", "+").split("+")})
    return plain + [(steps, out.name) for steps in dict.fromkeys(kept)]


def plans(row: Orders, family: Family, depth: int, ends: tuple[tuple[str, ...], str], cast: bool) -> Iterator[GemmPlan]:
    """The plans of a row that differ for products of so many k."""
    member = family.member(row.ops)
    if member is None:
        return
    target, ins = member
    steps, out = ends
    base = GemmPlan(target, ins.opcode, cast=cast, epilogue=steps, out=out)
    bits = 32 if ins.atype == "tf32" else ins.formats.a.bits
    seen: set[Any] = set()
    orders = product(row.split_k, row.line, row.first_tile, row.promote_every, row.join, row.leaves_out)
    for parts, line, tile, every, join, leaves_out in orders:
        unit = line * 8 // bits if line else ins.k
        cuts = split(depth, parts, unit, leaves_out=leaves_out)
        left = tuple((stop - start) % tile if tile and tile < stop - start else 0 for start, stop in cuts)
        narrow = out if join in NARROW_JOINS else ""
        if (parts > 1) != (len(cuts) > 1) or (tile and not any(lost % ins.k for lost in left)) or (every or 0) >= depth:
            continue
        if (join in NARROW_JOINS) != (narrow in ("bf16", "f16")) or (cuts, left, every, join) in seen:
            continue
        seen.add((cuts, left, every, join))
        order: dict[str, Any] = {"promote_every": every, "split_k": parts, "split_unit": unit if parts > 1 else 0, "first_tile": tile}
        with suppress(FastmmaError):
            yield replace(base, **order, join=join, join_dtype=narrow, leaves_out=leaves_out)


def is_one(value: Any) -> bool:
    """Tell whether a factor is 1 as f32."""
    return bool(np.asarray(encode(value, FORMATS["f32"])) == 0x3F800000)
