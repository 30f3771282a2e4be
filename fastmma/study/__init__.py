"""Accuracy studies: what a format and an accumulator cost, against exact products.

>>> from fastmma import study
>>> grid = study.Grid(formats=("e4m3",), targets=("sm_90a",), shapes=((32, 32, 4096),), promote_every=(None, 128))
>>> plain, promoted = study.run(grid)
>>> plain["accumulation_error"] > 10 * promoted["accumulation_error"]
True
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from fastmma.study.answers import answer
    from fastmma.study.distributions import DISTRIBUTIONS, Distribution
    from fastmma.study.grid import Case, Grid
    from fastmma.study.metrics import Metrics
    from fastmma.study.presets import PRESETS, Preset
    from fastmma.study.products import IEEE
    from fastmma.study.records import Results
    from fastmma.study.runner import run
    from fastmma.study.tensors import Tensor, read
    from fastmma.study.weights import Layer, layers

__all__ = [
    "DISTRIBUTIONS",
    "IEEE",
    "PRESETS",
    "Case",
    "Distribution",
    "Grid",
    "Layer",
    "Metrics",
    "Preset",
    "Results",
    "Tensor",
    "answer",
    "layers",
    "read",
    "run",
]


# imported when they are first used: commands take linear layers from here that make no study
_MODULES = {
    "DISTRIBUTIONS": "distributions",
    "IEEE": "products",
    "PRESETS": "presets",
    "Case": "grid",
    "Distribution": "distributions",
    "Grid": "grid",
    "Layer": "weights",
    "Metrics": "metrics",
    "Preset": "presets",
    "Results": "records",
    "Tensor": "tensors",
    "answer": "answers",
    "layers": "weights",
    "read": "tensors",
    "run": "runner",
}


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
