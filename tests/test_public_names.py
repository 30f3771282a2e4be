"""The names of `fastmma`: imported when they are first used, and told to type checkers in a stub."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fastmma

STUB = Path(fastmma.__file__).with_suffix(".pyi")


def in_a_new_process(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


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
    in_a_new_process("import sys, fastmma; assert 'numpy' not in sys.modules; fastmma.gemm; assert 'numba' not in sys.modules")


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


def test_dir_has_the_public_names_and_no_others() -> None:
    in_a_new_process(DIR)


def test_star_import_has_all_names() -> None:
    in_a_new_process("from fastmma import *; assert gemm.__module__ == 'fastmma.products.gemm'; assert warp.mma")


@pytest.mark.parametrize("module", ["sparse", "tcgen05", "warp", "warpgroup", "scaling", "shared"])
def test_modules_are_imported_as_modules(module: str) -> None:
    in_a_new_process(f"import fastmma.{module}; fastmma.{module}.__doc__; from fastmma.{module} import __name__")
    in_a_new_process(f"import fastmma.{module} as found; import fastmma; assert found is fastmma.{module}")


def test_functions_of_modules_are_imported_from_them() -> None:
    in_a_new_process("from fastmma.warp import mma; import fastmma; assert mma is fastmma.warp.mma")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fastmma' has no attribute 'gem'"):
        fastmma.gem  # noqa: B018
