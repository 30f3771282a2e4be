"""Presets have the bits of cuBLAS: recorded on an H200, and live with ``--gpu`` where PyTorch is installed."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cublas import (
    BLOCKS,
    CASES,
    PATH,
    SCALED_CASES,
    TF32,
    Case,
    ScaledCase,
    kept_rows,
    operands,
    scaled_operands,
    torch_product,
    torch_scaled_product,
)

import fastmma
from fastmma.products.presets import GEMM_PRESETS

E4M3 = np.ones((4, 256), ml_dtypes.float8_e4m3fn)


def product(case: Case, rows: NDArray[np.intp] | slice = slice(None)) -> NDArray[np.uint32]:
    a, b = operands(case)
    instruction = TF32 if case.kind == "tf32" else None
    d = fastmma.gemm(a[rows], b.T, target="sm_90a", instruction=instruction, preset=case.preset, split_k=case.split_k)
    return d.view(np.uint32)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_recorded_products(case: Case) -> None:
    with np.load(PATH) as archive:
        recorded = archive[case.name]
    np.testing.assert_array_equal(product(case, kept_rows(case)), recorded.view(np.uint32))


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_products_of_the_library_in_this_machine(case: Case) -> None:
    pytest.importorskip("torch")
    np.testing.assert_array_equal(product(case), torch_product(case).view(np.uint32))


def scaled_product(case: ScaledCase, **options: Any) -> NDArray[Any]:
    a, b, scale_a, scale_b = scaled_operands(case)
    made = []
    for elements, scales, scheme in ((a, scale_a, case.a), (b, scale_b, case.b)):
        block = tuple(each or extent for each, extent in zip(BLOCKS[scheme], elements.shape, strict=True))
        made.append(fastmma.ScaledArray(elements, scales, block, 1, None, scheme))
    preset = "cublas-fast-accum" if case.fast else "cublas"
    return fastmma.scaled_matmul(made[0], made[1].T, target="sm_90a", preset=preset, **options)


@pytest.mark.parametrize("case", SCALED_CASES, ids=lambda case: case.name)
def test_recorded_products_with_scales(case: ScaledCase) -> None:
    with np.load(PATH) as archive:
        recorded = archive[case.name]
    np.testing.assert_array_equal(scaled_product(case).view(np.uint32)[kept_rows(case)], recorded.view(np.uint32))


@pytest.mark.parametrize("case", [case for case in SCALED_CASES if case.a == case.b != "fp8_1x128"][:4], ids=lambda case: case.name)
def test_a_bias_joins_the_scaled_sum_before_its_only_rounding(case: ScaledCase) -> None:
    with np.load(PATH) as archive:
        recorded = archive[case.name]
    bias = np.linspace(-3, 3, case.n).astype(ml_dtypes.bfloat16)
    d = scaled_product(case, bias=bias, out_dtype=ml_dtypes.bfloat16)[kept_rows(case)]
    expected = (recorded + bias.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(d.view(np.uint16), expected.view(np.uint16))


@pytest.mark.gpu
@pytest.mark.parametrize("case", SCALED_CASES, ids=lambda case: case.name)
def test_scaled_products_of_the_library_in_this_machine(case: ScaledCase) -> None:
    pytest.importorskip("torch")
    np.testing.assert_array_equal(scaled_product(case).view(np.uint32), torch_scaled_product(case).view(np.uint32))


def test_split_k_cuts_where_the_library_does() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((8, 4096)).astype(np.float16), rng.standard_normal((4096, 8)).astype(np.float16)
    cuts = [0, 1408, 2816, 4096]  # a third of 64 tiles of 64, rounded up: 22 tiles
    parts = [fastmma.gemm(a[:, start:stop], b[start:stop], target="sm_90a") for start, stop in itertools.pairwise(cuts)]
    expected = (parts[0] + parts[1]) + parts[2]
    d = fastmma.gemm(a, b, target="sm_90a", preset="cublas", split_k=3)
    np.testing.assert_array_equal(d.view(np.uint32), expected.view(np.uint32))
    assert (d != fastmma.gemm(a, b, target="sm_90a", split_k=3)).any()


def test_presets_refuse_what_they_do_not_know() -> None:
    with pytest.raises(fastmma.OperandError, match="there is no preset 'mkl'; there are cublas, cublas-fast-accum"):
        fastmma.gemm(E4M3, E4M3.T, preset="mkl")
    with pytest.raises(fastmma.OperandError, match="there is no preset 3"):
        fastmma.gemm(E4M3, E4M3.T, preset=3)  # type: ignore[arg-type]
    with pytest.raises(fastmma.OperandError, match=r"e4m3, e5m2 by wgmma on sm_90a with f32 accumulators, not for mma\.sync.* on sm_89"):
        fastmma.gemm(E4M3, E4M3.T, preset="cublas-fast-accum", target="sm_89")
    with pytest.raises(fastmma.OperandError, match="sets promote_every to 128; leave it out"):
        fastmma.gemm(E4M3, E4M3.T, preset="cublas", promote_every=64)
    f16 = np.ones((4, 32), np.float16)
    opcode = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
    with pytest.raises(fastmma.OperandError, match=r"f16, bf16 by wgmma on sm_90a.*not for mma\.sync\.aligned\.m16n8k8"):
        fastmma.gemm(f16, f16.T, instruction=opcode, preset="cublas")
    with pytest.raises(fastmma.OperandError, match="known without c"):
        fastmma.gemm(E4M3, E4M3.T, np.ones((4, 4), np.float32), preset="cublas")
    assert all(row.source and row.split_unit for rows in GEMM_PRESETS.values() for row in rows)


def test_matmul_takes_presets() -> None:
    stack = np.stack([E4M3, -E4M3])
    np.testing.assert_array_equal(fastmma.matmul(stack, E4M3.T, preset="cublas")[1], -256 * np.ones((4, 4)))
