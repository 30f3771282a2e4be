"""Facts of this machine that fastmma depends on, for reports of faults."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import fastmma.backends.gpu.device as gpu
from fastmma.backends.resolve import operation_of
from fastmma.host.errors import FastmmaError
from fastmma.host.float_mode import is_default
from fastmma.host.memory import array_bound
from fastmma.host.threads import thread_count
from fastmma.products.choice import default_instruction
from fastmma.products.gemm import gemm

# distributions by what they are for: fastmma itself, then what its extras install
LIBRARIES = {
    "fastmma": ("numpy", "numba", "llvmlite", "ml_dtypes", "click"),
    "study": ("safetensors",),
    "plots": ("matplotlib",),
    "cuda12": ("cupy-cuda12x",),
    "cuda13": ("cupy-cuda13x",),
    "torch": ("torch", "torchao", "transformers"),
    "triton": ("triton",),
    "jax": ("jax", "jaxlib"),
    "dask": ("dask", "distributed"),
    "testing": ("pytest",),
}
_PREFIXES = ("FASTMMA_", "NUMBA_")
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHON_GIL",
    "TRITON_INTERPRET",
    "XDG_CACHE_HOME",
)
_CPUINFO = Path("/proc/cpuinfo")
_ROWS, _DEPTH = 16, 64


def processor() -> str:
    """The name of the CPU, as the system tells it."""
    lines = _CPUINFO.read_text(errors="replace").splitlines() if _CPUINFO.exists() else []
    names = [value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == "model name"]
    return names[0] if names else platform.processor() or platform.machine()


def system() -> str:
    """The system and the C library. On Linux they are asked here, as `platform.platform` would start a process for the CPU, too."""
    if sys.platform != "linux":
        return platform.platform()
    found = os.uname()
    library = "".join(platform.libc_ver())
    return f"{found.sysname}-{found.release}-{found.machine}{library and f'-with-{library}'}"


def vectors() -> str:
    """The instructions that the fast kernels take on this CPU: AVX-512 (and AMX), AVX2, NEON (with dot products); else portable kernels."""
    from fastmma.kernels.llvm import cpu

    usable = cpu.usable()
    rows = (
        ("AVX-512 and AMX", {"avx512f", "avx512bw", "avx512dq", "avx512vl", "f16c", "amx-tile", "amx-int8"}),
        ("AVX-512", {"avx512f", "avx512bw", "avx512dq", "avx512vl", "f16c"}),
        ("AVX2", {"avx2", "fma", "f16c"}),
        ("NEON with dot products", {"neon", "dotprod"}),
        ("NEON", {"neon"}),
    )
    return next((name for name, needed in rows if needed <= usable), "none: portable kernels")


def installed(distribution: str) -> str | None:
    """The version of a distribution, without importing it; None where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def describe(package_version: str) -> dict[str, Any]:
    """Everything that ``fastmma doctor`` prints, as JSON has it.

    Parameters
    ----------
    package_version : str
        fastmma's own.
    """
    return {
        "fastmma": {"version": package_version, "folder": str(Path(__file__).parents[1])},
        "python": _python(),
        "system": {
            "platform": system(),
            "cpu": processor(),
            "cores": os.cpu_count(),
            "threads": _told(thread_count),
            "memory_bytes": 2 * array_bound(),
        },
        "kernels": _told(_kernels),
        "cache": _told(_cache),
        "gpu": _told(_gpu),
        "libraries": {use: {name: installed(name) for name in names} for use, names in LIBRARIES.items()},
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES) or name in _VARIABLES},
        "check": _told(_check),
    }


def _told(facts: Any) -> Any:
    """Return what a function finds, or why it finds nothing."""
    try:
        return facts()
    except (FastmmaError, OSError) as error:
        return {"problem": str(error)}


def _python() -> dict[str, Any]:
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "gil": gil,
        "executable": sys.executable,
    }


def _kernels() -> dict[str, Any]:
    from fastmma.kernels.llvm import cpu

    triple, name, _ = cpu.machine()
    return {"vectors": vectors(), "llvm_cpu": name, "triple": triple, "default_float_mode": is_default()}


def _cache() -> list[dict[str, Any]]:
    from fastmma.kernels.llvm import disk_cache

    return [{**each._asdict(), "path": str(each.path)} for each in disk_cache.kernel_folders()]


def _gpu() -> dict[str, Any]:
    return {"name": gpu.name(), "target": gpu.native_target()}


def _check() -> dict[str, Any]:
    """A small product by the compiled kernels, against exact integers."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((_ROWS, _DEPTH), (_DEPTH, _ROWS)))
    target = "sm_90a"
    operation = operation_of(default_instruction("f16", "f16", None, target), target)
    began = time.perf_counter()
    found = gemm(a, b, instruction=operation.instruction, target=target)
    seconds = time.perf_counter() - began
    wanted = gemm(a, b, instruction=operation.instruction, target=target, backend="reference")
    return {"product": f"{_ROWS}x{_ROWS}x{_DEPTH} f16 on {target}", "right": bool((found == wanted).all()), "seconds": round(seconds, 3)}
