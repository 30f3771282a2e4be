"""A compiled kernel, made ready to run: each operation a step, and counts of what each became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from fastmma.host.caller import folders_of
from fastmma.products.report import NEUTRAL, PASSED, UNSEEN, Line
from fastmma.triton.emulation import Emulation
from fastmma.triton.gluon.mlir import Function, Module, Operation, Region
from fastmma.triton.gluon.names import find_name
from fastmma.triton.gluon.program import Partition, Values
from fastmma.triton.gluon.types import Type

Step = Callable[[Partition, Values], Any]
_LIBRARIES = folders_of("triton")
_PASSING = ("tt.splat", "tt.broadcast", "tt.expand_dims", "ttg.convert_layout", "tt.reshape", "tt.trans")


@dataclass
class Recorder:
    """Counts what one operation became, as a `Report` does, but at the line that the compiler knows."""

    report: Any
    file: str
    line: int
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def tell(self, status: str, operation: str, text: str) -> None:
        """Count it with its status.

        Raises
        ------
        NotEmulatedError
            If its bits are not known and the report forbids that.
        """
        if status in (PASSED, UNSEEN) and self.report.other != "pass":
            self.report._complain(operation, text, self.file, self.line, {})
        self.counts[status, operation, text] += 1

    def did(self, operation: str, how: str) -> None:
        """Count it with the GPU's bits."""
        self.tell("emulated", operation, how)

    def assumes(self, operation: str, why: str) -> None:
        """Count it with the GPU's arithmetic in an order that is not known to be the compiler's."""
        self.tell("assumed", operation, why)

    def passes(self, operation: str, why: str) -> None:
        """Count it with NumPy's bits."""
        self.tell("passed", operation, why)

    def flush(self) -> None:
        """Hand all counts to the report."""
        for (status, operation, text), number in self.counts.items():
            self.report.count(Line(operation, status, "", text), f"{self.file}:{self.line}" if self.file else "", number)
        self.counts.clear()


@dataclass
class Kernel:
    """One kernel for one set of arguments.

    Attributes
    ----------
    module : Module
    run : Emulation
        The settings and the report of the emulation that launches it.
    warps : int
        Of a program, outside of partitions.
    ptx : callable
        Returns the PTX, compiled when it is asked for first.
    makers : dict
        By the name of an operation, what makes a step of it.
    definitions : dict
        By the numbers of values, the operation that defines each.
    carried : set of int
        Values that are arguments of loops and of partitions.
    """

    module: Module
    run: Emulation
    warps: int
    ptx: Callable[[], str]
    makers: dict[str, Callable[[Operation, Kernel], Step]]
    definitions: dict[int, Operation] = field(default_factory=dict)
    carried: set[int] = field(default_factory=set)
    recorders: list[Recorder] = field(default_factory=list)
    trace: Any = None

    @property
    def ctas(self) -> int:
        """Return the number of CTAs of a cluster."""
        return int(self.module.attributes.get("ttg.num-ctas", "1").partition(" ")[0])

    @property
    def pair(self) -> int:
        """Return the number of CTAs for which one tensor core operation multiplies."""
        return 2 if self.module.attributes.get("ttng.two-ctas") == "true" else 1

    def enter(self, function: Function) -> Kernel:
        """Return the same for one function of the kernel, whose values are numbered by themselves."""
        made = replace(self, definitions={}, carried=set(), trace=None)
        made._define(function.body)
        return made

    def _define(self, region: Region) -> None:
        for one in region.operations:
            self.definitions |= dict.fromkeys(one.results, one)
            for inner in one.regions:
                self.carried |= set(inner.arguments)
                self._define(inner)

    def site(self, one: Operation) -> tuple[str, int]:
        """Return file and line of an operation: the innermost that is not Triton's own."""
        places = self.module.find_places(one.place)
        found = next((place for place in places if not place[0].startswith(_LIBRARIES)), places[0] if places else ("", 0, 0))
        return found[0], found[1]

    def describe(self, one: Operation) -> str:
        """Say what an operation is and where it stands."""
        file, line = self.site(one)
        return f"{find_name(one.name)} ({file}:{line})"

    def recorder(self, one: Operation) -> Recorder:
        """Make the recorder of an operation."""
        made = Recorder(self.run.report, *self.site(one))
        self.recorders.append(made)
        return made

    def neutral(self, one: Operation, why: str) -> Callable[[], None]:
        """Return what counts an operation that has the same bits on any machine."""
        recorder, key = self.recorder(one), (NEUTRAL, find_name(one.name), why)

        def count() -> None:
            recorder.counts[key] += 1

        return count

    def borrow(self, one: Operation) -> tuple[Any, Recorder]:
        """Return what stands for the emulation where its operations of Triton's language are taken."""
        recorder, run = self.recorder(one), self.run
        launch = SimpleNamespace(compiled=None, warps=self.warps)
        made = SimpleNamespace(
            report=recorder, capability=run.capability, target=run.target, fuses=False, launch=launch, product=run.product
        )
        return made, recorder

    def find_constant(self, number: int) -> float | None:
        """Return the value of a constant, also of one that was spread over a tensor; None where it is none."""
        one = self.definitions.get(number)
        while one is not None and one.name in _PASSING:
            one = self.definitions.get(one.operands[0])
        if one is None or one.name != "arith.constant":
            return None
        value = read_constant(one)
        return float(value.flat[0]) if value.size and (value == value.flat[0]).all() else None

    def flush(self) -> None:
        """Hand all counts to the report."""
        for one in self.recorders:
            one.flush()


def read_constant(one: Operation) -> Any:
    """Return the value of `arith.constant`, as an array."""
    from fastmma.triton.gluon.constants import parse_constant

    kind = one.types[-1] if one.types else Type("scalar", "i1")
    return parse_constant(one.text, kind)


def make_nothing(one: Operation, kernel: Kernel) -> Step:
    """Make a step of an operation that nothing here needs, which is counted alone."""
    count = kernel.neutral(one, "computes nothing")

    def step(_: Partition, __: Values) -> None:
        count()

    return step
