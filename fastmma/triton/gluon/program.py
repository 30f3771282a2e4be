"""One program of a grid: its memory and barriers, and its partitions, which take turns where they wait."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from fastmma.triton.gluon.barriers import Barrier, BarrierError
from fastmma.triton.gluon.clocks import Access, Clock, Epoch, RaceError
from fastmma.triton.gluon.memory import View

Values = list[Any]
Steps = Generator[tuple[Barrier, int, str], None, Any]


class DeadlockError(BarrierError):
    """All partitions of a program wait, and nothing can let any of them go on."""


@dataclass
class Partition:
    """Warps that execute the same code.

    Attributes
    ----------
    program : Program
    number : int
    name : str
    warps : int
    clock : Clock
        What it knows to have happened.
    products, stores, copies : deque
        Asynchronous operations that are not waited for, a bit for each: wgmma, stores by the TMA, groups of cp.async.
    pipe : Clock
        What the tensor core knows that executes this partition's tcgen05 operations in their order.
    open : int
        cp.async of no group yet.
    """

    program: Program
    number: int
    name: str
    warps: int
    clock: Clock = field(default_factory=Clock)
    products: deque[int] = field(default_factory=deque)
    stores: deque[int] = field(default_factory=deque)
    copies: deque[int] = field(default_factory=deque)
    pipe: Clock = field(default_factory=Clock)
    open: int = 0

    @property
    def epoch(self) -> Epoch:
        """The time that it has come to."""
        return Epoch(self.number, self.clock.times[self.number])

    def tick(self) -> None:
        """Go on: what follows is not known to those who were told of what came before."""
        self.clock.times[self.number] += 1

    def fence(self) -> None:
        """Order all writes that it knows of before asynchronous accesses."""
        self.clock.fences |= self.clock.times
        self.tick()

    def access(self, view: View, place: str, *, writes: bool) -> None:
        """Note an access by the partition's threads."""
        self._log(view, Access(view.mask, self.epoch, writes, "generic", place), self.clock)

    def start(self, clock: Clock | None = None) -> tuple[int, Clock]:
        """Number an asynchronous operation, and return what is known when it starts, itself included."""
        number = self.program.started
        self.program.started += 1
        known = self.clock.copy() if clock is None else clock
        return number, known

    def access_later(self, number: int, known: Clock, view: View, place: str, *, writes: bool, proxy: str = "async") -> None:
        """Note an access of an asynchronous operation."""
        self._log(view, Access(view.mask, Epoch(-1, number), writes, proxy, place), known)

    def _log(self, view: View, access: Access, known: Clock) -> None:
        races = self.program.races
        try:
            view.allocation.log.add(access, known, self.number)
        except RaceError as error:
            if races is None:
                raise
            races[str(error)] += 1
            view.allocation.log.accesses.append(access)


def wait(queue: deque[int], left: int, clock: Clock) -> None:
    """Wait until no more than some operations of a queue are left."""
    while len(queue) > left:
        clock.done |= queue.popleft()


@dataclass
class Program:
    """One program.

    Attributes
    ----------
    where : tuple of int
        Its place in the grid.
    grid : tuple of int
    pending : deque
        The places of programs that are not launched yet.
    races : Counter or None
        Where races are counted; None where they raise.
    barriers : dict
        By allocation and byte.
    started : int
        How many asynchronous operations were started.
    """

    where: tuple[int, int, int]
    grid: tuple[int, int, int]
    pending: deque[tuple[int, int, int]] = field(default_factory=deque)
    races: Counter[str] | None = None
    barriers: dict[tuple[int, int], Barrier] = field(default_factory=dict)
    started: int = 0
    partitions: int = 0
    kept: list[View] = field(default_factory=list)
    cache: dict[Any, Any] = field(default_factory=dict)

    def partition(self, name: str, warps: int, parent: Partition | None = None) -> Partition:
        """Make a partition that knows what another one does."""
        made = Partition(self, self.partitions, name, warps)
        self.partitions += 1
        if parent is not None:
            made.clock = parent.clock.copy()
        made.clock.times[made.number] = 0
        return made

    def barrier(self, view: View, place: str) -> Barrier:
        """Find the mbarrier that a descriptor names.

        Raises
        ------
        BarrierError
            If it was not initialised, or was invalidated.
        """
        found = self.barriers.get((id(view.allocation), view.start))
        if found is None:
            raise BarrierError(f"{place} uses an mbarrier of {view.allocation.name} that is not initialised")
        return found


def run_together(partitions: list[tuple[Partition, Steps]]) -> Steps:
    """Run partitions until all are done; each runs until it has to wait, the first first.

    It waits itself where all wait, and what they wait for may come from elsewhere.

    Raises
    ------
    DeadlockError
        If all that are left wait.
    """
    waiting: list[tuple[Partition, Steps, tuple[Barrier, int, str] | None]] = [(one, steps, None) for one, steps in partitions]
    while waiting:
        left: list[tuple[Partition, Steps, tuple[Barrier, int, str] | None]] = []
        moved = False
        for one, steps, held in waiting:
            wanted = held
            if wanted is not None and not wanted[0].is_complete(wanted[1]):
                left.append((one, steps, wanted))
                continue
            moved = True
            wanted = next(steps, None)
            if wanted is not None:
                left.append((one, steps, wanted))
        waiting = left
        if waiting and not moved:
            lines = [f"  {one.name} at {held[2]} for {held[0].describe()}" for one, _, held in waiting if held is not None]
            raise DeadlockError("all partitions wait:\n" + "\n".join(lines))
    return
    yield
