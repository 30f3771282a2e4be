"""Ctrl-C at any time: nothing writes into memory after the exception, and it comes soon.

``FASTMMA_FUZZ_MINUTES`` set: calls are interrupted for so long, else for some seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 60 * float(os.environ.get("FASTMMA_FUZZ_MINUTES") or 0) or 3
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="timers are those of POSIX")


def python(*arguments: str, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python on this copy of the package."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


@pytest.mark.parametrize("times", [1, 2, 4])
@pytest.mark.parametrize("what", ["pieces", "products"])
def test_nothing_is_written_after_the_exception(what: str, times: int) -> None:
    seed = time.time_ns() % 1000 if SECONDS > 60 else 1
    done = python("-m", "reference.interrupts", what, str(seed), str(SECONDS), str(times), timeout=60 + 2 * SECONDS)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    print(what, f"seed {seed}", counts)
    assert counts.pop("interrupted") >= 20
    assert counts.pop("again") >= (times > 1)
    assert counts.pop("calls") >= 50
    assert set(counts.values()) == {0}, counts
