"""The compilation of kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from numba import config, njit

from fastmma.host.errors import BackendError
from fastmma.host.notice import compiling
from fastmma.host.threads import call_uninterrupted
from fastmma.kernels.llvm.collection import uncollected
from fastmma.kernels.llvm.disk_cache import DiskCache
from fastmma.kernels.llvm.numba_internals import LOCK, PART_OPTIONS, add_hooks

_OPTIMIZATION = 2  # LLVM's third level takes twice as long over the loops around micro-kernels, and they run as fast

_OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False, "no_cfunc_wrapper": True}
_PART = _OPTIONS | {"no_cpython_wrapper": True} | PART_OPTIONS
# For functions that only kernels call: vectors never pass through Python, and the kernel's cache entry holds them all.
# A `separate` one is too large to be repeated wherever it is called.
separate = njit(**_PART)
inner = njit(**_PART, forceinline=True)


def _optimized(compile_for: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Compile at a level of our own; other kernels of the process keep theirs."""
    with LOCK, uncollected():
        level = config.OPT
        config.OPT = type(level)(min(level, _OPTIMIZATION))
        try:
            return compile_for(*arguments, **keywords)
        finally:
            config.OPT = level


def compiled(function: Callable[..., Any]) -> Any:
    """A kernel, compiled when it is first called and kept on the disk; called by another kernel, it is a part of that one."""
    if config.DISABLE_JIT:
        raise BackendError("kernels must be compiled, and NUMBA_DISABLE_JIT forbids it; unset it, or use backend='reference'")
    kernel = njit(**_OPTIONS)(function)

    @cache
    def part() -> Any:
        return separate(function)

    # interrupted, a compilation would leave Numba's registries unusable
    add_hooks(kernel, DiskCache(function), _compile_apart, lambda compile_for: partial(_optimized, compile_for), compiling(), part)
    return kernel


def _compile_apart(compile_for: Callable[..., Any]) -> Callable[..., Any]:
    return partial(call_uninterrupted, _optimized, compile_for)


def entry(kernel: Any, *kinds: Any) -> Callable[..., Any]:
    """Return what runs a kernel for arguments of these types: Numba would take as long as a small product to find them out."""
    run: Callable[..., Any] = call_uninterrupted(kernel.compile, kinds)
    return run
