"""Calls of a form that came before: what differs in any way that counts is another product, and is refused as the first time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import fastmma
from fastmma import FastmmaError, scaling
from fastmma.host.addresses import LINE, address_of
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


def test_large_results_begin_at_a_cache_line() -> None:
    a, b = RNG.integers(-128, 128, (2, 96, 96), np.int8)
    usual = a.astype(np.int32) @ b.astype(np.int32)
    found = [fastmma.gemm(a, b, target="sm_90a") for _ in range(8)]  # all kept: no two are the same memory
    assert all(np.array_equal(each, usual) for each in found)
    assert not any(address_of(each) % LINE for each in found[3:])


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


def quantized(rows: int = 48, scheme: str = "nvfp4") -> tuple[scaling.ScaledArray, scaling.ScaledArray]:
    rng = np.random.default_rng(rows)
    return scaling.quantize(rng.standard_normal((rows, 128)), scheme), scaling.quantize(rng.standard_normal((128, 40)), scheme, axis=0)


SCALED: dict[str, dict[str, Any]] = {
    "default": {},
    "another GPU": {"target": "sm_100a"},
    "rounded": {"out_dtype": "bf16"},
    "a library": {"preset": "cublas", "target": "sm_100a"},
    "times a number": {"alpha": -0.5},
    "times zero": {"alpha": 0.0},
    "times a negative zero": {"alpha": -0.0},
    "times an integer": {"alpha": 2},
    "times infinity": {"alpha": float("inf")},
    "with c": {"c": np.ones((48, 40), np.float32)},
    "one thread": {"threads": 1},
    "in parts": {"split_k": 2},
}


def test_scaled_calls_that_differ_are_not_taken_for_each_other() -> None:
    pairs = {"nvfp4": quantized(), "mxfp4": quantized(scheme="mxfp4"), "other global scales": quantized(48)}
    a, b = pairs["other global scales"]
    pairs["other global scales"] = replace(a, global_scale=a.global_scale * np.float32(3)), b
    pairs["turned"] = a, scaling.quantize(np.random.default_rng(48).standard_normal((40, 128)), "nvfp4").T
    cases = [({"target": "sm_120a"} | options, pair) for options in SCALED.values() for pair in pairs.values()]
    cases = [(options, pair) for options, pair in cases if options.get("preset") is None or pair[0].scheme == "nvfp4"]
    wanted = [fastmma.scaled_matmul(*pair, backend="reference", **options) for options, pair in cases]
    for _ in range(3):
        for (options, pair), result in zip(cases, wanted, strict=True):
            found = fastmma.scaled_matmul(*pair, **options)
            assert (found.dtype, found.tobytes()) == (result.dtype, result.tobytes()), options


def test_a_scaled_form_is_found_by_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = quantized()
    for _ in range(2):
        wanted = fastmma.scaled_matmul(a, b, target="sm_120a")
    monkeypatch.setattr("fastmma.products.scaled.scaled_plan", None)
    assert fastmma.scaled_matmul(a, b, target="sm_120a").tobytes() == wanted.tobytes()
    with pytest.raises(TypeError):
        fastmma.scaled_matmul(*quantized(47), target="sm_120a")


def test_scaled_errors_are_those_of_the_first_call() -> None:
    a, b = quantized()
    for _ in range(3):
        fastmma.scaled_matmul(a, b, target="sm_120a")
        out = np.empty((48, 40), np.float32)
        out.flags.writeable = False
        with pytest.raises(FastmmaError, match="read-only"):
            fastmma.scaled_matmul(a, b, target="sm_120a", out=out)
        with pytest.raises(FastmmaError, match="alpha must be a real number"):
            fastmma.scaled_matmul(a, b, target="sm_120a", alpha="2")  # type: ignore[arg-type]
        with pytest.raises(FastmmaError, match="beta multiplies c"):
            fastmma.scaled_matmul(a, b, target="sm_120a", beta=2.0)
