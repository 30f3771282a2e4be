"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import config, njit
from numba.core.compiler_lock import global_compiler_lock

from fastmma.host.errors import BackendError
from fastmma.host.notice import compiling
from fastmma.host.threads import apart
from fastmma.kernels.llvm.collection import uncollected
from fastmma.kernels.llvm.disk_cache import DiskCache

_OPTIMIZATION = 2  # LLVM's third level takes twice as long over the loops around micro-kernels, and they run as fast


def _optimized(compile_for: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Compile at a level of our own; other kernels of the process keep theirs."""
    with global_compiler_lock, uncollected():
        level = config.OPT
        config.OPT = type(level)(min(level, _OPTIMIZATION))
        try:
            return compile_for(*arguments, **keywords)
        finally:
            config.OPT = level


def compiled(function: Callable[..., Any]) -> Any:
    """A kernel, compiled when it is first called and kept on the disk."""
    if config.DISABLE_JIT:
        raise BackendError("kernels must be compiled, and NUMBA_DISABLE_JIT forbids it; unset it, or use backend='reference'")
    kernel = njit(nogil=True, error_model="numpy", boundscheck=False)(function)
    kernel._cache = DiskCache(function)
    # what Numba's dispatcher calls for types that are new; interrupted, it would leave Numba's registries unusable
    kernel._compile_for_args = partial(apart, _optimized, kernel._compile_for_args)
    kernel.compile = partial(_optimized, kernel.compile)
    kernel._compiler.compile = compiling()(kernel._compiler.compile)
    return kernel


def entry(kernel: Any, *kinds: Any) -> Callable[..., Any]:
    """What runs a kernel for arguments of these types: Numba would take as long as a small product to find them out."""
    apart(kernel.compile, kinds)
    run: Callable[..., Any] = kernel.overloads[kinds].entry_point
    return run
