"""How a plain product is accumulated: a plan that is chosen once for each kind of call, prints, and can be changed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastmma.backends.call import Operation
from fastmma.backends.resolve import operation_of, resolved_target
from fastmma.host.arrays import as_array, flag, whole
from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply
from fastmma.products.choice import accumulator, default_instruction, multiplicand, scale
from fastmma.products.presets import gemm_preset

DEFAULT_TARGET = "sm_90a"


@dataclass(frozen=True)
class GemmPlan:
    """Everything that decides the bits of a plain product.

    Attributes
    ----------
    target : str
        The GPU.
    instruction : str
        The opcode, looped over k in ascending order with D fed back as C.
    promote_every : int or None
        k between promotions: the tensor core starts at zero again, and its sums join a total, which starts from c, by one IEEE add.
    split_k : int
        Parts of k of equal length, the first from c, added in ascending order by IEEE adds.
    split_unit : int
        What the length of a part is rounded up to a multiple of; 0 means the instruction's k.
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

    target: str
    instruction: str
    promote_every: int | None = None
    split_k: int = 1
    split_unit: int = 0
    cast: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        ins = self.operation.instruction
        if ins.ctype != ins.dtype:
            raise InstructionError(f"{ins}: D cannot be fed back as C, because their types differ")
        every = _whole(self.promote_every, "promote_every", 1)
        plain: dict[str, Any] = {
            "instruction": self.instruction if isinstance(self.instruction, str) else ins.opcode,
            "promote_every": every,
            "split_k": _split(self.split_k),
            "split_unit": _whole(self.split_unit, "split_unit", 0) or 0,
        }
        for name, value in {**plain, "cast": flag(self.cast, "cast")}.items():
            object.__setattr__(self, name, value)
        if not isinstance(self.source, str):
            raise OperandTypeError(f"source must be a string, not {type(self.source).__name__}")
        if every is not None and every % ins.k:
            raise OperandError(f"promote_every must be a multiple of the instruction's k, {ins.k}, not {every}")

    @cached_property
    def operation(self) -> Operation:
        """The instruction as the target computes it."""
        return operation_of(self.instruction, self.target)

    @property
    def unit(self) -> int:
        """What the length of a part of split-k is a multiple of."""
        return self.split_unit or self.operation.instruction.k

    def __str__(self) -> str:
        ins, arithmetic = self.operation.instruction, self.operation.arithmetic
        promotion = f"every {self.promote_every} k: total + partial, {ins.dtype}, from c"
        split = f"{self.split_k} parts, rounded up to {self.unit} k, added in ascending order, {ins.dtype}"
        lines = [
            ("instruction", ins.opcode),
            ("operands", f"rounded to {ins.atype} and {ins.btype} first, to nearest even" if self.cast else ""),
            ("arithmetic", arithmetic.family),
            ("known", str(arithmetic.evidence)),
            ("k order", f"ascending by {ins.k}, D fed back as C"),
            ("promotion", "none" if self.promote_every is None else promotion),
            ("split-k", "none" if self.split_k == 1 else split),
            ("result", ins.dtype),
            ("as", self.source),
        ]
        return "\n".join([f"{ins.atype} x {ins.btype} on {self.target}", *(f"  {name:<12} {text}" for name, text in lines if text)])


class Signature(NamedTuple):
    """What the choice of an instruction depends on: formats by PTX name, empty where nothing is given."""

    atype: str
    btype: str
    dtype: str
    stype: str
    sparse: bool


class Choices(NamedTuple):
    """The parameters of a call that its plan follows from."""

    instruction: str | Instruction | None
    target: str
    promote_every: int | None
    split_k: int
    preset: str | None
    cast: bool


def _whole(value: Any, name: str, least: int) -> int | None:
    """An integer that fits into 64 bits, or None as it is."""
    found = whole(value)
    if value is not None and (found is None or found < least):
        raise OperandError(f"{name} must be an integer of at least {least}, not {value!r}")
    if found is not None and found >> 63:
        raise OperandError(f"{name} must be below 2**63, not {value!r}")
    return found


def signature(a: Any, b: Any, accumulated: Any, scales: Any, sparse: bool, what: str) -> Signature:
    """The signature of operands; `accumulated` is c or out, and `scales` either of the scales, where they are given.

    Raises
    ------
    OperandTypeError
        If no instruction takes such operands.
    """
    return Signature(
        multiplicand(_dtype(a, f"{what}: a"), f"{what}: a").name,
        multiplicand(_dtype(b, f"{what}: b"), f"{what}: b").name,
        "" if accumulated is None else accumulator(_dtype(accumulated, f"{what}: c"), f"{what}: c and out").name,
        "" if scales is None else scale(_dtype(scales, f"{what}: a scale"), what).name,
        sparse,
    )


def _dtype(value: Any, what: str) -> np.dtype[Any]:
    return value.dtype if type(value) is np.ndarray and value.dtype.kind not in "OT" else as_array(value, what).dtype


def _strict() -> str:
    return os.environ.get("FASTMMA_STRICT", "")


@lru_cache(4096)
def _chosen(operands: Signature | None, choices: Choices, _strict: str) -> GemmPlan:
    """The plan of a call. Strict mode, on which errors depend, is a part of the key."""
    target = choices.target
    if choices.instruction is not None:
        ins = multiply(choices.instruction)
    else:
        assert operands is not None
        dtype, stype = operands.dtype or None, operands.stype
        ins = default_instruction(operands.atype, operands.btype, dtype, target, sparse=operands.sparse, stype=stype)
    if choices.preset is None:
        return GemmPlan(target, ins.opcode, choices.promote_every, choices.split_k, cast=choices.cast)
    row = gemm_preset(choices.preset, ins, target)
    if choices.promote_every not in (None, row.promote_every):
        raise OperandError(f"preset {choices.preset!r} sets promote_every to {row.promote_every}; leave it out")
    cast = choices.cast or row.cast
    return GemmPlan(target, ins.opcode, row.promote_every, choices.split_k, row.split_unit, cast, f"{choices.preset}: {row.source}")


def choose(choices: Choices, operands: Signature | None) -> GemmPlan:
    """The plan of a call; `operands` may be None where the instruction is given.

    Raises
    ------
    InstructionError, TargetError, OperandError
        If there is no such plan.
    """
    if type(choices.instruction) not in (str, Instruction, type(None)):
        raise InstructionError(f"an opcode must be a string, not {type(choices.instruction).__name__}")
    if choices.preset is not None and not isinstance(choices.preset, str):
        raise OperandError(f"there is no preset {choices.preset!r}; a preset is named by a string")
    target, split_k = resolved_target(choices.target), _split(choices.split_k)
    promote_every, cast = _whole(choices.promote_every, "promote_every", 1), flag(choices.cast, "cast")
    return _chosen(operands, Choices(choices.instruction, target, promote_every, split_k, choices.preset, cast), _strict())


def _split(value: Any) -> int:
    found = _whole(value, "split_k", 1)
    if found is None:
        raise OperandError(f"split_k must be an integer of at least 1, not {value!r}")
    return found


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, int | str) and value == default)


def planned(plan: Any, choices: Choices, what: str) -> GemmPlan:
    """A plan that was passed back.

    Raises
    ------
    OperandTypeError, OperandError
        If it is none, or choices are given besides.
    """
    if not isinstance(plan, GemmPlan):
        raise OperandTypeError(f"{what}: plan must be a GemmPlan, not {type(plan).__name__}; fastmma.gemm_plan makes one")
    unset = Choices(None, DEFAULT_TARGET, None, 1, None, False)
    given = [name for name, value, default in zip(Choices._fields, choices, unset, strict=True) if not _is_default(value, default)]
    if given and not (given == ["target"] and choices.target == plan.target):
        raise OperandError(f"{what}: with a plan, {', '.join(given)} must be left out; dataclasses.replace changes a plan")
    operation_of(plan.instruction, plan.target)  # strict mode may have been set since
    return plan


@public_call
def gemm_plan(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    instruction: str | Instruction | None = None,
    target: str = DEFAULT_TARGET,
    metadata: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    promote_every: int | None = None,
    split_k: int = 1,
    preset: str | None = None,
    cast: bool = False,
    out: Any = None,
) -> GemmPlan:
    """The plan that `fastmma.gemm` and `fastmma.matmul` follow for these arguments.

    Parameters
    ----------
    a, b, c, out, instruction, target, metadata, scale_a, scale_b, promote_every, split_k, preset, cast
        As for `fastmma.gemm`. Of the arrays, only the dtypes count.

    Returns
    -------
    GemmPlan
        It prints; `dataclasses.replace` changes it; ``gemm(a, b, plan=plan)`` follows it.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError

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
    chosen = Choices(instruction, target, promote_every, split_k, preset, cast)
    scales = scale_a if scale_a is not None else scale_b
    accumulated = c if c is not None else out
    formats = None if instruction is not None else signature(a, b, accumulated, scales, metadata is not None, "gemm")
    return choose(chosen, formats)
