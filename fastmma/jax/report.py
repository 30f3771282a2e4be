"""The report of the operations of a JAX program."""

from __future__ import annotations

import jax

from fastmma.products.report import Line
from fastmma.products.report import Report as AnyReport

__all__ = ["Line", "Report", "find_current", "set_current"]


class Report(AnyReport):
    """A report of operations. It counts products of fastmma each time they run, and all others each time they are compiled.

    JAX returns from a call before it has run; ``jax.block_until_ready`` waits until it has run and is counted.

    Attributes
    ----------
    target : str
    emulated, assumed, passed, neutral, unseen : int
        How many calls have each status.

    Examples
    --------
    >>> report = Report("sm_90a")
    >>> report.count(Line("exp", "passed", "float32 (8,)", "a GPU approximates it in another way"), "model.py:12")
    >>> print(report)
    emulated on sm_90a: 0 calls emulated, 0 assumed, 1 passed
      passed        1  exp  float32 (8,): a GPU approximates it in another way  (model.py:12)
    """

    def clear(self) -> None:
        """Forget everything, compiled programs too, so that calls that run again count again."""
        jax.clear_caches()
        super().clear()


_current: list[Report] = []


def find_current() -> Report | None:
    """Find the report of the innermost emulation, or None."""
    return next(iter(_current), None)


def set_current(report: Report | None) -> None:
    """Say which report is that of the innermost emulation."""
    _current[:] = [] if report is None else [report]
