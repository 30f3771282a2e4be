"""Processes that tests fork end as those that Python starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from reference.children import python

PROGRAMS = {
    "end": "import atexit; atexit.register(lambda: print('last')); print('first')",
    "status": "import sys; sys.stderr.write('said'); sys.exit(7)",
    "message": "import sys; sys.exit('why')",
    "exception": "raise ValueError('x')",
    "interrupt": "raise KeyboardInterrupt",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "exit": "import os; print('lost'); os._exit(3)",
    "thread": "import threading, time; threading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start(); print('early')",
    "names": "import os, sys; print(sys.argv, __name__, os.getcwd(), os.environ['WHAT'], sys.stdin.read())",
}


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot fork")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_forked_process_ends_as_a_real_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHAT", "a variable")
    arguments = ("-c", PROGRAMS[name], "x", "y z")
    forked = python(*arguments, input="given", cwd=tmp_path)
    real = subprocess.run([sys.executable, *arguments], input="given", capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (forked.returncode, forked.stdout) == (real.returncode, real.stdout)
    assert forked.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


def test_a_process_that_takes_too_long_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        python("-c", "import time; time.sleep(600)", timeout=0.2)
    assert python("-c", "print(1)").stdout == "1\n"


def test_a_variable_that_is_read_at_the_import_takes_a_real_process() -> None:
    with pytest.raises(AssertionError, match="a process of its own"):
        python("-c", "", NUMBA_CACHE_DIR="elsewhere")
