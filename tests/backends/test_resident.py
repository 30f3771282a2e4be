"""Products whose operands and results lie in a GPU's memory: every order of k and every epilogue has the bits of the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference.plain_machine import COMPILER, PlainMachine

import fastmma
from fastmma.backends.gpu import device
from fastmma.backends.gpu.resident import Resident
from fastmma.kernels.params import PROMOTIONS
from fastmma.products.resident import resident_product, resident_scaled_product
from fastmma.products.scaled_operands import ScaledOperand, scaled_operand
from fastmma.scaling import ScaledArray, quantize

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
TF32 = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
T, M, K, N = 2, 40, 96, 24


@pytest.fixture(scope="module", params=["plain C++", pytest.param("GPU", marks=pytest.mark.gpu)])
def resident(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Resident:
    if request.param == "GPU":
        return Resident(device)
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    return Resident(PlainMachine(tmp_path_factory.mktemp("resident")))


@pytest.fixture(autouse=True)
def portable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are compiled soon compute what is expected."""
    monkeypatch.setenv("FASTMMA_PORTABLE", "1")


def on_host(resident: Resident, array: Any) -> Any:
    found = np.empty(array.shape, array.dtype)
    resident.machine.copy_to_host(array, found)
    return found


@pytest.mark.parametrize(
    ("dtype", "target", "options", "ends"),
    [
        (BF16, "H100", {"out_dtype": BF16}, ()),
        (BF16, "B200", {"out_dtype": BF16, "alpha": 0.3, "activation": "relu"}, ("bias",)),
        (np.float16, "sm_80", {"out_dtype": np.float16, "beta": 0.7, "alpha": 1.5}, ("c",)),
        (np.float16, "sm_80", {"split_k": 3, "join": "workspace", "join_dtype": np.float16, "out_dtype": np.float16}, ()),
        (np.float16, "sm_80", {"split_k": 3, "join": "in-place", "out_dtype": np.float16}, ("bias",)),
        (np.float16, "sm_80", {"accumulator": "f16", "split_k": 2, "join": "pairwise"}, ()),
        (np.float16, "sm_80", {"accumulator": "f16", "out_dtype": np.float16, "alpha": 2.5}, ()),
        (np.float32, "sm_80", {"instruction": TF32, "cast": True, "promote_every": 32}, ()),
        (E4M3, "sm_90a", {"promote_every": 32, "out_dtype": BF16}, ()),
        (np.int8, "sm_80", {"split_k": 2}, ()),
        (np.float64, "sm_90a", {"split_k": 2}, ()),
    ],
)
def test_plans_have_the_bits_of_the_cpu(
    resident: Resident, dtype: Any, target: str, options: dict[str, Any], ends: tuple[str, ...]
) -> None:
    generator = np.random.default_rng(0)
    codes = np.dtype(f"u{np.dtype(dtype).itemsize}")

    def drawn(*shape: int) -> Any:
        numbers = (generator.standard_normal(shape) * np.exp2(generator.integers(-6, 6, shape))).astype(np.float32)
        if np.dtype(dtype).kind != "i" and dtype is not E4M3:
            numbers.flat[:3] = np.inf, np.nan, -0.0
        return numbers.astype(dtype)

    a, b = drawn(T, M, K), drawn(T, K, N)
    added = {"c": generator.standard_normal((T, M, N)).astype(np.float32), "bias": generator.standard_normal(N).astype(np.float32)}
    first = {name: added[name][0] if name == "c" else added[name] for name in ends}
    plan = fastmma.gemm_plan(a[0], b[0], target=target, **options, **first)
    factors = {name: options[name] for name in ("alpha", "beta") if name in options}
    send = resident.machine.to_device
    got = resident_product(
        resident, plan, send(a.view(codes)), send(b.view(codes)), **factors, **{name: send(added[name]) for name in ends}
    )
    assert resident.holds(got)
    for index in range(T):
        more = {name: added[name][index] if name == "c" else added[name] for name in ends}
        expected = fastmma.gemm(a[index], b[index], plan=plan, **factors, **more)
        np.testing.assert_array_equal(on_host(resident, got)[index], expected.view(got.dtype))


def test_operands_may_be_transposed_and_shared(resident: Resident) -> None:
    generator = np.random.default_rng(1)
    weights, x = generator.standard_normal((N, K)).astype(np.float16), generator.standard_normal((T, M, K)).astype(np.float16)
    plan = fastmma.gemm_plan(x[0], weights.T, target="H100")
    sent = resident.machine.to_device(weights.view(np.uint16)).T[None]
    got = resident_product(resident, plan, resident.machine.to_device(x.view(np.uint16)), np.broadcast_to(sent, (T, K, N)))
    expected = np.stack([fastmma.gemm(each, weights.T, plan=plan) for each in x])
    np.testing.assert_array_equal(on_host(resident, got), expected.view(np.uint32))


SCALED = [
    ("fp8_tensor", "fp8_tensor", "sm_90a", {"preset": "cublas", "out_dtype": "bf16"}, True),
    ("fp8_row", "fp8_row_e5m2", "sm_90a", {"preset": "cublas", "out_dtype": "f32", "split_k": 2}, False),
    ("fp8_1x128", "fp8_128x128", "sm_90a", {"preset": "deepgemm", "out_dtype": "bf16"}, False),
    *(("fp8_1x128", "fp8_128x128", "sm_90a", {"promotion": rule, "split_k": 2}, False) for rule in PROMOTIONS if rule != "add"),
    ("fp8_1x128", "fp8_1x128", "sm_90a", {"promote_every": 64}, False),
    ("mxfp8_e4m3", "mxfp8_e5m2", "sm_120a", {"out_dtype": "f16"}, False),
    ("mxfp4", "mxfp4", "sm_120a", {}, False),
    ("nvfp4", "nvfp4", "sm_120a", {"out_dtype": "bf16"}, True),
    ("nvfp4", "nvfp4", "sm_90a", {}, False),  # widened, and scaled at promotion
    ("mxfp8_e4m3", "mxfp8_e4m3", "sm_90a", {}, False),
]


@pytest.mark.parametrize(("first", "second", "target", "options", "biased"), SCALED, ids=str)
def test_scaled_products_have_the_bits_of_the_cpu(
    resident: Resident, first: str, second: str, target: str, options: dict[str, Any], biased: bool
) -> None:
    generator = np.random.default_rng(2)
    rows, columns, depth = 37, 140, 288
    x, w = ((generator.standard_normal(shape) * np.exp2(generator.integers(-4, 4, shape))) for shape in ((rows, depth), (columns, depth)))
    a, b = quantize(x, first), quantize(w, second).T
    bias = generator.standard_normal(columns).astype(np.float32) if biased else None
    plan = fastmma.scaled_plan(a, b, target=target, **options)
    send = resident.machine.to_device

    def sent(array: ScaledArray) -> ScaledOperand:
        operand = scaled_operand(array)
        return operand._replace(codes=send(operand.codes), scales=send(operand.scales))

    factors = [each.global_scale for each in (a, b) if each.global_scale is not None]
    alpha = send(np.full((1, 1), np.prod(factors), np.float32)) if factors else None
    got = resident_scaled_product(resident, plan, sent(a), sent(b), alpha=alpha, bias=None if bias is None else send(bias))
    assert resident.holds(got)
    expected = fastmma.scaled_matmul(a, b, plan=plan, bias=bias)
    np.testing.assert_array_equal(on_host(resident, got), expected.view(got.dtype))
