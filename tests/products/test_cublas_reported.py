"""Choices of cuBLASLt on GPUs that bitequiv reports: the orders are its own, and what it does not report is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fastmma.cublas import Choice, plan
from numpy.typing import NDArray
from reference import bitequiv
from reference.cases import cases

import fastmma

DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn}
# orders that plans have, by GPU and version; choices that fastmma's tables do not have are refused
ALIKE = {("H100", "13.1"): 1351, ("B200", "12.8"): 50, ("B200", "13.1"): 50, ("GB300", "13.1"): 50}
WHOLE, PARTS, FP8 = Choice(66, stages=35), Choice(66, stages=35, split_k=9, reduction=2), Choice(66, stages=36, split_k=2, reduction=2)


def operands(fmt: str, m: int, n: int, k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Row-major ones, but for b of 8-bit floats, which only plans are asked about: the system gives no memory for them."""
    dtype = DTYPES[fmt]
    return np.empty((m, k), dtype), np.empty((n, k), dtype).T if fmt == "e4m3" else np.empty((k, n), dtype)


def test_orders_are_those_of_bitequiv() -> None:
    alike: Counter[tuple[str, str]] = Counter()
    refused = set()
    for case in bitequiv.reported():
        out = "f16" if case.fmt == "e4m3" else case.fmt
        a, b = operands(case.fmt, case.m, case.n, case.k)
        try:
            found = plan(a, b, choice=case.choice, target=case.gpu, version=case.version, out_dtype=out)
        except fastmma.OperandError as error:
            refused.add(str(error).partition(" is known of ")[0].partition(": ")[2])
            continue
        assert bitequiv.is_alike(case, found), (case, found)
        alike[case.gpu, case.version] += 1
    assert alike == ALIKE
    assert refused == {"nothing"}


@pytest.mark.parametrize("gpu", ["B200", "GB200", "GB300"])
def test_the_end_of_k_is_left_out(gpu: str) -> None:
    """8,640 is what bitequiv reports of ones on sm_100 and sm_103."""
    a, b = np.ones((1, 8648), np.float16), np.ones((8648, 8), np.float16)
    found = plan(a, b, choice=PARTS, target=gpu, out_dtype="f16")
    assert "tcgen05" in found.instruction
    assert (fastmma.gemm(a, b, plan=found) == 8640).all()
    assert found.evidence.level == "assumed"
    assert not found.evidence.is_known
    assert "reported by bitequiv" in found.evidence.source


REFUSALS: list[tuple[str, tuple[int, int, int], dict[str, Any], str]] = [
    ("f16", (16, 16, 64), {}, "nothing is known of what cuBLASLt 13.1 chooses on B200; give its choice"),
    ("f16", (16, 16, 64), {"unknown": "one"}, "give its choice"),
    ("f16", (16, 16, 64), {"choice": WHOLE, "target": "B300"}, "nothing is known of the kernels of cuBLASLt 13.1 on B300"),
    ("f16", (16, 16, 64), {"choice": WHOLE, "target": "GB300", "version": "12.8"}, "nothing is known of the kernels of cuBLASLt 12.8"),
    ("f16", (16, 16, 64), {"choice": Choice(24)}, "nothing is known of algo 24"),
    ("f16", (16, 16, 64), {"choice": WHOLE, "out_dtype": "f32"}, "nothing is known of result f32"),
    ("f16", (16, 16, 64), {"choice": WHOLE, "alpha": 0.5}, "does not say how alpha is applied"),
    ("f16", (16, 16, 64), {"choice": WHOLE, "bias": np.ones(16, np.float16)}, "does not say how bias is applied"),
    ("f16", (16, 16, 64), {"choice": WHOLE, "activation": "gelu"}, "does not say how gelu is applied"),
    ("f16", (2, 2, 64 * 200 + 64), {"choice": Choice(66, stages=35, split_k=100, reduction=2)}, "nothing is known of split_k 100"),
    ("e4m3", (16, 16, 256), {"choice": FP8, "use_fast_accum": True}, "use_fast_accum is not reported"),
    ("e4m3", (16, 16, 257), {"choice": FP8}, "nothing is known of split_k 2"),
]


@cases(("fmt", "sizes", "options", "message"), REFUSALS)
def test_what_is_not_reported_is_refused(fmt: str, sizes: tuple[int, int, int], options: dict[str, Any], message: str) -> None:
    with pytest.raises(fastmma.OperandError, match=message):
        plan(*operands(fmt, *sizes), **{"target": "B200", "out_dtype": "f16"} | options)


def test_strict_mode_refuses_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMMA_STRICT", "1")
    with pytest.raises(fastmma.TargetError, match=r"only reported by bitequiv .*, which strict mode refuses"):
        plan(*operands("f16", 16, 16, 64), choice=WHOLE, target="B200", out_dtype="f16")


def test_other_layouts_and_stacks_are_refused() -> None:
    a, b = operands("f16", 16, 16, 64)
    with pytest.raises(fastmma.OperandError, match="nothing is known of layout nt in the choice"):
        plan(a, b.T.copy().T, choice=WHOLE, target="B200", out_dtype="f16")
    with pytest.raises(fastmma.OperandError, match="nothing is known of layout nn in stacks"):
        plan(np.stack([a, a]), np.stack([b, b]), choice=WHOLE, target="B200", out_dtype="f16")
