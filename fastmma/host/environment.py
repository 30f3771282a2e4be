"""Variables of the environment that calls depend on: one call reads each of them once, whoever changes them meanwhile."""

from __future__ import annotations

import os
from contextvars import ContextVar

# what the public call that runs here has read, also on a thread that works apart for it; None where none runs
of_call: ContextVar[dict[str, str | None] | None] = ContextVar("of_call", default=None)


def variable(name: str) -> str | None:
    """The value of a variable as the public call that runs here first read it, or as it is now; None where it is not set.

    Examples
    --------
    >>> variable("FASTMMA_NO_SUCH_VARIABLE") is None
    True
    """
    found = of_call.get()
    if found is None:
        return os.environ.get(name)
    if name not in found:
        found[name] = os.environ.get(name)
    return found[name]
