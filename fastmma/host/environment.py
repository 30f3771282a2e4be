"""Variables of the environment that calls depend on: one call reads each of them once, whoever changes them meanwhile."""

from __future__ import annotations

import os
from threading import local


class _Call(local):
    """The variables read by the public call that runs on this thread, or that this thread works for; None if none runs."""

    found: dict[str, str | None] | None = None


of_call = _Call()


def variable(name: str) -> str | None:
    """The value of a variable as the public call that runs here first read it, or as it is now; None where it is not set.

    Examples
    --------
    >>> variable("FASTMMA_NO_SUCH_VARIABLE") is None
    True
    """
    found = of_call.found
    if found is None:
        return os.environ.get(name)
    if name not in found:
        found[name] = os.environ.get(name)
    return found[name]
