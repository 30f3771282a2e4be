"""Pieces that threads take without the interpreter: each is done once, phases come one after another, and a call can be given up."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from fastmma.host.float_mode import is_default
from fastmma.kernels.llvm import cpu, kinds, pieces
from fastmma.kernels.llvm.compilation import compiled
from fastmma.kernels.llvm.direct import entry_of
from fastmma.kernels.llvm.pieces import Phase, run_phases
from fastmma.kernels.llvm.simd import load_scalar, store

pytestmark = pytest.mark.skipif(not cpu.usable(), reason="needs a CPU that micro-kernels are emitted for")


@compiled
def _add(source: int, target: int, scratch: int, times: int) -> None:
    """Add a number to another, by way of the worker's memory, again and again."""
    for _ in range(times):
        store(load_scalar(source, np.int64), scratch)
        store(load_scalar(target, np.int64) + load_scalar(scratch, np.int64), target)


def phase_of(sources: Any, targets: Any, calls: int = 1, times: int = 1) -> Phase:
    """One piece for each of the numbers."""
    records = np.empty((len(sources), calls, 5), np.int64)
    records[:, :, 0], records[:, :, 4] = entry_of(_add, *[kinds.int64] * 4), times
    records[:, :, 1], records[:, :, 2] = sources[:, None], targets[:, None]
    return Phase(records, scratch=3)


def places(array: Any) -> Any:
    """Where the numbers of an array are."""
    return array.ctypes.data + 8 * np.arange(len(array))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 7, 300])
def test_every_piece_is_done_once_and_after_all_of_the_phase_before(count: int, threads: int) -> None:
    rng = np.random.default_rng(count)
    for _ in range(20):
        first, second, third = rng.integers(1, 1000, count), np.zeros(count, np.int64), np.zeros(count, np.int64)
        order = rng.permutation(count)
        phases = phase_of(places(first), places(second), calls=2, times=3), phase_of(places(second)[order], places(third))
        run_phases(phases, threads, 8)
        np.testing.assert_array_equal(second, 6 * first)
        np.testing.assert_array_equal(third, second[order])
        assert is_default()


@pytest.mark.parametrize("threads", [1, 3])
def test_an_exception_of_a_signal_handler_ends_the_call(threads: int) -> None:
    """Nobody works after it, and most pieces are left."""
    source, target = np.ones(400, np.int64), np.zeros(400, np.int64)
    phases = [phase_of(places(source), places(target), times=4_000_000)]

    def interrupt(*_: Any) -> None:
        raise InterruptedError("by the handler")

    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(InterruptedError, match="by the handler"):
            run_phases(phases, threads, 8)
        done = target.copy()
        time.sleep(0.05)
        np.testing.assert_array_equal(target, done)
        assert 0 < np.count_nonzero(done) < 300
        assert set(done.tolist()) <= {0, 4_000_000}
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_a_fork_amid_a_call_goes_on_in_both(pause: float) -> None:
    source, target, last = np.ones(200, np.int64), np.zeros(200, np.int64), np.zeros(200, np.int64)
    phases = phase_of(places(source), places(target), times=500_000), phase_of(places(target), places(last))
    children: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: children.append(os.fork()))
    timer = threading.Timer(pause, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        run_phases(phases, 3, 8)
        right = bool((target == 500_000).all() and (last == target).all())
        while not children:
            time.sleep(0.001)
        if children == [0]:
            os._exit(0 if right else 1)
        assert right
        assert os.waitpid(children[0], 0)[1] == 0
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("started", [0, 1, 3])
def test_a_helper_that_cannot_start_is_one_less(started: int, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    start = pieces.start_thread

    def limited(function: Any) -> None:
        if len(begun) == started:
            raise MemoryError
        begun.append(function)
        start(function)

    monkeypatch.setattr(pieces, "_crew", pieces._Crew())
    monkeypatch.setattr(pieces, "start_thread", limited)
    for count in (1, 5, 40):
        source, target = np.arange(count), np.zeros(count, np.int64)
        run_phases([phase_of(places(source), places(target))], 6, 8)
        np.testing.assert_array_equal(target, source)
    assert len(begun) == started


def test_callers_share_the_helpers() -> None:
    """Several threads call at once, each with ever more workers, and memory of ever more bytes."""
    errors: list[BaseException] = []

    def caller() -> None:
        try:
            for count in range(1, 30):
                source, target = np.arange(2 * count), np.zeros(2 * count, np.int64)
                run_phases([phase_of(places(source), places(target), times=3)], count, 8 * count)
                np.testing.assert_array_equal(target, 3 * source)
        except BaseException as error:
            errors.append(error)

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(60)
    assert not errors
    assert not any(each.is_alive() for each in callers)
    assert len(pieces._crew.idle) == pieces._crew._count


def test_a_signal_handler_may_multiply_amid_a_call() -> None:
    source, target, other = np.ones(60, np.int64), np.zeros(60, np.int64), np.zeros(60, np.int64)
    phases = [phase_of(places(source), places(target), times=1_000_000)]
    before = signal.signal(signal.SIGUSR1, lambda *_: run_phases([phase_of(places(source), places(other))], 3, 8))
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        run_phases(phases, 3, 8)
        timer.join()
        np.testing.assert_array_equal(target, 1_000_000)
        np.testing.assert_array_equal(other, 1)
    finally:
        signal.signal(signal.SIGUSR1, before)
