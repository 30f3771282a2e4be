"""Studies on the workers of executors: the same records, resumed, and failures that name their case."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmma
from fastmma import study

GRID = study.Grid(("e4m3", "mxfp8"), ("sm_120a", study.IEEE), ((8, 8, 64),), distributions=("normal", "uniform"))


class Immediate:
    """An executor that is none of the library's: calls run when they are submitted, the named ones fail."""

    def __init__(self, fails: dict[str, BaseException] | None = None, breaks_after: int = 1000) -> None:
        self.fails, self.left, self.begun = fails or {}, breaks_after, []

    def submit(self, function: Any, case: study.Case, /, *args: Any) -> Future:
        if not self.left:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.left -= 1
        self.begun.append(case)
        future: Future = Future()
        error = self.fails.get(f"{case.format} {case.distribution} {case.target}")
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(function(case, *args))
        return future


def test_threads_and_processes() -> None:
    expected = study.run(GRID)
    seen = []
    with ThreadPoolExecutor(3) as threads:
        found = study.run(GRID, executor=threads, progress=lambda done, of, case: seen.append((done, of, case)))
    assert found == expected
    assert [(done, of) for done, of, _ in seen] == [(count, 8) for count in range(1, 9)]
    assert {case for _, _, case in seen} == set(GRID.cases())
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        assert study.run(list(GRID.cases())[:2], executor=processes) == expected[:2]


def test_tensors_travel_with_their_cases(tmp_path: Path) -> None:
    path = tmp_path / "w.npy"
    np.save(path, np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32))
    assert study.run(GRID, tensors=path, executor=Immediate()) == study.run(GRID, tensors=path)


def test_a_failure_names_its_case_and_the_rest_is_kept(tmp_path: Path) -> None:
    executor = Immediate({"mxfp8 normal sm_120a": fastmma.OperandError("no")})
    with pytest.raises(fastmma.OperandError, match=r"study: mxfp8 on sm_120a, 8 x 8 x 64, operands drawn \(normal\), seed 0: no"):
        study.run(GRID, tmp_path, executor=executor)
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 7
    again = Immediate()
    assert study.run(GRID, tmp_path, executor=again) == study.run(GRID)
    assert [(case.format, case.distribution, case.target) for case in again.begun] == [("mxfp8", "normal", "sm_120a")]
    assert study.run(GRID, tmp_path) == study.run(GRID)


def test_a_lost_executor(tmp_path: Path) -> None:
    with pytest.raises(fastmma.BackendError, match="the worker failed: RuntimeError: cannot schedule new futures after shutdown"):
        study.run(GRID, tmp_path, executor=Immediate(breaks_after=3))
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3
    with pytest.raises(fastmma.BackendError, match=r"e4m3 on sm_120a.*the worker failed: ZeroDivisionError: oh"):
        study.run(GRID, executor=Immediate({"e4m3 normal sm_120a": ZeroDivisionError("oh")}))


def dies(*_: Any) -> None:
    os._exit(1)


def test_a_killed_process(tmp_path: Path) -> None:
    """A worker that dies takes its pool along; what was computed before is there, and another pool goes on."""
    cases = list(GRID.cases())
    expected = study.run(cases[:1], tmp_path)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        processes.submit(dies)
        with pytest.raises(fastmma.BackendError, match=r"study: .* on .*the worker failed: BrokenProcessPool"):
            study.run(cases[:2], tmp_path, executor=processes)
    assert study.run(cases[:1], tmp_path, executor=Immediate()) == expected


def test_what_is_no_executor() -> None:
    with pytest.raises(fastmma.OperandTypeError, match="executor must have a method submit"):
        study.run(GRID, executor=4)  # type: ignore[arg-type]
