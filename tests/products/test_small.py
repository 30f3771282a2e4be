"""Small products that come again, and prepared ones: kept forms have the bits of the exact reference, and the errors of the first call."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference.paths import taking

import fastmma
from fastmma import OperandError, OperandTypeError
from fastmma.products.bound import Arguments, bind
from fastmma.products.prepared import Prepared

pytestmark = pytest.mark.best_kernels
RNG = np.random.default_rng(11)
USUAL = (RNG.standard_normal((6, 20, 24)) * np.exp2(RNG.integers(-12, 9, (6, 20, 24)))).astype(np.float16)
USUAL[3] = RNG.integers(0, 1 << 16, (20, 24), np.uint16).view(np.float16)
ADDENDS = {name: RNG.standard_normal(shape) * 100 for name, shape in (("c", (20, 20)), ("bias", (20,)))}
for _each in ADDENDS.values():
    _each.ravel()[:2] = np.inf, -0.0
CUBLAS = {"preset": "cublas", "target": "H200"}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"target": "sm_80", "c": "f32"},
    {"out_dtype": "bf16"},
    {"c": "f32", "beta": 0.5, "alpha": 3.0, "out_dtype": "bf16"},
    CUBLAS | {"out_dtype": "bf16", "c": "bf16", "alpha": 0.3},
    CUBLAS | {"out_dtype": "f16", "c": "f16", "beta": -0.7, "alpha": 0.3},
    CUBLAS | {"out_dtype": "f16", "bias": "f16"},
    {"out_dtype": "bf16", "bias": "bf16", "activation": "relu"},
    {"out_dtype": "f32", "bias": "f32", "alpha": -0.0},
    {"target": "sm_80", "c": "f32", "split_k": 3},
    {"promote_every": 16, "c": "f32"},
    {"accumulator": "f16", "out_dtype": "f32", "split_k": 2, "bias": "f32", "activation": "relu"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_product_that_comes_again_has_the_bits_of_the_first(options: dict[str, Any]) -> None:
    """Numbers of all kinds, out of the fast kernels' reach too; as prepared, in place, in stacks, and on several threads at once."""
    dtypes = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
    options = options | {name: ADDENDS[name].astype(dtypes[options[name]]) for name in ("c", "bias") if name in options}
    given = {name: options[name] for name in ("c", "alpha", "beta", "bias") if name in options}
    product, cases = fastmma.prepare(USUAL[0], USUAL[1].T, **options), []
    for index in range(6):
        a, b = USUAL[index], USUAL[index - 1].T if index % 2 else np.ascontiguousarray(USUAL[index - 1].T)
        wanted = fastmma.gemm(a, b, backend="reference", **options).tobytes()
        cases.append((a, b, wanted))
        for path in ("fast", "portable", "fast"):
            with taking(path):
                assert fastmma.gemm(a, b, **options).tobytes() == wanted
                assert fastmma.matmul(a, b, **options).tobytes() == wanted
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(lambda case: product(*case[:2], **given).tobytes() == case[2], cases * 8))
    a, b, wanted = cases[0]
    out = np.empty_like(product(a, b, **given))
    assert product(a, b, out=out, **given) is out
    assert out.tobytes() == wanted
    twice = given | ({"c": np.stack([given["c"]] * 2)} if "c" in given else {})
    assert product(np.stack([a, a]), np.stack([b, b]), **twice).tobytes() == wanted * 2
    assert str(product.plan).startswith("f16 x f16")


def test_forms_are_kept_when_they_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMMA_PORTABLE", "0")
    made: list[Any] = []
    fixed = Prepared.fixed
    monkeypatch.setattr(Prepared, "fixed", lambda self, bound: made.append(bound.a[1]) or fixed(self, bound))
    for _ in range(3):
        for rows in range(1, 6):
            fastmma.gemm(USUAL[0][:rows], USUAL[1].T, target="sm_89")
    assert made == [(rows, 24) for rows in range(1, 6)]


def test_what_is_wrong_is_an_error_each_time() -> None:
    a, b = USUAL[0], USUAL[1].T
    for _ in range(3):
        assert fastmma.gemm(a, b).shape == (20, 20)
        assert fastmma.matmul(a[None], b[None]).shape == (1, 20, 20)
        for wrong in ((a[None], b[None]), (a, b.T), (a, b.astype(ml_dtypes.bfloat16)), (a, b, np.zeros((3, 20), np.float32))):
            with pytest.raises(fastmma.FastmmaError):
                fastmma.gemm(*wrong)
        with pytest.raises(OperandError):
            fastmma.gemm(a, b, metadata=np.zeros((20, 6), np.uint8))


@pytest.mark.parametrize(("a_dtype", "b_dtype"), [(np.int8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8)])
def test_bytes_that_come_again(a_dtype: type, b_dtype: type) -> None:
    """Products of bytes that are kept: both orders, edges of tiles, sums that wrap, and c, which stays as it is."""
    rng = np.random.default_rng(5)
    for rows, columns, k in ((1, 1, 1), (17, 65, 70), (256, 256, 256)):
        a = rng.integers(0, 256, (rows, k)).astype(np.uint8).view(a_dtype)
        b = rng.integers(0, 256, (k, columns)).astype(np.uint8).view(b_dtype)
        c = rng.integers(-(2**31), 2**31, (rows, columns)).astype(np.int32)
        for start in (None, c):
            exact = (a.astype(np.int64) @ b.astype(np.int64) + (0 if start is None else c)).astype(np.int32)
            for left, right in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
                for _ in range(3):
                    found = fastmma.gemm(left, right, start, target="sm_80", threads=1)
                    assert np.array_equal(found, exact)
                    place = np.empty((rows, columns), np.int32)
                    assert fastmma.gemm(left, right, start, target="sm_80", threads=1, out=place) is place
                    assert np.array_equal(place, exact)
                if start is not None:
                    onto = c.copy()
                    assert np.array_equal(fastmma.gemm(left, right, onto, target="sm_80", threads=1, out=onto), exact)


LARGER: tuple[tuple[str, type, int, dict[str, Any]], ...] = (
    ("sm_90a", ml_dtypes.bfloat16, 40, {}),
    ("H200", ml_dtypes.bfloat16, 40, {"preset": "cublas", "out_dtype": "bf16", "bias": "bf16"}),
    ("sm_80", np.float16, 6, {"out_dtype": "f32", "alpha": 0.3}),
    ("sm_89", ml_dtypes.float8_e4m3fn, 2, {"out_dtype": "f16"}),
)


@pytest.mark.parametrize(("target", "dtype", "most", "options"), LARGER)
def test_larger_products_that_come_again(target: str, dtype: type, most: int, options: dict[str, Any]) -> None:
    """Products in panels that one thread keeps: edges of tiles, several slabs of k, exponents that spread, zeros, numbers out of reach."""
    rng = np.random.default_rng(7)
    if "bias" in options:
        options = options | {"bias": rng.standard_normal(259).astype(ml_dtypes.bfloat16)}
    given = {name: options[name] for name in ("bias", "alpha") if name in options}
    for rows, k, spread, special in ((261, 523, 0, 1.0), (130, 600, most, 1.0), (261, 523, 0, np.nan), (261, 523, 0, 0.0)):
        shapes = (rows, k), (k, 259)
        a, b = (
            (rng.standard_normal(shape).clip(-4, 4) * np.exp2(rng.integers(-spread, spread + 1, shape))).astype(dtype) for shape in shapes
        )
        a[3:7, 5] = a[9] = b[:, 11] = special
        product = fastmma.prepare(a, b, target=target, threads=1, **options)
        with taking("portable"):
            wanted = fastmma.gemm(a, b, target=target, **options).tobytes()
        for left, right in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
            for _ in range(2):
                assert product(left, right, **given).tobytes() == wanted


A, B = (RNG.standard_normal(shape).astype(np.float16) for shape in ((24, 200), (200, 40)))
C, BIAS = RNG.standard_normal((24, 40)).astype(np.float32), RNG.standard_normal(40).astype(np.float32)


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
def test_what_a_prepared_product_refuses(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


PARTS = (
    {"split_k": 1},
    {"split_k": 3, "join": "pairwise"},
    {"split_k": 7, "join": "pairwise from the end", "split_unit": 2},
    {"split_k": 66, "dealt": 4},
    {"split_k": 5, "leaves_out": True},
)


@pytest.mark.parametrize("given", PARTS, ids=str)
def test_parts_of_k_that_come_again(given: dict[str, Any]) -> None:
    """Chains of fma for parts of k, joined in every order: stacks, both orders, edges of tiles, c, an epilogue, and NaNs."""
    rng = np.random.default_rng(7)
    plain = fastmma.GemmPlan("H200", "fma.rn.f32", **given)
    bits = rng.integers(0, 1 << 32, (2, 9, 37), np.uint32).view(np.float32)
    for a, b in ((rng.standard_normal((2, 9, 37)), rng.standard_normal((2, 37, 18))), (bits, bits.swapaxes(1, 2))):
        left, right = a.astype(np.float32), np.asfortranarray(b.astype(np.float32))
        c, bias = rng.standard_normal((2, 9, right.shape[2])).astype(np.float32), rng.standard_normal(right.shape[2]).astype(np.float32)
        ends = replace(plain, epilogue=("alpha", "bias", "relu", "round"), out="bf16")
        for plan, start, more in ((plain, None, {}), (plain, c, {}), (ends, None, {"alpha": 0.3, "bias": bias})):
            product = fastmma.prepare(plan=plan, threads=1)
            found = product(left, right, start, **more)
            assert product.fixed(bind(Arguments("", left, right, start, more.get("bias"), more.get("alpha", 1.0)))) is not None
            for index, each in enumerate(found):
                first = None if start is None else start[index]
                wanted = fastmma.gemm(left[index], right[index], first, plan=plan, backend="reference", **more)
                assert each.tobytes() == wanted.tobytes()
