"""The lock of whoever compiles, and LLVM's own: no child of a fork finds them taken."""

from __future__ import annotations

import llvmlite.binding

from fastmma.host.forks import hold_across_forks, shared_lock

LOCK = shared_lock()
if (_llvm := getattr(llvmlite.binding.ffi.lib, "_lock", None)) is not None and hasattr(_llvm, "_lock"):
    hold_across_forks(_llvm._lock)
