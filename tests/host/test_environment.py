"""Variables of the environment that another thread changes during a call: each is read once, and the bits are the same."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import fastmma
from fastmma import scaling
from fastmma.host import environment
from fastmma.host.environment import of_call, variable
from fastmma.host.errors import FastmmaError

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"


class Changing:
    """A reader of the environment for which FASTMMA_PORTABLE is another one each time."""

    def __init__(self, first: bool) -> None:
        self._portable, self.reads = first, Counter[str]()

    def read(self, name: str) -> str | None:
        self.reads[name] += 1
        if name == "FASTMMA_PORTABLE":
            self._portable = not self._portable
            return str(int(not self._portable))
        return os.environ.get(name)


def drawn(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32).astype(dtype)


HALF, LONG = drawn((40, 70), np.float16), drawn((70, 300), np.float16, 1)
NARROW, WIDE = drawn((33, 256), ml_dtypes.float8_e4m3fn), drawn((256, 65), ml_dtypes.float8_e4m3fn, 1)
BYTES = drawn((40, 64), np.int8)
CALLS: dict[str, Callable[[], Any]] = {
    "gemm": lambda: fastmma.gemm(HALF, LONG, target="H100"),
    "small gemm": lambda: fastmma.gemm(HALF[:16, :16], LONG[:16, :8], target="A100"),
    "thin gemm": lambda: fastmma.gemm(HALF[:1], LONG, target="H100"),
    "gemm of bytes": lambda: fastmma.gemm(BYTES, BYTES.T, target="A100"),
    "gemm of fp8": lambda: fastmma.gemm(NARROW, WIDE, target="H100", promote_every=128),
    "epilogue": lambda: fastmma.gemm(HALF, LONG, target="H100", preset="cublas", bias=np.ones(300, np.float32), out_dtype="f16"),
    "matmul": lambda: fastmma.matmul(HALF, np.stack([LONG, LONG]), target="A100"),
    "scaled_matmul": lambda: fastmma.scaled_matmul(*scaled(), target="B200"),
    "quantize": lambda: scaling.quantize(HALF[:32, :64], "mxfp8_e4m3").elements,
    "tiles": lambda: fastmma.mma(F16, HALF[:16, :16], LONG[:16, :8], np.zeros((16, 8), np.float32), target="A100"),
    "registers": lambda: fastmma.warp.mma(S8, *(np.full((9, 32, count), 3, np.uint32) for count in (4, 2, 4)), target="A100"),
}


def scaled() -> tuple[Any, Any]:
    return PAIR


PAIR = scaling.quantize(drawn((32, 64), np.float32), "mxfp8_e4m3"), scaling.quantize(drawn((64, 24), np.float32, 1), "mxfp8_e4m3", axis=0)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_reads_each_variable_once(name: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    call = CALLS[name]
    expected = np.asarray(call())
    changing = Changing(first)
    with monkeypatch.context() as patch:
        patch.setattr(environment, "_read", changing.read)
        found = np.asarray(call())
        again = np.asarray(call())
    assert found.tobytes() == again.tobytes() == expected.tobytes()
    assert max(changing.reads.values()) <= 2  # in two calls


def test_the_next_call_reads_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads in ("none", "0"):
        monkeypatch.setenv("FASTMMA_NUM_THREADS", threads)
        with pytest.raises(FastmmaError, match=f"FASTMMA_NUM_THREADS must be an integer from 1 to 1024, not '{threads}'"):
            CALLS["gemm"]()
        assert of_call.found is None
        assert variable("FASTMMA_NUM_THREADS") == threads


@pytest.mark.parametrize("value", ["", "0", "\u00e9\u4e2d", "a b=c"])
def test_a_variable_is_what_python_has(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMMA_SOME_VARIABLE", value)
    assert variable("FASTMMA_SOME_VARIABLE") == os.environ["FASTMMA_SOME_VARIABLE"] == value
    monkeypatch.delenv("FASTMMA_SOME_VARIABLE")
    assert variable("FASTMMA_SOME_VARIABLE") is None
