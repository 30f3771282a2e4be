"""Threads: how many there are, and that nobody notices."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fastmma
from fastmma import OperandError
from fastmma.host.threads import parallel_for, thread_count

BAD = [0, -1, 1.5, True, False, "two", "2", "", b"2", 1025, 10**30, [], [2], object(), float("nan"), np.float64(2.0), 2j]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: type(bad).__name__)
def test_bad_thread_counts(bad: Any) -> None:
    x = np.ones((4, 4), np.float16)
    with pytest.raises(OperandError, match="threads must be an integer from 1 to 1024, not"):
        thread_count(bad)
    with pytest.raises(OperandError, match="threads must be an integer from 1 to 1024, not"):
        fastmma.gemm(x, x, threads=bad)


@pytest.mark.parametrize("good", [1, 2, 1024, np.int64(3), np.uint8(4)])
def test_thread_counts(good: Any) -> None:
    assert thread_count(good) == int(good)


def test_the_environment_decides_without_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMMA_NUM_THREADS", "3")
    assert thread_count() == 3
    assert thread_count(2) == 2
    monkeypatch.setenv("FASTMMA_NUM_THREADS", "")
    assert thread_count() >= 1
    for bad in ("0", "-1", "two", "1.5", "99999", "0x2"):
        monkeypatch.setenv("FASTMMA_NUM_THREADS", bad)
        with pytest.raises(OperandError, match=r"FASTMMA_NUM_THREADS must be an integer from 1 to 1024, not"):
            thread_count()
        with pytest.raises(OperandError, match="FASTMMA_NUM_THREADS"):
            fastmma.gemm(np.ones((2, 2), np.float16), np.ones((2, 2), np.float16))


def test_default_is_the_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTMMA_NUM_THREADS", raising=False)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert thread_count() == cores


@pytest.mark.parametrize(("count", "grain"), [(0, 1), (1, 1), (7, 3), (100, 1), (10, 100)])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_piece_is_done_once(count: int, grain: int, threads: int) -> None:
    done: list[tuple[int, int]] = []
    workers: set[int] = set()

    def work(start: int, stop: int, worker: int) -> None:
        done.append((start, stop))
        workers.add(worker)

    parallel_for(work, count, threads, grain)
    assert sorted(done) == [(start, min(start + grain, count)) for start in range(0, count, grain)]
    assert workers <= set(range(threads))


def test_work_is_shared() -> None:
    names: set[str] = set()
    barrier = threading.Barrier(3, timeout=30)

    def work(_start: int, _stop: int, _worker: int) -> None:
        barrier.wait()
        names.add(threading.current_thread().name)

    parallel_for(work, 3, 3)
    assert len(names) == 3


@pytest.mark.parametrize("threads", [1, 3])
def test_errors_come_back(threads: int) -> None:
    def work(start: int, _stop: int, _worker: int) -> None:
        if start == 5:
            raise RuntimeError("piece 5")
        time.sleep(0.001)

    with pytest.raises(RuntimeError, match="piece 5"):
        parallel_for(work, 20, threads)
    done = []
    parallel_for(lambda start, _stop, _worker: done.append(start), 4, threads)
    assert sorted(done) == [0, 1, 2, 3]


def products() -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal(shape).astype(np.float16) for shape in ((150, 90), (90, 70)))
    return [fastmma.gemm(a, b, target=target, threads=2) for target in ("sm_80", "sm_90a")]


def test_callers_in_many_threads() -> None:
    expected = products()
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: products(), range(12)):
            for x, y in zip(result, expected, strict=True):
                np.testing.assert_array_equal(x, y)
