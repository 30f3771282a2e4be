"""Live comparison with torch and torchao, where they are installed (extra ``integrations``); written for torch 2.13 and torchao 0.18."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastmma.isa.codes import all_codes, decode
from fastmma.scaling import from_blocked, pack_e2m1, quantize, to_blocked, unpack_e2m1

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="torch is not installed (extra 'integrations')")

RNG = np.random.default_rng(8)
SHAPE = (256, 512)


@pytest.fixture(scope="module")
def mx() -> Any:
    """torchao's MX formats."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torchao.prototype.mx_formats.mx_tensor", reason="torchao is not installed (extra 'integrations')")


@pytest.fixture(scope="module")
def nvfp4() -> Any:
    """torchao's NVFP4."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor", reason="torchao is not installed (extra 'integrations')")


def data(kind: str) -> NDArray[np.float32]:
    """Numbers whose blocks keep clear of the least scale, 2**-127, where torchao replaces it by others."""
    if kind == "normal":
        return RNG.standard_normal(SHAPE).astype(np.float32)
    if kind == "spread":
        return (RNG.standard_normal(SHAPE) * np.exp2(RNG.integers(-20, 21, SHAPE))).astype(np.float32)
    if kind == "ties":
        return (RNG.integers(-255, 256, SHAPE) * np.exp2(RNG.integers(-7, 1, SHAPE))).astype(np.float32)
    bits = RNG.integers(0, 1 << 32, SHAPE, dtype=np.uint64).astype(np.uint32)
    # nothing that is, or in bfloat16 becomes, an infinity: torchao gives its block the largest scale
    return np.where((bits >> 23) & 0xFF >= 0xFE, 0, bits).astype(np.uint32).view(np.float32)


KINDS = ("normal", "spread", "ties", "bits")


def codes(tensor: Any) -> NDArray[np.uint8]:
    return np.asarray(tensor.view(torch.uint8).numpy())


@pytest.mark.parametrize(("scheme", "dtype"), [("mxfp8_e4m3", "float8_e4m3fn"), ("mxfp8_e5m2", "float8_e5m2")])
@pytest.mark.parametrize("kind", KINDS)
def test_fp8_casts(scheme: str, dtype: str, kind: str) -> None:
    """A block scale of 1 leaves torch's cast; elements are within the range, whose excess torch has not always saturated."""
    largest = 448 if dtype == "float8_e4m3fn" else 57344
    x = np.clip(data(kind), -largest, largest)
    x[:, ::32] = largest
    q = quantize(x, scheme)
    assert (q.scales.astype(np.float32) == 1).all()
    assert np.array_equal(q.elements.view(np.uint8), codes(torch.from_numpy(x).to(getattr(torch, dtype))))


@pytest.mark.parametrize(("name", "dtype"), [("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2"), ("ue8m0", "float8_e8m0fnu")])
def test_values_of_all_codes(name: str, dtype: str) -> None:
    values = torch.from_numpy(all_codes(name).copy()).view(getattr(torch, dtype)).to(torch.float32).numpy()
    assert np.array_equal(values, decode(all_codes(name), name).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("rule", ["floor", "ceil", "rceil", "even"])
@pytest.mark.parametrize("scheme", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4"])
def test_to_mx(mx: Any, scheme: str, rule: str) -> None:
    dtypes = {
        "mxfp8_e4m3": torch.float8_e4m3fn,
        "mxfp8_e5m2": torch.float8_e5m2,
        "mxfp6_e3m2": mx.DTYPE_FP6_E3M2,
        "mxfp6_e2m3": mx.DTYPE_FP6_E2M3,
        "mxfp4": torch.float4_e2m1fn_x2,
    }
    for kind in KINDS:
        x = data(kind)
        for form in (torch.from_numpy(x), torch.from_numpy(x).to(torch.bfloat16)):
            scales, elements = mx.to_mx(form, dtypes[scheme], 32, mx.ScaleCalculationMode(rule))
            q = quantize(form.to(torch.float32).numpy(), scheme, rule=rule)
            assert np.array_equal(q.scales.view(np.uint8), codes(scales).reshape(q.scales.shape))
            packed = pack_e2m1(q.elements) if scheme == "mxfp4" else q.elements.view(np.uint8)
            assert np.array_equal(packed, codes(elements))


@pytest.mark.parametrize("kind", KINDS[:3])
def test_nvfp4_quantize(nvfp4: Any, kind: str) -> None:
    x = data(kind)
    tensor = torch.from_numpy(x)
    overall = nvfp4.per_tensor_amax_to_scale(tensor.abs().amax())
    scales, elements = nvfp4.nvfp4_quantize(tensor, 16, overall)
    q = quantize(x, "nvfp4", rule="torchao")
    assert q.global_scale == overall.item()
    assert np.array_equal(q.scales.view(np.uint8), codes(scales).reshape(q.scales.shape))
    assert np.array_equal(q.elements.view(np.uint8), unpack_e2m1(codes(elements).reshape(SHAPE[0], -1)).view(np.uint8))


@pytest.mark.parametrize("shape", [(1, 1), (128, 4), (300, 17), (129, 5)])
def test_blocked_scales(mx: Any, shape: tuple[int, int]) -> None:
    scales = RNG.integers(0, 256, shape, dtype=np.uint8)
    blocked = mx.to_blocked(torch.from_numpy(scales)).numpy()
    assert np.array_equal(to_blocked(scales), blocked)
    assert np.array_equal(from_blocked(blocked, *shape), scales)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_deepgemm(kind: str) -> None:
    """DeepGEMM's per_token_cast_to_fp8 and per_block_cast_to_fp8, its operations in torch."""
    x = data(kind)
    tensor = torch.from_numpy(x)
    rows = tensor.view(SHAPE[0], -1, 128)
    scales = rows.abs().amax(dim=2).clamp(1e-4) / 448.0
    q = quantize(x, "fp8_1x128", rule="deepgemm")
    assert np.array_equal(q.scales, scales.numpy())
    assert np.array_equal(q.elements.view(np.uint8), codes((rows * (1.0 / scales.unsqueeze(2))).to(torch.float8_e4m3fn)).reshape(SHAPE))
    tiles = tensor.view(SHAPE[0] // 128, 128, SHAPE[1] // 128, 128)
    scales = tiles.abs().amax(dim=(1, 3), keepdim=True).clamp(1e-4) / 448.0
    q = quantize(x, "fp8_128x128", rule="deepgemm")
    assert np.array_equal(q.scales, scales.numpy().reshape(q.scales.shape))
    assert np.array_equal(q.elements.view(np.uint8), codes((tiles * (1.0 / scales)).to(torch.float8_e4m3fn)).reshape(SHAPE))
