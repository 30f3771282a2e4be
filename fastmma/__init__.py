"""fastmma computes what NVIDIA tensor cores compute, bit for bit, on any CPU.

>>> import fastmma
>>> import numpy as np
>>> a = np.ones((64, 64), np.float16)
>>> float(fastmma.gemm(a, a, target="sm_90a")[0, 0])
64.0
"""

import sys as _sys

__version__ = "0.3.0"

_COMMANDS = ("fastmma", "fastmma.exe", "fastmma-script.py", "fastmma.cmd")


def _is_command() -> bool:
    """Whether the command imports this: it holds Ctrl-C when this is done, and calls nothing at exit."""
    started = (getattr(_sys, "argv", None) or [""])[0]
    if started == "-m":  # which Python writes there until it has found the module
        given = _sys.orig_argv
        return given[given.index("-m") + 1 :][:1] == ["fastmma"] if "-m" in given else False
    return started.replace("\\", "/").rpartition("/")[2] in _COMMANDS


if not _is_command():
    from fastmma.host import modules as _modules  # a signal handler that comes amid the first call finds it whole

    _modules.import_at_end()

# the module of each public name: it is imported when the name is first used, so that `import fastmma` takes no time
_NAMES_OF_MODULES = {
    "agreement.gpus": ("Agreement", "compare_gpus"),
    "agreement.invariance": ("Invariance", "invariance"),
    "agreement.same_bits": ("same_bits",),
    "agreement.verdict": ("Verdict",),
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
    "products.by_tile": ("LastWave", "StreamK"),
    "products.matmul": ("matmul",),
    "products.plan": ("AccumulationPlan",),
    "products.prepared": ("Prepared", "prepare"),
    "products.scaled": ("scaled_matmul",),
    "products.scaled_choice": ("scaled_plan",),
    "scaling": ("ScaledArray",),
    "verification.identify": ("Match", "identify"),
}
_MODULES = {
    "cublas": "products.cublas",
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


def _import_module(name: str) -> object:
    from importlib import import_module

    return import_module(name)


def _import_apart(name: str) -> object:
    from fastmma.host.modules import import_apart

    return import_apart(name)


class _PublicModule(type(_sys)):  # type: ignore[misc]
    """A module that `import fastmma.warp` finds: it is imported when something in it is first used."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # `inspect` asks all modules for their files
            raise AttributeError(name)
        return getattr(self._found(), name)

    def __dir__(self) -> list[str]:
        return dir(self._found())

    def _found(self) -> object:
        return _import_apart(f"fastmma.{_MODULES[self.__name__.removeprefix('fastmma.')]}")


_sys.modules.update({f"fastmma.{name}": _PublicModule(f"fastmma.{name}") for name, module in _MODULES.items() if module != name})


def __getattr__(name: str) -> object:
    if name in _MODULES:
        value = _import_apart(f"{__name__}.{_MODULES[name]}")
    elif name in _MODULE_OF:
        value = getattr(_import_apart(f"{__name__}.{_MODULE_OF[name]}"), name)
    elif name in _ROOMS:
        value = _import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=_sys.modules[__name__])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from importlib.util import find_spec

    rooms = {name for name, library in _ROOMS.items() if find_spec(library)}
    return sorted({*__all__, *rooms, *(name for name in globals() if name.startswith("__"))})
