"""LLVM, imported where code is compiled: no child of a fork finds its lock taken, and it knows this CPU."""

from __future__ import annotations

from llvmlite import binding

from fastmma.host.forks import hold_across_forks
from fastmma.kernels.llvm import locks  # noqa: F401  # its lock is taken before LLVM's, by forks too, which take them as they were made

if (_lock := getattr(binding.ffi.lib, "_lock", None)) is not None and hasattr(_lock, "_lock"):
    hold_across_forks(_lock._lock)
binding.initialize_native_target()
binding.initialize_native_asmprinter()

INLINES_LATE = hasattr(binding.ModulePassManager, "add_always_inliner_pass")  # since llvmlite 0.45

__all__ = ["INLINES_LATE", "binding"]
