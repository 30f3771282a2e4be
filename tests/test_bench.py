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
TABLES_OF_BOUNDS = """
import sys
from pathlib import Path
from bench import bounds
print(bounds.page([bounds.read(Path(path)) for path in sys.argv[1:]]), end="")
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


def test_bounds(tmp_path: Path) -> None:
    kept = tmp_path / "cpu.json"
    done = python("-m", "bench.bounds", "--quick", "--rounds", "1", "--out", str(kept), cwd=ROOT, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0 or "has not all that is measured" in done.stderr, done.stderr
    if done.returncode == 0:
        again = python("-c", TABLES_OF_BOUNDS, str(kept), cwd=ROOT, OPENBLAS_NUM_THREADS="1").stdout.splitlines()
        rows = [line for line in done.stdout.splitlines() if line.startswith("| over `gemm`") or line.startswith("| GMAC/s")]
        assert len(rows) > 5
        assert set(rows) <= set(again)


def test_the_tables_of_bounds_are_those_of_the_records() -> None:
    found = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8").split("<!-- bounds -->\n")[1].split("<!-- /bounds -->")[0]
    every = sorted((ROOT / "bench" / "records" / "bounds").glob("*.json"))
    printed = python("-c", TABLES_OF_BOUNDS, *map(str, every), cwd=ROOT, OPENBLAS_NUM_THREADS="1")
    assert every
    assert found == printed.stdout, printed.stderr + "'python -m bench.bounds --tables' writes them anew"


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
