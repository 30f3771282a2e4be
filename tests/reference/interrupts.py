"""Calls interrupted at random times; run as a script, it prints what it counted as JSON.

Arguments: ``pieces`` or ``products``, a seed, seconds (more, until some calls were interrupted), and how many interrupts a call may get.
Or ``answers``.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

import fastmma
from fastmma.host.threads import parallel_for

_TICK = 41e-6  # seconds
_MARGIN = 512  # elements on both sides
_CANARY = 0xA5
_M8N8K4 = "mma.sync.aligned.m8n8k4.row.col"
# opcode, dtypes of operands and result, how often it is taken: mostly those that wait long for their threads
_PRODUCTS = (
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", np.float16, np.float32, 1),
    (f"{_M8N8K4}.f64.f64.f64.f64.rz", np.float64, np.float64, 3),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", np.int8, np.int32, 1),
    (f"{_M8N8K4}.f32.f16.f16.f32", np.float16, np.float32, 2),
)


def _within(frame: FrameType | None, name: str) -> bool:
    """Whether a function of this name is running."""
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None


class Interrupts:
    """A timer whose signals raise KeyboardInterrupt in `watched_call`: after some ticks, then at every tick until there were enough."""

    def __init__(self) -> None:
        self.ticks = self.left = 0
        self.over = False
        signal.signal(signal.SIGALRM, self._tick)
        signal.setitimer(signal.ITIMER_REAL, _TICK)

    def _tick(self, _signal: int, frame: FrameType | None) -> None:
        interrupts = False
        if self.left and _within(frame, "watched_call"):
            self.ticks -= 1
            interrupts = self.ticks < 0
            self.left -= interrupts
        if not self.over:
            signal.setitimer(signal.ITIMER_REAL, _TICK)  # not before: a handler is no time for the next one
        if interrupts:
            raise KeyboardInterrupt

    def during(self, function: Callable[[], None], ticks: int, times: int) -> int:
        """Call a function and count its interrupts."""

        def watched_call() -> None:
            function()

        self.ticks, self.left = ticks, times
        with contextlib.suppress(KeyboardInterrupt):
            watched_call()
        left, self.left = self.left, 0
        return times - left

    def stop(self) -> None:
        """No more ticks, also of a signal whose handler has not run yet."""
        self.over = True
        signal.setitimer(signal.ITIMER_REAL, 0)


def _are_few(counts: dict[str, int], times: int) -> bool:
    """Tell whether a busy machine has left too little time for what is to be tried."""
    return counts["calls"] < 50 or counts["interrupted"] < 20 or counts["again"] < (times > 1)


def pieces(seed: int, seconds: float, times: int) -> dict[str, int]:
    """`parallel_for` over pieces that take a while; ``late``: one of another thread went on after the exception."""
    chance, clock = random.Random(seed), Interrupts()
    counts = dict.fromkeys(("calls", "interrupted", "again", "late", "wrong"), 0)
    end = time.monotonic() + seconds
    while time.monotonic() < end or _are_few(counts, times):
        threads, count, duration = chance.choice((2, 3, 5)), chance.choice((2, 4, 9)), chance.choice((0, 3e-5, 3e-4))
        begun: list[int] = []
        done: list[int] = []

        def piece(
            start: int, _stop: int, worker: int, begun: list[int] = begun, done: list[int] = done, duration: float = duration
        ) -> None:
            if worker:
                begun.append(start)
            time.sleep(duration)
            if worker:
                done.append(start)

        ticks = int(chance.uniform(0, 1.3) * duration * count / threads / _TICK)
        interrupts = clock.during(lambda: parallel_for(piece, count, threads), ticks, times)  # noqa: B023
        state = len(begun), len(done)
        time.sleep(5e-4)
        counts["calls"] += 1
        counts["interrupted"] += interrupts > 0
        counts["again"] += interrupts > 1
        counts["late"] += state[0] != state[1] or state != (len(begun), len(done))
        if chance.random() < 0.05:  # whoever was interrupted goes on working
            everything: list[int] = []
            parallel_for(lambda start, _stop, _worker: everything.append(start), 7, 3)  # noqa: B023
            counts["wrong"] += sorted(everything) != list(range(7))
    clock.stop()
    return counts


class _Watched(NamedTuple):
    """A matrix amid canaries, and all of that memory as bytes."""

    matrix: np.ndarray[Any, Any]
    memory: np.ndarray[Any, Any]

    def margins(self) -> bool:
        """Whether the canaries live."""
        width = _MARGIN * self.matrix.itemsize
        return bool((self.memory[:width] == _CANARY).all() and (self.memory[-width:] == _CANARY).all())


def _watched(rows: int, columns: int, dtype: Any) -> _Watched:
    memory = np.empty(rows * columns + 2 * _MARGIN, dtype)
    memory.view(np.uint8)[...] = _CANARY
    return _Watched(memory[_MARGIN : _MARGIN + rows * columns].reshape(rows, columns), memory.view(np.uint8))


class _Case:
    """A product, how long it takes, and what it should be."""

    def __init__(self, opcode: str, dtype: Any, dtype_out: Any, numbers: np.random.Generator) -> None:
        self.opcode, self.operands, self.out = opcode, (_watched(65, 160, dtype), _watched(160, 49, dtype)), _watched(65, 49, dtype_out)
        for operand in self.operands:
            operand.matrix[...] = numbers.integers(-9, 9, operand.matrix.shape)
        self.given = [operand.memory.copy() for operand in self.operands]
        self.run(1)
        self.expected = self.out.matrix.copy()
        start = time.perf_counter()
        self.run(2)
        self.seconds = time.perf_counter() - start

    def run(self, threads: int) -> None:
        a, b = (operand.matrix for operand in self.operands)
        fastmma.gemm(a, b, instruction=self.opcode, target="sm_80", out=self.out.matrix, threads=threads)


def products(seed: int, seconds: float, times: int) -> dict[str, int]:
    """`gemm` of several kinds; ``late``, ``outside``, ``operands`` and ``foreign``: what was written to and must not have been."""
    chance, numbers = random.Random(seed), np.random.default_rng(seed)
    cases = [_Case(*row, numbers) for *row, _ in _PRODUCTS]
    counts = dict.fromkeys(("calls", "interrupted", "again", "late", "outside", "operands", "foreign", "wrong"), 0)
    clock, end = Interrupts(), time.monotonic() + seconds
    while time.monotonic() < end or _are_few(counts, times):
        case = chance.choices(cases, [often for *_, often in _PRODUCTS])[0]
        case.out.matrix[...] = 0
        threads = chance.choice((2, 3, 6))
        interrupts = clock.during(lambda: case.run(threads), int(chance.uniform(0, 1.2) * case.seconds / _TICK), times)  # noqa: B023
        counts["calls"] += 1
        if interrupts:
            # memory of the size of what was given back: somebody else's now
            foreign = [np.full(size, _CANARY, np.uint8) for size in (4096, 65536, 1 << 18) for _ in range(3)]
            left = case.out.matrix.copy()
            time.sleep(chance.choice((0.001, 0.01)))
            counts["interrupted"] += 1
            counts["again"] += interrupts > 1
            counts["late"] += not np.array_equal(case.out.matrix, left)
            counts["foreign"] += not all((each == _CANARY).all() for each in foreign)
        else:
            counts["wrong"] += not np.array_equal(case.out.matrix, case.expected)
        counts["outside"] += not case.out.margins()
        counts["operands"] += any((operand.memory != given).any() for operand, given in zip(case.operands, case.given, strict=True))
    clock.stop()
    return counts


def _long_calls() -> dict[str, Callable[[int, int], object]]:
    """Calls of a size and of threads that take long, and in less than a second with a size of 1 instead of 16."""
    numbers = np.random.default_rng(1)
    numbers_f64 = np.resize(numbers.standard_normal(1 << 20), 1 << 25)
    numbers_f16, numbers_f32 = numbers_f64.astype(np.float16), numbers_f64.astype(np.float32)

    def product(opcode: str, values: np.ndarray[Any, Any], threads: int, rows: int, columns: int, depth: int, **options: Any) -> object:
        a, b = values[: rows * depth].reshape(rows, depth), values[: columns * depth].reshape(depth, columns)
        return fastmma.gemm(a, b, instruction=opcode, target="sm_80", threads=threads, **options)

    directed, tf32 = f"{_M8N8K4}.f64.f64.f64.f64.rz", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    f16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    tile = np.broadcast_to(numbers_f64[:128].reshape(16, 8), (1 << 15, 16, 8))
    return {
        "f64 rz, tall": lambda size, threads: product(directed, numbers_f64, threads, 8192 * size, 8, 256),
        "f64 rz, deep": lambda size, threads: product(directed, numbers_f64, threads, 8, 8, size << 18),
        "f64 rz, square": lambda size, threads: product(directed, numbers_f64, threads, 256 * size, 256, 256),
        "f64 rz, tiles": lambda size, threads: fastmma.mma(
            directed.replace("m8n8k4", "m16n8k8"),
            tile[: 2048 * size],
            tile[: 2048 * size, :8],
            tile[: 2048 * size],
            target="sm_90a",
            threads=threads,
        ),
        "tf32, deep": lambda size, threads: product(tf32, numbers_f32, threads, 8, 8, size << 18),
        "f16, large pieces": lambda size, threads: product(f16, numbers_f16, threads, 1024, 64, 2048 * size),
        "f16, lowered m8n8k4, deep": lambda size, threads: product(f"{_M8N8K4}.f16.f16.f16.f16", numbers_f16, threads, 16, 8, size << 16),
        "promotions": lambda size, threads: product(f16, numbers_f16, threads, 1024, 64, 2048 * size, promote_every=128),
        "reference": lambda size, threads: product(f16, numbers_f16, threads, 16 * size, 16 * size, 32, backend="reference"),
    }


def answers() -> dict[str, float]:
    """How many seconds after a signal calls on one thread and on two have raised KeyboardInterrupt; -1 where they ended before it came."""
    late: dict[str, float] = {}
    for name, call in _long_calls().items():
        call(1, 1)  # compiles
        for threads in (1, 2):
            what = f"{name}, {threads} threads"
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            start = time.monotonic()
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                call(16, threads)
                signal.setitimer(signal.ITIMER_REAL, 0)
                late[what] = -1
            except KeyboardInterrupt:
                late[what] = time.monotonic() - start - 0.2
    return late


if __name__ == "__main__" and sys.argv[1] == "answers":
    print(json.dumps(answers()))
elif __name__ == "__main__":
    print(json.dumps({"pieces": pieces, "products": products}[sys.argv[1]](int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))))
