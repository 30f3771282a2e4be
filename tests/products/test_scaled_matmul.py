"""Products of block-scaled arrays: against the reference, and against the plans by definition."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases
from reference.ieee import fused, nearest, plus, times
from reference.products import bits, both

import fastmma
from fastmma import (
    ScaledArray,
    gemm,
    scaled_matmul,
    scaled_plan,
)
from fastmma.isa.codes import from_codes
from fastmma.isa.formats import FORMATS
from fastmma.scaling import SCHEMES, quantize
from fastmma.verification.inputs import PAIRS, codes

# by hand: format of the elements, of the scales, and k that share a scale (0: all)
KINDS = {
    "mxfp8_e4m3": ("e4m3", "ue8m0", 32),
    "mxfp8_e5m2": ("e5m2", "ue8m0", 32),
    "mxfp6_e3m2": ("e3m2", "ue8m0", 32),
    "mxfp6_e2m3": ("e2m3", "ue8m0", 32),
    "mxfp4": ("e2m1", "ue8m0", 32),
    "nvfp4": ("e2m1", "ue4m3", 16),
    "nvfp4_16x16": ("e2m1", "ue4m3", 16),
    "fp8_tensor": ("e4m3", "f32", 0),
    "fp8_tensor_e5m2": ("e5m2", "f32", 0),
    "fp8_row": ("e4m3", "f32", 0),
    "fp8_row_e5m2": ("e5m2", "f32", 0),
    "fp8_1x128": ("e4m3", "f32", 128),
    "fp8_1x128_e5m2": ("e5m2", "f32", 128),
    "fp8_128x128": ("e4m3", "f32", 128),
    "fp8_128x128_e5m2": ("e5m2", "f32", 128),
    "fp8_1x128_ue8m0": ("e4m3", "ue8m0", 128),
    "fp8_128x128_ue8m0": ("e4m3", "ue8m0", 128),
    "int8_row": ("s8", "f32", 0),
}
SAME = [(name, name) for name in KINDS]
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
TARGETS = ("sm_90a", "sm_120a")
SPECIAL_SCALES = {
    "f32": [0, 1 << 31, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800001, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001],
    "ue8m0": [0, 1, 126, 127, 128, 253, 254, 255],
    "ue4m3": [0, 1, 7, 8, 0x38, 0x7E, 0x7F],
}


def adversarial(scheme: str, shape: tuple[int, int], axis: int, distribution: str, seed: int) -> ScaledArray:
    """Elements and scales of any codes."""
    element, scale, _ = KINDS[scheme]
    rng = np.random.default_rng(seed)
    block = SCHEMES[scheme].block(shape, axis)
    grid = tuple(-(-extent // size) for extent, size in zip(shape, block, strict=True))
    if element == "s8":
        distribution = "bits"
    elements = from_codes(codes(element, distribution, shape[0] * shape[1], rng).reshape(shape), element)
    chosen = rng.choice(np.array(SPECIAL_SCALES[scale], np.uint32), grid)
    moderate = {"f32": (2 ** rng.uniform(-8, 8, grid)).astype(np.float32).view(np.uint32)}
    moderate |= {"ue8m0": rng.integers(110, 140, grid), "ue4m3": rng.integers(0x20, 0x60, grid)}
    picked = np.where(rng.random(grid) < 0.15, chosen, moderate[scale]).astype(FORMATS[scale].code_dtype)
    two_level = scheme.startswith("nvfp4")
    return ScaledArray(elements, from_codes(picked, scale), block, axis, np.float32(0.37) if two_level else None, scheme)


@contextmanager
def upward() -> Iterator[None]:
    library = ctypes.CDLL(None)
    before = library.fegetround()
    library.fesetround(0x800 if platform.machine().lower() in ("x86_64", "amd64") else 0x400000)
    try:
        yield
    finally:
        library.fesetround(before)


def test_every_scheme_is_here() -> None:
    assert set(KINDS) == set(SCHEMES)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("left", "right"), SAME + MIXED)
def test_equals_the_reference_on_adversarial_operands(left: str, right: str, target: str) -> None:
    for seed, (distribution, _) in enumerate(PAIRS[::3]):
        a = adversarial(left, (5, 170), 1, distribution, seed)
        b = adversarial(right, (170, 6), 0, distribution, seed + 100)
        both(a, b, target=target)


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("sm_75", ["int8_row"]),
        ("sm_80", ["int8_row", "mxfp4", "nvfp4", "mxfp6_e2m3"]),
        ("sm_89", ["fp8_row_e5m2", "fp8_1x128", "mxfp8_e4m3", "nvfp4"]),
        ("sm_90", ["fp8_tensor", "fp8_128x128", "mxfp6_e3m2", "nvfp4_16x16"]),
        ("sm_100a", ["fp8_row", "fp8_1x128_e5m2", "mxfp8_e5m2", "mxfp4"]),
        ("sm_121f", ["nvfp4", "mxfp8_e4m3"]),
    ],
)
def test_other_targets(target: str, names: list[str]) -> None:
    for name in names:
        for distribution in ("mid", "special"):
            both(adversarial(name, (4, 150), 1, distribution, 1), adversarial(name, (150, 3), 0, distribution, 2), target=target)


@pytest.mark.parametrize("options", [{"promote_every": 64}, {"split_k": 3}, {"promote_every": 128, "split_k": 2}])
@pytest.mark.parametrize("name", ["nvfp4", "mxfp8_e4m3", "fp8_row", "fp8_tensor"])
def test_promotion_and_split_k_where_the_scales_are_elsewhere(name: str, options: dict[str, int]) -> None:
    for distribution in ("mid", "special", "bits"):
        a, b = adversarial(name, (4, 300), 1, distribution, 3), adversarial(name, (300, 5), 0, distribution, 4)
        both(a, b, target="sm_120a", **options)


@pytest.mark.parametrize("name", ["fp8_1x128", "mxfp4", "nvfp4", "fp8_row"])
@pytest.mark.parametrize("target", TARGETS)
def test_portable_kernels(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(11)
    a, b = quantize(rng.standard_normal((33, 290)), name), quantize(rng.standard_normal((70, 290)), name).T
    expected = scaled_matmul(a, b, target=target)
    monkeypatch.setenv("FASTMMA_PORTABLE", "1")
    np.testing.assert_array_equal(bits(scaled_matmul(a, b, target=target)), bits(expected))


@cases("target", TARGETS)
@cases(("left", "right"), SAME + MIXED)
@cases("shape", [(0, 3, 40), (3, 0, 40), (2, 3, 0), (1, 1, 1), (3, 2, 31), (2, 5, 257)])
def test_shapes(left: str, right: str, target: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = quantize(rng.standard_normal((m, k)), left), quantize(rng.standard_normal((n, k)), right).T
    found = both(a, b, target=target, out_dtype="bfloat16")
    assert found.shape == (m, n)
    assert found.dtype == ml_dtypes.bfloat16
    if k == 0:
        assert not found.any()


@pytest.mark.each_path
@pytest.mark.parametrize(("left", "right"), [*SAME[::3], *MIXED[::3]])
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_depends_on_threads_memory_or_rounding_mode(left: str, right: str, target: str) -> None:
    rng = np.random.default_rng(1)
    a, b = quantize(rng.standard_normal((70, 300)), left), quantize(rng.standard_normal((67, 300)), right).T
    options = {"target": target, "bias": rng.standard_normal(67).astype(np.float32), "alpha": 0.3, "out_dtype": np.float16}
    expected = bits(scaled_matmul(a, b, threads=1, **options))
    np.testing.assert_array_equal(bits(scaled_matmul(a, b, threads=5, **options)), expected)
    turned = replace(a, elements=np.asfortranarray(a.elements), scales=np.asfortranarray(a.scales))
    np.testing.assert_array_equal(bits(scaled_matmul(turned, b, **options)), expected)
    with upward():
        found = scaled_matmul(a, b, threads=2, **options), scaled_matmul(a, b, threads=2, split_k=2, **options)
    np.testing.assert_array_equal(bits(found[0]), expected)
    np.testing.assert_array_equal(bits(found[1]), bits(scaled_matmul(a, b, split_k=2, **options)))


# the plans, by definition


@pytest.mark.each_path
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


@pytest.mark.each_path
def test_nvfp4_goes_through_the_instruction() -> None:
    rng = np.random.default_rng(3)
    a, b = quantize(rng.standard_normal((6, 200)), "nvfp4"), quantize(rng.standard_normal((7, 200)), "nvfp4").T
    sums = gemm(a.elements, b.elements, scale_a=a.scales, scale_b=b.scales, target="sm_120a")
    assert a.global_scale is not None
    assert b.global_scale is not None
    alpha = times(float(a.global_scale), float(b.global_scale))
    bias = rng.standard_normal(7).astype(ml_dtypes.bfloat16)
    found = {name: both(a, b, target="sm_120a", preset=name, bias=bias, out_dtype="bfloat16") for name in ("transformer-engine", "torchao")}
    for i, j in np.ndindex(6, 7):
        x, addend = float(sums[i, j]), float(bias[j])
        assert float(found["transformer-engine"][i, j]) == nearest(plus(times(x, alpha), addend), "bf16")
        rounded = nearest(times(nearest(x, "bf16"), nearest(alpha, "bf16")), "bf16")
        assert float(found["torchao"][i, j]) == nearest(plus(rounded, addend), "bf16")
    assert (bits(found["torchao"]) != bits(found["transformer-engine"])).any()


@pytest.mark.each_path
def test_two_dimensional_blocks_in_the_instruction() -> None:
    rng = np.random.default_rng(4)
    a, b = quantize(rng.standard_normal((20, 80)), "nvfp4_16x16"), quantize(rng.standard_normal((35, 80)), "nvfp4_16x16").T
    assert (a.scales.shape, b.scales.shape) == ((2, 5), (5, 3))
    wide = a.scales.repeat(16, axis=0)[:20], b.scales.repeat(16, axis=1)[:, :35]
    sums = gemm(a.elements, b.elements, scale_a=wide[0], scale_b=wide[1], target="sm_120a")
    without = replace(a, global_scale=np.float32(1)), replace(b, global_scale=np.float32(1))
    np.testing.assert_array_equal(bits(both(*without, target="sm_120a")), bits(sums))


@pytest.mark.each_path
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


@pytest.mark.each_path
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


@pytest.mark.each_path
def test_promotion_without_block_scales_is_that_of_gemm() -> None:
    rng = np.random.default_rng(8)
    a, b = quantize(rng.standard_normal((4, 700)), "fp8_tensor"), quantize(rng.standard_normal((5, 700)), "fp8_tensor").T
    for options in ({}, {"promote_every": 128}, {"split_k": 3}, {"promote_every": 64, "split_k": 2}):
        sums = gemm(a.elements, b.elements, **options)
        scale = times(float(a.scales[0, 0]), float(b.scales[0, 0]))
        expected = [[times(float(x), scale) for x in row] for row in sums]
        assert both(a, b, **options).tolist() == expected


@pytest.mark.each_path
def test_nan_of_a_scale_reaches_its_block_only() -> None:
    x = np.ones((3, 64), np.float32)
    x[1, 40] = np.nan
    for target in TARGETS:
        a, b = quantize(x, "mxfp8"), quantize(np.ones((2, 64), np.float32), "mxfp8").T
        assert a.scales.view(np.uint8).tolist() == [[119, 119], [119, 255], [119, 119]]
        found = both(a, b, target=target)
        assert found[[0, 2]].tolist() == [[64, 64]] * 2
        assert (bits(found[1]) == 0x7FFFFFFF).all()
        narrow = both(a, b, target=target, out_dtype="bfloat16"), both(a, b, target=target, out_dtype="float16")
        assert all((bits(each[1]) == 0x7FFF).all() for each in narrow)


@pytest.mark.each_path
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


@pytest.mark.each_path
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


@pytest.mark.each_path
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "fp8_row", "fp8_tensor", "fp8_1x128", "int8_row"])
def test_batches_without_k(name: str) -> None:
    """Nothing but c is left."""
    a, b = quantize(np.zeros((3, 4, 0)), name), quantize(np.zeros((3, 0, 5)), name, axis=1)
    c = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for target in TARGETS:
        np.testing.assert_array_equal(scaled_matmul(a, b, c=c, target=target), c)
        assert not scaled_matmul(a, b, target=target).any()


@pytest.mark.each_path
def test_out() -> None:
    rng = np.random.default_rng(10)
    a, b = quantize(rng.standard_normal((4, 160)), "mxfp8"), quantize(rng.standard_normal((5, 160)), "mxfp8").T
    c = rng.standard_normal((4, 5)).astype(np.float32)
    expected = scaled_matmul(a, b, c=c)
    for out in (np.empty((4, 5), np.float32), np.empty((5, 4), np.float32).T, np.zeros((8, 15), np.float32)[::2, ::-3]):
        assert scaled_matmul(a, b, c=c, out=out) is out
        np.testing.assert_array_equal(bits(out), bits(expected))
    assert scaled_matmul(a, b, c=c, out=c) is c
    np.testing.assert_array_equal(bits(c), bits(expected))


# the plan
