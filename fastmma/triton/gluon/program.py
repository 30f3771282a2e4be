"""One program of a grid: its memory and barriers, and its partitions, which take turns where they wait."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastmma.triton.gluon.barriers import Barrier, BarrierError
from fastmma.triton.gluon.clocks import Access, Clock, Epoch, RaceError
from fastmma.triton.gluon.memory import View

Values = list[Any]
Steps = Generator[tuple[Barrier, int, str], None, Any]


class DeadlockError(BarrierError):
    """All partitions of a program wait, and nothing can let any of them go on."""


class Transfer(NamedTuple):
    """An asynchronous operation: its number, the CTA that starts it, and what is known when it starts."""

    number: int
    cta: int
    known: Clock

    def finish(self) -> Clock:
        """Return what those know who wait for it."""
        self.known.done |= 1 << self.number
        return self.known


@dataclass
class Partition:
    """Warps that execute the same code, in each CTA of a cluster.

    Attributes
    ----------
    program : Program
    number : int
    name : str
    warps : int
    clocks : list of Clock
        By CTA, what its warps there know to have happened.
    products, stores, copies : deque
        Asynchronous operations that are not waited for, by CTA a bit for each: wgmma, stores by the TMA, groups of cp.async.
    pipes : list of Clock
        By CTA, what the tensor core knows that executes this partition's tcgen05 operations in their order.
    open : list of int
        cp.async of no group yet, by CTA.
    """

    program: Program
    number: int
    name: str
    warps: int
    clocks: list[Clock]
    pipes: list[Clock]
    open: list[int]
    products: deque[list[int]] = field(default_factory=deque)
    stores: deque[list[int]] = field(default_factory=deque)
    copies: deque[list[int]] = field(default_factory=deque)

    def tick(self) -> None:
        """Go on: what follows is not known to those who were told of what came before."""
        for cta, clock in enumerate(self.clocks):
            clock.times[self.number, cta] += 1

    def fence(self) -> None:
        """Order all writes that it knows of before asynchronous accesses."""
        for clock in self.clocks:
            clock.fences |= clock.times
        self.tick()

    def meet(self) -> None:
        """Let its warps in all CTAs wait for each other."""
        if len(self.clocks) > 1:
            met = Clock()
            for clock in self.clocks:
                met.join(clock)
            for clock in self.clocks:
                clock.join(met)
            self.tick()

    def access(self, view: View, place: str, *, writes: bool, layout: str = "") -> None:
        """Note an access by the partition's threads: in each CTA to what it holds, or to what the elements need that a layout gives it."""
        reach = view.reach(layout) if layout and len(self.clocks) > 1 else [{cta: mask} for cta, mask in enumerate(view.masks)]
        for cta, (clock, masks) in enumerate(zip(self.clocks, reach, strict=True)):
            epoch = Epoch(self.number, cta, clock.times[self.number, cta])
            for target, mask in masks.items():
                self._log(view, target, Access(mask, epoch, writes, "generic", self._say(place, cta)), clock)

    def start(self, clocks: list[Clock] | None = None) -> list[Transfer]:
        """Number an asynchronous operation that each CTA starts, with what is known when it does."""
        return [self.start_in(cta, None if clocks is None else clocks[cta]) for cta in range(len(self.clocks))]

    def start_in(self, cta: int, clock: Clock | None = None) -> Transfer:
        """Number an asynchronous operation that one CTA starts."""
        number = self.program.started
        self.program.started += 1
        return Transfer(number, cta, self.clocks[cta].copy() if clock is None else clock)

    def access_later(
        self, one: Transfer, view: View, place: str, *, writes: bool, ctas: Iterable[int], proxy: str = "async", mask: int | None = None
    ) -> None:
        """Note an access of an asynchronous operation to what some CTAs hold, or to some bytes of it."""
        for cta in ctas:
            access = Access(view.masks[cta] if mask is None else mask, Epoch(-1, 0, one.number), writes, proxy, self._say(place, one.cta))
            self._log(view, cta, access, one.known)

    def _say(self, place: str, cta: int) -> str:
        return f"{place} of CTA {cta}" if len(self.clocks) > 1 else place

    def _log(self, view: View, cta: int, access: Access, known: Clock) -> None:
        races, log = self.program.races, view.allocation.logs[cta]
        try:
            log.add(access, known, self.number)
        except RaceError as error:
            if races is None:
                raise
            races[str(error)] += 1
            log.accesses.append(access)


def wait(queue: deque[list[int]], left: int, clocks: list[Clock]) -> None:
    """Wait until no more than some operations of a queue are left in each CTA."""
    while len(queue) > left:
        for clock, done in zip(clocks, queue.popleft(), strict=True):
            clock.done |= done


@dataclass
class Program:
    """One program.

    Attributes
    ----------
    where : tuple of int
        Its place in the grid.
    grid : tuple of int
    ctas : int
        Of the cluster that executes it.
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
    ctas: int = 1
    pending: deque[tuple[int, int, int]] = field(default_factory=deque)
    races: Counter[str] | None = None
    barriers: dict[tuple[int, int], Barrier] = field(default_factory=dict)
    started: int = 0
    partitions: int = 0
    kept: list[View] = field(default_factory=list)
    cache: dict[Any, Any] = field(default_factory=dict)

    def partition(self, name: str, warps: int, parent: Partition | None = None) -> Partition:
        """Make a partition that knows what another one does."""
        clocks = [Clock() for _ in range(self.ctas)] if parent is None else [clock.copy() for clock in parent.clocks]
        made = Partition(self, self.partitions, name, warps, clocks, [Clock() for _ in clocks], [0] * self.ctas)
        self.partitions += 1
        for cta, clock in enumerate(clocks):
            clock.times[made.number, cta] = 0
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
