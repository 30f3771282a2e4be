"""Cumulative sums, products and logarithms, with the bits that PyTorch 2.11 has on an H200: operands are drawn, results are digests."""

from __future__ import annotations

import json
import zlib
from hashlib import blake2b
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference.cases import cases

from fastmma.functions import libdevice, scans
from fastmma.host.errors import NotEmulatedError

RECORDED = json.loads((Path(__file__).parent / "h200_scans.json").read_text())
SEED = 492582
DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
FUNCTIONS = {"cumsum": scans.cumulate_sum, "cumprod": scans.cumulate_product, "logcumsumexp": scans.cumulate_logsumexp}


def _drawn(name: str, function: str, shape: list[int]) -> np.ndarray[Any, Any]:
    draw = np.random.Generator(np.random.PCG64([SEED, zlib.crc32(name.encode())]))
    if function == "cumprod":
        return draw.random(shape, np.float32) * np.float32(1.03 - 0.97) + np.float32(0.97)
    return draw.standard_normal(shape, np.float32) * np.float32(4 if function == "logcumsumexp" else 1)


@cases("function", list(FUNCTIONS))
def test_scans_have_an_h200s_bits(function: str) -> None:
    if function == "logcumsumexp" and libdevice.release() is None:
        pytest.skip("no libdevice whose release is known")
    calls = [each for each in RECORDED if each[1] == function]
    assert calls
    for name, _, fmt, shape, axis, digest in calls:
        found = FUNCTIONS[function](_drawn(name, function, shape).astype(DTYPES[fmt]), axis)
        assert blake2b(found.tobytes(), digest_size=8).hexdigest() == digest, name


@cases("fmt, most", [("f32", 5760), ("f16", 11520), ("bf16", 11520)])
def test_a_row_that_a_gpu_scans_in_any_order_is_refused(fmt: str, most: int) -> None:
    assert scans.cumulate_sum(np.zeros(most, DTYPES[fmt]), 0).shape == (most,)
    with pytest.raises(NotEmulatedError, match="does not repeat"):
        scans.cumulate_sum(np.zeros(most + 1, DTYPES[fmt]), 0)
