"""335 float32 matrices times vectors that an H100 multiplied (PyTorch 2.11, cuBLAS 13): every bit, or they are not called emulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reference.scripts import loaded

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma.torch as ft  # noqa: E402

EMULATED = 719  # of the calls whose operators were recorded
HERE = Path(__file__).parent


def test_an_h100_has_the_same_bits() -> None:
    calls = loaded(HERE / "random_vectors.py").calls

    recorded = np.load(HERE / "h100_vectors.npz")
    wrong, names = [], set()
    for name, call in calls("cpu"):
        names.add(name.replace(" ", "_"))
        with ft.emulate("H100", fp32="ieee", other="error") as gpu:
            found = call()
        gpu.report.assert_all_emulated(assumed=False)
        if found.numpy().ravel()[-12:].tobytes() != recorded[name.replace(" ", "_")].tobytes():
            wrong.append(name)
    assert wrong == []
    assert names == set(recorded.files)


def test_tf32_does_not_concern_vectors() -> None:
    calls = loaded(HERE / "random_columns.py").calls

    recorded, wrong, emulated = np.load(HERE / "h100_columns.npz")["results"], [], 0
    for (name, call), expected in zip(calls("cpu"), recorded, strict=True):
        with ft.emulate("H100", fp32="tf32") as gpu:
            found = call().numpy().ravel()[-12:]
        if gpu.report.passed:
            continue
        gpu.report.assert_all_emulated(assumed=False)
        emulated += 1
        if found.tobytes() != expected[-len(found) :].tobytes():
            wrong.append(name)
    assert wrong == []
    assert emulated == EMULATED


def test_a_batch_of_vectors_is_passed() -> None:
    with ft.emulate("H100", fp32="tf32") as gpu:
        torch.bmm(torch.ones(3, 64, 128), torch.ones(3, 128, 1))
        torch.ones(1, 64) @ torch.ones(64, 1)
    assert (gpu.report.emulated, gpu.report.assumed, gpu.report.passed) == (0, 0, 2)
    with ft.emulate("H100", fp32="tf32", library=None) as gpu:
        torch.ones(64, 128) @ torch.ones(128, 1)
    assert gpu.report.assumed == 1


def test_what_was_not_recorded_is_passed() -> None:
    a, x = torch.ones(64, 1000), torch.ones(1000)
    for target, options, matrix in (("B200", {}, a), ("A100", {}, a[:, :256]), ("H100", {"library": None}, a[:, :256])):
        with ft.emulate(target, **options) as gpu:
            torch.mv(matrix.contiguous(), x[: matrix.shape[1]])
        assert (gpu.report.emulated, gpu.report.passed) == (0, 1)
    with ft.emulate("H100", fp32="tf32", unknown="one") as gpu:  # of a vector, too: cuBLAS's kernels for vectors know no tf32
        torch.mv(a[:, :256].contiguous(), x[:256])
        a[:, :256].contiguous() @ x[:256, None]
    assert [line.how.startswith("fma.rn.f32") for line, _ in gpu.report.lines("emulated", "assumed", "passed")] == [True, True]
