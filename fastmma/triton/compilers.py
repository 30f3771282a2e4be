"""The compilers that Triton has for vendors' GPUs, which need none to compile.

A GPU is a number: its compute capability (90 for sm_90a), or that in the name of one of AMD's (0x942 for gfx942), which is above all
others.
"""

from __future__ import annotations

from typing import Any

from triton.backends.amd import compiler as amd
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia

from fastmma.isa.targets import Target, target_of

_LANES = 32
FIRST_OF_AMD = 0x900
_PREFIX = "gfx"
_BACKENDS = {"cuda": nvidia.CUDABackend, "hip": amd.HIPBackend}
_SMALLEST = {"cuda": nvidia.min_dot_size, "hip": amd.get_min_dot_size}
_ASSEMBLIES = {"cuda": "ptx", "hip": "amdgcn"}


def number_of(target: Target) -> int:
    """The number of a GPU.

    Examples
    --------
    >>> number_of(target_of("sm_90a")), hex(number_of(target_of("gfx90a")))
    (90, '0x90a')
    """
    if target.name.startswith(_PREFIX):
        return int(target.name.removeprefix(_PREFIX), 16)
    major, minor = target.capability
    return 10 * major + minor


def gpu_of(number: int) -> GPUTarget:
    """Triton's record of a GPU."""
    if number < FIRST_OF_AMD:
        return GPUTarget("cuda", number, _LANES)
    name = f"{_PREFIX}{number:x}"
    return GPUTarget("hip", name, target_of(name).lanes)


def options_of(number: int, given: dict[str, Any]) -> Any:
    """Return what the compiler lets a kernel do."""
    gpu = gpu_of(number)
    return _BACKENDS[gpu.backend](gpu).parse_options(given)


def smallest_dot(number: int) -> Any:
    """Return what tells the smallest dot of two types."""
    gpu = gpu_of(number)
    return _SMALLEST[gpu.backend](gpu)


def assembly_of(texts: Any) -> tuple[str, str]:
    """A compiled kernel's assembly, PTX and AMD's, of which one is empty."""
    ptx, gcn = (str(texts[name]) if name in texts else "" for name in _ASSEMBLIES.values())
    return ptx, gcn
