"""Python in processes of their own, forked from one that has imported NumPy, Numba and fastmma.

A test that is about the start of a process (what is imported, what is read then from the environment) starts a real one.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1]
# what is read at each call, so that a forked process may have another value than the one that imported everything
_LATE = frozenset({"FASTMMA_PORTABLE", "PYTHONPATH"})
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "1")
# run at the top of the module __main__, so that whatever ends the program ends the process as it would end Python's own
_SERVER = """
from reference.children import _serve
exec(_serve(), globals())
"""
_template: _Template | None = None


def python(
    *arguments: str, input: str = "", stdout: int | None = None, timeout: float = 120, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What ``python ARGUMENTS`` does, of the forms ``-c PROGRAM``, ``-m MODULE`` and ``FILE``, each with more arguments after it.

    Its standard output is what is returned, or goes to a file descriptor.
    """
    wanted = {**os.environ, **environment}
    command = [sys.executable, *arguments]
    if not hasattr(os, "fork"):
        out = subprocess.PIPE if stdout is None else stdout
        given: dict[str, Any] = {"input": input, "timeout": timeout, "cwd": cwd, "env": wanted}
        return subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False, **given)
    global _template
    if _template is None or _template.environment != _early(wanted):
        if _template is not None:
            _template.end()
        _template = _Template()
        assert _template.environment == _early(wanted), "a variable that is read at the import needs a process of its own"
    return _template.run(command, wanted, cwd or Path.cwd(), input, stdout, timeout)


def _early(environment: dict[str, str]) -> dict[str, str]:
    """What is read when fastmma is imported; pytest writes the name of the test that runs, and OpenBLAS has one thread in any case."""
    kept = {name: value for name, value in environment.items() if name not in _LATE and not name.startswith("PYTEST_")}
    return {name: value for name, value in kept.items() if (name, value) != _ONE_THREAD}


class _Template:
    """The process that forks."""

    def __init__(self) -> None:
        self.environment = _early(dict(os.environ))
        ours, theirs = socket.socketpair()
        self._socket = ours
        path = os.pathsep.join([str(_TESTS), str(_TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        # OpenBLAS starts threads when NumPy is imported: a process that forks has one
        environment = os.environ | {"PYTHONPATH": path, **dict([_ONE_THREAD])}
        command = [sys.executable, "-c", _SERVER, str(theirs.fileno())]
        # streams of the kinds that forked processes get: Python asks a stream once whether it can be told where it is
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], **streams)
        theirs.close()
        atexit.register(self.end)

    def run(
        self, command: list[str], environment: dict[str, str], cwd: Path, input: str, stdout: int | None, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile() as given:
            given.write(input.encode())
            given.seek(0)
            (out, out_end), (err, err_end) = os.pipe(), os.pipe()
            request = json.dumps({"arguments": command[1:], "environment": environment, "cwd": str(cwd)}).encode()
            socket.send_fds(
                self._socket, [len(request).to_bytes(8, "little")], [given.fileno(), out_end if stdout is None else stdout, err_end]
            )
            os.close(out_end)
            os.close(err_end)
            self._socket.sendall(request)
        pid = self._number()
        said, in_time = _read((out, err), time.monotonic() + timeout)
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        status = self._number()
        if not in_time:
            raise subprocess.TimeoutExpired(command, timeout, *said)
        return subprocess.CompletedProcess(command, status, *(text.decode() for text in said))

    def _number(self) -> int:
        received = b""
        while len(received) < 8:
            part = self._socket.recv(8 - len(received))
            assert part, self._process.stderr and self._process.stderr.read().decode()
            received += part
        return int.from_bytes(received, "little", signed=True)

    def end(self) -> None:
        """Let it end, and with it what the system counts of its children."""
        atexit.unregister(self.end)
        self._socket.close()
        self._process.communicate()


def _read(pipes: Sequence[int], deadline: float) -> tuple[list[bytes], bool]:
    """What is written to pipes until they are closed, and whether they were in time."""
    found = dict.fromkeys(pipes, b"")
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(max(0, deadline - time.monotonic())):
                part = os.read(key.fd, 1 << 16)
                found[key.fd] += part
                if not part:
                    selector.unregister(key.fd)
        closed = not selector.get_map()
    for pipe in pipes:
        os.close(pipe)
    return list(found.values()), closed


def _serve() -> Any:
    """Fork at each request; in the forked process, the code to run."""
    import numpy as np

    import fastmma
    import fastmma.cli.app

    for dtype in (np.float16, np.float64):  # imports the rest
        fastmma.gemm(np.ones((2, 2), dtype), np.ones((2, 2), dtype), target="sm_90a", threads=1)
    requests = socket.socket(fileno=int(sys.argv[1]))
    tasks = Path("/proc/self/task")
    until = time.monotonic() + 60
    while tasks.is_dir() and len(list(tasks.iterdir())) > 1:  # a thread that compiled may not have ended yet
        assert time.monotonic() < until
        time.sleep(0.001)
    gc.freeze()  # what forked processes do not collect stays shared
    while True:
        size, fds, _, _ = socket.recv_fds(requests, 8, 3)
        if not size:
            os._exit(0)
        text = b""
        while len(text) < int.from_bytes(size, "little"):
            text += requests.recv(1 << 20)
        child = os.fork()
        if child == 0:
            break
        for fd in fds:
            os.close(fd)
        requests.sendall(child.to_bytes(8, "little", signed=True))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        requests.sendall(status.to_bytes(8, "little", signed=True))
    requests.close()
    for place, fd in enumerate(fds):
        os.dup2(fd, place)
        os.close(fd)
    request = json.loads(text)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    first, *rest = request["arguments"]
    own = str(Path(first).parent) if not first.startswith("-") else os.getcwd()
    sys.path[:0] = [own, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        return compile(rest[0], "<string>", "exec")
    if first == "-m":
        sys.argv = ["-m", *rest[1:]]
        program = f"import runpy; runpy.run_module({rest[0]!r}, run_name='__main__', alter_sys=True)"
    else:
        sys.argv = [first, *rest]
        program = f"import runpy; runpy.run_path({first!r}, run_name='__main__')"
    return compile(program, "<string>", "exec")
