"""1,800 stacks of float32 matrices that an H200 multiplied (PyTorch 2.11, cuBLAS 13): every bit, or they are not called emulated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from reference.scripts import loaded

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma.torch as ft  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::fastmma.torch.AssumedWarning")
stacks = loaded(Path(__file__).parent / "random_stacks.py")
EACH, EMULATED, ASSUMED = 12, 132, 16  # of each twelfth recorded call; so many have every bit


def test_an_h200_has_the_same_bits() -> None:
    right = Counter[tuple[str, bool]]()
    for call, checksum in list(stacks.recorded())[::EACH]:
        with ft.emulate("H200", fp32="ieee") as gpu:
            found = torch.bmm(*call.operands())
        status = next(status for status in ("emulated", "assumed", "passed") if getattr(gpu.report, status))
        same = stacks.checksum(found) == checksum
        assert same or status != "emulated", call
        right[status, same] += 1
    assert (right["emulated", True], right["assumed", True]) == (EMULATED, ASSUMED)


def test_products_of_one_k_keep_the_sign_of_zero() -> None:
    a, b = torch.tensor([0.0, -1.0]).reshape(2, 1, 1), torch.tensor([[-1.0, 1.0], [0.0, 2.0]]).reshape(2, 1, 2)
    with ft.emulate("H200") as gpu:
        found = torch.bmm(a, b.transpose(0, 2).contiguous().transpose(0, 2))
    assert found.is_contiguous()
    gpu.report.assert_all_emulated()
    assert torch.signbit(found).tolist() == [[[True, False]], [[True, True]]]


@pytest.mark.parametrize("shape", [(17, 12, 34), (3, 20, 5, 40), (1, 20, 1, 40)], ids=str)
def test_sums_that_underflow_are_positive_zeros(shape: tuple[int, ...]) -> None:
    *first, k, n = shape
    with ft.emulate("H200", fp32="ieee"):
        found = torch.full((*first, k), 1e-30) @ torch.full((*first[:-1], k, n), -1e-30)
    assert not torch.signbit(found).any()


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"beta": 1}, "passed"),  # c is added
        ({"beta": 0, "alpha": 2}, "passed"),
        ({"beta": 0}, "emulated"),
        ({"beta": 0, "by": 4}, "emulated"),  # rows with gaps
        ({"beta": 0, "by": 4, "m": 9}, "assumed"),
        ({"beta": 0, "from": 1}, "passed"),  # an address that is no multiple of 16
        ({"beta": 0, "target": "H100"}, "passed"),
    ],
    ids=str,
)
def test_what_was_not_recorded(given: dict[str, Any], status: str) -> None:
    given = {"by": 1, "from": 0, "m": 20, "alpha": 1, "target": "H200"} | given
    a = torch.ones(3, given["m"], given["by"] * 64 + given["from"])[..., given["from"] : 64 + given["from"]]
    with ft.emulate(given["target"], fp32="ieee") as gpu:
        torch.baddbmm(torch.ones(3, given["m"], 32), a, torch.ones(3, 64, 32), beta=given["beta"], alpha=given["alpha"])
    assert getattr(gpu.report, status) == 1, str(gpu.report)
