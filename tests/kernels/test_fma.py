"""The fused multiply-add of doubles against exact arithmetic of integers, where rounding is hard."""

from __future__ import annotations

import math

import numpy as np
import pytest
from reference.ieee import FORMATS, rounded

import fastmma
from fastmma.kernels.fma import f64
from fastmma.numerics.reference_steps import fma, number

ROUNDINGS = ("rn", "rz", "rm", "rp")


def exact_fma(a: float, b: float, c: float, rounding: str) -> float:
    """``a * b + c`` of any floats but NaN."""
    if any(map(math.isinf, (a, b, c))):
        if (math.isinf(a) and b == 0) or (math.isinf(b) and a == 0):
            return math.nan
        product = math.copysign(1, a) * math.copysign(1, b) * math.inf if math.isinf(a) or math.isinf(b) else 0.0
        if math.isinf(product) and math.isinf(c) and product != c:
            return math.nan
        return product if math.isinf(product) else c
    (x, below_x), (y, below_y), (z, below_z) = (each.as_integer_ratio() for each in (a, b, c))
    total = x * y * below_z + z * below_x * below_y
    if total != 0:
        return rounded(total, below_x * below_y * below_z, FORMATS["f64"], rounding)
    if a == 0 or b == 0 or c == 0:
        signs = {math.copysign(1, a) * math.copysign(1, b), math.copysign(1, c)}
        if len(signs) == 1:
            return math.copysign(0.0, signs.pop())
    return -0.0 if rounding == "rm" else 0.0


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_f64_directed_rounding_of_hard_cases(rounding: str) -> None:
    tiny, huge = 5e-324, 1.7976931348623157e308
    cases = [
        (huge, 2.0, 0.0), (-huge, 2.0, 0.0), (huge, 1.0, huge), (huge, 1.0, tiny), (huge, 1.0, -tiny), (-huge, 1.0, -tiny),
        (tiny, tiny, 0.0), (-tiny, tiny, 0.0), (tiny, tiny, tiny), (tiny, -tiny, tiny), (tiny, 0.5, 0.0), (tiny, 0.5, -tiny),
        (1.0, 1.0, tiny), (1.0, 1.0, -tiny), (1.0, -1.0, 1.0), (0.0, 1.0, -0.0), (-0.0, 1.0, -0.0), (-0.0, 1.0, 0.0),
        (1 + 2.0**-52, 1 - 2.0**-53, -1.0), (2.0**-537, 2.0**-537, 2.0**-1022), (2.0**-511, 2.0**-511, -(2.0**-1074)),
        (2.0**-537, -(2.0**-537), 2.0**-1022), (2.0**60, 1.0, 2.0**-60), (2.0**-60, 1.0, -(2.0**60)), (1 + 2.0**-52, 1 + 2.0**-52, 2.0**54),
        (1 + 2.0**-52, 1 + 2.0**-52, -(2.0**107)), (2.0**-1022, 1 - 2.0**-53, 0.0), (2.0**1023, 2.0, -(2.0**1023)),
    ]  # fmt: skip
    a, b, c = (np.array(column).reshape(-1, 1, 1) for column in zip(*cases, strict=True))
    out = np.empty_like(c)
    f64.tiles(rounding, a, b, c, out, 1)
    found, fmt = out.view(np.uint64).ravel().tolist(), fastmma.FORMATS["f64"]
    assert found == np.array([exact_fma(*case, rounding) for case in cases]).view(np.uint64).tolist()
    numbers = [[number(code, fmt) for code in np.array(case).view(np.uint64).tolist()] for case in cases]
    assert found == [fma(*each, fmt, rounding) for each in numbers]
