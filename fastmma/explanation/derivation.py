"""The derivation of the bits of one element of a product, as data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from fastmma.backends.call import Operation
from fastmma.backends.plan import Plan
from fastmma.explanation.difference import Difference, first_difference
from fastmma.explanation.steps import Step
from fastmma.host.calls import public_call
from fastmma.host.float_mode import default_floats
from fastmma.isa.codes import decode
from fastmma.isa.formats import FORMATS


@dataclass(frozen=True)
class Derivation:
    """One element of a product, step by step.

    Attributes
    ----------
    plan : Plan
        What decided the bits: a `GemmPlan`, an `AccumulationPlan` or an `MmaPlan`.
    operation : Operation
        The instruction, the target and the arithmetic.
    row, col : int
        The element.
    steps : tuple of Step
        In the order in which they happen.
    code : int
    format : str
        The result: its bits, and how they are read.
    against : Derivation or None
        The explanation that this one is compared with, of the same element by another plan.
    """

    plan: Plan
    operation: Operation = field(repr=False)
    row: int
    col: int
    steps: tuple[Step, ...] = field(repr=False)
    code: int
    format: str
    against: Derivation | None = None

    @property
    @default_floats
    def value(self) -> float | int:
        """The result as a number."""
        found = decode(self.code, FORMATS[self.format])[()]
        return found.item()  # type: ignore[no-any-return]

    @property
    def label(self) -> str:
        """What tells this element from another: the instruction, the target, and the arithmetic if it is not the target's."""
        own = "" if self.plan.arithmetic is None else f", own {self.plan.arithmetic.family}"
        return f"{self.operation.instruction.opcode} on {self.operation.target}{own}"

    @property
    def difference(self) -> Difference | None:
        """Where this and the one it stands against differ first; None where they do not, or there is none."""
        return None if self.against is None else first_difference(self.steps, self.against.steps)

    @public_call
    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, tuples and dicts.

        Exact numbers are pairs, a significand and a power of two; the value is None where it is an infinity or a NaN.
        """
        ins = self.operation.instruction
        found: dict[str, Any] = {
            "instruction": ins.opcode,
            "target": self.operation.target,
            "arithmetic": self.operation.arithmetic.family,
            "formats": {"a": ins.atype, "b": ins.btype, "c": ins.ctype, "scales": ins.stype, "d": ins.dtype},
            "plan": str(self.plan),
            "row": self.row,
            "col": self.col,
            "steps": [asdict(step) for step in self.steps],
            "code": self.code,
            "format": self.format,
            "value": self.value if math.isfinite(self.value) else None,
        }
        if self.against is not None:
            difference = self.difference
            found |= {"against": self.against.to_dict(), "difference": None if difference is None else asdict(difference)}
        return found
