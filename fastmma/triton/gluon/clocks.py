"""Order of events: the clocks of partitions and of asynchronous operations, and the accesses that they order.

A partition of a cluster has warps in each CTA, of which each has a clock: nothing but a barrier orders what two CTAs do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fastmma.host.errors import FastmmaError


class RaceError(FastmmaError, AssertionError):
    """No barrier and no wait orders two accesses to the same bytes, one of which is a write."""


@dataclass
class Clock:
    """Events that are known to have happened.

    Attributes
    ----------
    times : dict
        By the numbers of a partition and of a CTA, how far its warps there had come.
    done : int
        A bit for each asynchronous operation that is complete.
    fences : dict
        By the same numbers, the time up to which the writes of these warps are ordered before asynchronous accesses.
    """

    times: dict[tuple[int, int], int] = field(default_factory=dict)
    done: int = 0
    fences: dict[tuple[int, int], int] = field(default_factory=dict)

    def copy(self) -> Clock:
        """Return the same clock, which goes on by itself."""
        return Clock(dict(self.times), self.done, dict(self.fences))

    def join(self, other: Clock) -> None:
        """Take over what another clock knows."""
        for mine, others in ((self.times, other.times), (self.fences, other.fences)):
            for number, time in others.items():
                if mine.get(number, -1) < time:
                    mine[number] = time
        self.done |= other.done


class Epoch(NamedTuple):
    """When something happened: at a time of a partition in a CTA; for an asynchronous operation, partition -1 and its number."""

    partition: int
    cta: int
    time: int

    def is_before(self, clock: Clock) -> bool:
        """Tell whether a clock knows of it."""
        if self.partition < 0:
            return bool(clock.done >> self.time & 1)
        return clock.times.get((self.partition, self.cta), -1) >= self.time


class Access(NamedTuple):
    """An access to memory.

    Attributes
    ----------
    mask : int
        A bit for each byte.
    epoch : Epoch
    is_write : bool
    proxy : {"generic", "async"}
    place : str
        What it is, and in which line.
    """

    mask: int
    epoch: Epoch
    is_write: bool
    proxy: str
    place: str


@dataclass
class Log:
    """The accesses to what one CTA has of an allocation that later ones may race with."""

    name: str
    accesses: list[Access] = field(default_factory=list)

    def add(self, new: Access, clock: Clock, partition: int) -> None:
        """Add an access, of a partition or of an asynchronous operation that it started, by one who knows what a clock says.

        The compiler orders a partition's own writes before the asynchronous accesses that it starts.

        Raises
        ------
        RaceError
            If an access before is not ordered with it.
        """
        kept = []
        for old in self.accesses:
            shared = old.mask & new.mask
            if shared and (old.is_write or new.is_write):
                if not old.epoch.is_before(clock):
                    raise RaceError(
                        f"a race on {self.name}: {new.place} {'writes' if new.is_write else 'reads'} {shared.bit_count()} bytes that "
                        f"{old.place} {'writes' if old.is_write else 'reads'}, and nothing orders them"
                    )
                crosses = old.is_write and old.proxy == "generic" and new.proxy == "async" and old.epoch.partition != partition
                if crosses and clock.fences.get(old.epoch[:2], -1) < old.epoch.time:
                    raise RaceError(
                        f"a race on {self.name}: {new.place} reads by the asynchronous proxy what {old.place} writes by the generic one: "
                        "fence_async_shared is missing between them"
                    )
            covered = not old.mask & ~new.mask
            if not (covered and (new.is_write or (not old.is_write and old.epoch[:2] == new.epoch[:2] and new.epoch.partition >= 0))):
                kept.append(old)
        kept.append(new)
        self.accesses = kept
