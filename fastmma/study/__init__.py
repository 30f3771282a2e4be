"""Accuracy studies: what a format and an accumulator cost, against exact products.

>>> from fastmma import study
>>> grid = study.Grid(formats=("e4m3",), targets=("sm_90a",), shapes=((32, 32, 4096),), promote_every=(None, 128))
>>> plain, promoted = study.run(grid)
>>> plain["accumulation_error"] > 10 * promoted["accumulation_error"]
True
"""

from fastmma.study.answers import answer
from fastmma.study.distributions import DISTRIBUTIONS, Distribution
from fastmma.study.grid import Case, Grid
from fastmma.study.layers import Layer, layers
from fastmma.study.metrics import Metrics
from fastmma.study.presets import PRESETS, Preset
from fastmma.study.products import IEEE
from fastmma.study.records import Results
from fastmma.study.runner import run
from fastmma.study.tensors import Tensor, read

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


def __dir__() -> list[str]:
    return list(__all__)
