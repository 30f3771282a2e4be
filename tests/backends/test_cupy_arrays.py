"""CuPy arrays through the public calls. A stand-in for CuPy holds its arrays in main memory, so that no GPU is needed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma.backends.gpu import device

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
E4M3 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
E2M1 = "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e2m1.f32"
LOAD = "ldmatrix.sync.aligned.m8n8.x1.shared.b16"


class Stand:
    """An array that only `asnumpy` reads, as CuPy's are."""

    __module__ = "cupy"

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self.host = host

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __setitem__(self, where: Any, value: Any) -> None:
        assert isinstance(value, Stand)
        self.host[where] = value.host


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(asnumpy=lambda array: array.host.copy(), asarray=lambda host: Stand(np.array(host)))
    monkeypatch.setattr(device, "_cupy", lambda: module)
    monkeypatch.setitem(sys.modules, "cupy", module)  # type: ignore[arg-type]
    monkeypatch.setenv("FASTMMA_PORTABLE", "1")  # kernels that are compiled soon


def bits(result: Any) -> bytes:
    host = result.host if isinstance(result, Stand) else result
    return bytes(np.ascontiguousarray(host).tobytes())


def test_gemm_and_matmul_return_the_kind_that_they_were_given() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((33, 40)).astype(np.float16), rng.standard_normal((40, 7)).astype(np.float16)
    c = rng.standard_normal((33, 7)).astype(np.float32)
    for function, operands in ((fastmma.gemm, (a, b, c)), (fastmma.matmul, (a, b))):
        result = function(*map(Stand, operands), target="sm_90a")
        assert isinstance(result, Stand)
        assert bits(result) == bits(function(*operands, target="sm_90a"))


def test_shapes_stay_also_without_dimensions() -> None:
    ones = np.ones(16, np.float16)
    result = fastmma.matmul(Stand(ones), Stand(ones), target="sm_90a")
    assert (result.host.shape, float(result.host)) == ((), 16.0)
    strided = np.ones((32, 32), np.float16)[::2, ::2]
    assert fastmma.gemm(Stand(strided), Stand(strided.T), target="sm_90a").host.tolist() == np.full((16, 16), 16.0).tolist()
    empty = fastmma.gemm(Stand(strided[:0]), Stand(strided[:, :0]), target="sm_90a")
    assert empty.host.shape == (0, 0)


def test_out_is_written_in_place() -> None:
    a = np.ones((16, 16), np.float16)
    out = Stand(np.zeros((16, 16), np.float32))
    assert fastmma.gemm(Stand(a), Stand(a), target="sm_80", out=out) is out
    assert (out.host == 16).all()


def test_registers_memory_and_tiles() -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(0, 1 << 32, (3, 32, count), dtype=np.uint32) for count in (4, 2, 4))
    assert bits(fastmma.warp.mma(F16, Stand(a), Stand(b), Stand(c), target="sm_90a")) == bits(
        fastmma.warp.mma(F16, a, b, c, target="sm_90a")
    )
    memory, addresses = np.arange(128, dtype=np.uint8), np.arange(32) % 8 * 16
    assert bits(fastmma.warp.ldmatrix(LOAD, Stand(memory), Stand(addresses))) == bits(fastmma.warp.ldmatrix(LOAD, memory, addresses))
    x, y, z = np.ones((2, 16, 16), np.float16), np.ones((16, 8), np.float16), np.zeros((16, 8), np.float32)
    assert bits(fastmma.mma(F16, Stand(x), Stand(y), Stand(z), target="sm_80")) == bits(fastmma.mma(F16, x, y, z, target="sm_80"))


def test_narrow_elements_are_their_codes() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 256, (9, 64), dtype=np.uint8), rng.integers(0, 256, (64, 5), dtype=np.uint8)
    x, y = a.view(ml_dtypes.float8_e4m3fn), b.view(ml_dtypes.float8_e4m3fn)
    for function in (fastmma.gemm, fastmma.matmul):
        assert bits(function(Stand(a), Stand(b), instruction=E4M3, target="sm_90a")) == bits(
            function(x, y, instruction=E4M3, target="sm_90a")
        )
    stacked = np.stack([a, a[::-1]])
    result = fastmma.matmul(Stand(stacked), Stand(b), instruction=E4M3, target="sm_90a")
    assert bits(result) == bits(fastmma.matmul(stacked.view(ml_dtypes.float8_e4m3fn), y, instruction=E4M3, target="sm_90a"))


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ((Stand(np.ones((4, 4), np.float16)), np.ones((4, 4), np.float16)), "a is a CuPy array and b a NumPy array"),
        ((Stand(np.ones((4, 4), np.float16)), Stand(np.ones((5, 4), np.float16))), r"not \(4, 4\) and \(5, 4\)"),
        ((Stand(np.ones((4, 4), np.complex64)),) * 2, "complex64"),
        ((Stand(np.ones(4, np.float16)),) * 2, r"shape \(M, K\)"),
        ((Stand(np.ones((), np.float16)),) * 2, r"shape \(M, K\)"),
    ],
)
def test_bad_device_arrays_are_the_errors_of_the_cpu(operands: tuple[Any, Any], message: str) -> None:
    with pytest.raises(fastmma.FastmmaError, match=message):
        fastmma.gemm(*operands, target="sm_90a")


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((4, 4), np.float32), "a is a CuPy array and out a NumPy array"),
        (Stand(np.zeros((4, 5), np.float32)), r"out must have shape \(4, 4\), not \(4, 5\)"),
        (Stand(np.zeros((4, 4), np.uint32)), "not uint32"),
    ],
)
def test_bad_out_is_an_error(out: Any, message: str) -> None:
    ones = Stand(np.ones((4, 4), np.float16))
    with pytest.raises(fastmma.FastmmaError, match=message):
        fastmma.gemm(ones, ones, out=out, target="sm_90a")


def test_codes_beyond_a_format_are_errors() -> None:
    codes = np.full((16, 32), 16, np.uint8)
    with pytest.raises(fastmma.OperandError, match="codes of e2m1, below 16, not 16"):
        fastmma.gemm(Stand(codes), Stand(codes.T.copy()), instruction=E2M1, target="sm_120a")
    with pytest.raises(fastmma.OperandTypeError, match="must have dtype float8_e4m3fn"):
        fastmma.gemm(codes, codes.T, instruction=E4M3, target="sm_90a")
