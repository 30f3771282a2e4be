"""The names of `fastmma`: imported when they are first used, and told to type checkers in a stub."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import fastmma

STUB = Path(fastmma.__file__).with_suffix(".pyi")


def test_the_stub_names_the_same_objects() -> None:
    tree = ast.parse(STUB.read_text())
    homes = {alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(homes) == fastmma.__all__
    for name, module in homes.items():
        assert module
        __import__(f"{module}.{name}" if module in ("fastmma.execution", "fastmma.operands") and name.islower() else module)
        assert getattr(fastmma, name) is getattr(sys.modules[module], name)


def test_the_stub_lists_all_names() -> None:
    (names,) = (ast.literal_eval(node.value) for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.Assign))
    assert sorted(names) == fastmma.__all__


def test_import_takes_no_time() -> None:
    program = "import sys, fastmma; assert 'numpy' not in sys.modules; fastmma.gemm; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


DIR = """
import fastmma
shown = {name for name in dir(fastmma) if not name.startswith("__")}
assert set(fastmma.__all__) <= shown
assert shown - set(fastmma.__all__) <= {"dask", "jax", "study", "testing", "torch", "triton"}
assert {"study", "testing"} <= shown
assert fastmma.study.run and fastmma.testing.assert_bits_equal
import fastmma.cli, fastmma.kernels
assert {name for name in dir(fastmma) if not name.startswith("__")} == shown
"""
# each is the first to import fastmma
FIRST = {
    "dir() has the public names and no others": DIR,
    "a star import has all names": "from fastmma import *; assert gemm.__module__ == 'fastmma.products.gemm'; assert warp.mma",
    "functions of modules are imported from them": "from fastmma.warp import mma; import fastmma; assert mma is fastmma.warp.mma",
}
for _module in ("sparse", "tcgen05", "warp", "warpgroup", "scaling", "shared"):
    FIRST[f"{_module} is a module"] = f"import fastmma.{_module}; fastmma.{_module}.__doc__; from fastmma.{_module} import __name__"
    FIRST[f"{_module} is one module"] = f"import fastmma.{_module} as found; import fastmma; assert found is fastmma.{_module}"
IMPORTED_ANEW = """
import json, sys
for what, program in json.load(sys.stdin).items():
    print(what)
    for name in [name for name in sys.modules if name.partition(".")[0] == "fastmma"]:
        del sys.modules[name]
    exec(program, {})
"""


def test_what_is_imported_first() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED_ANEW], input=json.dumps(FIRST), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout.splitlines()) == (0, "", list(FIRST))


@pytest.mark.parametrize("name", [*fastmma._MODULES, *fastmma._ROOMS])
def test_a_module_shows_its_public_names(name: str) -> None:
    pytest.importorskip(fastmma._ROOMS.get(name, "numpy"))
    module = getattr(fastmma, name)
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, each) for each in module.__all__)
    assert dir(sys.modules[f"fastmma.{name}"]) == dir(module)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fastmma' has no attribute 'gem'"):
        fastmma.gem  # noqa: B018
