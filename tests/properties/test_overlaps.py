"""`out=` in the memory of any operand, at any place and with any strides: the bits are those of operands elsewhere.

``FASTMMA_FUZZ_MINUTES`` set: until the time is over; else a few of each kind.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases
from reference.operations import families, product_operands
from reference.products import bits

import fastmma
from fastmma import FORMATS, FastmmaError, Instruction, ScaledArray, scaling

MINUTES = float(os.environ.get("FASTMMA_FUZZ_MINUTES") or 0)
PRODUCTS = [(ins, target) for ins, target in families(every=bool(MINUTES)) if ins.ctype == ins.dtype]


def strided(rng: np.random.Generator, memory: NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of this shape somewhere in a memory, its axes in any order and direction, with gaps."""
    order = rng.permutation(len(shape))
    strides, reach = [0] * len(shape), dtype.itemsize
    for axis in order:
        strides[axis] = reach * int(rng.integers(1, 3))
        reach = strides[axis] * max(shape[axis], 1)
    span = sum(stride * (extent - 1) for stride, extent in zip(strides, shape, strict=True)) + dtype.itemsize
    start = int(rng.integers(0, len(memory) - span)) // dtype.itemsize * dtype.itemsize
    held = np.ndarray(shape, dtype, memory, start, strides)
    return held[tuple(slice(None, None, int(rng.choice([1, -1]))) for _ in shape)]


def overlapping(
    rng: np.random.Generator, operand: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The operand, moved into a memory, and an output there; they share some of it in most cases."""
    memory = np.zeros(8 * (operand.nbytes + int(np.prod(shape)) * dtype.itemsize) + 64, np.uint8)
    moved = strided(rng, memory, operand.shape, operand.dtype)
    out = moved if rng.random() < 0.3 and (moved.shape, moved.dtype) == (shape, dtype) else strided(rng, memory, shape, dtype)
    moved[...] = operand
    return moved, out


def same(found: NDArray[Any], out: NDArray[Any], wanted: NDArray[Any], what: str) -> None:
    assert found is out
    np.testing.assert_array_equal(bits(found), bits(wanted), err_msg=what)


def one_product(rng: np.random.Generator, ins: Instruction, target: str, count: Counter[str]) -> None:
    m, n = (int(extent) for extent in rng.integers(1, 40, 2))
    given = product_operands(rng, ins, m, n, ins.k * int(rng.integers(1, 4)))
    if rng.random() < 0.3:
        del given["c"]
    options: dict[str, Any] = {"instruction": ins, "target": target, "threads": int(rng.integers(1, 3))}
    if FORMATS[ins.dtype].kind == "float":
        options["promote_every"] = [None, ins.k][rng.integers(2)]
    options["split_k"] = int(rng.integers(1, 3))
    wanted = fastmma.gemm(**given, **options)
    for name in given:
        moved, out = overlapping(rng, given[name], (m, n), FORMATS[ins.dtype].dtype)
        found = fastmma.gemm(**{**given, name: moved}, **options, out=out)
        same(found, out, wanted, f"{ins} {target} {options}: out in the memory of {name}")
        count[f"gemm, {name}, {'shared' if np.shares_memory(moved, out) else 'beside'}"] += 1


@pytest.mark.each_path
def test_products() -> None:
    rng = np.random.default_rng(0)
    count: Counter[str] = Counter()
    until = time.monotonic() + 60 * MINUTES
    while not count or time.monotonic() < until:
        for ins, target in PRODUCTS:
            for _ in range(4 if ins.scale_vec_size else 1):  # there are few of them
                one_product(rng, ins, target, count)
    print(dict(count))
    assert all(count[f"gemm, {name}, shared"] > 3 for name in ("a", "b", "c", "metadata", "scale_a", "scale_b"))


@pytest.mark.each_path
@cases("seed", range(20))
def test_batches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = {"a": rng.standard_normal((3, 1, 7, 20)).astype(np.float16), "b": rng.standard_normal((2, 20, 5)).astype(np.float16)}
    wanted = fastmma.matmul(**given, target="sm_80")
    for name in given:
        moved, out = overlapping(rng, given[name], wanted.shape, wanted.dtype)
        same(fastmma.matmul(**{**given, name: moved}, target="sm_80", out=out), out, wanted, name)


@pytest.mark.each_path
@pytest.mark.parametrize("scheme", scaling.SCHEMES)
def test_scaled_products(scheme: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        x, y = rng.standard_normal((6, 256)), rng.standard_normal((7, 256))
        a, b = scaling.quantize(x, scheme), scaling.quantize(y, scheme).T
        given: dict[str, Any] = {"c": rng.standard_normal((6, 7)).astype(np.float32), "bias": rng.standard_normal(7).astype(np.float32)}
        options: dict[str, Any] = {"target": "sm_80" if scheme == "int8_row" else "sm_120a", "out_dtype": str(rng.choice(["f32", "bf16"]))}
        wanted = fastmma.scaled_matmul(a, b, **given, **options)
        for name in given:
            moved, out = overlapping(rng, given[name], wanted.shape, wanted.dtype)
            same(fastmma.scaled_matmul(a, b, **{**given, name: moved}, **options, out=out), out, wanted, name)
        for name in ("elements", "scales"):
            moved, out = overlapping(rng, getattr(a, name), wanted.shape, wanted.dtype)
            parts = {"elements": a.elements, "scales": a.scales, name: moved}
            moved_a = ScaledArray(**parts, block=a.block, axis=a.axis, global_scale=a.global_scale, scheme=scheme)
            same(fastmma.scaled_matmul(moved_a, b, **given, **options, out=out), out, wanted, name)


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
