"""Programs of torch with an AMD GPU's matrix cores: products are assumed, with the bits of gemm, and nothing else is claimed."""

from __future__ import annotations

import numpy as np
import pytest
from reference.cases import cases

torch = pytest.importorskip("torch", reason="torch is not installed")

import fastmma  # noqa: E402
from fastmma.scaling import quantize  # noqa: E402
from fastmma.torch import emulate, to_numpy, to_torch  # noqa: E402

PRODUCTS = [
    ("MI300X", "float16", "v_mfma_f32_16x16x16_f16"),
    ("MI300X", "bfloat16", "v_mfma_f32_16x16x16_bf16"),
    ("MI300X", "float32", "v_mfma_f32_16x16x4_f32"),
    ("MI250X", "float16", "v_mfma_f32_16x16x16_f16"),
    ("MI100", "bfloat16", "v_mfma_f32_16x16x8bf16"),
]


@pytest.mark.filterwarnings("ignore::fastmma.torch.AssumedWarning")
@cases(("target", "dtype", "opcode"), PRODUCTS)
def test_products_have_the_bits_of_gemm(target: str, dtype: str, opcode: str) -> None:
    a, b = (torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype)) for shape in ((33, 70), (70, 20)))
    with emulate(target) as run:
        d = a @ b
    (line,) = (line for line in str(run.report).splitlines() if "aten.mm" in line)
    assert f"assumed       1  aten.mm.default  {dtype} (33, 70) x {dtype} (70, 20): {opcode}; no plan of rocBLAS or hipBLASLt" in line
    expected = fastmma.gemm(to_numpy(a), to_numpy(b), instruction=opcode, target=target, out_dtype=to_numpy(d).dtype)
    np.testing.assert_array_equal(to_numpy(d).view(np.uint8), expected.view(np.uint8))


@pytest.mark.filterwarnings("ignore::fastmma.torch.AssumedWarning")
@cases(("first", "second", "opcode"), [("e4m3fnuz", "e4m3fnuz", "fp8_fp8"), ("e4m3fnuz", "e5m2fnuz", "fp8_bf8")])
@pytest.mark.parametrize("scheme", ["fp8_tensor", "fp8_row"])
def test_scaled_products_of_fnuz(scheme: str, first: str, second: str, opcode: str) -> None:
    x, y = (np.random.default_rng(seed).standard_normal(shape).astype(np.float32) for seed, shape in enumerate([(32, 64), (48, 64)]))
    a, b = quantize(x, f"{scheme}_{first}"), quantize(y, f"{scheme}_{second}")
    tensors = [to_torch(each) for each in (a.elements, b.elements, a.scales, b.scales)]
    with emulate("MI300X") as run:
        d = torch._scaled_mm(tensors[0], tensors[1].t(), tensors[2], tensors[3].t(), out_dtype=torch.bfloat16)
    (line,) = (line for line in str(run.report).splitlines() if "aten._scaled_mm" in line)
    assert f"v_mfma_f32_16x16x32_{opcode}; no plan of rocBLAS or hipBLASLt for {first} on gfx942" in line
    np.testing.assert_array_equal(to_numpy(d), fastmma.scaled_matmul(a, b.T, target="MI300X", out_dtype="bf16"))


def test_what_is_not_known_passes() -> None:
    for target in ("MI355X", "RX 7900 XTX"):
        with emulate(target) as run:
            torch.ones(4, 4) @ torch.ones(4, 4)
            torch.ones(4, 4).half() @ torch.ones(4, 4).half()
        assert "0 calls emulated, 0 assumed, 2 passed" in str(run.report)
