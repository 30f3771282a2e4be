"""Threads that cannot be started, memory that is short, and calls after the main thread has ended."""

from __future__ import annotations

import _thread
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.children import python

import fastmma
from fastmma.host import threads
from fastmma.host.threads import parallel_for

ROOT = Path(__file__).parents[2]
PRODUCT = """
import numpy as np, fastmma
opcode = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
a, b, out = np.arange(300.0 * 64).reshape(300, 64), np.arange(64.0 * 200).reshape(64, 200) - 99, np.zeros((300, 200))
expected = a @ b
def product(threads):
    out[...] = -1
    fastmma.gemm(a, b, instruction=opcode, target="sm_80", out=out, threads=threads)
    return all(map(np.array_equal, out, expected))  # row by row, in little memory
"""


def run(script: str, *, status: int = 0) -> list[str]:
    """The lines that a script prints, after the product above; it must not complain."""
    done = python("-c", PRODUCT + script, cwd=ROOT)
    assert (done.returncode, done.stderr) == (status, "")
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("started", [0, 1, 3])
@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=["RuntimeError", "MemoryError"])
def test_a_thread_that_cannot_start_is_one_less(started: int, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of `_thread` is no error of the call, which the others complete."""
    begun: list[Any] = []
    start = _thread.start_new_thread

    def limited(*arguments: Any) -> int:
        if len(begun) == started:
            raise error
        begun.append(arguments)
        return start(*arguments)

    monkeypatch.setattr(threads, "_helpers", threads._Helpers())
    monkeypatch.setattr(_thread, "start_new_thread", limited)
    for count in (1, 5, 40):
        done: list[int] = []
        workers: set[int] = set()

        def piece(first: int, _stop: int, worker: int, done: list[int] = done, workers: set[int] = workers) -> None:
            done.append(first)
            workers.add(worker)

        parallel_for(piece, count, 6)
        assert sorted(done) == list(range(count))
        assert workers <= set(range(started + 1))
    assert len(begun) == started


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are those of Linux")
@pytest.mark.parametrize("spare", [0, 1 << 19, 1 << 20, 3 << 20, 10 << 20, 40 << 20])
def test_short_of_address_space(spare: int) -> None:
    """Whatever can be had, the product is right or an error; before, threads wrote on after a failed start until the process crashed."""
    script = f"""
import resource
product(1)
now = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize:")) << 10
resource.setrlimit(resource.RLIMIT_AS, (now + {spare},) * 2)
for _ in range(20):
    try:
        print(product(12))
    except MemoryError as error:
        print(isinstance(error, fastmma.OutOfMemoryError))
"""
    assert run(script) == ["True"] * 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are those of Linux")
def test_no_more_processes() -> None:
    script = """
import os, resource
product(1)
if os.getuid() == 0:
    os.setuid(65534)  # limits do not bind root
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
import threading
try:
    threading.Thread(target=print).start()
except RuntimeError:
    print("none")
print(product(12), product(3))
"""
    assert run(script) == ["none", "True True"]


@pytest.mark.parametrize("before", ["", "product(3)"])
def test_calls_at_exit(before: str) -> None:
    script = f"""
import atexit
{before}
atexit.register(lambda: print("at exit", product(3)))
print("end")
"""
    assert run(script) == ["end", "at exit True"]


@pytest.mark.parametrize("before", ["", "product(3)"])
def test_calls_of_a_thread_that_outlives_main(before: str) -> None:
    script = f"""
import threading, time
{before}
def later():
    threading.main_thread().join()
    time.sleep(0.1)
    print("later", product(3), flush=True)
threading.Thread(target=later).start()
print("end", flush=True)
"""
    assert run(script) == ["end", "later True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_end_after_what_runs_apart() -> None:
    """A compiler that works while a process ends would crash; a forked child has no such thread, and does not wait for it."""
    program = """
import os, sys, time, warnings
from fastmma.host.apart import call_apart

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside a thread
ended = []

def compile():
    last = time.monotonic() + 20
    while not ended and time.monotonic() < last:
        time.sleep(0.01)
    time.sleep(0.3)
    os.write(1, b"compiled after %d" % len(ended))

def interrupt():
    raise KeyboardInterrupt

try:
    call_apart(compile, interrupt)
except KeyboardInterrupt:
    child = os.fork()
    if not child:
        sys.exit(3)
    ended.append(os.waitpid(child, 0))
"""
    done = python("-c", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "compiled after 1", "")


def test_processes_end_in_silence() -> None:
    """Threads that wait for work keep no process from ending."""
    assert run("print(product(5))") == ["True"]
    assert run("product(5); raise SystemExit(3)", status=3) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forks_amid_calls_of_other_threads() -> None:
    script = """
import os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
def right(threads):
    return bool((fastmma.gemm(a, b, instruction=opcode, target="sm_80", threads=threads) == expected).all())
product(4)
stop = False
wrong = 0
def busy():
    global wrong
    while not stop:
        wrong += not right(4)
others = [threading.Thread(target=busy) for _ in range(2)]
for each in others:
    each.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        os._exit(0 if right(4) else 1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
for each in others:
    each.join()
print(wrong)
"""
    assert run(script) == ["0"]


FIRST_CALL = """
import os, sys, threading, time, warnings
import numpy as np
import fastmma
warnings.simplefilter("ignore", DeprecationWarning)
a = np.arange(32 * 48).reshape(32, 48).astype(np.float16) % 7
b = np.arange(48 * 24).reshape(48, 24).astype(np.float16) % 5
expected = a.astype(np.float32) @ b.astype(np.float32)
def right():
    return bool((fastmma.gemm(a, b, target="sm_90a") == expected).all())
results = []
first = threading.Thread(target=lambda: results.append(right()))
first.start()
children = []
for pause in map(float, sys.argv[1:]):
    time.sleep(pause)
    child = os.fork()
    if child == 0:
        os._exit(0 if right() else 1)
    children.append(child)
first.join()
print(results, [os.waitpid(child, 0)[1] for child in children])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
@pytest.mark.parametrize(
    ("kept", "pauses"), [(True, (0.003, 0.02, 0.07)), (True, (0.05, 0.2)), (True, (0.12, 0.1, 0.5)), (False, (0.12, 0.1, 0.5))]
)
def test_forks_amid_the_first_call_of_another_thread(kept: bool, pauses: tuple[float, ...], tmp_path: Path) -> None:
    """The child finds no module half imported, and no lock of a compiler taken for good; with kernels on the disk and without."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | ({} if kept else {"NUMBA_CACHE_DIR": str(tmp_path)})
    command = [sys.executable, "-c", FIRST_CALL, *map(str, pauses)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"[True] {[0] * len(pauses)}\n")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_a_signal_handler_forks_amid_a_call() -> None:
    """Parent and child go on with the call; no helper of the parent has a piece whose end the child would wait for."""
    script = """
import os, signal, time, warnings
from fastmma.host.threads import parallel_for
warnings.simplefilter("ignore", DeprecationWarning)
children = []
signal.signal(signal.SIGALRM, lambda *_: children.append(os.fork()))
def call():
    done = bytearray(60)
    def piece(start, _stop, _worker):
        done[start] += 1
        time.sleep(0.002)
        done[start] += 1
    parallel_for(piece, len(done), 4)
    return set(done) == {2}
call()
for after in (0.003, 0.009, 0.014, 0.02):
    signal.setitimer(signal.ITIMER_REAL, after)
    right = call() and call()
    if children[-1] == 0:
        os._exit(0 if right else 1)
    print(right, os.waitpid(children[-1], 0)[1])
"""
    assert run(script) == ["True 0"] * 4


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_a_signal_handler_forks_amid_what_runs_apart() -> None:
    """A child has no thread that would end it, and begins anew."""
    script = """
import os, signal, time, warnings
from fastmma.host.threads import call_uninterrupted
warnings.simplefilter("ignore", DeprecationWarning)
children = []
signal.signal(signal.SIGALRM, lambda *_: children.append(os.fork()))
signal.setitimer(signal.ITIMER_REAL, 0.05)
began = []
def slow():
    began.append(os.getpid())
    time.sleep(0.3)
    return 7
result = call_uninterrupted(slow)
if children == [0]:
    os._exit(0 if result == 7 and len(began) == 2 else 1)
print(result, len(began), os.waitpid(children[0], 0)[1])
"""
    assert run(script) == ["7 1 0"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_forks_wait_for_locks_and_give_them_back() -> None:
    """A lock that another thread holds is free in the child, as in the parent; one that the forking thread holds stays its own."""
    script = """
import _thread, os, threading, time, warnings
from fastmma.host import forks
warnings.simplefilter("ignore", DeprecationWarning)
locks = [_thread.RLock(), _thread.RLock()]
for lock in locks:
    forks.hold_across_forks(lock)
taken = threading.Event()
def hold():
    with locks[1]:
        taken.set()
        time.sleep(0.2)
threading.Thread(target=hold).start()
taken.wait()
locks[0].acquire()
child = os.fork()
free = []
def look():
    free.extend(lock.acquire(blocking=False) for lock in locks)
    for lock, mine in zip(locks, free):
        if mine:
            lock.release()
other = threading.Thread(target=look)
other.start()
other.join()
locks[0].release()
right = free == [False, True] and not forks.is_forking()
if child == 0:
    os._exit(0 if right else 1)
print(right, os.waitpid(child, 0)[1])
"""
    assert run(script) == ["True 0"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_a_fork_takes_outermost_locks_first() -> None:
    """A thread that has an outermost lock waits for another one, and the fork for both."""
    script = """
import os, threading, time, warnings
from fastmma.host import forks
warnings.simplefilter("ignore", DeprecationWarning)
inner = forks.shared_lock()
outer = forks.shared_lock(outermost=True)
taken = threading.Event()
def compute():
    with outer:
        taken.set()
        time.sleep(0.2)
        with inner:
            time.sleep(0.1)
other = threading.Thread(target=compute)
other.start()
taken.wait()
child = os.fork()
free = []
def look():
    free.extend(lock.acquire(timeout=10) for lock in (outer, inner))
look = threading.Thread(target=look)
look.start()
look.join()
if child == 0:
    os._exit(0 if free == [True, True] else 1)
other.join()
print(free, os.waitpid(child, 0)[1])
"""
    assert run(script) == ["[True, True] 0"]


def test_calls_within_calls() -> None:
    """Workers share their work in turn, deeper than there are threads."""
    done: list[tuple[int, int, int]] = []

    def outer(first: int, _stop: int, _worker: int) -> None:
        def inner(second: int, _stop: int, _worker: int) -> None:
            parallel_for(lambda third, _stop, _worker: done.append((first, second, third)), 3, 4)

        parallel_for(inner, 3, 4)

    parallel_for(outer, 3, 4)
    assert sorted(done) == [(i, j, k) for i in range(3) for j in range(3) for k in range(3)]


def test_callers_that_want_ever_more_threads() -> None:
    """Several threads call at once, each time with more workers."""
    errors: list[BaseException] = []

    def caller() -> None:
        try:
            for count in range(1, 30):
                done: list[int] = []
                parallel_for(lambda start, _stop, _worker, done=done: done.append(start), 2 * count, count)
                assert sorted(done) == list(range(2 * count))
        except BaseException as error:
            errors.append(error)

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(60)
    assert not errors
    assert not any(each.is_alive() for each in callers)


def test_calls_that_nobody_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Helpers that have died, for want of memory at their start, cost nothing but their help."""
    helpers = threads._Helpers()
    helpers._count = 3
    monkeypatch.setattr(threads, "_helpers", helpers)
    for _ in range(1000):
        done: list[int] = []
        parallel_for(lambda start, _stop, _worker, done=done: done.append(start), 5, 4)
        assert sorted(done) == [0, 1, 2, 3, 4]
    assert helpers._calls.qsize() < 1100


def test_the_first_exception_is_the_one() -> None:
    """Also when others follow; nobody works when it comes."""
    barrier, active = threading.Barrier(3, timeout=30), []

    def piece(start: int, _stop: int, worker: int) -> None:
        active.append(start)
        try:
            barrier.wait()
            if worker:
                first.wait(30)
            else:
                try:
                    raise ValueError("the first")
                finally:
                    threading.Timer(0.05, first.set).start()
            raise RuntimeError(f"piece {start}")
        finally:
            active.remove(start)

    first = threading.Event()
    with pytest.raises(ValueError, match="the first") as caught:
        parallel_for(piece, 3, 3)
    assert not active
    assert caught.value.__context__ is None


def test_nothing_is_kept_of_a_call() -> None:
    """Idle threads hold no operands, nor does an exception of a piece hold itself."""
    import gc
    import weakref

    class Operand:
        pass

    gc.disable()
    try:
        for fails in (False, True):
            operand = Operand()
            watch = weakref.ref(operand)

            def piece(_start: int, _stop: int, _worker: int, operand: Operand = operand, fails: bool = fails) -> None:
                if fails:
                    raise ValueError(repr(operand))

            try:
                parallel_for(piece, 8, 4)
            except ValueError as error:
                error.__traceback__ = None
            del operand, piece
            end = threading.Event()
            threading.Timer(0.2, end.set).start()
            end.wait()
            assert watch() is None
    finally:
        gc.enable()


@pytest.mark.each_path
def test_results_do_not_depend_on_threads_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(1)
    a, b = (numbers.standard_normal(shape).astype(np.float16) for shape in ((150, 90), (90, 70)))
    expected = fastmma.gemm(a, b, threads=1)
    helpers = threads._Helpers()
    monkeypatch.setattr(helpers, "available", lambda wanted: min(wanted, 0))
    monkeypatch.setattr(threads, "_helpers", helpers)
    np.testing.assert_array_equal(fastmma.gemm(a, b, threads=7), expected)
