"""How a plain product is accumulated: a plan that is chosen once for each kind of call, prints, and can be changed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastmma.backends.plan import Plan
from fastmma.backends.resolve import resolved_target
from fastmma.host.arrays import as_array, check_string, flag, integer
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.gpus import TargetName
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.products.choice import UNALIGNED_TILE, accumulator, default_instruction, multiplicand, other_spelling, scale, takes_tcgen05
from fastmma.products.loop import checked_loop
from fastmma.products.presets import gemm_preset

DEFAULT_TARGET = "sm_90a"


@dataclass(frozen=True)
class GemmPlan(Plan):
    """Everything that decides the bits of a plain product.

    Attributes
    ----------
    target : str
        The GPU.
    instruction : str
        The opcode, looped over k in ascending order with D fed back as C.
    arithmetic : Arithmetic, optional
        One of your own in place of the target's; given by name.
    promote_every : int or None
        k between promotions: the tensor core starts at zero again, and its sums join a total, which starts from c, by one IEEE add.
    split_k : int
        Parts of k of equal length, the first from c, added in ascending order by IEEE adds.
    split_unit : int
        What the length of a part is rounded up to a multiple of; 0 means the instruction's k.
    first_tile : int
        Where K, or a part of it, is no multiple of this many k, what is left over comes first, and so its last instruction is a short one.
        0: the last instruction of all is the short one.
    cast : bool
        Whether float16, float32 and float64 multiplicands are rounded to the instruction's formats first, to nearest even.
    source : str
        Whose choices these are, if they are a preset's, unchanged.

    Raises
    ------
    InstructionError, TargetError, OperandError
        If the parts do not go together.

    Examples
    --------
    >>> print(GemmPlan("sm_80", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", split_k=2))
    f16 x f16 on sm_80
      instruction  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
      arithmetic   fused: L = 8, F = 24, emax >= -132, keep 23
      known        recorded: A100, A2, Ada and L40S, 5,000 dot products a format
      k order      ascending by 16, D fed back as C
      promotion    none
      split-k      2 parts, rounded up to 16 k, added in ascending order, f32
      result       f32
    """

    promote_every: int | None = None
    split_k: int = 1
    split_unit: int = 0
    first_tile: int = 0
    cast: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        every, parts = checked_loop(self.operation.instruction, self.promote_every, self.split_k)
        unit, tile = integer(self.split_unit, "split_unit", 0), integer(self.first_tile, "first_tile", 0)
        plain = {"promote_every": every, "split_k": parts, "split_unit": unit, "first_tile": tile, "cast": flag(self.cast, "cast")}
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        ins = self.operation.instruction
        if tile and (tile % ins.k or ins.sparse or ins.scale_vec_size or every is not None):
            form = "without promotion, for dense operands without scales"
            raise OperandError(f"{ins}: first_tile must be 0 or, {form}, a multiple of the instruction's k, {ins.k}, not {tile}")
        check_string(self.source, "source")

    @property
    def unit(self) -> int:
        """What the length of a part of split-k is a multiple of."""
        return self.split_unit or self.operation.instruction.k

    def _details(self) -> list[tuple[str, str]]:
        ins = self.operation.instruction
        opcode, arithmetic = super()._details()
        promotion = f"every {self.promote_every} k: total + partial, {ins.dtype}, from c"
        first = f", what is left over of tiles of {self.first_tile} k first" if self.first_tile else ""
        split = f"{self.split_k} parts, rounded up to {self.unit} k, added in ascending order, {ins.dtype}"
        return [
            opcode,
            ("operands", f"rounded to {ins.atype} and {ins.btype} first, to nearest even" if self.cast else ""),
            arithmetic,
            ("known", str(self.operation.arithmetic.evidence)),
            ("elsewhere", "" if self.arithmetic is not None else other_spelling(ins, self.target)),
            ("k order", f"ascending by {ins.k}, D fed back as C{first}"),
            ("promotion", "none" if self.promote_every is None else promotion),
            ("split-k", "none" if self.split_k == 1 else split),
            ("result", ins.dtype),
            ("as", self.source),
        ]


class Signature(NamedTuple):
    """What the choice of an instruction depends on: the dtypes of operands, None where nothing is given."""

    a: np.dtype[Any]
    b: np.dtype[Any]
    accumulated: np.dtype[Any] | None
    scales: np.dtype[Any] | None
    sparse: bool
    aligned: bool  # whether K and N are multiples of 8
    what: str  # the call, for messages


class Choices(NamedTuple):
    """The parameters of a call that its plan follows from."""

    instruction: str | Instruction | None
    target: TargetName
    promote_every: int | None
    split_k: int
    preset: str | None
    cast: bool
    arithmetic: Arithmetic | None


_UNSET = Choices(None, DEFAULT_TARGET, None, 1, None, False, None)
_PLAIN = frozenset({str, int, bool, type(None), Instruction, Arithmetic})  # types whose equal values mean the same choice


def signature(a: Any, b: Any, accumulated: Any, scales: Any, sparse: bool, what: str) -> Signature:
    """The signature of operands; `accumulated` is c or out, and `scales` either of the scales, where they are given.

    Raises
    ------
    OperandTypeError
        If an operand cannot be made an array of numbers.
    """
    return Signature(
        _dtype(a, f"{what}: a"),
        _dtype(b, f"{what}: b"),
        None if accumulated is None else _dtype(accumulated, f"{what}: c or out"),
        None if scales is None else _dtype(scales, f"{what}: a scale"),
        sparse,
        _in_eights(b),
        what,
    )


def _dtype(value: Any, what: str) -> np.dtype[Any]:
    return value.dtype if type(value) is np.ndarray and value.dtype.kind not in "OT" else as_array(value, what).dtype


def _in_eights(b: Any) -> bool:
    """Whether K and N are multiples of 8."""
    for size in getattr(b, "shape", ())[-2:]:  # noqa: SIM110 - a generator takes a part of a small product
        if size % 8:
            return False
    return True


def _usual(operands: Signature, target: str) -> Instruction:
    """The instruction for operands, where none is named."""
    what = operands.what
    a, b = multiplicand(operands.a, f"{what}: a"), multiplicand(operands.b, f"{what}: b")
    d = None if operands.accumulated is None else accumulator(operands.accumulated, f"{what}: c and out")
    scales = None if operands.scales is None else scale(operands.scales, what)
    return default_instruction(
        a.name, b.name, d and d.name, target, sparse=operands.sparse, stype=scales.name if scales else "", aligned=operands.aligned
    )


def _chosen(operands: Signature | None, choices: Choices) -> GemmPlan:
    """The plan of a call. This is where the choices are checked."""
    target, promote_every = resolved_target(choices.target), choices.promote_every
    if choices.instruction is not None:
        ins = multiply(choices.instruction)
    else:
        assert operands is not None
        ins = _usual(operands, target)
    if choices.preset is None:
        alone = choices.instruction is None and promote_every is None and operands is not None and not operands.aligned
        tile = UNALIGNED_TILE if alone and takes_tcgen05(target) and ins.formats.a.bits == 16 and not ins.sparse else 0
        own = choices.arithmetic
        return GemmPlan(target, ins.opcode, promote_every, choices.split_k, first_tile=tile, cast=choices.cast, arithmetic=own)
    if choices.arithmetic is not None:
        raise OperandError(f"preset {choices.preset!r} is what a GPU computes; leave out the preset or arithmetic")
    row = gemm_preset(choices.preset, ins, target)
    if promote_every is not None and integer(promote_every, "promote_every", 1) != row.promote_every:
        raise OperandError(f"preset {choices.preset!r} sets promote_every to {row.promote_every}; leave it out")
    cast = flag(choices.cast, "cast") or row.cast
    return GemmPlan(target, ins.opcode, row.promote_every, choices.split_k, row.split_unit, 0, cast, f"{choices.preset}: {row.source}")


@lru_cache(4096, typed=True)
def _remembered(operands: Signature | None, *choices: Any) -> GemmPlan:
    return _chosen(operands, Choices(*choices))


def choose(choices: Choices, operands: Signature | None) -> GemmPlan:
    """The plan of a call; `operands` may be None where the instruction is given.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        If there is no such plan.
    """
    if _PLAIN.issuperset(map(type, choices)) and choices.target != "native":
        plan = _remembered(operands, *choices)
        plan.recheck()
        return plan
    return _chosen(operands, choices)


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, int | str) and value == default)


def followed(plan: Any, choices: Choices, a: Any, b: Any, accumulated: Any, scales: Any, sparse: bool, what: str) -> GemmPlan:
    """The plan that a call was given, or else the one that its choices and operands lead to (see `signature`).

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        If there is no such plan; if `plan` is not a GemmPlan; or if the call has both a plan and choices.
    """
    if plan is None:
        return choose(choices, None if choices.instruction is not None else signature(a, b, accumulated, scales, sparse, what))
    if not isinstance(plan, GemmPlan):
        raise OperandTypeError(f"{what}: plan must be a GemmPlan, not {type(plan).__name__}; fastmma.gemm_plan makes one")
    given = [name for name, value, default in zip(Choices._fields, choices, _UNSET, strict=True) if not _is_default(value, default)]
    if given and not (given == ["target"] and resolved_target(choices.target) == plan.target):
        raise OperandError(f"{what}: with a plan, {', '.join(given)} must be left out; dataclasses.replace changes a plan")
    plan.recheck()
    return plan


@public_call
def gemm_plan(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    instruction: str | Instruction | None = None,
    target: TargetName = DEFAULT_TARGET,
    metadata: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    promote_every: int | None = None,
    split_k: int = 1,
    preset: str | None = None,
    cast: bool = False,
    arithmetic: Arithmetic | None = None,
    out: Any = None,
) -> GemmPlan:
    """The plan that `fastmma.gemm` and `fastmma.matmul` follow for these arguments.

    Parameters
    ----------
    a, b, c, out, metadata, scale_a, scale_b : array, optional but for a and b
        The operands. Of arrays only the dtypes count, and whether they are given; on a GPU with tcgen05 also whether K and N are
        multiples of 8.
    instruction : str or Instruction, optional
        By default the one that a vendor library would use for these dtypes on the target.
    target : str
        The GPU.
    promote_every : int, optional
        k between promotions.
    split_k : int
        Parts of k.
    preset : str, optional
        Accumulate as a library does, for example ``"cublas"``.
    cast : bool
        Round float16, float32 and float64 inputs to the instruction's formats first.
    arithmetic : Arithmetic, optional
        One of your own in place of the target's: `fastmma.arithmetic` returns that, and `dataclasses.replace` changes it.

    Returns
    -------
    GemmPlan
        It prints; `dataclasses.replace` changes it; ``gemm(a, b, plan=plan)`` follows it.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        All are `fastmma.FastmmaError`.

    Examples
    --------
    >>> from dataclasses import replace
    >>> a = np.ones((4, 64), np.float16)
    >>> plan = gemm_plan(a, a.T, target="sm_80")
    >>> plan.instruction
    'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32'
    >>> replace(plan, split_k=2).split_k
    2
    """
    choices = Choices(instruction, target, promote_every, split_k, preset, cast, arithmetic)
    scales, accumulated = scale_a if scale_a is not None else scale_b, c if c is not None else out
    return followed(None, choices, a, b, accumulated, scales, metadata is not None, "gemm")
