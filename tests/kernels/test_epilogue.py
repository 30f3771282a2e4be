"""The epilogue's operations on f32 sums: against exact arithmetic, on every kind of number."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases
from reference.ieee import fused, nearest, plus, times

from fastmma.kernels.params import OPERATIONS, Step
from fastmma.kernels.sums import epilogue
from fastmma.numerics import reference_sums
from fastmma.verification.inputs import codes

Codes = NDArray[Any]
NAN = 0x7FFFFFFF


def drawn(distribution: str, shape: tuple[int, int], seed: int) -> Codes:
    return codes("f32", distribution, shape[0] * shape[1], np.random.default_rng(seed)).reshape(shape)


def operands(distribution: str, shape: tuple[int, int]) -> list[NDArray[np.float32]]:
    """A matrix, and a row, a column and a number that broadcast."""
    found = [drawn(distribution, size, seed) for seed, size in enumerate((shape, (1, shape[1]), (shape[0], 1), (1, 1)))]
    return [np.broadcast_to(each, shape).view(np.float32) for each in found]


@cases("distribution", ["bits", "special", "mid", "tiny", "big", "finite edges"])
@cases("operation", OPERATIONS)
def test_kernels_equal_the_reference(operation: str, distribution: str) -> None:
    for shape in ((1, 1), (3, 8), (7, 37)):
        sums = drawn(distribution, shape, 9)
        given = operands(distribution, shape)
        for first, second in zip(given, given[::-1], strict=True):
            steps = [Step(operation, first, second)]
            found = sums.copy()
            epilogue.apply(found, steps, 2)
            np.testing.assert_array_equal(found, reference_sums.apply(sums, steps))


@pytest.mark.parametrize("exponents", [(-3, 3), (-40, 40), (-150, -30)])
def test_the_reference_by_definition(exponents: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    values = (rng.standard_normal((3, 20, 20)) * 2.0 ** rng.uniform(*exponents, (3, 20, 20))).astype(np.float32)
    x, first, second = values
    formulas = {"multiply": lambda x, y, _: times(x, y), "add": lambda x, y, _: plus(x, y), "fma": fused}
    for operation, formula in formulas.items():
        found = reference_sums.apply(x.view(np.uint32), [Step(operation, first, second)]).view(np.float32)
        for at in np.ndindex(20, 20):
            assert found[at] == formula(*(float(each[at]) for each in values))
    for fmt in ("bf16", "f16"):
        found = reference_sums.apply(x.view(np.uint32), [Step(f"round to {fmt}")]).view(np.float32)
        for at in np.ndindex(20, 20):
            assert found[at] == nearest(float(x[at]), fmt)


@pytest.mark.parametrize(
    ("operation", "code", "expected"),
    [
        ("round to bf16", 0x3F808000, 0x3F800000),  # ties to even
        ("round to bf16", 0x3F818000, 0x3F820000),
        ("round to bf16", 0x7F7FFFFF, 0x7F800000),  # overflow
        ("round to bf16", 0x80000001, 0x80000000),
        ("round to bf16", 0x00008001, 0x00010000),  # a subnormal
        ("round to bf16", 0x7F800001, NAN),
        ("round to f16", 0x477FEFFF, 0x477FE000),  # 65519.996 stays 65504
        ("round to f16", 0x477FF000, 0x7F800000),  # 65520 does not
        ("round to f16", 0x33000000, 0x00000000),  # 2**-25 is a tie with zero
        ("round to f16", 0xB3000001, 0xB3800000),
        ("round to f16", 0xFFC00000, NAN),
        ("convert from s32", 0x01000001, 0x4B800000),  # 2**24 + 1
        ("convert from s32", 0x01000003, 0x4B800002),
        ("convert from s32", 0x80000000, 0xCF000000),
        ("convert from s32", 0xFFFFFFFF, 0xBF800000),
    ],
)
def test_facts(operation: str, code: int, expected: int) -> None:
    sums = np.full((2, 9), code, np.uint32)
    assert (reference_sums.apply(sums, [Step(operation)]) == expected).all()
    epilogue.apply(sums, [Step(operation)], 1)
    assert (sums == expected).all()


@pytest.mark.parametrize(("fmt", "dtype"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_narrowing(fmt: str, dtype: Any) -> None:
    """Every value of the narrow format comes back; a NaN is the canonical one."""
    every = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        wide = every.view(dtype).astype(np.float32).view(np.uint32).reshape(256, 256)
    out = np.zeros((256, 512), np.uint16)[:, ::2]
    epilogue.narrow(wide, out, fmt == "f16", 3)
    infinity = 0x7F80 if fmt == "bf16" else 0x7C00
    expected = np.where((every & 0x7FFF) > infinity, 0x7FFF, every).reshape(256, 256)
    # bits of a NaN are whatever the rounding left: it is canonical there
    np.testing.assert_array_equal(out[~np.isnan(wide.view(np.float32))], expected[~np.isnan(wide.view(np.float32))])
    np.testing.assert_array_equal(reference_sums.narrow(wide, fmt), expected)
    canonical = np.full((1, 1), NAN, np.uint32)
    epilogue.narrow(canonical, out[:1, :1], fmt == "f16", 1)
    assert out[0, 0] == 0x7FFF
