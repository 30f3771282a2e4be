"""243 calls of random shapes that an H100 computed (PyTorch 2.11, cuBLAS 13): what is called emulated has every bit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference.scripts import loaded

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma.torch as ft  # noqa: E402
from fastmma.torch.report import ASSUMED, PASSED, UNSEEN  # noqa: E402

HERE = Path(__file__).parent
FUNCTIONS = {f"aten.{name}" for name in ("silu.default", "silu_backward.default", "mean.default", "div.Scalar")}  # of the model


def test_an_h100_has_the_same_bits() -> None:
    recorded = np.load(HERE / "h100.npz")
    different: dict[str, bool] = {}
    assumed: list[str] = []

    def record(name: str, call: Callable[[], torch.Tensor]) -> None:
        gpu.report.clear()
        found = call().detach()
        part = found.reshape(-1, found.shape[-1])[:2, :96].contiguous()
        wanted = recorded[name.replace(" ", "_")]
        different[name] = part.view(torch.int16 if part.dtype.itemsize == 2 else torch.int32).numpy().tobytes() != wanted.tobytes()
        if gpu.report.lines(ASSUMED):
            assumed.append(name)
        assert all(line.operator in FUNCTIONS for line, _ in gpu.report.lines(PASSED, UNSEEN)), name

    with warnings.catch_warnings(), ft.emulate("H100") as gpu:
        warnings.simplefilter("ignore", ft.AssumedWarning)
        loaded(HERE / "random_calls.py").Calls("cpu", record).all()
    assert set(different) == {name.replace("_", " ") for name in recorded.files}
    assert [name for name, differs in different.items() if differs and name not in assumed] == []
    assert {name.split()[0] for name in assumed} == {"addmv", "fp8", "mv"}
    assert len(assumed) == 47


def test_fp8_products_of_long_k() -> None:
    calls = loaded(HERE / "random_fp8.py").calls

    recorded = np.load(HERE / "h100_fp8.npz")
    wrong, emulated = [], 0
    for name, call in calls("cpu"):
        with ft.emulate("H100", unknown="one") as gpu:
            part = call()[:2, :96].contiguous()
        emulated += gpu.report.emulated
        codes = part.view(torch.int16 if part.dtype.itemsize == 2 else torch.int32).numpy()
        if gpu.report.emulated and codes.tobytes() != recorded[name.replace(" ", "_")].tobytes():
            wrong.append(name)
    assert wrong == []
    assert emulated == 64
