"""Measurements in processes of their own, one for each number of threads: what libraries read of it, they read when they are loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from tempfile import TemporaryFile

from fastmma.host.errors import BackendError, FastmmaError
from fastmma.study.speed.jobs import Job, Measurement, measured

_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_CHILD = "from fastmma.study.speed.processes import serve; serve()"


def serve() -> None:
    """Measure the jobs that standard input has, and print what was found as lines of JSON."""
    output, sys.stdout = sys.stdout, sys.stderr  # other libraries print
    for fields in json.load(sys.stdin):
        job = Job(**{**fields, "shape": tuple(fields["shape"]), "peers": tuple(fields["peers"])})
        try:
            line = json.dumps([each._asdict() for each in measured(job)])
        except FastmmaError as error:
            line = json.dumps({"error": str(error)})
        print(line, file=output, flush=True)


def run(jobs: Sequence[Job]) -> Iterator[list[Measurement]]:
    """Return what each job found, as soon as it has.

    Raises
    ------
    BackendError
        If a job or its process fails.
    """
    for threads, together in groupby(jobs, lambda job: job.threads):
        yield from _in_a_process(list(together), threads)


def _in_a_process(jobs: list[Job], threads: int) -> Iterator[list[Measurement]]:
    environment = {**os.environ, **dict.fromkeys(_VARIABLES, str(threads))}
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, encoding="utf-8"
        )
        try:
            results = _answers(child, json.dumps([job._asdict() for job in jobs]))
            for _ in jobs:
                found = json.loads(next(results, "{}"))
                if isinstance(found, dict):
                    child.wait()
                    said.seek(0)
                    raise BackendError(found.get("error") or f"a measurement ended early: {said.read()[-500:].strip()}")
                yield [Measurement(**fields) for fields in found]
        finally:
            child.kill()
            child.communicate()


def _answers(child: subprocess.Popen[str], jobs: str) -> Iterator[str]:
    """The lines that a process prints once it has its jobs."""
    if child.stdin is not None and child.stdout is not None:
        child.stdin.write(jobs)
        child.stdin.close()
        child.stdin = None
        yield from child.stdout
