"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import config, njit

from fastmma.host.errors import BackendError
from fastmma.host.threads import apart
from fastmma.kernels.llvm.disk_cache import DiskCache


def compiled(function: Callable[..., Any]) -> Any:
    """A kernel, compiled when it is first called and kept on the disk."""
    if config.DISABLE_JIT:
        raise BackendError("kernels must be compiled, and NUMBA_DISABLE_JIT forbids it; unset it, or use backend='reference'")
    kernel = njit(nogil=True, error_model="numpy", boundscheck=False)(function)
    kernel._cache = DiskCache(function)
    # what Numba's dispatcher calls for types that are new; interrupted, it would leave Numba's registries unusable
    kernel._compile_for_args = partial(apart, kernel._compile_for_args)
    return kernel
