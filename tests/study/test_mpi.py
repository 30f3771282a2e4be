"""A study on the processes of MPI, where mpi4py and an mpiexec are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
LAUNCHER = shutil.which("mpiexec", path=PATH)
# Open MPI 5 and 4: more processes than cores, also for the administrator
ALLOWED = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
PROGRAM = """
import os, sys
from mpi4py.futures import MPIPoolExecutor
import fastmma
from fastmma import study

GRID = study.Grid(("e4m3", "mxfp8"), ("sm_120a", study.IEEE), ((8, 8, 64),), distributions=("normal", "uniform"))

def refuse(*_):
    raise fastmma.OperandError("no")

class Refusing:
    def __init__(self, executor):
        self.executor = executor

    def submit(self, function, *args):
        return self.executor.submit(refuse, *args)

if __name__ == "__main__":
    folder = sys.argv[1]
    with MPIPoolExecutor() as executor:
        try:
            study.run(GRID, folder, executor=Refusing(executor))
        except fastmma.OperandError as error:
            print(error)
        records = study.run(GRID, folder, executor=executor)
        print(executor.num_workers, "workers,", os.getpid() == executor.submit(os.getpid).result())
    assert records == study.run(GRID)
"""


@pytest.mark.skipif(LAUNCHER is None, reason="there is no mpiexec")
def test_records_resume_and_failures_on_mpi(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [str(LAUNCHER), "-n", "3", sys.executable, "-m", "mpi4py.futures", str(program), str(tmp_path / "study")]
    environment = os.environ | ALLOWED | {"FASTMMA_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    first, last = done.stdout.splitlines()
    assert first.startswith("study: e4m3 on ")
    assert first.endswith(": no")
    assert last == "2 workers, False"
