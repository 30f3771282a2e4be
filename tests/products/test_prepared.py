"""Prepared products: the bits of gemm, and its errors, with what can be checked once checked once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma import OperandError, OperandTypeError

pytestmark = pytest.mark.best_kernels
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
        {"backend": "reference", "c": C[:2]},
    ],
)
def test_a_prepared_product_is_gemm(options: dict[str, Any]) -> None:
    a = A[: len(options.get("c", A))]
    wanted = fastmma.gemm(a, B, **options)
    product = fastmma.prepare(a, B, **options)
    given = {name: options[name] for name in ("c", "alpha", "beta", "bias") if name in options}
    for _ in range(2):
        found = product(a, B, **given)
        assert found.dtype == wanted.dtype
        assert found.tobytes() == wanted.tobytes()
    out = np.empty_like(wanted)
    assert product(a, B, out=out, **given) is out
    assert out.tobytes() == wanted.tobytes()
    twice = given | ({"c": np.stack([given["c"]] * 2)} if "c" in given else {})
    stacked = product(np.stack([a, a]), np.stack([B, B]), **twice)
    assert stacked.tobytes() == wanted.tobytes() * 2
    assert str(product.plan).startswith("f16 x f16")


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
