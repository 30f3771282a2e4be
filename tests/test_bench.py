"""The benchmarks run; how fast is for a person to judge."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_quick() -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--rounds", "1"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    assert "times sgemm" in done.stdout


def test_published_facts() -> None:
    command = [sys.executable, "-m", "bench.published", "--quick"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    assert "NVFP4, blocks of 16 x 16 | 12.4e-3" in done.stdout
