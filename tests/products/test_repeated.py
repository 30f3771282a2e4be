"""Calls of a form that came before: what differs in any way that counts is another product, and is refused as the first time."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import fastmma
from fastmma import FastmmaError
from fastmma.products import repeated

pytestmark = pytest.mark.best_kernels
RNG = np.random.default_rng(5)
LEFT, RIGHT = (RNG.integers(0, 1 << 16, shape, np.uint16) & 0xBFFF for shape in ((24, 40), (40, 32)))
START = RNG.standard_normal((24, 32)).astype(np.float32)
CALLS: dict[str, dict[str, Any]] = {
    "default": {},
    "an older GPU": {"target": "sm_80"},
    "sums in f16": {"accumulator": "f16"},
    "rounded": {"out_dtype": "f16"},
    "rounded to a class": {"out_dtype": np.float16},
    "of a class": {"out_dtype": ml_dtypes.bfloat16},
    "cast": {"cast": True},
    "from c": {"c": START},
    "from a strided c": {"c": np.repeat(START, 2, axis=1)[:, ::2]},
    "with c added": {"c": START, "beta": 1.0},
    "with half of c": {"c": START, "beta": 0.5},
    "a bias": {"bias": START[0]},
    "twice": {"alpha": 2.0},
    "twice, an integer": {"alpha": 2},
    "in parts": {"split_k": 2},
    "as a library": {"preset": "cublas"},
    "one thread": {"threads": 1},
    "an instruction": {"instruction": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "target": "sm_80"},
}


def operands(dtype: Any = np.float16) -> tuple[NDArray[Any], NDArray[Any]]:
    return LEFT.view(dtype), RIGHT.view(dtype)


@pytest.mark.parametrize("function", [fastmma.gemm, fastmma.matmul], ids=lambda function: function.__name__)
def test_calls_that_differ_are_not_taken_for_each_other(function: Any) -> None:
    a, b = operands()
    layouts = (a, b), (np.asfortranarray(a), b), (a[::-1], b), (a[:, ::-1], b[::-1])
    wanted = {name: [function(*pair, backend="reference", **options) for pair in layouts] for name, options in CALLS.items()}
    for _ in range(3):
        for name, options in CALLS.items():
            for pair, result in zip(layouts, wanted[name], strict=True):
                found = function(*pair, **options)
                assert (found.dtype, found.tobytes()) == (result.dtype, result.tobytes()), name


def test_results_go_where_the_call_says() -> None:
    a, b = operands()
    for _ in range(4):
        for dtype in (np.float32, np.float16):
            wanted, out = fastmma.gemm(a, b, out_dtype=dtype, backend="reference"), np.full((24, 32), 7, dtype)
            assert fastmma.gemm(a, b, out=out) is out
            assert out.tobytes() == wanted.tobytes()


def test_a_form_is_found_by_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands()
    for _ in range(3):
        wanted = fastmma.gemm(a, b)

    def refuse(*_: Any) -> None:
        raise AssertionError("chosen again")

    monkeypatch.setattr("fastmma.products.gemm.choose", refuse)
    assert fastmma.gemm(a, b).tobytes() == wanted.tobytes()
    with pytest.raises(AssertionError, match="chosen again"):
        fastmma.gemm(a[:23], b)


def test_errors_are_those_of_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands()
    stacks = np.stack([a, a]), np.stack([b, b])
    for _ in range(3):
        fastmma.matmul(*stacks)
        with pytest.raises(FastmmaError, match="of shape"):
            fastmma.gemm(*stacks)
        fastmma.gemm(a, b, target="sm_90a")
        with pytest.raises(FastmmaError, match="no keyword 'targets'"):
            fastmma.gemm(a, b, targets="sm_90a")  # type: ignore[call-arg]
        with pytest.raises(FastmmaError):
            fastmma.gemm(a, b, out=np.empty((24, 31), np.float32))
        fastmma.gemm(a, b, target="sm_110a")
    monkeypatch.setenv("FASTMMA_STRICT", "1")
    with pytest.raises(fastmma.TargetError, match="strict"):
        fastmma.gemm(a, b, target="sm_110a")
    monkeypatch.setenv("FASTMMA_NUM_THREADS", "0")
    with pytest.raises(FastmmaError, match="FASTMMA_NUM_THREADS"):
        fastmma.gemm(a, b, target="sm_90a")


def test_few_forms_are_kept() -> None:
    a, b = operands()
    for rows in range(1, 24):
        for columns in range(1, 32, 6):
            for _ in range(2):
                fastmma.gemm(a[:rows], b[:, :columns])
    assert len(repeated._known) <= 64
