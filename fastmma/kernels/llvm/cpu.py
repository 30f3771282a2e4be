"""What the kernels are compiled for."""

from __future__ import annotations

import os
import platform
from functools import cache

import llvmlite.binding
from numba.core import config
from numba.core.registry import cpu_target


@cache
def features() -> frozenset[str]:
    """The CPU features that Numba compiles for, by LLVM's names; ``FASTMMA_CPU``, ``NUMBA_CPU_NAME`` and
    ``NUMBA_CPU_FEATURES`` count."""
    if config.CPU_FEATURES is not None:
        return frozenset(item[1:] for item in config.CPU_FEATURES.split(",") if item.startswith("+"))
    if config.CPU_NAME == "generic":
        return frozenset()
    return frozenset(name for name, present in llvmlite.binding.get_host_cpu_features().items() if present)


def machine() -> tuple[str, str, str]:
    """What Numba compiles for: LLVM's target triple, the CPU's name and its features."""
    triple, name, with_features = cpu_target.target_context.codegen().magic_tuple()
    return triple, name, with_features


def portable() -> bool:
    """Whether ``FASTMMA_PORTABLE=1`` forbids everything that is not available on any CPU."""
    return os.environ.get("FASTMMA_PORTABLE") == "1"


_X86 = platform.machine().lower() in ("x86_64", "amd64")
_NONE = frozenset[str]()


def usable() -> frozenset[str]:
    """The features of x86 that kernels may use."""
    return features() if _X86 and not portable() else _NONE
