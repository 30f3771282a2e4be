"""Products of block-scaled arrays: against the reference, and against the plans by definition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from drivers.cases import scaled_case
from drivers.checks import check
from numpy.typing import NDArray
from reference.ieee import fused, nearest, plus, times
from reference.products import bits, both

import fastmma
from fastmma import (
    gemm,
    scaled_matmul,
    scaled_plan,
)
from fastmma.isa.formats import FORMATS
from fastmma.scaling import SCHEMES, quantize

# pairs of which a chain of instructions is taken, or promotion with scales, or one after the other
MIXED = [
    ("mxfp8_e4m3", "mxfp4"),
    ("mxfp6_e2m3", "mxfp8_e5m2"),
    ("mxfp4", "mxfp6_e3m2"),
    ("nvfp4", "nvfp4_16x16"),
    ("fp8_1x128", "fp8_128x128"),
    ("fp8_1x128_e5m2", "fp8_128x128"),
    ("fp8_row", "fp8_tensor_e5m2"),
    ("fp8_row", "fp8_128x128"),
    ("mxfp8_e4m3", "fp8_1x128"),
    ("fp8_1x128_ue8m0", "fp8_128x128_ue8m0"),
    ("fp8_1x128_ue8m0", "mxfp4"),
    ("nvfp4", "mxfp4"),
    ("mxfp4", "fp8_row"),
]


@pytest.mark.parametrize("pair", [*((name, name) for name in SCHEMES), *MIXED], ids="-".join)
def test_drawn_products_have_the_bits_of_the_reference(pair: tuple[str, str]) -> None:
    """Any scales and elements, targets, sizes, epilogues, memory, threads and modes."""
    rng = np.random.default_rng([len(name) for name in pair])
    for _ in range(12):
        check(rng, scaled_case(rng, [pair]), Counter())


# the plans, by definition


def test_deepseek_by_definition() -> None:
    """Chunks of 128 k from zero in the tensor core; scale_a * scale_b rounded; one fma a chunk; rounded to bf16 at the end."""
    rng = np.random.default_rng(2)
    a = quantize(rng.standard_normal((5, 400)) * 2.0 ** rng.integers(-4, 5, (5, 1)), "fp8_1x128")
    b = quantize(rng.standard_normal((140, 400)), "fp8_128x128").T
    found = both(a, b, preset="deepgemm", out_dtype=ml_dtypes.bfloat16)
    chunks = [gemm(a.elements[:, k : k + 128], b.elements[k : k + 128], target="sm_90a") for k in range(0, 400, 128)]
    assert a.scales.shape == (5, 4)
    assert b.scales.shape == (4, 2)
    for i, j in np.ndindex(5, 140):
        total = 0.0
        for chunk, partial in enumerate(chunks):
            scale = times(float(a.scales[i, chunk]), float(b.scales[chunk, j // 128]))
            total = fused(scale, float(partial[i, j]), total)
        assert float(found[i, j]) == nearest(total, "bf16")


def test_nvfp4_goes_through_the_instruction() -> None:
    rng = np.random.default_rng(3)
    a, b = quantize(rng.standard_normal((6, 200)), "nvfp4"), quantize(rng.standard_normal((7, 200)), "nvfp4").T
    sums = gemm(a.elements, b.elements, scale_a=a.scales, scale_b=b.scales, target="sm_120a")
    alpha = times(float(a.global_scale), float(b.global_scale))
    bias = rng.standard_normal(7).astype(ml_dtypes.bfloat16)
    found = {name: both(a, b, target="sm_120a", preset=name, bias=bias, out_dtype="bfloat16") for name in ("transformer-engine", "torchao")}
    for i, j in np.ndindex(6, 7):
        x, addend = float(sums[i, j]), float(bias[j])
        assert float(found["transformer-engine"][i, j]) == nearest(plus(times(x, alpha), addend), "bf16")
        rounded = nearest(times(nearest(x, "bf16"), nearest(alpha, "bf16")), "bf16")
        assert float(found["torchao"][i, j]) == nearest(plus(rounded, addend), "bf16")
    assert (bits(found["torchao"]) != bits(found["transformer-engine"])).any()


def test_two_dimensional_blocks_in_the_instruction() -> None:
    rng = np.random.default_rng(4)
    a, b = quantize(rng.standard_normal((20, 80)), "nvfp4_16x16"), quantize(rng.standard_normal((35, 80)), "nvfp4_16x16").T
    assert (a.scales.shape, b.scales.shape) == ((2, 5), (5, 3))
    wide = a.scales.repeat(16, axis=0)[:20], b.scales.repeat(16, axis=1)[:, :35]
    sums = gemm(a.elements, b.elements, scale_a=wide[0], scale_b=wide[1], target="sm_120a")
    without = replace(a, global_scale=np.float32(1)), replace(b, global_scale=np.float32(1))
    np.testing.assert_array_equal(bits(both(*without, target="sm_120a")), bits(sums))


@pytest.mark.parametrize(
    ("schemes", "every", "formats"),
    [
        (("mxfp4", "mxfp4"), 32, ("e4m3", "e4m3")),
        (("mxfp6_e3m2", "mxfp8_e5m2"), 32, ("e4m3", "e5m2")),
        (("nvfp4", "nvfp4"), 16, ("f16", "f16")),
        (("mxfp8_e4m3", "fp8_1x128"), 32, ("e4m3", "e4m3")),
    ],
)
def test_widened_elements_on_hopper(schemes: tuple[str, str], every: int, formats: tuple[str, str]) -> None:
    rng = np.random.default_rng(5)
    a, b = quantize(rng.standard_normal((4, 100)), schemes[0]), quantize(rng.standard_normal((3, 100)), schemes[1]).T
    plan = scaled_plan(a, b, target="sm_90a")
    assert (plan.scales, plan.promote_every, plan.promotion) == ("promotion", every, "fma")
    ins = fastmma.instruction(plan.instruction)
    assert (ins.atype, ins.btype) == formats
    found = both(replace(a, global_scale=None if a.global_scale is None else np.float32(1)), b, plan=plan)
    wide = a.elements.astype(FORMATS[formats[0]].dtype), b.elements.astype(FORMATS[formats[1]].dtype)
    np.testing.assert_array_equal(wide[0].astype(float), a.elements.astype(float))
    for i, j in np.ndindex(4, 3):
        total = 0.0
        for k in range(0, 100, every):
            part = gemm(wide[0][i : i + 1, k : k + every], wide[1][k : k + every, j : j + 1], instruction=ins)
            scale = times(float(a.scales[i, k // a.block[1]]), float(b.scales[k // b.block[0], j]))
            total = fused(scale, float(part[0, 0]), total)
        expected = total if b.global_scale is None else times(total, float(b.global_scale))
        assert float(found[i, j]) == expected


def test_integers_become_floats_before_the_scales() -> None:
    rng = np.random.default_rng(6)
    a, b = quantize(rng.standard_normal((5, 3001)), "int8_row"), quantize(rng.standard_normal((4, 3001)), "int8_row").T
    sums = a.elements.astype(np.int64) @ b.elements.astype(np.int64)
    big = replace(a, elements=np.full_like(a.elements, 127)), replace(b, elements=np.full_like(b.elements, 127))
    assert nearest(Fraction(3001 * 127 * 127)) != 3001 * 127 * 127  # the conversion rounds
    for (x, y), exact in (((a, b), sums), (big, np.full((5, 4), 3001 * 127 * 127))):
        first = both(x, y, target="sm_80")
        second = both(x, y, epilogue=("scale_b", "scale_a", "round"), out_dtype="float16")
        for i, j in np.ndindex(5, 4):
            value, left, right = nearest(int(exact[i, j])), float(x.scales[i, 0]), float(y.scales[0, j])
            assert float(first[i, j]) == times(times(value, left), right)
            assert float(second[i, j]) == nearest(times(times(value, right), left), "f16")


def test_the_epilogue_in_any_order() -> None:
    rng = np.random.default_rng(7)
    a, b = quantize(rng.standard_normal((4, 90)), "fp8_row"), quantize(rng.standard_normal((3, 90)), "fp8_row").T
    bias, c = rng.standard_normal(3).astype(np.float32), rng.standard_normal((4, 3)).astype(np.float16)
    sums = gemm(a.elements, b.elements)
    alpha = nearest(0.7)

    def found(*steps: str) -> NDArray[Any]:
        return both(a, b, alpha=0.7, bias=bias, c=c, epilogue=steps, out_dtype="bfloat16")

    orders = [
        found("scale_ab", "alpha", "c", "bias", "round"),
        found("alpha", "scale_b", "scale_a+bias", "c", "round"),
        found("scale_a", "scale_b", "alpha+c", "round", "bias"),
        found("scale_a", "scale_b", "round", "alpha+bias", "c"),
    ]
    for i, j in np.ndindex(4, 3):
        x, left, right = float(sums[i, j]), float(a.scales[i, 0]), float(b.scales[0, j])
        y, z = float(bias[j]), float(c[i, j])
        assert float(orders[0][i, j]) == nearest(plus(plus(times(times(x, times(left, right)), alpha), z), y), "bf16")
        assert float(orders[1][i, j]) == nearest(plus(fused(times(times(x, alpha), right), left, y), z), "bf16")
        scaled = times(times(x, left), right)
        before = nearest(fused(scaled, alpha, z), "bf16")
        assert float(orders[2][i, j]) == nearest(plus(before, nearest(y, "bf16")), "bf16")
        before = nearest(fused(nearest(scaled, "bf16"), nearest(alpha, "bf16"), nearest(y, "bf16")), "bf16")
        assert float(orders[3][i, j]) == nearest(plus(before, nearest(z, "bf16")), "bf16")


def test_promotion_without_block_scales_is_that_of_gemm() -> None:
    rng = np.random.default_rng(8)
    a, b = quantize(rng.standard_normal((4, 700)), "fp8_tensor"), quantize(rng.standard_normal((5, 700)), "fp8_tensor").T
    for options in ({}, {"promote_every": 128}, {"split_k": 3}, {"promote_every": 64, "split_k": 2}):
        sums = gemm(a.elements, b.elements, **options)
        scale = times(float(a.scales[0, 0]), float(b.scales[0, 0]))
        expected = [[times(float(x), scale) for x in row] for row in sums]
        assert both(a, b, **options).tolist() == expected


def test_nan_of_a_scale_reaches_its_block_only() -> None:
    x = np.ones((3, 64), np.float32)
    x[1, 40] = np.nan
    for target in ("sm_90a", "sm_120a"):
        a, b = quantize(x, "mxfp8"), quantize(np.ones((2, 64), np.float32), "mxfp8").T
        assert a.scales.view(np.uint8).tolist() == [[119, 119], [119, 255], [119, 119]]
        found = both(a, b, target=target)
        assert found[[0, 2]].tolist() == [[64, 64]] * 2
        assert (bits(found[1]) == 0x7FFFFFFF).all()
        narrow = both(a, b, target=target, out_dtype="bfloat16"), both(a, b, target=target, out_dtype="float16")
        assert all((bits(each[1]) == 0x7FFF).all() for each in narrow)


@pytest.mark.parametrize("name", ["nvfp4", "fp8_tensor", "fp8_1x128"])
def test_leading_dimensions_broadcast(name: str) -> None:
    rng = np.random.default_rng(9)
    x, w = rng.standard_normal((2, 1, 4, 160)), rng.standard_normal((3, 160, 5))
    a, b = quantize(x, name), quantize(w, name, axis=-2)
    c = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    found = scaled_matmul(a, b, c=c)
    assert found.shape == (2, 3, 4, 5)
    for i, j in np.ndindex(2, 3):
        part = replace(a, elements=a.elements[i, 0], scales=a.scales[0 if name == "fp8_tensor" else i, 0], block=a.block[2:], axis=1)
        other = replace(b, elements=b.elements[j], scales=b.scales[0 if name == "fp8_tensor" else j], block=b.block[1:], axis=0)
        np.testing.assert_array_equal(bits(found[i, j]), bits(scaled_matmul(part, other, c=c[i, j])))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mxfp8", {"target": "sm_120a"}),
        ("nvfp4", {"target": "sm_120a", "preset": "torchao", "out_dtype": "bfloat16"}),
        ("fp8_row", {"epilogue": ("scale_b", "alpha+bias", "scale_a", "round", "c"), "out_dtype": "float16"}),
        ("fp8_tensor", {"promote_every": 64, "split_k": 2, "out_dtype": "bfloat16"}),
        ("fp8_1x128", {"promotion": "fma-each", "promote_every": 32, "split_k": 2}),
        ("int8_row", {}),
    ],
)
def test_batches_follow_any_plan(name: str, options: dict[str, Any]) -> None:
    """Every product of a batch is the product alone: own scales, addends and epilogue; there may be none."""
    rng = np.random.default_rng(12)
    grows = 2.0 ** np.arange(3)[:, None, None]
    a, b = quantize(rng.standard_normal((3, 7, 192)) * grows, name), quantize(rng.standard_normal((3, 192, 6)) * grows, name, axis=1)
    given: dict[str, Any] = {"alpha": 0.75}
    plan = scaled_plan(a, b, **options)
    if any("bias" in step for step in plan.epilogue):
        given["bias"] = rng.standard_normal(6).astype(np.float32)
    c = rng.standard_normal((3, 7, 6)).astype(np.float32) if "c" in plan.epilogue else None
    for backend in ("numba", "reference"):
        found = scaled_matmul(a, b, c=c, plan=plan, backend=backend, **given)
        assert found.shape == (3, 7, 6)
        for index in range(3):
            alone = scaled_matmul(a[index], b[index], c=None if c is None else c[index], plan=plan, **given)
            np.testing.assert_array_equal(bits(found[index]), bits(alone))
    assert scaled_matmul(a[:0], b[:0], c=None if c is None else c[:0], plan=plan, **given).shape == (0, 7, 6)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "fp8_row", "fp8_tensor", "fp8_1x128", "int8_row"])
def test_batches_without_k(name: str) -> None:
    """Nothing but c is left."""
    a, b = quantize(np.zeros((3, 4, 0)), name), quantize(np.zeros((3, 0, 5)), name, axis=1)
    c = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for target in ("sm_90a", "sm_120a"):
        np.testing.assert_array_equal(scaled_matmul(a, b, c=c, target=target), c)
        assert not scaled_matmul(a, b, target=target).any()


# the plan


def test_a_plan_that_came_before_is_told_from_others() -> None:
    """Calls of a form are found by the plan's identity: two plans alternate, one whose memory another had, and one of another scheme."""
    x = np.random.default_rng(8).standard_normal((16, 128), np.float32)
    a, b = quantize(x, "nvfp4"), quantize(x, "nvfp4").T
    expected = {target: scaled_matmul(a, b, target=target, backend="reference") for target in ("sm_100a", "sm_120a")}
    for _ in range(3):
        for target, results in expected.items():
            plan = scaled_plan(a, b, target=target)
            plans = [plan, replace(plan), replace(plan)]
            for each in plans * 2:
                np.testing.assert_array_equal(scaled_matmul(a, b, plan=each), results)
            del plan, plans
    other = scaled_plan(a, b, target="sm_120a")
    assert scaled_matmul(a, b, plan=other) is not None
    with pytest.raises(fastmma.OperandError, match="the plan is for"):
        scaled_matmul(quantize(x, "mxfp4"), quantize(x, "mxfp4").T, plan=other)
    with pytest.raises(fastmma.OperandError, match="must be left out"):
        scaled_matmul(a, b, plan=other, target="sm_120a")


@pytest.mark.best_kernels
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["nvfp4", "mxfp4"])
def test_results_go_to_arrays_with_any_strides(name: str, threads: int) -> None:
    """Products that are large enough for every kernel; what lies beside an array is left as it was."""
    rng = np.random.default_rng(11)
    a, b = quantize(rng.standard_normal((64, 256)), name), quantize(rng.standard_normal((80, 256)), name).T
    plan = scaled_plan(a, b, target="sm_120a")
    expected = scaled_matmul(a, b, plan=plan, threads=threads)
    rows, columns = expected.shape
    for _ in range(2):  # a product of a form that came before takes another way
        memory = np.zeros((4 * rows, 4 * columns), np.float32)
        for place in (
            memory[:rows, :columns],
            memory[:rows, : 2 * columns : 2],
            memory[rows - 1 :: -1, :columns],
            memory[::4, columns - 1 :: -1],
            memory.reshape(-1)[: rows * columns].reshape(rows, columns),
            memory.reshape(-1)[: rows * columns].reshape(columns, rows).T,
            memory.view(np.uint8).reshape(-1)[1 : 1 + expected.nbytes].view(np.float32).reshape(rows, columns),
        ):
            assert scaled_matmul(a, b, plan=plan, threads=threads, out=place) is place
            np.testing.assert_array_equal(bits(place), bits(expected))
            place[:] = 0
            assert not memory.any()
    for wrong, why in (
        (np.zeros((rows, columns + 1), np.float32), "shape"),
        (np.zeros((rows, columns)), "dtype"),
        (np.broadcast_to(np.float32(0), (rows, columns)), "read-only"),
    ):
        with pytest.raises(fastmma.FastmmaError, match=why):
            scaled_matmul(a, b, plan=plan, threads=threads, out=wrong)
