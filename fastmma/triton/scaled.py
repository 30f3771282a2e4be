"""`tl.dot_scaled`: products of block-scaled elements."""

from __future__ import annotations

from typing import Any

from fastmma.triton.emulation import Emulation, Operation


def create_dot_scaled(run: Emulation, original: Operation, *operands: Any) -> Any:
    """What `tl.dot_scaled` calls."""
    run.report.passes("tl.dot_scaled", "what the compiler makes of it is not known")
    return original(*operands)


OPERATIONS = {"create_dot_scaled": create_dot_scaled}
