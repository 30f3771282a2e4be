"""A plan: the computation of a call as a value without arrays, which prints, can be changed, and can be passed back."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from fastmma.backends.call import Operation
from fastmma.backends.resolve import operation_of
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.lookup import check_strict


@dataclass(frozen=True)
class Plan:
    """An instruction as a target computes it, which every plan is about; how it is used is up to the plans derived from this one.

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
    """

    target: str
    instruction: str
    arithmetic: Arithmetic | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", self.operation.target)
        if not isinstance(self.instruction, str):
            object.__setattr__(self, "instruction", self.operation.instruction.opcode)

    @cached_property
    def operation(self) -> Operation:
        """The instruction as the target, or `arithmetic`, computes it."""
        return operation_of(self.instruction, self.target, self.arithmetic)

    def recheck(self) -> None:
        """Ask for strict mode again: it may have been set since the plan was made.

        Raises
        ------
        TargetError
            If strict mode refuses the plan.
        """
        check_strict(self.operation.instruction, self.target, self.operation.arithmetic)

    def _operands(self) -> str:
        """Return what is multiplied, for the first line."""
        ins = self.operation.instruction
        return f"{ins.atype} x {ins.btype}"

    def _details(self) -> list[tuple[str, str]]:
        """Names and texts of the other lines; those without text are left out."""
        own = "" if self.arithmetic is None else "own "
        return [("instruction", self.operation.instruction.opcode), ("arithmetic", f"{own}{self.operation.arithmetic.family}")]

    def __str__(self) -> str:
        return "\n".join([f"{self._operands()} on {self.target}", *(f"  {name:<12} {text}" for name, text in self._details() if text)])
