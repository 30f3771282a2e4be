"""Kernels that Numba compiles, and their cache on the disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numba
from numba import config, njit
from numba.extending import typeof_impl

from fastmma.host.notice import compiling
from fastmma.host.threads import call_uninterrupted
from fastmma.kernels.llvm import numba_types  # noqa: F401  # which kernels are made of
from fastmma.kernels.llvm.collection import uncollected
from fastmma.kernels.llvm.disk_cache import KernelFiles
from fastmma.kernels.llvm.locks import LOCK
from fastmma.kernels.llvm.numba_internals import (
    COMPILER_LOCK,
    PART_OPTIONS,
    KernelCache,
    add_hooks,
    describe_machine,
    dump_kernel,
    load_kernel,
    type_of_global,
)
from fastmma.kernels.llvm.parts import Part

_OPTIMIZATION = 2  # LLVM's third level takes twice as long over the loops around micro-kernels, and they run as fast
_OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False, "no_cfunc_wrapper": True}
# vectors never pass through Python, and the kernel's cache entry holds all parts
_PART = _OPTIONS | {"no_cpython_wrapper": True} | PART_OPTIONS


def _optimized(compile_for: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Compile at a level of our own; other kernels of the process keep theirs."""
    with COMPILER_LOCK, LOCK, uncollected():
        level = config.OPT
        config.OPT = type(level)(min(level, _OPTIMIZATION))
        try:
            return compile_for(*arguments, **keywords)
        finally:
            config.OPT = level


def _compile_apart(compile_for: Callable[..., Any]) -> Callable[..., Any]:
    return partial(call_uninterrupted, _optimized, compile_for)


@typeof_impl.register(Part)
def _type_of_part(part: Part, _context: Any) -> Any:
    if part.jitted is None:
        part.jitted = njit(**_PART, **({"forceinline": True} if part.inlined else {}))(part.function)
    return type_of_global(part.jitted)


def dispatcher_of(kernel: Part) -> Any:
    """Make Numba's object for a kernel."""
    return call_uninterrupted(_dispatcher_of, kernel)


def _dispatcher_of(kernel: Part) -> Any:
    with COMPILER_LOCK, LOCK:  # Numba's own lock of what it compiles for is not held across forks
        dispatcher = njit(**_OPTIONS)(kernel.function)
        cache = DiskCache(kernel.function)
    # interrupted, a compilation would leave Numba's registries unusable
    add_hooks(dispatcher, cache, _compile_apart, lambda compile_for: partial(_optimized, compile_for), compiling())
    return dispatcher


class DiskCache(KernelCache):
    """The cache that Numba's dispatcher asks for a compiled kernel before it compiles one, and gives it to afterwards."""

    def __init__(self, kernel: Callable[..., Any]) -> None:
        made_by = numba.__version__, *describe_machine(), config.OPT, config.BOUNDSCHECK
        self._files = KernelFiles(kernel, (__name__,), made_by)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel for these types, or None."""
        with suppress(Exception):  # whatever is wrong with a file, the kernel can be compiled
            content = self._files.found(sig)
            if content is not None:
                kernel = load_kernel(content, target_context)
                return kernel if kernel.signature.args == tuple(sig) else None
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel that has been compiled, or warn."""
        self._files.keep(sig, lambda: dump_kernel(data))
