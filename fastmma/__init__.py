"""fastmma computes what NVIDIA tensor cores compute, bit for bit, on any CPU.

>>> import fastmma
>>> import numpy as np
>>> a = np.ones((64, 64), np.float16)
>>> float(fastmma.gemm(a, a, target="sm_90a")[0, 0])
64.0
"""

import concurrent.futures.thread as _  # noqa: F401 - Numba may need it, and after main has ended it cannot be imported
import sys as _sys
from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from types import ModuleType as _ModuleType
from typing import Any as _Any

__version__ = "0.2.0"

# the module of each public name: it is imported when the name is first used, so that `import fastmma` takes no time
_NAMES_OF_MODULES = {
    "execution.plan": ("MmaPlan", "mma_plan"),
    "execution.tiles": ("mma",),
    "explanation.comparison": ("Comparison", "compare"),
    "explanation.explain": ("explain",),
    "explanation.explanation": ("Explanation",),
    "host.errors": (
        "BackendError",
        "CacheWarning",
        "FastmmaError",
        "InstructionError",
        "NotEmulatedError",
        "OperandError",
        "OperandTypeError",
        "OutOfMemoryError",
        "TargetError",
        "VersionWarning",
    ),
    "isa.codes": ("decode", "encode"),
    "isa.formats": ("FORMATS", "Format"),
    "isa.instruction": ("Instruction", "Movement", "Operand"),
    "isa.layout": ("Layout",),
    "isa.table": ("instruction", "instructions"),
    "isa.targets": ("TARGETS",),
    "numerics.arithmetic": ("Arithmetic",),
    "numerics.evidence": ("Evidence", "Source"),
    "numerics.lookup": ("arithmetic", "fidelity"),
    "operands.placement": ("placement",),
    "operands.registers": ("gather", "scatter"),
    "operands.trace": ("trace",),
    "products.gemm": ("gemm",),
    "products.gemm_choice": ("gemm_plan",),
    "products.gemm_plan": ("GemmPlan",),
    "products.order": ("StreamK",),
    "products.matmul": ("matmul",),
    "products.plan": ("AccumulationPlan",),
    "products.prepared": ("Prepared", "prepare"),
    "products.scaled": ("scaled_matmul",),
    "products.scaled_choice": ("scaled_plan",),
    "scaling": ("ScaledArray",),
    "verification.identify": ("Match", "identify"),
}
_MODULES = {
    "scaling": "scaling",
    "shared": "shared",
    "sparse": "operands.sparse",
    "tcgen05": "execution.tcgen05",
    "warp": "execution.warp",
    "warpgroup": "execution.warpgroup",
}
# rooms that are imported when they are asked for, and what they need beside fastmma
_ROOMS = {"dask": "dask", "jax": "jax", "study": "numpy", "testing": "numpy", "torch": "torch", "triton": "triton"}
_MODULE_OF = {name: module for module, names in _NAMES_OF_MODULES.items() for name in names}

__all__ = sorted([*_MODULE_OF, *_MODULES])


class _PublicModule(_ModuleType):
    """What `import fastmma.warp` finds: the module is imported when something in it is first used."""

    def __getattr__(self, name: str) -> _Any:
        if name.startswith("__"):  # `inspect` asks all modules for their files
            raise AttributeError(name)
        return getattr(_import_module(f"fastmma.{_MODULES[self.__name__.removeprefix('fastmma.')]}"), name)


_sys.modules.update({f"fastmma.{name}": _PublicModule(f"fastmma.{name}") for name, module in _MODULES.items() if module != name})


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        value: _Any = _import_module(f"{__name__}.{_MODULES[name]}")
    elif name in _MODULE_OF:
        value = getattr(_import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    elif name in _ROOMS:
        value = _import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=_sys.modules[__name__])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    rooms = {name for name, library in _ROOMS.items() if _find_spec(library)}
    return sorted({*__all__, *rooms, *(name for name in globals() if name.startswith("__"))})
