"""Presets have the bits of cuBLAS: recorded on an H200, and live with ``--gpu`` where PyTorch is installed."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference import cublas_orders
from reference.cublas import (
    BLOCKS,
    CASES,
    PATH,
    SCALED_CASES,
    TF32,
    Case,
    ScaledCase,
    dtypes,
    kept_rows,
    operands,
    scaled_operands,
    torch_product,
    torch_scaled_product,
)

import fastmma
from fastmma.products.cublas.book import shipped_book
from fastmma.products.cublas.book_file import TYPES
from fastmma.products.cublas.find_row import find_row_as_computed
from fastmma.products.cublas.rows import Product, TileRow
from fastmma.products.cublas.tables import nearest_table
from fastmma.products.cublas.tile_order import tile_order
from fastmma.products.presets import GEMM_PRESETS

E4M3 = np.ones((4, 256), ml_dtypes.float8_e4m3fn)


def plan_of(case: Case, **options: Any) -> fastmma.GemmPlan:
    first, second = dtypes(case)
    a, b = np.empty((case.m, case.k), first), np.empty((case.n, case.k), second)
    fixed = {"split_k": case.split_k, "instruction": TF32 if case.kind == "tf32" else None, "preset": case.preset, "target": "sm_90a"}
    return fastmma.gemm_plan(a, b.T, **fixed | options)


@pytest.mark.best_kernels
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_recorded_products(case: Case) -> None:
    with np.load(PATH) as archive:
        recorded = archive[case.name]
    a, b = operands(case)
    found = fastmma.gemm(a[kept_rows(case)], b.T, plan=plan_of(case))
    np.testing.assert_array_equal(found.view(np.uint32), recorded.view(np.uint32))


def test_the_plan_book_has_the_parts_of_recorded_products() -> None:
    plans = {case: plan_of(case, split_k=1) for case in CASES}
    looked_up = {case: plan for case, plan in plans.items() if "on H200" in plan.source and "not recorded" not in plan.source}
    assert len(looked_up) > 15
    assert {case: plan.split_k for case, plan in looked_up.items()} == {case: case.split_k for case in looked_up}


def of(m: int, n: int, k: int, layout: str = "nn", dtype: Any = np.float16) -> tuple[NDArray[Any], NDArray[Any]]:
    a, b = (
        np.empty((rows, columns) if each == "n" else (columns, rows), dtype)
        for rows, columns, each in ((m, k, layout[0]), (k, n, layout[1]))
    )
    return (a if layout[0] == "n" else a.T), (b if layout[1] == "n" else b.T)


def test_products_are_looked_up_by_gpu_shape_layout_and_types() -> None:
    bf16 = ml_dtypes.bfloat16
    plan = fastmma.gemm_plan(*of(512, 512, 4096, dtype=bf16), target="H200", preset="cublas")
    assert (plan.split_k, plan.split_unit, "13.1.0" in plan.source, plan.target) == (2, 64, True, "sm_90a")
    assert fastmma.gemm_plan(*of(512, 512, 4096, dtype=bf16), preset="cublas") == plan
    others = [("H100", "nn"), ("H200", "nt")]
    assert [fastmma.gemm_plan(*of(512, 512, 4096, layout, bf16), target=gpu, preset="cublas").split_k for gpu, layout in others] == [1, 1]
    # K no multiple of 8: CUTLASS for sm_75, whose parts go through memory, and whose first tile is what is left over
    plan = fastmma.gemm_plan(*of(64, 51865, 1280, "nt"), target="H200", preset="cublas", out_dtype="f16")
    assert ("m16n8k8" in plan.instruction, plan.first_tile) == (True, 32)
    opcode = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"
    with pytest.raises(fastmma.OperandError, match=r"the library takes mma\.sync\.aligned\.m16n8k8.* leave out the instruction"):
        fastmma.gemm_plan(*of(64, 51865, 1280, "nt"), instruction=opcode, target="H200", preset="cublas", out_dtype="f16")
    for gpu, shape in (("H200", (511, 513, 515)), ("GH200", (512, 512, 4096))):
        plan = fastmma.gemm_plan(*of(*shape), target=gpu, preset="cublas")
        assert (plan.split_k, f"is not recorded on {gpu}" in plan.source) == (1, True)
        with pytest.raises(fastmma.OperandError, match=f"is not recorded on {gpu}; unknown='one' takes one part"):
            fastmma.gemm_plan(*of(*shape), target=gpu, preset="cublas", unknown="refuse")
    with pytest.raises(fastmma.OperandError, match="adds in an order that no plan has"):
        fastmma.gemm(*of(1, 1, 4096), preset="cublas", unknown="refuse", out_dtype="f16")
    with pytest.raises(fastmma.OperandError, match="unknown must be one of one, refuse"):
        fastmma.gemm(*of(8, 8, 8), preset="cublas", unknown="guess")
    stack = np.ones((2, 8, 18), np.float16)
    assert fastmma.matmul(stack, stack.transpose(0, 2, 1), preset="cublas").shape == (2, 8, 8)
    with pytest.raises(fastmma.OperandError, match=r"a stack of f16 .* is not recorded"):
        fastmma.matmul(stack, stack.transpose(0, 2, 1), preset="cublas", unknown="refuse")


@pytest.mark.parametrize(
    ("shape", "given", "steps"),
    [
        ((1024, 1024, 1024), {"c": 1.0}, ("round", "c")),
        ((1024, 1024, 1024), {"alpha": 0.5, "c": 0.5}, ("alpha+c", "round")),
        ((128, 128, 4096), {"alpha": 0.5, "c": 1.0}, ("alpha", "beta*c", "round")),
        ((128, 128, 4096), {"alpha": 0.5, "c": 0.5}, ("alpha", "beta*c", "round")),
        ((3, 59, 1278), {"alpha": 0.5, "c": 0.5}, ("alpha", "beta*c", "round")),
    ],
)
def test_the_epilogue_is_that_of_the_kernel(shape: tuple[int, int, int], given: dict[str, float], steps: tuple[str, ...]) -> None:
    a, b = of(*shape, layout="nt" if shape[1] % 8 else "nn")
    c = np.empty((shape[0], shape[1]), np.float16)
    options = {"alpha": given.get("alpha", 1.0), "beta": given["c"], "out_dtype": "f16"}
    assert fastmma.gemm_plan(a, b, c, preset="cublas", **options).epilogue == steps


def test_kernels_of_cutlass_and_split_products_have_the_bits_of_an_h200() -> None:
    found = cublas_orders.samples()
    assert len(found) > 50
    for sample in found:
        a, b = of(sample.m, sample.n, sample.k, sample.layout, cublas_orders.DTYPES[sample.fmt])
        options: dict[str, Any] = {"instruction": TF32} if sample.fmt == "tf32" else {}
        options |= {} if sample.wide else {"out_dtype": sample.fmt}
        plan = fastmma.gemm_plan(a, b, target="H200", preset="cublas", unknown="refuse", **options)
        d = fastmma.gemm(*cublas_orders.inputs(sample), plan=plan).astype(np.float32)
        np.testing.assert_array_equal(d, sample.elements, err_msg=str(sample[:6]))


@pytest.mark.parametrize("gpu", ["H100", "H200"])
def test_every_recorded_product_has_a_plan(gpu: str) -> None:
    pages = shipped_book(gpu)
    assert pages is not None
    assert (pages.gpu, len(pages) > 40_000) == (gpu, True)
    table, seen = nearest_table(gpu, pages.version), set[tuple[str, bool]]()
    for kind, m, n, k in pages.products()[::7]:
        product = Product(TYPES[kind.type].fmt, kind.layout, m, n, k, TYPES[kind.type].out)
        found = pages.find(kind.type, product, biased=bool(kind.addend))
        assert found is not None
        seen.add((kind.type, found.samples > 0))
        if found.samples:
            row, as_computed = find_row_as_computed(table, found.choice, product)
            assert isinstance(row, TileRow)
            order = tile_order(row, found.choice, as_computed, "sm_90a")
            assert (order.split_k == found.choice.parts, order.split_k == 1) == (True, order.split_unit == 0)
    assert seen == {(name, known) for name in ("bf16", "f16", "tf32") for known in (True, False)} | {("e4m3", True)}


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_products_of_the_library_in_this_machine(case: Case) -> None:
    torch = pytest.importorskip("torch")
    plan = plan_of(case, target=torch.cuda.get_device_name(), split_k=1)
    if "not recorded" in plan.source:
        plan = plan_of(case)
    a, b = operands(case)
    np.testing.assert_array_equal(fastmma.gemm(a, b.T, plan=plan).view(np.uint32), torch_product(case).view(np.uint32))


def scaled_product(case: ScaledCase, **options: Any) -> NDArray[Any]:
    a, b, scale_a, scale_b = scaled_operands(case)
    made = []
    for elements, scales, scheme in ((a, scale_a, case.a), (b, scale_b, case.b)):
        block = tuple(each or extent for each, extent in zip(BLOCKS[scheme], elements.shape, strict=True))
        made.append(fastmma.ScaledArray(elements, scales, block, 1, None, scheme))
    preset = "cublas-fast-accum" if case.fast else "cublas"
    return fastmma.scaled_matmul(made[0], made[1].T, target="sm_90a", preset=preset, **options)


@pytest.mark.best_kernels
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
    with pytest.raises(fastmma.OperandError, match="does not say how c"):
        fastmma.gemm(E4M3, E4M3.T, np.ones((4, 4), np.float32), preset="cublas")
    assert all(row.source and row.split_unit for rows in GEMM_PRESETS.values() for row in rows)


def test_matmul_takes_presets() -> None:
    stack = np.stack([E4M3, -E4M3])
    np.testing.assert_array_equal(fastmma.matmul(stack, E4M3.T, preset="cublas")[1], -256 * np.ones((4, 4)))
