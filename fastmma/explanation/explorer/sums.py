"""Explained products for the page to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.explanation.explain import explain
from fastmma.explanation.explanation import Explanation
from fastmma.isa.codes import encode, from_codes


@dataclass(frozen=True)
class Example:
    """A product that the page offers: its name in the address, a title, and what is worth looking at."""

    name: str
    title: str
    told: str
    explained: Callable[[], Explanation]


def _spread(k: int, seed: int, low: int = -5, high: int = 3) -> tuple[NDArray[Any], NDArray[Any]]:
    """A row and a column whose exponents differ."""
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape) * np.exp2(rng.integers(low, high, shape)) for shape in ((1, k), (k, 1)))
    return a, b


def _as(values: NDArray[Any], fmt: str) -> NDArray[Any]:
    return from_codes(encode(values, fmt), fmt)


def _one_more_bit() -> Explanation:
    a, b = np.zeros((1, 16), np.float16), np.ones((16, 1), np.float16)
    a[0, :4] = 4096, 3 * 2**-13, 2**-14, -4096
    return explain(a, b, 0, 0, target="H100", against="A100")


def _halves() -> Explanation:
    a, b = _spread(32, 1)
    return explain(a.astype(np.float16), b.astype(np.float16), 0, 0, target="sm_90a")


def _eight_bits() -> Explanation:
    a, b = (_as(each, "e4m3") for each in _spread(32, 2, -4, 4))
    return explain(a, b, 0, 0, target="H100", against="B200")


def _brain_floats() -> Explanation:
    a, b = (_as(each, "bf16") for each in _spread(8, 3, -9, 6))
    return explain(a, b, 0, 0, target="A100", alpha=0.5, bias=np.full(1, 64, np.float32), activation="relu", out_dtype="bf16")


def _scale() -> Explanation:
    a, b = (_as(each, "e2m1") for each in _spread(64, 4, -1, 2))
    scales = _as(np.exp2(np.arange(8.0).reshape(2, 4) - 4), "ue4m3")
    opcode = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
    return explain(a, b, 0, 0, instruction=opcode, target="sm_120a", scale_a=scales[:1], scale_b=scales[1:].T)


def _doubles() -> Explanation:
    a, b = _spread(4, 5, -3, 3)
    return explain(a, b, 0, 0, target="A100")


EXAMPLES = (
    Example(
        "one-more-bit",
        "f16 on H100 and on A100",
        "H100 keeps a bit that A100 truncates: 25 bits below the largest exponent, not 24.",
        _one_more_bit,
    ),
    Example("halves", "32 products of f16", "Terms lie by their exponents; what is below the red line is lost before the sum.", _halves),
    Example(
        "eight-bits",
        "e4m3 on H100 and on B200",
        "The tensor cores of Hopper align 8-bit floats to 13 bits, those of Blackwell to 25.",
        _eight_bits,
    ),
    Example(
        "epilogue",
        "bf16 with an epilogue",
        "After the loop over k: a scaling, a bias, an activation and a rounding to bf16.",
        _brain_floats,
    ),
    Example("nvfp4", "NVFP4 with its scales", "Each term is the exact sum of 16 products times two scales.", _scale),
    Example(
        "doubles", "f64, one fused multiply-add at a time", "No alignment: each step is an exact product and one IEEE rounding.", _doubles
    ),
)


def sums() -> list[dict[str, Any]]:
    """The examples with what explains them, as `Explanation.to_dict` has it."""
    return [{"name": each.name, "title": each.title, "told": each.told, "explained": each.explained().to_dict()} for each in EXAMPLES]
