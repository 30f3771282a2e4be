"""The lock of whoever compiles: no child of a fork finds it taken."""

from __future__ import annotations

from fastmma.host.forks import shared_lock

LOCK = shared_lock()
