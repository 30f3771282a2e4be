"""Prepared products: the bits of gemm, and its errors, with what can be checked once checked once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma import OperandError, OperandTypeError

RNG = np.random.default_rng(0)
A, B = (RNG.standard_normal(shape).astype(np.float16) for shape in ((24, 200), (200, 40)))
C = RNG.standard_normal((24, 40)).astype(np.float32)
BIAS = RNG.standard_normal(40).astype(np.float32)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"c": C},
        {"target": "sm_80", "c": C, "split_k": 3},
        {"promote_every": 64, "c": C},
        {"out_dtype": "bf16"},
        {"preset": "cublas", "target": "H200", "out_dtype": "f16", "c": C.astype(np.float16), "beta": 0.5, "alpha": 3.0},
        {"bias": BIAS, "activation": "relu", "out_dtype": "f16", "split_k": 2},
        {"accumulator": "f16", "out_dtype": "f32"},
        {"backend": "reference", "c": C},
    ],
    ids=str,
)
def test_a_prepared_product_is_gemm(options: dict[str, Any]) -> None:
    wanted = fastmma.gemm(A, B, **options)
    product = fastmma.prepare(A, B, **options)
    given = {name: options[name] for name in ("c", "alpha", "beta", "bias") if name in options}
    for _ in range(2):
        found = product(A, B, **given)
        assert found.dtype == wanted.dtype
        assert found.tobytes() == wanted.tobytes()
    out = np.empty_like(wanted)
    assert product(A, B, out=out, **given) is out
    assert out.tobytes() == wanted.tobytes()
    stacked = product(np.stack([A, A]), np.stack([B, B]), **{name: _twice(name, value) for name, value in given.items()})
    assert stacked.tobytes() == wanted.tobytes() * 2
    assert str(product.plan).startswith("f16 x f16")


def _twice(name: str, value: Any) -> Any:
    return np.stack([value, value]) if name == "c" else value


def test_operands_of_any_strides_and_of_other_sizes() -> None:
    product = fastmma.prepare("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80")
    for a, b in ((A, B), (A[::-1, ::2], B[::2]), (B.T, A.T), (A[:0], B), (A[:, :0], B[:0])):
        assert product(a, b).tobytes() == fastmma.gemm(a, b, instruction=product.plan.instruction, target="sm_80").tobytes()
    total = C.copy()
    assert product(A, B, total, out=total) is total
    assert total.tobytes() == product(A, B, C).tobytes()
    again = fastmma.prepare(plan=product.plan, threads=1)
    assert again(A, B, C).tobytes() == total.tobytes()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: fastmma.prepare(), OperandError),
        (lambda: fastmma.prepare("mma.m16n8k16.f32.f16", instruction="mma.m16n8k16.f32.f16"), OperandError),
        (lambda: fastmma.prepare("mma.sp.m16n8k32.f32.f16", "sm_80"), OperandError),
        (lambda: fastmma.prepare(A, B)(A, B.T), OperandError),
        (lambda: fastmma.prepare(A, B)(A, B[None]), OperandError),
        (lambda: fastmma.prepare(A, B)(A, B, C[:3]), OperandError),
        (lambda: fastmma.prepare(A, B)(A, B, bias=BIAS), OperandError),
        (lambda: fastmma.prepare(A, B)(A.astype(ml_dtypes.bfloat16), B), OperandTypeError),
        (lambda: fastmma.prepare(A, B, threads=0), OperandError),
        (lambda: fastmma.prepare(A, B)(A, B, out=np.empty((24, 40), np.float16)), OperandTypeError),
    ],
)
def test_what_is_wrong_is_an_error(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


ENDS: list[dict[str, Any]] = [
    {},
    {"out_dtype": "bf16"},
    {"preset": "cublas", "target": "H200", "out_dtype": "f16", "c": "f16"},
    {"preset": "cublas", "target": "H200", "out_dtype": "bf16", "c": "bf16", "alpha": 0.3},
    {"preset": "cublas", "target": "H200", "out_dtype": "f16", "c": "f16", "beta": -0.7, "alpha": 0.3},
    {"preset": "cublas", "target": "H200", "out_dtype": "f16", "bias": "f16"},
    {"out_dtype": "bf16", "bias": "bf16", "activation": "relu"},
    {"out_dtype": "f32", "bias": "f32", "alpha": -0.0},
    {"c": "f32"},
]


@pytest.mark.parametrize("options", ENDS, ids=str)
def test_small_products_again_and_again(options: dict[str, Any]) -> None:
    """Forms that are kept, with numbers of all kinds, out of the fast kernels' reach too, on several threads at once."""
    dtypes = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 1 << 16, (6, 20, 24), np.uint16)
    usual = (rng.standard_normal((6, 20, 24)) * np.exp2(rng.integers(-8, 8, (6, 20, 24)))).astype(np.float16)
    usual[3] = bits[3].view(np.float16)
    given = {name: value for name, value in options.items() if name not in ("c", "bias")}
    product = fastmma.prepare(usual[0], usual[1].T, **given, **_addends(options, dtypes, rng))
    cases = []
    for index in range(6):
        addends = _addends(options, dtypes, rng)
        factors = {name: options[name] for name in ("alpha", "beta") if name in options}
        a, b = usual[index], usual[index - 1].T if index % 2 else np.ascontiguousarray(usual[index - 1].T)
        cases.append((a, b, factors | addends, fastmma.gemm(a, b, **given, **addends).tobytes()))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda case: product(case[0], case[1], **case[2]).tobytes() == case[3], cases * 8))
    assert found == [True] * 48


def _addends(options: dict[str, Any], dtypes: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    shapes = {"c": (20, 20), "bias": (20,)}
    found = {}
    for name, shape in shapes.items():
        if name in options:
            found[name] = (rng.standard_normal(shape) * 100).astype(dtypes[options[name]])
            found[name].ravel()[:2] = np.inf, -0.0
    return found
