"""The kernels that a call can take on this machine: the best ones for its CPU, and those that any CPU runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

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
