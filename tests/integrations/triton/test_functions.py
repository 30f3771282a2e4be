"""The functions of the special function unit, for numbers of all magnitudes, as an H100 (Triton 3.6) computed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from fastmma.triton import interpret  # noqa: E402


@triton.jit
def apply(a, b, c, FUNCTION: tl.constexpr, SIZE: tl.constexpr):
    i = tl.program_id(0) * 512 + tl.arange(0, 512)
    x = tl.load(a + i, mask=i < SIZE)
    if FUNCTION == "exp2":
        r = tl.exp2(x)
    elif FUNCTION == "exp":
        r = tl.exp(x)
    elif FUNCTION == "sigmoid":
        r = tl.sigmoid(x)
    elif FUNCTION == "sqrt":
        r = tl.sqrt(x)
    elif FUNCTION == "rsqrt":
        r = tl.rsqrt(x)
    else:
        r = x / tl.load(b + i, mask=i < SIZE)
    tl.store(c + i, r, mask=i < SIZE)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    with np.load(Path(__file__).parent / "recordings" / "functions_h100.npz") as file:
        return dict(file)


def applied(function: str, x: Any, y: Any, gpu: str = "H100", **options: Any) -> tuple[Any, Any]:
    c = torch.empty_like(x)
    with interpret(gpu, **options) as report:
        apply[(triton.cdiv(len(x), 512),)](x, y, c, function, len(x))
    return c, report


INPUTS = {"exp2": "exp_in", "exp": "exp_in", "sigmoid": "exp_in", "sqrt": "root_in", "rsqrt": "root_in", "div": "x"}


@pytest.mark.parametrize(("function", "first"), INPUTS.items())
def test_f32(function: str, first: str, recorded: dict[str, Any]) -> None:
    x, y = torch.from_numpy(recorded[first]), torch.from_numpy(recorded["y" if first == "x" else first])
    result, report = applied(function, x, y)
    np.testing.assert_array_equal(result.numpy().view("u4"), recorded[function].view("u4"))
    report.assert_all_emulated()


def test_16_bit_division_goes_through_f32(recorded: dict[str, Any]) -> None:
    x, y = (torch.from_numpy(recorded[name]).clip(-1e4, 1e4) for name in ("x", "y"))
    for dtype in (torch.float16, torch.bfloat16):
        first, second = x.to(dtype), y.to(dtype)
        wide, _ = applied("div", first.float(), second.float())
        narrow, report = applied("div", first, second)
        assert torch.equal(narrow.float().nan_to_num(7.0), wide.to(dtype).float().nan_to_num(7.0))
        report.assert_all_emulated()


def test_other_gpus_are_not_claimed(recorded: dict[str, Any]) -> None:
    x = torch.from_numpy(recorded["root_in"])
    _, report = applied("rsqrt", x, x, "A100")
    assert list(report.assumed) == [("rsqrt.approx.ftz.f32", "recorded on an H100 and an H200 only")]
    _, report = applied("rsqrt", x, x, "A100", lowering="rules")
    assert list(report.passed) == [("rsqrt", "rsqrt.approx.ftz.f32: recorded on an H100 only")]
