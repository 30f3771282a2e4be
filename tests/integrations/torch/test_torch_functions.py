"""The functions: what is assumed is told where it was asked for, and nothing is left to torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from torch.nn.functional import ScalingType  # noqa: E402

import fastmma  # noqa: E402
import fastmma.torch as ft  # noqa: E402

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
ONE = torch.ones(())
TENSOR = ScalingType.TensorWise


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(BF16)


A, B, NARROW = drawn(6, 2999), drawn(2999, 5), drawn(16, 2992).to(FP8)
# of shapes that no plan book has
ASSUMED: dict[str, Callable[..., Any]] = {
    "mm": lambda **how: ft.mm(A, B, **how),
    "addmm": lambda **how: ft.addmm(A[:, :5], A, B, **how),
    "bmm": lambda **how: ft.bmm(A[None], B[None], **how),
    "baddbmm": lambda **how: ft.baddbmm(A[None, :, :5], A[None], B[None], **how),
    "linear": lambda **how: ft.linear(A[:3], B.t(), **how),
    "grouped_mm": lambda **how: ft.grouped_mm(A[:, :2992].expand(1, 6, 2992), B[:2992].expand(1, 2992, 5), **how),
    "scaled_mm": lambda **how: ft.scaled_mm(NARROW[:6], NARROW.t(), ONE, TENSOR, ONE, TENSOR, **how),
}


@pytest.mark.parametrize("name", list(ASSUMED))
def test_what_is_assumed_is_told_once_at_the_callers_line(name: str) -> None:
    call = ASSUMED[name]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            call(target="L40S")
    assert [(each.category, each.filename) for each in told] == [(ft.AssumedWarning, __file__)]
    assert told[0].lineno == call.__code__.co_firstlineno
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(target="L40S")
        call(target="L40S", unknown="one", threads=1)
        ft.mm(A, B, target="A100", library=None)  # no library's order was asked for
    with pytest.raises(fastmma.TargetError):
        call(target="L40S", unknown="error")


REFUSED: dict[str, Callable[..., Any]] = {
    "float64": lambda: ft.mm(A.double(), B.double()),
    "float32": lambda: ft.mm(A.float(), B.float(), fp32="ieee", target="A100"),
    "a bias of groups": lambda: ft.grouped_mm(A[None], B[None], offs=ONE.int()[None], bias=A[0, :5]),
    "unsigned bytes": lambda: ft.int_mm(torch.ones(32, 32, dtype=torch.uint8), torch.ones(32, 32, dtype=torch.int8)),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(fastmma.NotEmulatedError):
        REFUSED[name]()
