"""The caller's floating-point mode changes no result and is left as it was: on its own thread and on the pool's, in any build of kernels.

``FASTMMA_FUZZ_MINUTES`` set: every instruction on every target, with new operands until the time is over; else a sample.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import float_modes
from reference.float_modes import DEFAULT, mode, modes, register

import fastmma
from fastmma.host import float_mode
from fastmma.host.float_mode import default_floats, in_default_mode, is_default
from fastmma.host.threads import parallel_for

ROOT = Path(__file__).parents[2]
MINUTES = float(os.environ.get("FASTMMA_FUZZ_MINUTES") or 0)
pytestmark = pytest.mark.skipif(float_modes.MACHINE not in float_modes.REGISTERS, reason="the control register is not known here")
FOREIGN = [name for name in modes() if name != DEFAULT]
FLUSHED = [name for name in modes() if name.isupper()]
# x + y and x * y that come out otherwise in some mode, and what they are in the default one
SUMS = ((1.0, 2.0**-54, 1.0), (1.0, 3 * 2.0**-54, 1 + 2.0**-52), (-1.0, -(2.0**-54), -1.0), (-1.0, -3 * 2.0**-54, -1 - 2.0**-52))


def digests(imported: str, portable: bool, seed: int) -> dict[str, Any]:
    """What `reference.float_modes` prints, in a process of its own."""
    environment = {**os.environ, "FASTMMA_PORTABLE": str(int(portable)), "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests")))}
    command = [sys.executable, "-m", "reference.float_modes", imported, "every" if MINUTES else "sample", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_no_mode_changes_a_result() -> None:
    until = time.monotonic() + 60 * MINUTES
    seed = 0
    while seed == 0 or time.monotonic() < until:
        # fastmma is imported, and its threads start, in the default mode and in another
        other = FOREIGN[(seed - 4) % len(FOREIGN)]
        fast, portable = digests(DEFAULT, False, seed), digests(other, True, seed)
        assert fast["left"] == portable["left"] == []
        assert fast["digests"].keys() == portable["digests"].keys()
        for operation, results in fast["digests"].items():
            wanted = results[f"{DEFAULT}, 1 threads"]
            for build, found in (("fast", results), ("portable", portable["digests"][operation])):
                assert {where.partition(",")[0] for where in found} == modes().keys()
                for where, digest in found.items():
                    assert digest == wanted, f"{operation}, {build}, in {where}, imported in {other}, seed {seed}"
        calls = sum(len(results) for found in (fast, portable) for results in found["digests"].values())
        print(f"seed {seed}: {len(fast['digests'])} operations, {len(modes())} modes, {calls} calls")
        seed += 1


def test_constants_are_the_same_in_whatever_mode_they_are_compiled(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests")))}
    command = [sys.executable, "-m", "reference.constants", str(tmp_path), DEFAULT, "up", FOREIGN[-4]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 3
    assert len(found[0]) > 50
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize("name", modes())
def test_a_mode_is_told_by_arithmetic(name: str) -> None:
    with mode(name):
        assert is_default() == (name == DEFAULT)


@default_floats
def computed() -> tuple[int, list[float]]:
    return register(), [x + y for x, y, _ in SUMS]


EXPECTED = (modes()[DEFAULT] & 0xFFFFFFC0, [result for _, _, result in SUMS])


@pytest.mark.parametrize("name", modes())
def test_a_function_runs_in_the_default_mode(name: str) -> None:
    with mode(name) as before:
        assert computed() == EXPECTED
        assert in_default_mode(computed) == EXPECTED
        assert register() == before


@pytest.mark.parametrize("name", FOREIGN)
def test_the_mode_is_left_as_it_was_after_errors(name: str) -> None:
    def fails() -> None:
        raise KeyboardInterrupt

    with mode(name) as before:
        with pytest.raises(KeyboardInterrupt):
            in_default_mode(fails)
        assert register() == before
        with pytest.raises(fastmma.OperandError):
            fastmma.gemm(np.ones((2, 3), np.float16), np.ones((2, 3), np.float16))
        assert register() == before


@pytest.mark.parametrize("name", FOREIGN)
def test_what_a_function_changes_itself_ends_with_it(name: str) -> None:
    with mode(DEFAULT) as default:
        assert in_default_mode(lambda: computed()) == EXPECTED

        def changes() -> None:
            float_modes.write(modes()[FOREIGN[0]])

        with mode(name) as before:
            in_default_mode(changes)
            assert register() == before
        assert register() == default or name.startswith("fesetround")


@pytest.mark.parametrize("threads", [1, 3])
def test_workers_run_in_the_default_mode(threads: int) -> None:
    found = []
    meet = threading.Barrier(threads)

    def work(_start: int, _stop: int, _worker: int) -> None:
        if threads > 1:
            meet.wait(30)
        found.append(computed()[1] if is_default() else None)

    for name in (FLUSHED[-1], DEFAULT, "zero", DEFAULT):
        with mode(name) as before:
            parallel_for(work, threads, threads)
            assert register() == before
    assert found == [EXPECTED[1]] * (4 * threads)


def test_a_thread_started_in_a_mode_keeps_it() -> None:
    found: list[int] = []

    def work() -> None:
        fastmma.encode([1.0], "e4m3")
        found.append(register())

    with mode(FLUSHED[-1]) as before:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [before]


def test_numpy_warns_of_nothing() -> None:
    with mode(FLUSHED[-1]), np.errstate(all="raise"):
        fastmma.gemm(np.full((4, 16), 6e-8, np.float16), np.full((16, 4), 65504, np.float16))
        fastmma.encode([5e-324, 1e300, 1.1], "f32")


@pytest.mark.parametrize("control", [None, float_mode._Control(lambda: None, lambda _: None, lambda _: None, None)])
def test_a_mode_that_cannot_be_changed_is_an_error(monkeypatch: pytest.MonkeyPatch, control: Callable[[], Any] | None) -> None:
    monkeypatch.setattr(float_mode, "_control", lambda: control)
    assert fastmma.encode(1.0, "f32") == 0x3F800000
    with mode(FOREIGN[0]) as before:
        with pytest.raises(fastmma.BackendError, match="floating-point mode"):
            fastmma.encode(1.0, "f32")
        assert register() == before
