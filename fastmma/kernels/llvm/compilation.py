"""The compilation of kernels; Numba is imported when it is to compile the first one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from fastmma.host.errors import BackendError
from fastmma.host.threads import call_uninterrupted
from fastmma.kernels.llvm.parts import Part
from fastmma.kernels.llvm.settings import number


def inner(function: Callable[..., Any]) -> Any:
    """A function that is compiled into each of its callers."""
    return Part(function, True)


def separate(function: Callable[..., Any]) -> Any:
    """A function that the kernels which call it have once."""
    return Part(function, False)


class Kernel(Part):
    """A kernel, compiled when it is first called and kept on the disk; called by another kernel, it is a part of that one."""

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's own object for it, which has a compiled kernel for each types of arguments."""
        from fastmma.kernels.llvm import numba_kernels

        return numba_kernels.dispatcher_of(self)

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher(*arguments)


def compiled(function: Callable[..., Any]) -> Any:
    """Make a kernel of a function."""
    if number("NUMBA_DISABLE_JIT", 0):
        raise BackendError("kernels must be compiled, and NUMBA_DISABLE_JIT forbids it; unset it, or use backend='reference'")
    return Kernel(function, False)


def entry(kernel: Any, *types: Any) -> Callable[..., Any]:
    """Return what runs a kernel for arguments of these types: Numba would take as long as a small product to find them out."""
    run: Callable[..., Any] = call_uninterrupted(kernel.dispatcher.compile, types)
    return run
