"""Arrays that `out=` may be, and those that it may not; that it lies over operands is drawn with all other calls."""

from __future__ import annotations

import numpy as np
import pytest

import fastmma
from fastmma import FastmmaError, scaling

BAD_OUTPUTS = {
    "masked": np.ma.masked_array(np.zeros((4, 4), np.float32)),
    "read-only": np.broadcast_to(np.float32(0), (4, 4)),
    "folded": np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (4, 4), (4, 4)),
    "spread": np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (4, 4), (0, 4)),
    "of another shape": np.zeros((4, 5), np.float32),
    "of another dtype": np.zeros((4, 4), np.float64),
    "of another byte order": np.zeros((4, 4), ">f4"),
    "a list": [[0.0] * 4] * 4,
}


@pytest.mark.parametrize("what", BAD_OUTPUTS)
def test_outputs_that_are_refused(what: str) -> None:
    a, q = np.ones((4, 32), np.float16), scaling.quantize(np.ones((4, 32), np.float32), "mxfp8_e4m3")
    for call in (
        lambda out: fastmma.gemm(a, a.T, instruction="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", target="sm_80", out=out),
        lambda out: fastmma.matmul(a, a.T, instruction="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", target="sm_80", out=out),
        lambda out: fastmma.scaled_matmul(q, q.T, target="sm_120a", out=out),
    ):
        with pytest.raises(FastmmaError, match="out"):
            call(BAD_OUTPUTS[what])


@pytest.mark.each_path
def test_outputs_of_other_kinds() -> None:
    a = np.ones((4, 32), np.float16)
    unaligned = np.zeros(4 * 4 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 4)
    for out in (
        unaligned,
        np.zeros((4, 4), np.float32).view(np.matrix),
        np.zeros((4, 4), np.float32, "F"),
        np.zeros((8, 8), np.float32)[::-2, 1::2],
    ):
        assert fastmma.gemm(a, a.T, out=out) is out
        assert (np.asarray(out) == 32).all()
