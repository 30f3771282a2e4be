"""Plans that may be a library's: they carry how that is known, until somebody changes them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from fastmma.backends.plan import Plan
from fastmma.host.errors import OperandTypeError
from fastmma.products.evidence import OrderEvidence


@dataclass(frozen=True)
class LibraryPlan(Plan):
    """A plan of a product of any size, with the evidence that a library follows it.

    Attributes
    ----------
    evidence : OrderEvidence, optional
        None where no library is claimed to add so.
    """

    evidence: OrderEvidence | None = field(default=None, kw_only=True)

    @property
    def source(self) -> str:
        """Say whose choices these are; empty where they are no library's."""
        return self.evidence.source if self.evidence else ""

    def _keep_evidence(self) -> None:
        """Bind evidence to the plan that it is about, and drop that of another plan."""
        evidence = self.evidence
        if evidence is None:
            return
        if not isinstance(evidence, OrderEvidence):
            raise OperandTypeError(f"evidence must be an OrderEvidence, not {type(evidence).__name__}")
        choices = self._choices()
        if not evidence.choices:
            object.__setattr__(self, "evidence", replace(evidence, choices=choices))
        elif evidence.choices != choices:
            object.__setattr__(self, "evidence", None)

    def _choices(self) -> tuple[Any, ...]:
        """Gather all fields that decide bits."""
        return tuple(getattr(self, each.name) for each in fields(self) if each.name != "evidence")

    def _library(self) -> str:
        """Say which library adds so, and how that is known, for the last line of a plan."""
        return str(self.evidence or "")
