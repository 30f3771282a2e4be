"""What JAX 0.11.2 computed on an H200: XLA's parts of k, once they are named, give every bit.

``h200_xla.npz`` has two rows of each result, as codes; XLA chose the parts by time.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")

import fastmma  # noqa: E402
import fastmma.jax  # noqa: E402
from fastmma.testing import assert_bits_equal  # noqa: E402

ROWS = [3, 14]
DTYPES = ("bfloat16", "float16", "float8_e4m3fn", "float32")
SHAPES = ((64, 256, 512), (256, 512, 128), (512, 1024, 1024), (128, 4096, 128))
# parts of k by K, and how they are joined; where fp8 is promoted, one part
PARTS = {256: (4, "pairwise"), 512: (8, "ascending"), 1024: (4, "ascending"), 4096: (32, "ascending")}
PROMOTED = "ANY_F8_ANY_F8_F32"
with np.load(Path(__file__).with_name("h200_xla.npz")) as _file:
    RECORDED = dict(_file)


def drawn() -> dict[tuple[str, tuple[int, int, int]], tuple[np.ndarray, np.ndarray]]:
    """The operands, as they were drawn."""
    rng = np.random.default_rng(3)
    found = {}
    for dtype in DTYPES:
        for m, k, n in SHAPES:
            pair = [(rng.integers(-(2**20), 2**20, (4, *shape)).sum(0) / 2**20).astype(np.float32) for shape in ((m, k), (k, n))]
            a, b = (each.astype(getattr(ml_dtypes, dtype, dtype)) for each in pair)
            found[dtype, (m, k, n)] = a[ROWS], b
    return found


def plans_of(dtype: str, precision: str, a: np.ndarray, b: np.ndarray, out: str) -> dict[tuple[int, int, int], Any]:
    """The parts that XLA took."""
    parts, join = PARTS[len(b)]
    if precision == PROMOTED and len(b) >= 1024:
        return {}
    key = (a.shape[0], b.shape[1], len(b))
    if join == "ascending":
        return {key: parts}
    factors = "tf32" if precision.startswith("TF32") else "bf16" if dtype == "float32" else None
    instruction = None if factors != "tf32" else "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32"
    x, y = (each.astype(ml_dtypes.bfloat16) if factors == "bf16" else each for each in (a, b))
    plan = fastmma.gemm_plan(x, y, target="H200", split_k=parts, join=join, instruction=instruction, out_dtype=out)
    return {key: replace(plan, cast=factors == "bf16")}


def test_recorded_results_have_every_bit() -> None:
    operands = drawn()
    assert len(RECORDED) == 30
    for name, codes in RECORDED.items():
        dtype, m, k, n, precision, out = name.split()
        a, b = operands[dtype, (int(m), int(k), int(n))]
        if k == "256" and dtype == "float8_e4m3fn":
            plans: dict[Any, Any] = {(2, int(n), 256): 4}
        else:
            plans = plans_of(dtype, precision, a, b, out)
        algorithm = None if precision == "None" else jax.lax.DotAlgorithmPreset[precision]
        d = fastmma.jax.dot_general(a, b, (((1,), (0,)), ((), ())), algorithm, out, target="H200", plans=plans)
        assert_bits_equal(d, codes.view(getattr(ml_dtypes, out, out)))


def test_operands_are_rounded_to_tf32_ties_away() -> None:
    """One product in exact arithmetic: 1 + 2^-11 is a tie, which goes to 1 + 2^-10."""
    x = np.array([[1 + 2**-11, 1 + 3 * 2**-12, 1 + 2**-12, -1 - 2**-11, np.inf]], np.float32)
    d = fastmma.jax.dot_general(x.T, np.ones((1, 1), np.float32), (((1,), (0,)), ((), ())), target="H200", f32="tf32")
    assert np.asarray(d)[:, 0].tolist() == [1 + 2**-10, 1 + 2**-10, 1.0, -1 - 2**-10, np.inf]
    nan = np.array([[0x7FFFFFFF]], np.uint32).view(np.float32)
    assert np.isnan(fastmma.jax.dot_general(nan, np.ones((1, 1), np.float32), (((1,), (0,)), ((), ())), target="H200", f32="tf32")).all()
