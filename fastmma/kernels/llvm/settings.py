"""Numba's variables of the environment, which decide about all kernels, also those that Numba does not compile."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from fastmma.host.environment import variable
from fastmma.host.errors import BackendError

# kinds of CPU that FASTMMA_CPU may name, by what Python calls the machine: LLVM's name of one, and its features
_X86 = {
    "avx2": (
        "haswell",
        "64bit avx avx2 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fsgsbase fxsr invpcid lzcnt mmx movbe pclmul popcnt rdrnd sahf sse sse2 sse3 "
        "sse4.1 sse4.2 ssse3 xsave xsaveopt",
    ),
    "avx512": (
        "icelake-server",
        "64bit adx aes avx avx2 avx512bitalg avx512bw avx512cd avx512dq avx512f avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni "
        "avx512vpopcntdq bmi bmi2 cmov crc32 cx16 cx8 f16c fma fsgsbase fxsr gfni invpcid lzcnt mmx movbe pclmul popcnt prfchw rdpid "
        "rdrnd rdseed sahf sha sse sse2 sse3 sse4.1 sse4.2 ssse3 vaes vpclmulqdq xsave xsavec xsaveopt xsaves",
    ),
}
_AARCH64 = {"neon": ("generic", "fp-armv8 neon"), "dotprod": ("generic", "dotprod fp-armv8 neon")}
_KINDS = {"x86_64": _X86, "amd64": _X86, "aarch64": _AARCH64, "arm64": _AARCH64}.get(platform.machine().lower(), {})
_LEVELS = {"max": 3}  # of optimization, by name


def _chosen() -> tuple[str | None, str | None]:
    """Return LLVM's name and features of the CPU that kernels are compiled for, where a variable names one."""
    kind = os.environ.get("FASTMMA_CPU")
    if not kind:
        return os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    if kind not in _KINDS:
        raise BackendError(f"FASTMMA_CPU must be {' or '.join(_KINDS) or 'unset here'}, not {kind!r:.80}")
    name, features = _KINDS[kind]
    return name, ",".join(f"+{feature}" for feature in features.split())


CPU_NAME, CPU_FEATURES = _chosen()  # for the whole process, as Numba takes them


def number(name: str, default: int) -> int:
    """Return what a variable says that holds a number, the default where it says nothing."""
    value = os.environ.get(name, "")
    return _LEVELS[value] if value in _LEVELS else int(value or default)


OPTIMIZATION = number("NUMBA_OPT", 3)  # LLVM's level at most


def cache_folder() -> str:
    """Return the folder for kernels that a variable names, if any."""
    return variable("NUMBA_CACHE_DIR") or ""


# of the user's cache, by platform: the variable that names it, where it is else, and the folder in it
_CACHES = {"darwin": ("", "~/Library/Caches", "numba"), "win32": ("LOCALAPPDATA", "~/AppData/Local", "numba/Cache")}
_CACHE = ("XDG_CACHE_HOME", "~/.cache", "numba")


def user_cache() -> Path | None:
    """Return the user's own folder of Numba's compiled code; a user without a home has none."""
    name, place, folder = _CACHES.get(sys.platform, _CACHE)
    root = os.environ.get(name) or os.path.expanduser(place)
    return Path(root, folder) if Path(root).is_absolute() else None
