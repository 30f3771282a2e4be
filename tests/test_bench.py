"""The benchmarks run; how fast is for a person to judge."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from reference.children import python
from reference.plain_machine import COMPILER

ROOT = Path(__file__).parents[1]
EMULATOR = """
import sys
from pathlib import Path
from bench.emulator import Emulator, table
from reference.children import python
from reference.plain_machine import PlainMachine
print("\\n".join(table(Emulator(PlainMachine(Path(sys.argv[1]))), "numba", 40, 1)))
"""


def test_quick() -> None:
    done = python("-m", "bench", "--quick", "--rounds", "1", cwd=ROOT, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert "times sgemm" in done.stdout


def test_shapes() -> None:
    done = python("-m", "bench.shapes", "--quick", "--rounds", "1", cwd=ROOT, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert "`scaled_matmul`, NVFP4, sm_120a" in done.stdout


def test_matrix_cores() -> None:
    done = python("-m", "bench.matrix_cores", "--quick", "--rounds", "1", cwd=ROOT, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[2:]] == ["MI100", "MI250X", "MI300X", "H100"]


def test_cpus(tmp_path: Path) -> None:
    kept = tmp_path / "cpu.json"
    done = python("-m", "bench.cpus", "--quick", "--alone", "--rounds", "1", "--out", str(kept), cwd=ROOT, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0 or "has not all that is measured" in done.stderr, done.stderr
    assert done.returncode or '"NVFP4, sm_120a"' in kept.read_text()


def test_bounds() -> None:
    done = python("-m", "bench.bounds", "--quick", "--rounds", "1", cwd=ROOT, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0 or "has not all that is measured" in done.stderr, done.stderr
    assert done.returncode or "| `mma` over `gemm`: `mma`, m16n8k16 f16, sm_80 |" in done.stdout


def test_scaling() -> None:
    """The model is near what was measured on up to 16 threads."""
    done = python("-m", "bench.scaling", cwd=ROOT, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[2:-1] for line in done.stdout.splitlines() if ", n = " in line]
    assert len(rows) == 6
    assert all(0.75 < float(cell) < 1.25 for row in rows for cell in row)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_functions() -> None:
    done = python("-m", "bench.functions", "--quick", "--rounds", "1", cwd=ROOT, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert "GPT, 2 layers of width" in done.stdout


def test_published_facts() -> None:
    done = python("-m", "bench.published", "--quick", cwd=ROOT, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert "NVFP4, blocks of 16 x 16 | 12.4e-3" in done.stdout


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
def test_the_emulator_on_a_machine_without_a_gpu(tmp_path: Path) -> None:
    done = python("-c", EMULATOR, str(tmp_path), cwd=ROOT, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:4] for line in done.stdout.splitlines()[2:]]
    assert any("NVFP4, sm_120a" in title for title, _, _ in rows)
    assert all(float(call) > 0 and float(kernels) > 0 for _, call, kernels in rows)
