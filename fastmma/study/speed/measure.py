"""Timing: rounds in which the competitors take turns, so that a busy moment of the machine meets all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def interleaved(
    competitors: Mapping[str, Callable[[], Any]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median seconds of each, after one call that is not counted.

    Examples
    --------
    >>> sorted(interleaved({"a": lambda: 1, "b": lambda: 2}, 3))
    ['a', 'b']
    """
    for run in competitors.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in competitors}
    for _ in range(rounds):
        for name, run in competitors.items():
            began = clock()
            run()
            seconds[name].append(clock() - began)
    return {name: statistics.median(each) for name, each in seconds.items()}
