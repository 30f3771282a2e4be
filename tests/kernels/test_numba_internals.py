"""What of Numba is not public is named in one module, which does without what another Numba has not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastmma
from fastmma.kernels.llvm import numba_internals

PACKAGE = Path(fastmma.__file__).parent
PRIVATE = re.compile(r"numba\.(core|misc|np|cpython)\b|_dynfunc|_compile_for_args|get_call_template|get_overload\b|\.overloads\[|cgutils")
SCRIPT = """
import pkgutil, warnings
import numpy as np
find = pkgutil.resolve_name
def find_others(name):
    if name == {missing!r}:
        raise AttributeError(name)
    return find(name)
pkgutil.resolve_name = find_others
import fastmma
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    a = (np.arange(40 * 96) % 17 - 8).astype(np.float16).reshape(40, 96)
    print((fastmma.gemm(a, a.T, target="H100") == a.astype(int) @ a.T.astype(int)).all())
    ins = fastmma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    print(fastmma.scatter(fastmma.gather(np.zeros((32, 4), np.uint32), ins.operands["a"]), ins.operands["a"]).sum())
for each in said:
    print(each.category.__name__, each.message)
"""


def test_one_module_names_what_is_not_public() -> None:
    named = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if PRIVATE.search(path.read_text())}
    assert named == {"kernels/llvm/numba_internals.py"}


@pytest.mark.parametrize("need", numba_internals._NEEDS)
def test_a_numba_without_something_has_the_bits(need: str, tmp_path: Path) -> None:
    """Kernels are compiled by what is public, and one warning says what is lost."""
    members, loss = numba_internals._NEEDS[need]
    command = [sys.executable, "-c", SCRIPT.format(missing=members[-1])]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *right, warning = done.stdout.splitlines()
    assert right == ["True", "0"]
    assert list(tmp_path.rglob("run_batch-*.kernel"))  # of a product, compiled by LLVM alone
    assert bool(list(tmp_path.rglob("_words_by_plan-*.kernel"))) == (need != "hooks")  # of gather, by Numba
    what = f"has no {members[-1].replace(':', '.')}: {loss}: compare"
    assert re.match(rf"VersionWarning numba [\d.]+\w* {re.escape(what)}", warning)


def test_this_numba_has_everything() -> None:
    assert numba_internals.PART_OPTIONS
    assert all(map(numba_internals._has, numba_internals._NEEDS))
