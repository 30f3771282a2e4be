"""Kernels of AMD's matrix cores, and integers that stand for the prose of publications: against fractions written from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import matrix_cores, matrix_tiles
from reference.cases import cases

import fastmma
from fastmma import FORMATS, gemm
from fastmma.backends import route
from fastmma.backends.problem import Extents, Problem, Strides
from fastmma.kernels.llvm import cpu
from fastmma.testing import adversarial, assert_bits_equal

Model = Callable[[Any, Any, float, tuple[int, int]], float]
MODELS: dict[str, Model] = {
    "MI100": lambda a, b, c, _: matrix_cores.mi100(a, b, c),
    "MI250X": lambda a, b, c, smallest: matrix_cores.mi250x(a, b, c, smallest[0]),
    "MI300X": lambda a, b, c, smallest: matrix_cores.mi300x(a, b, c, smallest, apart=smallest[0] in (-7, -15)),
}
# the same for many elements at a time
INTEGERS: dict[str, Callable[..., NDArray[np.float32]]] = {
    "MI100": matrix_tiles.exact,
    "MI250X": lambda x, y, c: matrix_tiles.paired(x, y, matrix_tiles.operands_of_sums(c)),
    "MI300X": matrix_tiles.windowed,
}
KINDS = [
    *((target, name, 4) for target, name in (("MI100", "f16"), ("MI250X", "f16"), ("MI250X", "bf16"))),
    ("MI100", "bf16", 2),
    ("MI300X", "f16", 8),
    ("MI300X", "bf16", 8),
    ("MI300X", "tf32", 4),
    ("MI300X", "e4m3fnuz", 16),
    ("MI300X", "e5m2fnuz", 16),
]


def drawn(rng: np.random.Generator, name: str, shape: tuple[int, int], spread: int) -> NDArray[Any]:
    """Finite elements whose exponents spread about 1, and zeros."""
    fmt = FORMATS[name]
    middle = 1.0 if name == "f32" else float(min(spread, fmt.emax - 1))
    values = rng.standard_normal(shape) * 2.0 ** np.clip(rng.integers(-spread, spread + 1, shape), fmt.emin - 3, middle)
    values[rng.random(shape) < 0.1] = 0
    if fmt.padding:
        return (values.astype(np.float32).view(np.uint32) & np.uint32(~((1 << fmt.padding) - 1) & 0xFFFFFFFF)).view(np.float32)
    return np.clip(values, -fmt.max, fmt.max).astype(fmt.dtype)


@cases(("target", "name", "terms"), KINDS)
def test_steps_are_those_of_the_prose(target: str, name: str, terms: int) -> None:
    rng = np.random.default_rng(len(name) + terms)
    fmt, model = FORMATS[name], MODELS[target]
    for spread in (2, 8, 60 if fmt.exponent_bits == 8 else 12):
        a, b = drawn(rng, name, (12, terms), spread), drawn(rng, name, (terms, 20), spread)
        c = drawn(rng, "f32", (12, 20), spread)
        opcode = "v_mfma_f32_16x16x8_xf32" if name == "tf32" else None
        d = gemm(a, b, c, target=target, instruction=opcode)
        rows, columns = a.astype(np.float64).tolist(), b.T.astype(np.float64).tolist()
        expected = np.empty_like(c)
        for i, j in np.ndindex(c.shape):
            expected[i, j] = model(rows[i], columns[j], float(c[i, j]), (fmt.emin, fmt.emin))
        np.testing.assert_array_equal(d.view(np.uint32), expected.view(np.uint32))
        x, y = matrix_tiles.numbers(a[:, None], fmt), matrix_tiles.numbers(b.T[None], fmt)
        apart = {"apart": terms == 16} if target == "MI300X" else {}
        np.testing.assert_array_equal(INTEGERS[target](x, y, c, **apart).view(np.uint32), expected.view(np.uint32))


def test_a_subnormal_sum_between_steps() -> None:
    """MI100's first step rounds 2^-150 to zero; a float64 that kept it would tell the tie of the second step."""
    a = np.ldexp(np.array([1.0, 0, 1, 1]), np.array([-75, 0, -55, -67]))
    c = matrix_cores.mi100(a[:2], a[:2], 0.0)
    assert c == 0
    expected = matrix_cores.mi100(a[2:], a[2:], c)
    row = a.astype(FORMATS["bf16"].dtype)
    d = gemm(np.tile(row, (128, 1)), np.tile(row[:, None], (1, 128)), target="MI100", instruction="v_mfma_f32_16x16x8bf16")
    np.testing.assert_array_equal(d, np.full_like(d, expected))
    assert expected == 2.0**-110


SPECIALS = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 1, 0x80000001], np.uint32).view(np.float32)


@cases(("target", "name", "shape"), [(*kind[:2], shape) for kind in KINDS[2:6] for shape in ((3, 40, 5), (33, 130, 70))])
def test_infinities_and_sums_that_overflow(target: str, name: str, shape: tuple[int, int, int]) -> None:
    """Rows of the table of kernels that take large products, small ones and what others leave out."""
    m, k, n = shape
    rng, fmt = np.random.default_rng(m), FORMATS[name]
    a, b, c = drawn(rng, name, (m, k), 3), drawn(rng, name, (k, n), 3), drawn(rng, "f32", (m, n), 3)
    a[m // 2, 3], b[5, n // 2], a[0, 0] = np.inf, np.nan, fmt.max
    c[1] = np.resize(SPECIALS, n)
    d = gemm(a, b, c, target=target)
    rows = np.unique([0, 1, 2, m // 2])
    expected = gemm(a[rows], b[:, : n // 2 + 2], c[rows, : n // 2 + 2], target=target, backend="reference")
    np.testing.assert_array_equal(d[rows, : n // 2 + 2].view(np.uint32), expected.view(np.uint32))


@cases(("target", "name"), [kind[:2] for kind in KINDS])
def test_zeros_times_a_nan(target: str, name: str) -> None:
    """All of a are zeros: no exponent of theirs says that a column of b needs care."""
    a, b = np.zeros((3, 40), FORMATS[name].dtype), np.ones((40, 5), FORMATS[name].dtype)
    b[7, 2] = np.nan
    for x, y in ((a, b), (b.T, a.T)):
        assert_bits_equal(gemm(x, y, target=target), gemm(x, y, target=target, backend="reference"))


@cases(("target", "name"), [kind[:2] for kind in KINDS])
def test_the_last_instruction_multiplies_the_padding(target: str, name: str) -> None:
    """A sum of tiny negative products is -0; steps of zeros only, which fill the last instruction, make it +0."""
    fmt = FORMATS[name]
    for depth in (1, 3, 9, 17):
        for m, n in ((3, 5), (64, 64)):
            a = np.full((m, depth), 1 << fmt.padding, fmt.code_dtype).view(fmt.dtype)
            b = np.full((depth, n), (1 << fmt.padding) | (1 << (fmt.bits - 1)), fmt.code_dtype).view(fmt.dtype)
            for c in (None, np.full((m, n), -0.0, np.float32)):
                d = gemm(a, b, c, target=target)
                few = None if c is None else c[:2, :3]
                assert_bits_equal(d[:2, :3], gemm(a[:2], b[:, :3], few, target=target, backend="reference"))


def test_lanes_take_large_products() -> None:
    a = np.ones((64, 64), np.float16)
    operation = fastmma.gemm_plan(a, a, target="MI300X").operation
    taken = [
        route.choose(Problem(operation, Extents(1, *extents), Strides((0, 2, 2), (0, 2, 2)), False, False, False)).row.name
        for extents in ((64, 64, 64), (8, 8, 8))
    ]
    lanes = "short steps in lanes" if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= cpu.usable() else "windows"
    assert taken == [lanes, "windows"]


@pytest.mark.parametrize("target", ["MI100", "MI250X", "MI300X"])
def test_float32_is_multiplied_as_it_is(target: str) -> None:
    """AMD's matrix cores multiply float32, by chains of fused multiply-adds; of an NVIDIA GPU the format must be named."""
    a, b = adversarial((9, 37), "f32"), adversarial((37, 5), "f32", seed=1)
    assert_bits_equal(gemm(a, b, target=target), gemm(a, b, instruction="fma.rn.f32", target="H100"))
    with pytest.raises(fastmma.OperandTypeError, match="a has dtype float32: name the instruction"):
        gemm(a, b, target="H100")
