"""The kernels that a call can take on this machine: the best ones for its CPU, and those that any CPU runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

PATHS = ("fast", "portable")


@contextmanager
def taking(path: str) -> Iterator[None]:
    """Only the kernels of a path, which are other code for the same bits."""
    before = os.environ.get("FASTMMA_PORTABLE")
    os.environ["FASTMMA_PORTABLE"] = str(int(path == "portable"))
    try:
        yield
    finally:
        if before is None:
            del os.environ["FASTMMA_PORTABLE"]
        else:
            os.environ["FASTMMA_PORTABLE"] = before


def on_each_path(call: Callable[[], Any]) -> Any:
    """The result of a call, which is an array and has the same bits on each path."""
    results = []
    for path in PATHS:
        with taking(path):
            results.append(call())
    found, portable = results
    assert found.dtype == portable.dtype
    np.testing.assert_array_equal(*(np.ascontiguousarray(each).view(np.uint8) for each in results), err_msg="the paths differ")
    return found
