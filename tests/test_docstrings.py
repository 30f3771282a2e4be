"""Every example in the package's docstrings runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import fastmma

MODULES = ["fastmma", *(module.name for module in pkgutil.walk_packages(fastmma.__path__, "fastmma.") if module.name != "fastmma.__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fastmma"):
            raise
        pytest.skip(f"{name} needs {error.name}")
    assert doctest.testmod(module).failed == 0
