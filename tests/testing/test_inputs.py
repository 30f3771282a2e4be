"""Adversarial inputs tell GPUs apart."""

from __future__ import annotations

import numpy as np
import pytest

import fastmma
from fastmma.isa.formats import FORMATS
from fastmma.testing import adversarial

# one target for each arithmetic of these formats
APART = {"f16": ("sm_70", "sm_80", "sm_90a", "sm_100a"), "bf16": ("sm_80", "sm_90a", "sm_100a"), "e4m3": ("sm_89", "sm_90a", "sm_100a")}


@pytest.mark.parametrize("name", APART)
def test_gpus_differ(name: str) -> None:
    a, b = adversarial((16, 64), name), adversarial((64, 16), name, seed=1)
    results = {fastmma.gemm(a, b, target=target).tobytes() for target in APART[name]}
    arithmetics = {fastmma.gemm_plan(a, b, target=target).operation.arithmetic.family for target in APART[name]}
    assert len(results) == len(arithmetics) > 1
    assert np.isfinite(fastmma.gemm(a, b, target="sm_90a", out_dtype="f16").astype(np.float32)).all()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_format(name: str) -> None:
    fmt = FORMATS[name]
    drawn = adversarial((40, 50), fmt)
    assert drawn.dtype == fmt.dtype
    assert drawn.shape == (40, 50)
    values = drawn.astype(np.float64)
    assert np.isfinite(values).all()
    assert len(np.unique(values)) > (1 if fmt.bits == 1 else 10)
    assert (adversarial((40, 50), fmt) == drawn).all()
    assert (adversarial((40, 50), fmt, seed=1) != drawn).any()


def test_bad_input() -> None:
    with pytest.raises(fastmma.OperandError, match="shape must be a tuple of sizes"):
        adversarial((3, -1))
    with pytest.raises(fastmma.InstructionError):
        adversarial(3, "f17")
    assert adversarial(7).shape == (7,)
    assert adversarial(()).shape == ()
