"""The report of an emulated kernel: the status of every operation, with its line, and notes on what was decided."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, Literal

from fastmma.host.errors import NotEmulatedError
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.report import ASSUMED, EMULATED, LOCK, NEUTRAL, PASSED, UNSEEN, ClosedReport, Line
from fastmma.triton.places import find_line, find_running_line

Other = Literal["pass", "warn", "error"]
_UNKNOWN = (PASSED, UNSEEN)
_TRIED = (ASSUMED, PASSED, UNSEEN)


class Report(ClosedReport):
    """Counts of the operations that kernels execute under `fastmma.triton.interpret`.

    Attributes
    ----------
    target : str
        The GPU.
    other : {"pass", "warn", "error"}
        What to do with an operation whose bits are not known, one that is passed or unseen.
    emulated, assumed, passed, neutral, unseen : Counter
        How often each operation of a status ran, by (operation, how or why).
    notes : Counter
        Other facts, such as a kernel that the compiler refused, or the configuration that an autotuner took.
    plans : Counter
        How often a `tl.dot` added as each plan: `fastmma.same_bits` compares them. A loop whose dots add to one accumulator, each of a
        multiple of the instruction's k, computes the whole product as the plan does. Dots of parts, and with permuted k, have none.

    Examples
    --------
    >>> report = Report("sm_90a")
    >>> report.did("exp2", "ex2.approx.ftz.f32")
    >>> report.emulated["exp2", "ex2.approx.ftz.f32"]
    1
    >>> report.assert_all_emulated()
    >>> report.passes("sin", "code of libdevice")
    >>> report.assert_all_emulated()
    Traceback (most recent call last):
        ...
    fastmma.products.report.NotAllEmulatedError: not emulated:
      passed        1  sin: code of libdevice  (<doctest fastmma.triton.report.Report[4]>:1)
    """

    wants_product = False  # kernels without any are emulated as well

    def __init__(self, target: str, other: Other = "pass") -> None:
        super().__init__(target)
        self.other = other
        self.notes: Counter[str] = Counter()
        self.plans: Counter[GemmPlan] = Counter()
        self.told = 0
        self._is_on_trial = False
        self._warned: set[tuple[str, str]] = set()
        self._new: dict[tuple[str, str, str, int, int], tuple[CodeType, int]] = {}

    def tell(self, status: str, operation: str, text: str) -> None:
        """Count an operation with its status, at the line that runs.

        Raises
        ------
        NotEmulatedError
            If its bits are not known and `other` is ``"error"``.
        """
        frame = find_running_line()
        code = frame.f_code
        if self._is_on_trial and status in _TRIED:
            raise NotEmulatedError(f"{operation}: {text} ({code.co_filename}:{frame.f_lineno})")
        if status in _UNKNOWN and self.other != "pass":
            self._complain(operation, text, code.co_filename, frame.f_lineno, frame.f_globals)
        key = status, operation, text, id(code), frame.f_lasti
        with LOCK:
            new = self._new
            new[key] = code, new[key][1] + 1 if key in new else 1
            self.told += 1

    @contextmanager
    def on_trial(self) -> Iterator[None]:
        """Raise within the ``with`` at an operation that is not known, and then forget all that was counted there."""
        with LOCK:
            kept = dict(self._new), self.told, Counter(self.notes), Counter(self.plans)
        self._is_on_trial = True
        try:
            yield
        except BaseException:
            with LOCK:
                self._new, self.told, notes, self.plans = kept
            self.notes.clear()
            self.notes.update(notes)
            raise
        finally:
            self._is_on_trial = False

    def _complain(self, operation: str, text: str, file: str, line: int, names: dict[str, Any]) -> None:
        if self.other == "error":
            raise NotEmulatedError(f"{operation} on {self.target}: {text} ({file}:{line})")
        if (operation, text) not in self._warned:
            self._warned.add((operation, text))
            message = f"{operation} has NumPy's bits, not those of {self.target}: {text}"
            warnings.warn_explicit(message, UserWarning, file, line, registry=names.setdefault("__warningregistry__", {}))

    def did(self, operation: str, how: str) -> None:
        """Count an operation with the GPU's bits."""
        self.tell(EMULATED, operation, how)

    def multiplies(self, plan: GemmPlan) -> None:
        """Count a dot that adds as a plan."""
        with LOCK:
            self.plans[plan] += 1

    def assumes(self, operation: str, why: str) -> None:
        """Count an operation with the GPU's arithmetic, in an order that is not known to be the compiler's."""
        self.tell(ASSUMED, operation, why)

    def passes(self, operation: str, why: str) -> None:
        """Count an operation with NumPy's bits, unless `other` forbids it.

        Raises
        ------
        NotEmulatedError
            If `other` is ``"error"``.
        """
        self.tell(PASSED, operation, why)

    def lines(self, *statuses: str) -> list[tuple[Line, int]]:
        """List kinds of operations with their lines and how often they ran. Given statuses, list only those."""
        with LOCK:
            new, self._new = self._new, {}
        for (status, operation, text, _, offset), (code, number) in new.items():
            where = f"{code.co_filename}:{find_line(code, offset)}" if offset >= 0 else code.co_filename
            self.count(Line(operation, status, "", text), where, number)
        return super().lines(*statuses)

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        with LOCK:
            self._new.clear()
            self.notes.clear()
            self.plans.clear()

    def _of(self, status: str) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for line, number in self.lines(status):
            found[line.operator, line.how] += number
        return found

    @property
    def emulated(self) -> Counter[tuple[str, str]]:
        """Count the operations with the GPU's bits, by (operation, how)."""
        return self._of(EMULATED)

    @property
    def assumed(self) -> Counter[tuple[str, str]]:
        """Count the operations whose order is not known to be the compiler's, by (operation, why)."""
        return self._of(ASSUMED)

    @property
    def passed(self) -> Counter[tuple[str, str]]:
        """Count the operations that NumPy computed in its own way, by (operation, why)."""
        return self._of(PASSED)

    @property
    def neutral(self) -> Counter[tuple[str, str]]:
        """Count the operations that have the same bits on any machine, by (operation, why)."""
        return self._of(NEUTRAL)

    @property
    def unseen(self) -> Counter[tuple[str, str]]:
        """Count the operations that are in no list, by (operation, why)."""
        return self._of(UNSEEN)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return super().to_dict() | {"notes": dict(self.notes)}

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  {'note':<8} {count:>6}  {text}" for text, count in sorted(self.notes.items()))])
