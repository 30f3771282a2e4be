"""mbarriers: phases that complete when all arrivals and all bytes that were expected have come."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastmma.host.errors import FastmmaError
from fastmma.triton.gluon.clocks import Clock


class BarrierError(FastmmaError, AssertionError):
    """A kernel uses an mbarrier in a way that would fail on a GPU, or make it wait forever."""


@dataclass
class Barrier:
    """One mbarrier.

    Attributes
    ----------
    name : str
        The name of its memory, and which one it is there.
    count : int
        Arrivals that complete a phase.
    pending : int
        Those that are missing.
    expected : int
        Bytes that are missing; below zero if more came than were announced yet.
    phase : int
        How many phases are complete.
    arrivals : Clock
        What those know that arrived in this phase.
    released : Clock
        What those knew that completed the phases before.
    """

    name: str
    count: int
    pending: int = 0
    expected: int = 0
    phase: int = 0
    arrivals: Clock = field(default_factory=Clock)
    released: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.pending = self.count

    def is_complete(self, parity: int) -> bool:
        """Tell whether the phase of a parity is complete, as ``mbarrier.test_wait.parity`` does."""
        return self.phase & 1 != parity & 1

    def arrive(self, number: int, clock: Clock, place: str) -> None:
        """Count arrivals of one who knows what a clock says.

        Raises
        ------
        BarrierError
            If more arrive than a phase has.
        """
        if number > self.pending:
            raise BarrierError(f"{place} arrives at {self.name}, whose phase {self.phase} has {self.pending} of {self.count} arrivals left")
        self.pending -= number
        self.arrivals.join(clock)
        self._complete()

    def expect(self, size: int) -> None:
        """Announce bytes."""
        self.expected += size

    def receive(self, size: int, clock: Clock) -> None:
        """Count bytes that came."""
        self.expected -= size
        self.arrivals.join(clock)
        self._complete()

    def _complete(self) -> None:
        if self.pending == 0 and self.expected == 0:
            self.phase += 1
            self.pending = self.count
            self.released.join(self.arrivals)
            self.arrivals = Clock()

    def describe(self) -> str:
        """Say what it waits for."""
        parts = [f"{self.pending} of {self.count} arrivals"] if self.pending else []
        parts += [f"{self.expected} bytes"] if self.expected else []
        return f"{self.name}, whose phase {self.phase} misses {' and '.join(parts) or 'nothing'}"
