"""The plan of one instruction on a GPU: it is looked up once, prints, and can be passed back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastmma.backends.call import Operation
from fastmma.backends.plan import Plan
from fastmma.backends.resolve import operation_of, resolved_target
from fastmma.host.calls import named_fields, public_call
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError, TargetError
from fastmma.isa.gpus import TargetName
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply
from fastmma.numerics.arithmetic import Arithmetic


@named_fields
@dataclass(frozen=True)
class MmaPlan(Plan):
    """Everything that decides the bits of one instruction.

    Attributes
    ----------
    target : str
        The GPU.
    instruction : str
        The opcode.
    arithmetic : Arithmetic, optional
        Your own arithmetic instead of the target's; given by name.

    Raises
    ------
    InstructionError, TargetError
        If the opcode or the target is wrong, or what the target computes is not known.
    OperandError, OperandTypeError
        If the instruction cannot be computed by `arithmetic`.

    Examples
    --------
    >>> print(MmaPlan("sm_80", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"))
    f16 x f16 on sm_80
      instruction  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
      arithmetic   fused: L = 8, F = 24, emax >= -132, keep 23
      known        recorded: A100, A2, Ada and L40S, 5,000 dot products a format
      sums         f32, from c in f32
      result       f32
    """

    def _details(self) -> list[tuple[str, str]]:
        ins, known = self.operation.instruction, str(self.operation.arithmetic.evidence)
        return [*super()._details(), ("known", known), ("sums", f"{ins.accumulator}, from c in {ins.ctype}"), ("result", ins.dtype)]


@public_call
def mma_plan(ins: str | Instruction, *, target: TargetName, arithmetic: Arithmetic | None = None) -> MmaPlan:
    """Return the plan that `fastmma.mma`, `fastmma.warp.mma` and `fastmma.warpgroup.mma` follow for an instruction on a target.

    Parameters
    ----------
    ins : str or Instruction
        An opcode that multiplies.
    target : str
        For example ``"sm_90a"``.
    arithmetic : Arithmetic, optional
        Your own arithmetic instead of the target's: `fastmma.arithmetic` returns the target's, and `dataclasses.replace` changes it.

    Returns
    -------
    MmaPlan
        It prints; `dataclasses.replace` changes it; ``mma(None, a, b, c, plan=plan)`` follows it.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError

    Examples
    --------
    >>> from dataclasses import replace
    >>> plan = mma_plan("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", target="sm_80")
    >>> plan.operation.arithmetic.terms, replace(plan, target="sm_90a").operation.arithmetic.terms
    (8, 16)
    """
    operation = operation_of(ins, target, arithmetic)
    return MmaPlan(operation.target, operation.instruction.opcode, arithmetic=arithmetic)


def chosen_operation(ins: Any, target: Any, plan: Any, what: str, usual: str | None = None, own: Any = None) -> Operation:
    """Choose what a call computes: what its plan says, or else its instruction on its target, by default `usual`, or as `own` has it.

    Raises
    ------
    InstructionError, TargetError
        If the opcode or the target is wrong, or what the target computes is not known.
    OperandTypeError, OperandError
        If `plan` is not an MmaPlan, or the call names another instruction or target than the plan.
    """
    if plan is None:
        target = usual if target is None else target
        if target is None:
            raise TargetError(f"unknown target None: {what} needs a target, or plan=")
        return operation_of(ins, target, own)
    if not isinstance(plan, MmaPlan):
        raise OperandTypeError(f"{what}: plan must be an MmaPlan, not {type(plan).__name__}; fastmma.mma_plan makes one")
    plan.recheck()
    if ins is not None and multiply(ins).opcode != plan.instruction:
        raise InstructionError(f"{what}: the plan is for {plan.instruction}, not {multiply(ins)}; dataclasses.replace changes a plan")
    if target is not None and resolved_target(target) != plan.target:
        raise OperandError(f"{what}: the plan is for {plan.target}, not {target}; dataclasses.replace changes a plan")
    if own is not None and own != plan.arithmetic:
        raise OperandError(f"{what}: with a plan, arithmetic must be left out; dataclasses.replace changes a plan")
    return plan.operation
