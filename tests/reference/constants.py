"""The bits of all numbers that modules hold, when they are compiled and imported in a floating-point mode.

``python -m reference.constants FOLDER MODE ...`` prints them as JSON, a line for each mode; FOLDER takes the bytecode.
"""

from __future__ import annotations

import asyncio  # noqa: F401  what others compile is theirs
import dataclasses
import importlib
import json
import os
import pkgutil
import sys
import unittest.mock  # noqa: F401
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import ml_dtypes  # noqa: F401
import numba.extending  # noqa: F401
import numpy as np
import pytest  # noqa: F401

from reference.float_modes import mode

# sizes, colours and waiting times
ASIDE = (
    "fastmma.host.figures",
    "fastmma.study.speed",
    "fastmma.study.pictures",
    "fastmma.study.conclusion",
    "fastmma.operands.pictures",
    "fastmma.explanation.picture",
    "fastmma.host.threads",
)


def numbers(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """The floats and arrays in a value, by their path."""
    if isinstance(value, float | np.ndarray | np.generic):
        yield path, np.asarray(value).tobytes().hex()
    elif isinstance(value, dict | tuple | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(f"{path}[{key}]", each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):  # which may lie in slots
            yield from numbers(f"{path}.{field.name}", getattr(value, field.name, None))


def imported(name: str) -> ModuleType | None:
    """A module; None for an integration whose library is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fastmma"):
            raise
        return None


def main(name: str, folder: str) -> None:
    sys.pycache_prefix = os.path.join(folder, name)
    with mode(name):
        import fastmma

        names = [each.name for each in pkgutil.walk_packages(fastmma.__path__, "fastmma.") if not each.name.endswith("__main__")]
        modules = [module for module in map(imported, names) if module is not None]
    found: dict[str, str] = {}
    for module in modules:
        if not module.__name__.startswith(ASIDE):
            found |= numbers(module.__name__, {key: each for key, each in vars(module).items() if not key.startswith("__")})
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    assert not any(module.partition(".")[0] == "fastmma" for module in sys.modules)
    for each in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            main(each, sys.argv[1])
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
