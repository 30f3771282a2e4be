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
from reference.children import python
from reference.paths import taking

ROOT = Path(__file__).parents[2]
SECONDS = 60 * float(os.environ.get("FASTMMA_FUZZ_MINUTES") or 0) or 1
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="timers are those of POSIX")


def start(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python on this copy of the package from its start, with a folder for what it compiles."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(folder)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=300, env=environment)


@pytest.mark.parametrize(
    ("what", "path", "times"),
    [*(("pieces", "fast", times) for times in (1, 2, 4)), ("products", "fast", 1), ("products", "fast", 4), ("products", "portable", 2)],
)
def test_nothing_is_written_after_the_exception(what: str, path: str, times: int) -> None:
    seed = time.time_ns() % 1000 if SECONDS > 60 else 1
    with taking(path):
        done = python("-m", "reference.interrupts", what, str(seed), str(SECONDS), str(times), timeout=120 + 2 * SECONDS)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    print(what, f"seed {seed}", counts)
    assert not any(count for name, count in counts.items() if name not in ("calls", "interrupted", "again")), counts


@pytest.mark.each_path
def test_long_calls_answer() -> None:
    """They take 0.1 s on an idle machine; without parts, pieces and looks at the signals, up to a minute."""
    done = python("-m", "reference.interrupts", "answers", timeout=300)
    assert done.returncode == 0, done.stderr
    late = json.loads(done.stdout)
    print(late)
    assert len(late) == 18
    assert max(late.values()) < 4, late


HANDLER = """
import signal, sys, time
import numpy as np
import fastmma

rng = np.random.default_rng(0)
cases = []
for rows, columns, depth in ((20, 30, 40), (64, 64, 64), (16, 8, 16), (100, 9, 70), (8, 24, 33)):
    a, b = (rng.integers(-8, 9, shape).astype(np.float16) for shape in ((rows, depth), (depth, columns)))
    cases.append((a, b, a.astype(np.float32) @ b.astype(np.float32)))
counts = [0, 0, 0]


def check(case, which):
    a, b, expected = case
    counts[2] += not np.array_equal(fastmma.gemm(a, b, threads=1), expected)
    counts[which] += 1


def handle(*_):
    check(cases[counts[1] % len(cases)], 1)
    signal.setitimer(signal.ITIMER_REAL, rng.uniform(5e-5, 5e-4))


for case in cases:
    check(case, 0)
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.001)
deadline = time.monotonic() + float(sys.argv[1])
while time.monotonic() < deadline or min(counts[:2]) < 100:
    check(cases[rng.integers(len(cases))], 0)
signal.signal(signal.SIGALRM, signal.SIG_IGN)  # a handler that still runs sets the timer again
signal.setitimer(signal.ITIMER_REAL, 0)
print(*counts)
"""


def test_a_signal_handler_may_multiply_too() -> None:
    """Products of other shapes, which take scratch memory of their own, amid those of the call."""
    done = python("-c", HANDLER, str(SECONDS), timeout=120 + 2 * SECONDS)
    assert done.returncode == 0, done.stderr
    calls, handled, wrong = map(int, done.stdout.split())
    print(calls, handled)
    assert wrong == 0


FIRST_CALL = """
import signal, sys
import numpy as np
import fastmma

cases = []
for rows, columns, depth in ((32, 24, 48), (20, 30, 40), (64, 64, 64)):
    a, b = (np.arange(m * n).reshape(m, n).astype(np.float16) % 7 for m, n in ((rows, depth), (depth, columns)))
    cases.append((a, b, a.astype(np.float32) @ b.astype(np.float32)))
handled = []


def right(number, threads):
    a, b, expected = cases[number]
    return bool((fastmma.gemm(a, b, target="sm_90a", threads=threads) == expected).all())


def handle(*_):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    handled.append(right(len(handled) % len(cases), 2))
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.03)


signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
result = right(0, 1)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(result, len(handled), all(handled))
"""


@pytest.mark.parametrize(
    ("kept", "after"), [(True, 0.001), (True, 0.01), (True, 0.06), (True, 0.13), (True, 0.2), (False, 0.1), (False, 0.25)]
)
def test_a_signal_handler_may_multiply_amid_the_first_product(kept: bool, after: float, tmp_path: Path) -> None:
    """No handler runs amid an import, of which it would find a half, or amid compilation, whose locks it would wait for."""
    done = start("-c", FIRST_CALL, str(after), folder=Path(os.environ["NUMBA_CACHE_DIR"]) if kept else tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    result, handled, right = done.stdout.split()
    assert result == right == "True"
    assert kept or int(handled) > 0  # compilation alone takes longer


COMPILATION = """
import signal, sys, time
import numpy as np
from fastmma import gemm
opcode, a = "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64.rz", np.ones((64, 64))  # which takes seconds to compile
def product():
    return gemm(a, a, instruction=opcode, target="sm_90a", threads=int(sys.argv[2]))
signal.signal(signal.SIGALRM, signal.default_int_handler)
after = float(sys.argv[1])
start = time.monotonic()
signal.setitimer(signal.ITIMER_REAL, after)
try:
    product()
except KeyboardInterrupt as error:
    frames, step = 0, error.__traceback__
    while step is not None:
        frames, step = frames + 1, step.tb_next
    print(time.monotonic() - start - after, frames, error.__context__)
    {then}
signal.setitimer(signal.ITIMER_REAL, 0)
print((product() == 64).all())
"""


@pytest.mark.parametrize(("after", "threads"), [(0.05, 1), (0.3, 3), (0.9, 2)])
def test_compilation_answers_and_can_be_repeated(after: float, threads: int, tmp_path: Path) -> None:
    """An interrupted compilation leaves Numba as it was, and no frames of Numba in the traceback."""
    script = COMPILATION.replace("{then}", "pass")
    done = start("-c", script, str(after), str(threads), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    *interrupted, result = done.stdout.split("\n")[:-1]
    assert result == "True"
    for line in interrupted:
        late, frames, context = line.split()
        assert float(late) < 3
        assert int(frames) <= 4
        assert context == "None"


def test_a_process_may_end_while_it_compiles(tmp_path: Path) -> None:
    script = COMPILATION.replace("{then}", "raise SystemExit(7)")
    done = start("-c", script, "0.4", "2", folder=tmp_path)
    assert (done.returncode, done.stderr) == (7, "")


COMMAND = """
import signal, sys
from fastmma.__main__ import main
assert "numpy" not in sys.modules
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it starts in the background
signal.signal(signal.SIGVTALRM, lambda *_: signal.raise_signal(signal.SIGINT))
signal.setitimer(signal.ITIMER_VIRTUAL, float(sys.argv.pop(1)), 1.0)  # again: C code may swallow one
status = main()
signal.setitimer(signal.ITIMER_VIRTUAL, 0)
sys.exit(status)
"""


@pytest.mark.parametrize("after", [0.005, 0.03, 0.08, 0.15, 0.3, 0.6, 3.0])
def test_the_command_line_ends_with_one_line(after: float, tmp_path: Path) -> None:
    """Also while it imports what it needs, and while it compiles; seconds of processor time."""
    opcode = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rz"
    command = ("gemm", "--random", "2000x2000x2000", "--instruction", opcode, "--target", "sm_80")
    done = start("-c", COMMAND, str(after), *command, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fastmma: interrupted\n")


def test_nothing_is_imported_before_the_command_holds_signals() -> None:
    """What is imported before can be interrupted: as a script, and as ``python -m fastmma``; the interpreter's own modules run no code."""
    script = "import sys; sys.argv = ['/bin/fastmma']; before = {*sys.modules}; import fastmma.__main__; print(*({*sys.modules} - before))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split() if name not in sys.builtin_module_names} == {"fastmma"}
    command = [sys.executable, "-X", "importtime", "-m", "fastmma", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert imported.index("fastmma") == imported.index("runpy") + 1
