"""The pages' pictures of explained elements, of layouts and of a study; ``python -m tools.pages`` draws them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma import study
from fastmma.cli import main
from fastmma.host.figures.style import save
from fastmma.study.pictures.answer import draw_answer
from tools import journeys


def _random(path: Path) -> None:
    """An element of a product of random numbers, in its second instruction."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape) * np.exp2(rng.integers(-5, 3, shape)) for shape in ((1, 32), (32, 1)))
    fastmma.explain(a.astype(np.float16), b.astype(np.float16), 0, 0, target="H100").picture(path, k=(16, 32))


def six_products() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The operands that docs/which_bits.md is about: four products in the first half of k, two in the second."""
    a, b = np.zeros((1, 16)), np.zeros((16, 1))
    a[0, [0, 1, 2, 3, 8, 9]] = 170, -3.21, 0.0173, 0.0041, 21.7, 0.117
    b[[0, 1, 2, 3, 8, 9], 0] = 1.11, 1.37, 1.93, 0.121, 1.77, 1.39
    return a, b


def _steps(dtype: type, target: str) -> Callable[[Path], None]:
    a, b = six_products()
    return lambda path: fastmma.explain(a.astype(dtype), b.astype(dtype), 0, 0, target=target).picture(path)


def _layout(opcode: str, *options: str) -> Callable[[Path], None]:
    """What ``fastmma layout`` draws."""

    def draw(path: Path) -> None:
        if main(["layout", opcode, *options, "--output", str(path)]):
            raise RuntimeError(f"fastmma layout {opcode} has failed")

    return draw


def _promotion(path: Path) -> None:
    """The errors of fp8 sums with K = 4096 against the interval of promotion."""
    intervals = (None, *(32 << power for power in range(7)))
    records = study.run(study.Grid(("e4m3",), ("H100",), ((512, 512, 4096),), promote_every=intervals))
    save(draw_answer(records)[0], path)


PICTURES = {
    "explain.svg": _random,
    "pictures/step_h100.svg": _steps(np.float16, "H100"),
    "pictures/step_a100.svg": _steps(np.float16, "A100"),
    "pictures/step_fp8.svg": _steps(ml_dtypes.float8_e4m3fn, "H100"),
    **{f"pictures/journey_{name}.svg": journeys.draw(name) for name in journeys.JOURNEYS},
    "pictures/promotion.svg": _promotion,
    "pictures/layout_mma.svg": _layout("mma.m16n8k16.f32.f16", "--operand", "all"),
    "pictures/layout_lane.svg": _layout("mma.m16n8k16.f32.f16", "--operand", "a", "--lane", "5"),
    "pictures/layout_wgmma.svg": _layout("wgmma.m64n256k16.f32.f16", "--operand", "all"),
    "pictures/layout_tcgen05.svg": _layout("tcgen05.mma.cta_group::1.kind::f16 idesc=0x08400010", "--operand", "all"),
}
