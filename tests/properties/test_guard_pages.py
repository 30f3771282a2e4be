"""No call reads or writes a byte outside its operands, its result and its scratch memory, or beside what a result's strides reach."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest
from drivers.cases import DRAWN
from reference.children import python

FOLDER = Path(__file__).parents[1] / "drivers"
ROOT = FOLDER.parents[1]
MINUTES, FIRST_SEED = float(os.environ.get("FASTMMA_FUZZ_MINUTES", "0")), int(os.environ.get("FASTMMA_FUZZ_SEED", "0"))
CASES = 300  # for each side: those of six seeds of test_fuzz.py

pytestmark = pytest.mark.skipif(not (sys.platform == "linux" and hasattr(mmap, "MAP_ANONYMOUS")), reason="needs mmap and mprotect of Linux")


def guarded(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "guarded.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False)


def test_nothing_touches_a_guard_page() -> None:
    done = guarded(FIRST_SEED, CASES, 60 * MINUTES)
    assert done.returncode == 0, done.stderr[-3000:]
    sides = json.loads(done.stdout)
    print(sides)
    assert sides.keys() == {"after", "before"}
    for counts in sides.values():
        assert all(counts[family] >= CASES // len(DRAWN) for family in DRAWN)
        assert min(counts[each] for each in ("panels", "thin", "blocks", "tiles", "general", "parts")) > 2
        assert counts["guarded arrays and buffers"] > 5 * CASES


@pytest.mark.parametrize("access", ["found = byte[0]", "byte[0] = b'x'"])
@pytest.mark.parametrize(("side", "place"), [("after", "+ size"), ("before", "- 1")])
def test_a_stray_access_is_seen(side: str, place: str, access: str) -> None:
    """The guards are there: one byte past an end stops the process."""
    script = f"""
import ctypes, sys
sys.path.insert(0, {str(FOLDER)!r})
import guarded
size = 5000
held = guarded.Guards(before={side == "before"}).memory(size)
held[0] = held[-1] = 1
byte = (ctypes.c_char * 1).from_address(held.ctypes.data {place})
print("reached", flush=True)
{access}
"""
    done = python("-c", script, cwd=ROOT)
    assert done.stdout == "reached\n"
    assert done.returncode < 0
