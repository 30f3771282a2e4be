"""Calls of torch that were recorded on an H200: what is called emulated has every bit, under all of torch's settings."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference import torch_calls  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.host.errors import NotEmulatedError  # noqa: E402
from fastmma.torch.report import ASSUMED, EMULATED, PASSED  # noqa: E402

# of which every call is emulated
KNOWN = {
    "addmv zero",
    "aligned",
    "book",
    "book bias alpha",
    "f16 in place",
    "grouped",
    "one row",
    "reduced aligned",
    "reduced alike",
    "stack of one",
    "stacks",
    "tf32 in place",
    "vectors",
}


def test_what_is_called_emulated_has_every_bit() -> None:
    found: dict[str, Counter[tuple[str, bool]]] = defaultdict(Counter)
    for call, wanted in torch_calls.recorded():
        with warnings.catch_warnings(), ft.emulate("H200") as gpu:
            warnings.simplefilter("ignore", ft.AssumedWarning)
            equal = bool((torch_calls.result(call) == wanted).all())
        status = next((each for each in (PASSED, ASSUMED, EMULATED) if gpu.report.lines(each)), "none")
        assert equal or status != EMULATED, call
        # parts that are joined in 16 bits by default are joined in f32 without reduced-precision reductions
        assert equal or call["group"] != "reduced workspace" or call["op"] not in ("mm", "addmm"), call
        found[call["group"]][status, equal] += 1
    assert {group for group, counts in found.items() if set(counts) == {(EMULATED, True)}} >= KNOWN, found
    assert {status for group in ("reduced workspace", "reduced in place") for status, _ in found[group]} <= {ASSUMED, EMULATED}
    assert set(found["f16 sums"]) == {(ASSUMED, True)}
    assert sum(counts[status, False] for counts in found.values() for status in (PASSED, ASSUMED)) <= 1


def test_settings_that_make_a_library_take_other_kernels_are_told() -> None:
    a = torch.ones(64, 64, dtype=torch.float16)
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_fp16_accumulation
    try:
        matmul.allow_fp16_accumulation = True
        with pytest.raises(NotEmulatedError, match="sums float16 products in float16 by kernels of mma"):
            ft.mm(a, a, target="H100")
        with pytest.warns(ft.AssumedWarning, match="is predicted to add as by algo"), ft.emulate("H200"):
            a @ a
        with ft.emulate("H200", plans={(64, 64, 64): 1}) as gpu:
            a @ a
        assert gpu.report.lines(EMULATED)
        matmul.allow_fp16_accumulation = False
        matmul.allow_fp16_reduced_precision_reduction = (False, False)
        with pytest.raises(NotEmulatedError, match="without split-k, torch refuses most products"):
            ft.mm(a, a, target="H200")
        matmul.allow_fp16_reduced_precision_reduction = False
        with ft.emulate("H200") as gpu:
            a @ a
        assert "455 of 455 fresh products" in next(line.how for line, _ in gpu.report.lines(EMULATED))
        with pytest.warns(ft.AssumedWarning, match="no plan without reduced-precision reductions"), ft.emulate("H100"):
            a @ a
    finally:
        matmul.allow_fp16_accumulation, matmul.allow_fp16_reduced_precision_reduction = before, True
