"""Kernels recorded on an H100 (Triton 3.6, shapes and seeds that no rule was found on) have the same bits here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.scripts import loaded

pytest.importorskip("torch")
pytest.importorskip("triton")

from fastmma.triton import Report, interpret

HERE = Path(__file__).parent
# what these become depends on all of the kernel: a value used twice, a product that LLVM moves into the loop before it
BY_THE_COMPILER = ("again", "axpby bf16")


def replayed(run: Callable[..., None], recorded: Any, wanted: Callable[[str], bool], lowering: Any) -> tuple[int, list[str], Report]:
    different: list[str] = []
    equal = 0

    def compare(name: str, call: Callable[[], Any]) -> None:
        nonlocal equal
        if name in recorded and wanted(name):
            expected = recorded[name]
            actual = call().float().numpy() if expected.dtype == np.float32 else call().numpy()
            cut = actual[tuple(slice(size) for size in expected.shape)]
            if np.array_equal(cut, expected):
                equal += 1
            else:
                different.append(name)

    with interpret("H100", lowering=lowering) as report:
        run("cpu", compare)
    return equal, different, report


@pytest.mark.parametrize(("lowering", "number"), [("rules", 52), ("compile", 2)])
def test_h100(lowering: str, number: int) -> None:
    with np.load(HERE / "recordings" / "h100.npz") as file:
        recorded = dict(file)
    run = loaded(HERE / "recorded_kernels.py").run

    def wanted(name: str) -> bool:
        return any(part in name for part in BY_THE_COMPILER) == (lowering == "compile") and (lowering == "compile" or "again" not in name)

    equal, different, report = replayed(run, recorded, wanted, lowering)
    assert not different
    assert equal == number
    report.assert_all_emulated(assumed=lowering == "rules")  # which products are fused is a guess then


@pytest.mark.parametrize("script", ["t1", "t2"])
def test_h200(script: str) -> None:
    """All matrix products of other recordings, in a folder that FASTMMA_TRITON_RECORDINGS names."""
    folder = os.environ.get("FASTMMA_TRITON_RECORDINGS", "")
    if not folder:
        pytest.skip("FASTMMA_TRITON_RECORDINGS names no folder of recordings")
    with np.load(Path(folder) / f"{script}.npz") as file:
        recorded = dict(file)
    equal, different, _ = replayed(loaded(Path(folder) / f"{script}.py").run, recorded, lambda name: "flash" not in name, "rules")
    assert not different
    assert equal == {"t1": 68, "t2": 54}[script]
