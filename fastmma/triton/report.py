"""What an emulated kernel did: the operations that have the GPU's bits, and those that have not, with the reason."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from fastmma.host.errors import NotEmulatedError

Other = Literal["pass", "warn", "error"]


@dataclass
class Report:
    """Counts of what kernels executed under `fastmma.triton.interpret`.

    Attributes
    ----------
    target : str
        The GPU.
    other : {"pass", "warn", "error"}
        What is done with an operation whose bits are not known.
    emulated : Counter
        Operations with the GPU's bits: (operation, how) and how often.
    passed : Counter
        Operations that NumPy computed in its own way: (operation, why) and how often.
    notes : Counter
        What else there is to know, such as a kernel that the compiler refused.
    """

    target: str
    other: Other = "pass"
    emulated: Counter[tuple[str, str]] = field(default_factory=Counter)
    passed: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def did(self, operation: str, how: str) -> None:
        """Count an operation with the GPU's bits."""
        self.emulated[operation, how] += 1

    def passes(self, operation: str, why: str) -> None:
        """Count an operation with NumPy's bits, unless `other` forbids it.

        Raises
        ------
        NotEmulatedError
            If `other` is ``"error"``.
        """
        if self.other == "error":
            raise NotEmulatedError(f"{operation} on {self.target}: {why}")
        if self.other == "warn" and (operation, why) not in self.passed:
            warnings.warn(f"{operation} has NumPy's bits, not those of {self.target}: {why}", stacklevel=2)
        self.passed[operation, why] += 1

    def assert_all_emulated(self) -> None:
        """Raise unless every operation had the GPU's bits.

        Raises
        ------
        NotEmulatedError
            Names the operations that had not.
        """
        if self.passed:
            found = "; ".join(f"{operation} ({count} times): {why}" for (operation, why), count in self.passed.items())
            raise NotEmulatedError(f"not with the bits of {self.target}: {found}")

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain Python values, for JSON."""
        rows = {
            name: [{"operation": operation, key: text, "count": count} for (operation, text), count in counts.items()]
            for name, key, counts in (("emulated", "how", self.emulated), ("passed", "why", self.passed))
        }
        return {"target": self.target, **rows, "notes": dict(self.notes)}

    def __str__(self) -> str:
        lines = [f"Triton on {self.target}"]
        for name, counts in (("emulated", self.emulated), ("passed", self.passed)):
            lines += [f"  {name:<9} {count:>7} {operation}: {text}" for (operation, text), count in sorted(counts.items())]
        return "\n".join([*lines, *(f"  {'note':<9} {count:>7} {text}" for text, count in sorted(self.notes.items()))])
