"""mbarriers: phases that complete when all arrivals and all bytes that were expected have come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fastmma.host.errors import FastmmaError
from fastmma.triton.gluon.clocks import Clock

Arrivals = Iterable[tuple[int, Clock]]


class BarrierError(FastmmaError, AssertionError):
    """A kernel uses an mbarrier in a way that would fail on a GPU, or make it wait forever."""


@dataclass
class Barrier:
    """One mbarrier, or those of the CTAs of a cluster, whose phases complete together.

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
    held : tuple of int
        For each CTA, the one that holds the mbarrier that it arrives at: itself, or one for several.
    phase : int
        How many phases are complete.
    arrivals, released : dict
        By CTA, what those know that arrived in this phase, and what those knew that completed the phases before.
    """

    name: str
    count: int
    pending: int = 0
    expected: int = 0
    held: tuple[int, ...] = (0,)
    phase: int = 0
    arrivals: dict[int, Clock] = field(default_factory=dict)
    released: dict[int, Clock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pending = self.count
        self.arrivals, self.released = ({cta: Clock() for cta in set(self.held)} for _ in range(2))

    def is_complete(self, parity: int) -> bool:
        """Tell whether the phase of a parity is complete, as ``mbarrier.test_wait.parity`` does."""
        return self.phase & 1 != parity & 1

    def arrive(self, number: int, clocks: Arrivals, place: str) -> None:
        """Count arrivals at the mbarrier of each CTA, by those who know what clocks say.

        Raises
        ------
        BarrierError
            If more arrive than a phase has.
        """
        if number > self.pending:
            raise BarrierError(f"{place} arrives at {self.name}, whose phase {self.phase} has {self.pending} of {self.count} arrivals left")
        self.pending -= number
        self._learn(clocks)

    def expect(self, size: int) -> None:
        """Announce bytes."""
        self.expected += size

    def receive(self, size: int, clocks: Arrivals) -> None:
        """Count bytes that came to each CTA."""
        self.expected -= size
        self._learn(clocks)

    def _learn(self, clocks: Arrivals) -> None:
        for cta, clock in clocks:
            self.arrivals[self.held[cta]].join(clock)
        if self.pending == 0 and self.expected == 0:
            self.phase += 1
            self.pending = self.count
            for holder, clock in self.arrivals.items():
                self.released[holder].join(clock)
                self.arrivals[holder] = Clock()

    def describe(self) -> str:
        """Say what it waits for."""
        parts = [f"{self.pending} of {self.count} arrivals"] if self.pending else []
        parts += [f"{self.expected} bytes"] if self.expected else []
        return f"{self.name}, whose phase {self.phase} misses {' and '.join(parts) or 'nothing'}"
