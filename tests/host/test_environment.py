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
from fastmma.host.environment import of_call, variable
from fastmma.host.errors import FastmmaError

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"


class Changing:
    """An environment in which FASTMMA_PORTABLE is another one each time that it is read."""

    def __init__(self, environment: Any, first: bool) -> None:
        self._environment, self._portable, self.reads = environment, first, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def __contains__(self, name: str) -> bool:
        return name in self._environment

    def __getitem__(self, name: str) -> str:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        if name.startswith("FASTMMA_"):
            self.reads[name] += 1
        if name == "FASTMMA_PORTABLE":
            self._portable = not self._portable
            return str(int(not self._portable))
        return self._environment.get(name, default)


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
    changing = Changing(os.environ, first)
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", changing)
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
