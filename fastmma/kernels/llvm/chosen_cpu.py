"""The kind of CPU that ``FASTMMA_CPU`` names: Numba is told before anything is compiled."""

import os
import platform

from numba import config

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


def _choose(kind: str) -> None:
    """Let Numba compile for a kind of CPU instead of this one."""
    if kind not in _KINDS:
        raise BackendError(f"FASTMMA_CPU must be {' or '.join(_KINDS) or 'unset here'}, not {kind!r:.80}")
    name, features = _KINDS[kind]
    config.CPU_NAME, config.CPU_FEATURES = name, ",".join(f"+{feature}" for feature in features.split())


if os.environ.get("FASTMMA_CPU"):
    _choose(os.environ["FASTMMA_CPU"])
