"""What products take on datacenter Blackwell: tcgen05 as libraries do, mma.sync where they do, and plans that say so."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma import FORMATS, gemm, gemm_plan, mma, scaled_matmul, scaled_plan, tcgen05
from fastmma.scaling import quantize

WITH_TCGEN05 = ("sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_110a", "sm_110f")
RNG = np.random.default_rng(0)


def elements(name: str, shape: tuple[int, int]) -> Any:
    return np.clip(np.round(RNG.standard_normal(shape) * 2), -6, 6).astype(FORMATS[name].dtype)


def taken(a: str, b: str, target: str, *, k: int = 64, n: int = 8, **more: Any) -> str:
    plan = gemm_plan(np.zeros((4, k), FORMATS[a].dtype), np.zeros((k, n), FORMATS[b].dtype), target=target, **more)
    return plan.instruction.split(" ")[0]


@pytest.mark.parametrize("target", WITH_TCGEN05)
def test_the_instructions_of_libraries(target: str) -> None:
    one = "tcgen05.mma.cta_group::1.kind::"
    assert taken("f16", "f16", target) == taken("bf16", "bf16", target) == f"{one}f16"
    for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e2m1"), ("e3m2", "e4m3"), ("e2m3", "e3m2")):
        assert taken(a, b, target) == f"{one}f8f6f4"
    integer = f"{one}i8" if target in ("sm_100a", "sm_110a") else "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
    assert taken("s8", "s8", target) == integer
    assert taken("f64", "f64", target).startswith("mma.sync")
    scale = np.ones((4, 2), ml_dtypes.float8_e8m0fnu), np.ones((2, 8), ml_dtypes.float8_e8m0fnu)
    given = {"scale_a": scale[0], "scale_b": scale[1]}
    assert taken("e4m3", "e2m1", target, **given) == f"{one}mxf8f6f4.block_scale.block32"
    assert taken("e2m1", "e2m1", target, **given) == f"{one}mxf4.block_scale.block32"
    four = {name: np.ones(shape, ml_dtypes.float8_e4m3fn) for name, shape in (("scale_a", (4, 4)), ("scale_b", (4, 8)))}
    assert taken("e2m1", "e2m1", target, **four) == f"{one}mxf4nvf4.block_scale.block16"


def test_where_libraries_take_no_tcgen05() -> None:
    """Unaligned 16-bit operands, f16 accumulators and sparse A; plain targets have none, and of sm_107 libraries nothing is known."""
    for k, n in ((60, 8), (64, 9), (63, 63)):
        for name in ("f16", "bf16"):
            assert taken(name, name, "sm_100a", k=k, n=n) == f"mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32"
        assert taken("e4m3", "e4m3", "sm_100a", k=k, n=n).startswith("tcgen05")
    assert taken("f16", "f16", "sm_100a", accumulator="f16").startswith("mma.sync")
    assert taken("f16", "f16", "sm_100a", metadata=np.zeros((4, 16), np.uint8)).startswith("mma.sp")
    for target in ("sm_100", "sm_103", "sm_110", "sm_107", "sm_107a", "sm_120a"):
        assert taken("f16", "f16", target).startswith("mma.sync")


def test_plans_say_what_the_other_name_of_the_gpu_takes() -> None:
    e4m3, f16 = elements("e4m3", (8, 64)), elements("f16", (8, 64))

    def elsewhere(target: str, a: Any = e4m3, **more: Any) -> str:
        lines = str(gemm_plan(a, a.T, target=target, **more)).splitlines()
        return next((line.split(maxsplit=1)[1] for line in lines if line.split()[0] == "elsewhere"), "")

    lowered = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32, with other bits"
    assert elsewhere("sm_90a") == f"sm_90 takes {lowered}"
    assert elsewhere("sm_90") == "sm_90a takes wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3, with other bits"
    assert elsewhere("sm_100a") == f"sm_100 takes {lowered}"
    assert elsewhere("sm_100") == "sm_100a takes tcgen05.mma.cta_group::1.kind::f8f6f4 idesc=0x08400010, with other bits"
    assert elsewhere("sm_100a", elements("e2m1", (8, 64))) == "sm_100 has no such instruction, and other bits"
    # the same bits, or an instruction that was named
    assert elsewhere("sm_100a", f16) == elsewhere("sm_90a", f16) == elsewhere("sm_120a") == elsewhere("sm_89") == ""
    assert elsewhere("sm_100a", instruction=lowered.split(",")[0]) == ""
    a = quantize(np.ones((8, 64), np.float32), "nvfp4")
    assert "elsewhere    sm_100 has no such instruction" in str(scaled_plan(a, a.T, target="sm_100a"))


@pytest.mark.parametrize(("name", "kind"), [("bf16", "f16"), ("e5m2", "f8f6f4"), ("s8", "i8")])
def test_gemm_is_the_chain_of_its_instruction(name: str, kind: str) -> None:
    d = "s32" if kind == "i8" else "f32"
    ins = tcgen05.instruction(kind, d, name, name, m=64, n=16)
    a, b = elements(name, (64, 3 * ins.k)), elements(name, (3 * ins.k, 16))
    total = np.zeros((64, 16), FORMATS[d].dtype)
    for k in range(0, 3 * ins.k, ins.k):
        total = mma(ins, a[:, k : k + ins.k], b[k : k + ins.k], total, target="sm_100a")
    assert gemm(a, b, target="sm_100a").tobytes() == total.tobytes()


def with_left_over_first(a: Any, b: Any, tile: int, target: str) -> Any:
    """CUTLASS's loop over k: the instructions of a first tile of K % tile, the last of them short, then those of whole tiles."""
    depth, left_over, rows = a.shape[1], a.shape[1] % tile, len(a)
    cuts = sorted({*range(0, left_over, 16), *range(left_over, depth, 16), depth})
    total = np.zeros((-(-rows // 16), 16, 8), np.float32)
    ins = "mma.sync.aligned.m16n8k16.row.col.f32.{0}.{0}.f32".format("f16" if a.dtype == np.float16 else "bf16")
    for start, stop in itertools.pairwise(cuts):
        x = np.pad(a[:, start:stop], ((0, -rows % 16), (0, 16 - (stop - start)))).reshape(-1, 16, 16)
        y = np.pad(b[start:stop], ((0, 16 - (stop - start)), (0, 8 - b.shape[1])))
        total = mma(ins, x, y, total, target=target)
    return total.reshape(-1, 8)[:rows, : b.shape[1]]


@pytest.mark.parametrize("depth", [60, 40, 7, 33, 95, 96, 127, 300])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_unaligned_products_begin_with_what_is_left_over(name: str, depth: int) -> None:
    rng = np.random.default_rng(depth)
    a, b = (rng.standard_normal(shape).astype(FORMATS[name].dtype) for shape in ((37, depth), (depth, 7)))
    plan = gemm_plan(a, b, target="sm_100a")
    assert plan.first_tile == 32
    assert "ascending by 16, D fed back as C, the remainder after tiles of 32 k first" in str(plan)
    assert gemm(a, b, target="sm_100a").tobytes() == with_left_over_first(a, b, 32, "sm_100a").tobytes()
    assert fastmma.matmul(np.stack([a, -a]), b, target="sm_103a")[0].tobytes() == with_left_over_first(a, b, 32, "sm_103a").tobytes()
    for tile in (16, 64, 128):
        taller = dataclasses.replace(plan, first_tile=tile)
        for backend in ("numba", "reference"):
            found = gemm(a[:5], b, plan=taller, backend=backend)
            assert found.tobytes() == with_left_over_first(a[:5], b, tile, "sm_100a").tobytes()
    into, halves = np.ones((37, 7), np.float32), gemm(a, b, target="sm_100a", split_k=2)
    length = -(-depth // 32) * 16
    parts = [with_left_over_first(a[:, k : k + length], b[k : k + length], 32, "sm_100a") for k in range(0, depth, length)]
    assert halves.tobytes() == sum(parts[1:], parts[0]).tobytes()
    assert gemm(a, b, into, plan=plan, out=into) is into
    if depth % 32 % 16 and depth > 32:
        last = gemm(a, b, plan=dataclasses.replace(plan, first_tile=0))
        assert (last != gemm(a, b, plan=plan)).any()


def test_only_unaligned_operands_have_a_first_tile() -> None:
    a = elements("f16", (8, 60))
    plan = gemm_plan(a, a.T, target="sm_100a")
    for other, options in (
        (elements("f16", (8, 64)), {"target": "sm_100a"}),
        (elements("e4m3", (8, 60)), {"target": "sm_100a"}),
        (a, {"target": "sm_100"}),
        (a, {"target": "sm_90a"}),
        (a, {"target": "sm_100a", "promote_every": 64}),
        (a, {"target": "sm_100a", "instruction": plan.instruction}),
    ):
        assert gemm_plan(other, other.T, **options).first_tile == 0
    for changes in ({"first_tile": 24}, {"promote_every": 32}, {"first_tile": 32, "promote_every": 16}):
        with pytest.raises(fastmma.OperandError, match=r"first_tile must be 0 or, without promotion, .* a multiple of the instruction's k"):
            dataclasses.replace(plan, **changes)
    for wrong in (-1, 32.0, True, None):
        with pytest.raises(fastmma.OperandError, match="first_tile must be an integer"):
            dataclasses.replace(plan, first_tile=wrong)


@pytest.mark.parametrize(("scheme", "kind"), [("nvfp4", "mxf4nvf4"), ("mxfp4", "mxf4"), ("mxfp8", "mxf8f6f4"), ("mxfp6", "mxf8f6f4")])
def test_scaled_products_are_chains_of_block_scaled_instructions(scheme: str, kind: str) -> None:
    x, y = RNG.standard_normal((128, 192)).astype(np.float32), RNG.standard_normal((16, 192)).astype(np.float32)
    a, b = quantize(x, scheme), quantize(y, scheme).T
    got = scaled_matmul(a, b, target="sm_100a")
    plan = scaled_plan(a, b, target="sm_100a")
    assert f"kind::{kind}." in plan.instruction
    assert (plan.scales, plan.promote_every) == ("instruction", None)
    element, stype = a.row.element, plan.operation.instruction.stype
    ins = tcgen05.instruction(kind, "f32", element, element, n=16, scale=stype)
    total, size = np.zeros((128, 16), np.float32), ins.scale_vec_size
    for step, k in enumerate(range(0, 192, ins.k)):
        blocks = slice(step * size, (step + 1) * size)
        operands = a.elements[:, k : k + ins.k], b.elements[k : k + ins.k], total
        total = mma(ins, *operands, target="sm_100a", scale_a=a.scales[:, blocks], scale_b=b.scales[blocks])
    factor = np.float32(1)
    for each in (a, b):
        if each.global_scale is not None:
            factor = factor * np.float32(each.global_scale)
    assert got.tobytes() == (total * factor).astype(np.float32).tobytes()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("fp8_1x128_ue8m0", "fp8_128x128_ue8m0"),
        ("fp8_1x128_ue8m0", "fp8_1x128_ue8m0"),
        ("fp8_1x128_ue8m0", "mxfp4"),
        ("mxfp8_e4m3", "mxfp8_e4m3"),
    ],
)
def test_deepgemm_is_a_chain_of_block_scaled_instructions(left: str, right: str) -> None:
    """By definition: each instruction takes the scales of the blocks that its k lie in; c joins the sum; one rounding to bf16."""
    x, y = (RNG.standard_normal((rows, 384)) * np.exp2(RNG.integers(-9, 9, (rows, 384))) for rows in (128, 144))
    a, b, c = quantize(x, left), quantize(y, right).T, RNG.standard_normal((128, 144)).astype(np.float32)
    plan = scaled_plan(a, b, target="sm_100a", preset="deepgemm", out_dtype="bfloat16")
    assert (plan.scales, plan.promote_every, plan.epilogue) == ("instruction", None, ("c", "round"))
    assert plan.instruction.startswith("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.block32")
    ins = tcgen05.instruction("mxf8f6f4", "f32", a.row.element, b.row.element, n=144)
    total, columns = np.zeros((128, 144), np.float32), np.arange(144)
    for k in range(0, 384, 32):
        scale_a, scale_b = a.scales[:, k // a.block[1], None], b.scales[k // b.block[0], columns // b.block[1]][None]
        total = mma(ins, a.elements[:, k : k + 32], b.elements[k : k + 32], total, target="sm_100a", scale_a=scale_a, scale_b=scale_b)
    for backend, rows in (("numba", 8), ("reference", 2)):  # the reference is slow
        found = scaled_matmul(a[:rows], b, c=c[:rows], plan=plan, backend=backend)
        assert found.tobytes() == (total + c)[:rows].astype(ml_dtypes.bfloat16).tobytes()
    assert scaled_matmul(a, b, c=c, plan=plan).tobytes() == (total + c).astype(ml_dtypes.bfloat16).tobytes()


def test_scales_of_128_k_are_those_of_32_k_four_times() -> None:
    a = quantize(RNG.standard_normal((6, 300)), "fp8_1x128_ue8m0")
    b = quantize(RNG.standard_normal((5, 300)), "fp8_1x128_ue8m0").T
    fine_a = fastmma.ScaledArray(a.elements, a.scales.repeat(4, axis=1)[:, :10], (1, 32), 1, scheme="mxfp8_e4m3")
    fine_b = fastmma.ScaledArray(b.elements, b.scales.repeat(4, axis=0)[:10], (32, 1), 0, scheme="mxfp8_e4m3")
    for target in ("sm_100a", "sm_103f", "sm_120a"):
        assert scaled_matmul(a, b, target=target).tobytes() == scaled_matmul(fine_a, fine_b, target=target).tobytes()
        assert scaled_matmul(a, fine_b, target=target).tobytes() == scaled_matmul(fine_a, b, target=target).tobytes()


def test_presets() -> None:
    a = elements("e4m3", (16, 640))
    plan = gemm_plan(a, a.T, target="sm_100a", preset="cublas", split_k=2)
    assert (plan.promote_every, plan.unit, plan.instruction.split(" ")[0]) == (None, 128, "tcgen05.mma.cta_group::1.kind::f8f6f4")
    parts = gemm(a[:, :384], a.T[:384], target="sm_100a"), gemm(a[:, 384:], a.T[384:], target="sm_100a")
    assert gemm(a, a.T, target="sm_100a", preset="cublas", split_k=2).tobytes() == (parts[0] + parts[1]).tobytes()
    assert gemm_plan(a.astype(np.float16), a.T.astype(np.float16), target="sm_103f", preset="cublas").unit == 64
    with pytest.raises(fastmma.OperandError, match="preset 'cublas' is known for"):
        gemm_plan(a, a.T, target="sm_110a", preset="cublas")
    x = RNG.standard_normal((128, 256)).astype(np.float32)
    blockwise = scaled_plan(quantize(x, "fp8_1x128"), quantize(x, "fp8_128x128").T, target="sm_100a", preset="cutlass")
    assert (blockwise.promotion, blockwise.promote_every, blockwise.epilogue) == ("fma", 128, ("alpha+c", "round"))
    whole = scaled_plan(quantize(x, "fp8_tensor"), quantize(x, "fp8_tensor").T, target="sm_100a", preset="cublas")
    assert (whole.promote_every, whole.epilogue, "bitequiv" in whole.source) == (None, ("scale_ab", "round"), True)
    hopper = scaled_plan(quantize(x, "fp8_tensor"), quantize(x, "fp8_tensor").T, target="sm_90a", preset="cublas")
    assert hopper.promote_every == 128
    for scheme in ("nvfp4", "mxfp8"):
        for preset in ("cublas", "transformer-engine"):
            found = scaled_plan(quantize(x, scheme), quantize(x, scheme).T, target="sm_100a", preset=preset)
            assert "tcgen05" in found.instruction
    with pytest.raises(fastmma.OperandError, match="preset 'deepgemm' is for sm_100a and sm_100f and sm_103a and sm_103f, not sm_90a"):
        scaled_plan(quantize(x, "fp8_1x128_ue8m0"), quantize(x, "mxfp4").T, target="sm_90a", preset="deepgemm")
    with pytest.raises(fastmma.OperandError, match="preset 'cutlass' is for sm_100a and sm_100f and sm_103a and sm_103f, not sm_90a"):
        scaled_plan(quantize(x, "fp8_1x128"), quantize(x, "fp8_1x128").T, target="sm_90a", preset="cutlass")
