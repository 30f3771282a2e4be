"""The CPU that the kernels are compiled for."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

from fastmma.host.environment import variable
from fastmma.host.threads import call_uninterrupted
from fastmma.kernels.llvm import settings
from fastmma.kernels.llvm.host_cpu import host_cpu

_MACHINE = platform.machine().lower()
_X86, _AARCH64 = ("x86_64", "amd64"), ("aarch64", "arm64")
_SUM_OF_PRODUCTS = """
declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
define i32 @sum(<16 x i8> %a, <16 x i8> %b) {
  %x = sext <16 x i8> %a to <16 x i32>
  %y = sext <16 x i8> %b to <16 x i32>
  %products = mul <16 x i32> %x, %y
  %sum = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %products)
  ret i32 %sum
}
"""


@cache
def features() -> frozenset[str]:
    """The CPU features that Numba compiles for, by LLVM's names; ``FASTMMA_CPU``, ``NUMBA_CPU_NAME`` and
    ``NUMBA_CPU_FEATURES`` count."""
    return call_uninterrupted(_features)  # a signal handler amid LLVM's lock would have kernels wait that are compiled for it


def _features() -> frozenset[str]:
    if settings.CPU_FEATURES is not None:
        return frozenset(item[1:] for item in settings.CPU_FEATURES.split(",") if item.startswith("+"))
    if settings.CPU_NAME == "generic":
        return frozenset()
    found = frozenset(each[1:] for each in host_cpu().features.split(",") if each.startswith("+"))
    return found | _implied() if _MACHINE in _AARCH64 else found


def _implied() -> frozenset[str]:
    """Return what LLVM compiles for by the name of an AArch64 CPU, and does not list: sdot, for a sum of products of bytes."""
    triple, name, listed = machine()
    from fastmma.kernels.llvm.library import binding

    compiler = binding.Target.from_triple(triple).create_target_machine(cpu=name, features=listed)
    code = compiler.emit_assembly(binding.parse_assembly(_SUM_OF_PRODUCTS))
    return frozenset({"neon", "dotprod"} if "sdot" in code else {"neon"})


@cache
def machine() -> tuple[str, str, str]:
    """Return what kernels are compiled for: LLVM's target triple, the CPU's name and its features."""
    return call_uninterrupted(_machine)


def _machine() -> tuple[str, str, str]:
    name = settings.CPU_NAME or host_cpu().name
    features = settings.CPU_FEATURES
    if features is None:
        features = host_cpu().features
        if not settings.number("NUMBA_ENABLE_AVX", 1):
            features = features.replace("+avx", "-avx")
    return host_cpu().triple, name, features


def portable() -> bool:
    """Tell whether ``FASTMMA_PORTABLE=1`` forbids everything that is not available on any CPU."""
    return variable("FASTMMA_PORTABLE") == "1"


_NONE = frozenset[str]()
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES = 158, 0x1023, 18  # Linux's numbers on x86-64


@cache
def _tiles_permitted() -> bool:
    """Ask Linux for the registers of AMX, which a process has on request alone; threads and forked children have them too."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES) == 0)


@cache
def _permitted() -> frozenset[str]:
    """The CPU features that the system lets this process use."""
    found = features()
    tiles = frozenset(name for name in found if name.startswith("amx-"))
    return found - tiles if tiles and not _tiles_permitted() else found


def usable() -> frozenset[str]:
    """The features of x86 or AArch64 that kernels may use."""
    return _permitted() if _MACHINE in (*_X86, *_AARCH64) and not portable() else _NONE
