"""Epilogues of gemm and matmul: every rounding by definition, in the order that the plan prints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference.ieee import fused, nearest, plus, times
from reference.products import bits, elements

import fastmma
from fastmma import OperandError, OperandTypeError, gemm, gemm_plan, matmul
from fastmma.products.epilogue import f32_code
from fastmma.scaling import quantize

FORMATS: dict[str, Any] = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}


def drawn(name: str, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    if name in ("s8", "u8"):
        return rng.integers(-100, 100, shape).astype(np.int8)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 4, shape)).astype(fastmma.FORMATS[name].dtype)


def number(value: float) -> float:
    return nearest(value)


def by_steps(steps: tuple[str, ...], out: str, x: float, alpha: float, beta: float, c: float, bias: float) -> float:
    """One element, step by step."""
    given = {"alpha": number(alpha), "bias": bias, "c": times(number(beta), c)}
    rounded = "f32"
    for step in steps:
        values = [nearest(given[name], rounded) for name in step.split("+") if name in given]
        match step:
            case "round":
                rounded = out
            case "relu":
                x = max(x, 0.0)
            case "beta*c":
                x = fused(number(beta), nearest(c, rounded), x)
            case "alpha":
                x = times(x, values[0])
            case "bias" | "c":
                x = plus(x, values[0])
            case _:
                x = fused(x, *values)
        x = nearest(x, rounded)
    return x


CALLS = [
    (
        "f16",
        {"bias": True, "alpha": 0.3, "beta": 1.7, "activation": "relu", "out_dtype": "bf16"},
        ("alpha+bias", "beta*c", "relu", "round"),
    ),
    ("bf16", {"alpha": 0.1, "beta": 1, "out_dtype": "f16"}, ("alpha", "c", "round")),
    ("e4m3", {"bias": True, "out_dtype": "bf16"}, ("bias", "round")),
    ("f16", {"beta": -0.37}, ("beta*c", "round")),
    ("s8", {"alpha": 0.01, "bias": True, "out_dtype": "f16"}, ("alpha+bias", "round")),
    ("f16", {"accumulator": "f16", "alpha": 0.3, "activation": "relu"}, ("alpha", "relu", "round")),
    ("f16", {"accumulator": "f16", "bias": True, "out_dtype": "f32"}, ("bias", "round")),
    ("f16", {"preset": "cublas", "alpha": 0.3, "beta": 1.0, "out_dtype": "bf16"}, ("alpha", "round", "c")),
    ("f16", {"preset": "cublas", "alpha": 0.3, "bias": True, "activation": "relu", "out_dtype": "f16"}, ("alpha", "bias", "relu", "round")),
]


@pytest.mark.parametrize("c_dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("name", "options", "steps"), CALLS)
def test_every_rounding(name: str, options: dict[str, Any], steps: tuple[str, ...], c_dtype: str) -> None:
    rows, columns, depth = 13, 9, 72
    a, b = drawn(name, (rows, depth), 0), drawn(name, (depth, columns), 1)
    c, bias = drawn(c_dtype, (rows, columns), 2), drawn(c_dtype, (columns,), 3)
    given = {key: value for key, value in options.items() if key != "bias"}
    given |= ({"c": c} if "beta" in options else {}) | ({"bias": bias} if options.get("bias") else {})
    plan = gemm_plan(a, b, **given)
    sums = gemm(a, b, **{key: options[key] for key in ("accumulator",) if key in options})
    assert plan.epilogue == steps
    out, factors = plan.out, (options.get("alpha", 1), options.get("beta", 1))
    expected = np.empty((rows, columns), FORMATS[out])
    for i, j in np.ndindex(rows, columns):
        expected[i, j] = by_steps(steps, out, nearest(float(sums[i, j])), *factors, float(c[i, j]), float(bias[j]))
    for backend in ("numba", "reference"):
        found = gemm(a, b, backend=backend, **given)
        assert found.dtype == FORMATS[out]
        np.testing.assert_array_equal(bits(found), bits(expected))
    values = {key: value for key, value in given.items() if key in ("c", "alpha", "beta", "bias")}
    into = np.zeros((rows, 2 * columns), FORMATS[out])[:, ::2]
    assert gemm(a, b, plan=plan, out=into, threads=2, **values) is into
    np.testing.assert_array_equal(bits(into), bits(expected))
    stack = {key: np.stack([value, value[::-1]]) if key == "c" else value for key, value in values.items()}
    both = matmul(np.stack([a, a[::-1]]), b, plan=plan, **stack)
    np.testing.assert_array_equal(bits(both), np.stack([bits(expected), bits(expected)[::-1]]))


def test_out_decides_the_last_rounding_only() -> None:
    a, b = drawn("f16", (5, 64), 0), drawn("f16", (64, 7), 1)
    expected = gemm(a, b).astype(np.float16)
    out = np.zeros((5, 7), np.float16)
    assert gemm(a, b, out=out) is out
    np.testing.assert_array_equal(bits(out), bits(expected))
    np.testing.assert_array_equal(bits(gemm(a, b, out_dtype=np.float16)), bits(expected))
    short = gemm(a, b, accumulator=np.float16)
    assert short.dtype == np.float16
    assert (bits(short) != bits(expected)).any()
    np.testing.assert_array_equal(bits(gemm(a, b, np.zeros((5, 7), np.float16))), bits(short))
    np.testing.assert_array_equal(bits(gemm(a, b, accumulator="f16", out_dtype="f32")), bits(short.astype(np.float32)))


def test_floats_of_python_have_no_format() -> None:
    for call in (gemm, matmul):
        with pytest.raises(OperandTypeError, match=rf"{call.__name__}: a is made of Python's floats, which have no format"):
            call([[1.0, 2.0]], np.ones((2, 1), np.float16))
    assert gemm([[1.0]], [[2.0]], instruction="mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64").tolist() == [[2.0]]


def test_plans_say_what_happens_to_float32_operands() -> None:
    opcode = "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32"
    a = np.full((8, 8), 1 + 2.0**-11 + 2.0**-12, np.float32)
    assert "low 13 are not read; cuBLAS rounds to tf32 first" in str(gemm_plan(a, a, instruction=opcode))
    assert "rounded to tf32" in str(gemm_plan(a, a, instruction=opcode, cast=True))
    assert gemm(a, a, instruction=opcode)[0, 0] == 8
    assert gemm(a, a, instruction=opcode, cast=True)[0, 0] == 8 * (1 + 2.0**-10) ** 2


def test_specials_and_zeros() -> None:
    a = np.array([[0.0], [1.0], [-1.0], [np.inf], [np.nan]], np.float16)
    b = np.array([[0.0, 1.0, -2.0]], np.float16)
    for options in ({"activation": "relu"}, {"alpha": -0.0}, {"bias": np.array([np.nan, -np.inf, -0.0], np.float32)}):
        found = [gemm(a, b, out_dtype="bf16", backend=backend, **options) for backend in ("numba", "reference")]
        np.testing.assert_array_equal(*map(bits, found))
    relu = gemm(a, b, activation="relu")
    assert bits(relu[:3]).ravel().tolist() == bits(np.array([0, 0, 0, 0, 1, 0, 0, 0, 2], np.float32)).tolist()
    assert np.isnan(relu[4]).all()
    # as in BLAS, c is not read where beta is 0
    assert np.isfinite(gemm(a[:3], b, np.full((3, 3), np.nan, np.float32), beta=0.0)).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"beta": 2.0}, OperandError, "beta multiplies c, which is not given"),
        ({"beta": "2", "c": np.zeros((4, 4), np.float32)}, OperandTypeError, "beta must be a real number"),
        ({"alpha": [1, 2]}, OperandTypeError, "alpha must be a real number"),
        ({"activation": "silu"}, OperandError, "activation must be one of relu, gelu, gelu-fma, not 'silu'"),
        ({"out_dtype": "e4m3"}, OperandTypeError, "out_dtype must be one of f32, bf16, f16"),
        ({"out_dtype": "f99"}, OperandTypeError, "out_dtype"),
        ({"accumulator": "s32"}, fastmma.InstructionError, "no instruction for f16 times f16 with a s32 accumulator"),
        ({"accumulator": "bf16"}, OperandTypeError, "accumulator must be float16, float32, float64 or int32"),
        ({"bias": np.zeros(5, np.float32)}, OperandError, r"bias must have shape \(4,\), not \(5,\)"),
        ({"bias": np.zeros(4)}, OperandTypeError, "bias must have dtype float32, bfloat16, float16"),
        ({"beta": 1, "c": np.zeros((4, 4))}, OperandTypeError, "c must have dtype"),
        ({"out_dtype": "f16", "out": np.zeros((4, 4), np.float32)}, OperandTypeError, "out must have dtype float16"),
        ({"c": np.zeros((4, 4), np.float16), "accumulator": "f32"}, OperandTypeError, "c must have dtype float32"),
    ],
)
def test_errors(options: dict[str, Any], error: type[Exception], message: str) -> None:
    a = np.ones((4, 16), np.float16)
    for call in (gemm, matmul):
        with pytest.raises(error, match=message):
            call(a, a.T, **options)


def test_plans_without_a_place_for_what_is_given() -> None:
    a, ones = np.ones((4, 16), np.float16), np.ones((4, 4), np.float32)
    plain = gemm_plan(a, a.T)
    for given, name in (({"alpha": 2.0}, "alpha"), ({"bias": ones[0]}, "bias"), ({"beta": 1.0, "c": ones}, "beta")):
        with pytest.raises(OperandError, match=f"epilogue .* has no step for {name}"):
            gemm(a, a.T, plan=plain, **given)
    for steps, out, message in (
        (("round",), "", "the result of an epilogue must be one of f32, bf16, f16"),
        (("alpha",), "f32", "'round' exactly once"),
        (("scale_a", "round"), "f32", "gemm's epilogue has no scales"),
        (("c", "beta*c", "round"), "f32", "each operand at most once"),
        (("silu", "round"), "f32", "a step of an epilogue is one of"),
        ("round", "f32", "must be a tuple"),
    ):
        with pytest.raises(OperandError, match=message):
            replace(plain, epilogue=steps, out=out)  # type: ignore[arg-type]
    twice = replace(plain, epilogue=("alpha", "round", "bias"), out="bf16")
    bias = np.full(4, 0.3, np.float32)
    expected = elements(bits(np.full((4, 4), 16 * 0.1, np.float32).astype(ml_dtypes.bfloat16)), "bf16") + bias.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(gemm(a, a.T, plan=twice, alpha=0.1, bias=bias), expected)
    assert "x * alpha; round to bf16; x + bias, rounded to bf16" in str(twice)
    double = np.ones((2, 2))
    with pytest.raises(OperandError, match="an epilogue takes sums in f32, f16, s32, not f64"):
        gemm(double, double, alpha=2.0)


def test_the_inner_dimensions_differ() -> None:
    a = np.ones((4, 16), np.float16)
    with pytest.raises(OperandError, match=r"; b\.T would fit"):
        gemm(a, a)
    with pytest.raises(OperandError, match=r"; b\.swapaxes\(-1, -2\) would fit"):
        matmul(a, a)
    with pytest.raises(OperandError, match=r"not \(4, 16\) and \(5, 3\)$"):
        gemm(a, np.ones((5, 3), np.float16))


@pytest.mark.parametrize("out_dtype", ["bf16", "f32"])
@pytest.mark.parametrize("shape", [(2100,), (3, 700)])
def test_sums_are_finished_some_rows_or_products_at_a_time(shape: tuple[int, ...], out_dtype: str) -> None:
    a, b, c = drawn("f16", (*shape, 40), 1), drawn("f16", (40, 9), 2), drawn("f32", (*shape, 9), 3)
    a[(*(extent - 1 for extent in shape), 7)] = np.inf
    options: dict[str, Any] = {"target": "sm_90a", "alpha": 0.3, "beta": 1.7, "bias": drawn("f32", (9,), 4), "out_dtype": out_dtype}
    found = matmul(a, b, c=c, **options)
    rows = np.r_[0, 1, 698:702, 1049:1052, 1399:1401, 2099]
    expected = matmul(a.reshape(2100, 40)[rows], b, c=c.reshape(2100, 9)[rows], **options, backend="reference")
    assert np.array_equal(bits(found.reshape(2100, 9)[rows]), bits(expected))


def test_scaled_products_are_finished_some_rows_at_a_time() -> None:
    a = quantize(drawn("f32", (2100, 64), 1), "mxfp8_e4m3")
    b = quantize(drawn("f32", (64, 9), 2), "mxfp8_e4m3", axis=0)
    c, rows = drawn("f32", (2100, 9), 3), slice(1040, 1060)
    options: dict[str, Any] = {"target": "sm_120a", "alpha": 0.3, "out_dtype": "bf16"}
    found = fastmma.scaled_matmul(a, b, c=c, beta=1.7, **options)
    expected = fastmma.scaled_matmul(a[rows], b, c=c[rows], beta=1.7, **options, backend="reference")
    assert np.array_equal(bits(found[rows]), bits(expected))


def test_factors_are_rounded_to_f32_as_encode_has_it() -> None:
    rng = np.random.default_rng(6)
    drawn_codes = rng.integers(0, 1 << 64, 4000, np.uint64).view(np.float64)
    near = np.ldexp(rng.standard_normal(4000), rng.integers(-160, 130, 4000))
    halves = np.ldexp(rng.integers(1 << 24, 1 << 25, 1000) * 2.0 + 1, -30)  # ties, and subnormals of f32
    edges = [0.0, -0.0, 1.0, 2.0**127, -(2.0**127), 3.4028235677973366e38, 2.0**-150, 2.0**-149, 1e-320, np.inf, -np.inf, np.nan]
    for value in [*edges, *drawn_codes.tolist(), *near.tolist(), *halves.tolist(), *(halves * 2.0**-140).tolist()]:
        assert f32_code(value, "alpha") == int(fastmma.encode(value, "f32")), value
