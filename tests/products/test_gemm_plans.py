"""Accumulation plans of gemm: promotion and split-k are IEEE additions of what the instruction gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.methods import METHODS, operands, product
from reference.products import bits, elements, looped

import fastmma
from fastmma import FORMATS, instruction


def ieee_sum(x: NDArray[Any], y: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Codes of the IEEE sums; a NaN is the canonical one."""
    with np.errstate(all="ignore"):
        total = elements(x, dtype) + elements(y, dtype)
    codes = bits(total)
    if FORMATS[dtype].kind == "float":
        codes[np.isnan(total)] = {"f16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0xFFF8000000000000}[dtype]
    return codes


# one of each method, and of each format of results
PLANS = list({(fastmma.arithmetic(*each).method, instruction(each[0]).dtype): each for each in METHODS}.values())


@pytest.mark.parametrize("with_c", [True, False])
@pytest.mark.parametrize(("opcode", "target"), PLANS)
def test_promotion(opcode: str, target: str, with_c: bool) -> None:
    """Partial sums from zero, each added by one IEEE add."""
    ins = instruction(opcode)
    for distribution in ("near", "special"):
        a, b, c = operands(opcode, (9, 11, 3 * ins.k + 5), distribution, seed=5)
        start = c if with_c else None
        for every in (ins.k, 2 * ins.k, 8 * ins.k):
            expected = start
            for k in range(0, a.shape[1], every):
                part = looped(ins, target, a[:, k : k + every], b[k : k + every], None)
                expected = part if expected is None else ieee_sum(expected, part, ins.dtype)
            np.testing.assert_array_equal(product(opcode, target, a, b, start, promote_every=every), expected)


@pytest.mark.parametrize("with_c", [True, False])
@pytest.mark.parametrize(("opcode", "target"), PLANS)
def test_split_k(opcode: str, target: str, with_c: bool) -> None:
    """Parts of K of equal length, the first from c, added in ascending order."""
    ins = instruction(opcode)
    for distribution, parts in (("near", 2), ("special", 3), ("near", 50)):
        a, b, c = operands(opcode, (9, 11, 5 * ins.k + 3), distribution, seed=6)
        start = c if with_c else None
        length = -(-a.shape[1] // (parts * ins.k)) * ins.k
        expected = None
        for k in range(0, a.shape[1], length):
            part = looped(ins, target, a[:, k : k + length], b[k : k + length], start if k == 0 else None)
            expected = part if expected is None else ieee_sum(expected, part, ins.dtype)
        np.testing.assert_array_equal(product(opcode, target, a, b, start, split_k=parts), expected)


@pytest.mark.parametrize(("opcode", "target"), PLANS)
def test_plans_of_nothing(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    a, b, c = operands(opcode, (4, 5, 0), "near")
    for options in ({"split_k": 3}, {"promote_every": ins.k}, {"split_k": 2, "promote_every": 2 * ins.k}):
        np.testing.assert_array_equal(product(opcode, target, a, b, c, **options), c)
        assert not product(opcode, target, a, b, None, **options).any()
