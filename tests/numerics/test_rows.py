"""The numerics table, and the effects by which its rows were told apart on real GPUs."""

from __future__ import annotations

from typing import Any, get_args

import ml_dtypes
import numpy as np
import pytest
from reference import reviewed
from reference.silicon import ARITHMETIC

import fastmma
from fastmma import TARGETS, TargetError, arithmetic, fidelity, instruction, mma
from fastmma.backends.gpu.cuda_source import FOLDER
from fastmma.backends.routes import ROUTES
from fastmma.numerics.evidence import LEVELS
from fastmma.numerics.methods import METHODS, MethodName
from fastmma.numerics.own import FIELDS
from fastmma.numerics.rows import ROWS

DENSE = [ins for ins in (*fastmma.instructions(op="mma"), *fastmma.instructions(op="wgmma")) if not ins.sparse and not ins.scale_vec_size]
BACKENDS = ("numba", "reference")
MMA = "mma.sync.aligned."
F16_F32 = MMA + "m16n8k16.row.col.f32.f16.f16.f32"
F16_F16 = MMA + "m16n8k16.row.col.f16.f16.f16.f16"
BF16 = MMA + "m16n8k16.row.col.f32.bf16.bf16.f32"
WGMMA_E4M3 = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3"


def base(target: str) -> str:
    return target.rstrip("af")


def test_the_arithmetic_of_every_instruction_is_the_reviewed_one() -> None:
    reviewed.check("evidence --arithmetic --markdown", ARITHMETIC)


def test_every_row_has_a_source() -> None:
    for row in ROWS:
        assert row.evidence.level in LEVELS
        assert row.evidence.source
        assert str(row.evidence) == f"{row.evidence.level}: {row.evidence.source}"
        assert row.family
        assert row.evidence.sources
        for source in row.evidence.sources:
            assert source.title
            assert source.reference
            assert 2020 < source.year < 2100
            assert str(source).startswith(f"{source.title}, {source.reference}, {source.year}")
        measured = [source for source in row.evidence.sources if source.words]
        assert row.evidence.level == "reported" or all(source.gpu for source in measured)


def test_every_method_has_rows_kernels_and_source() -> None:
    assert {row.method for row in ROWS} == set(METHODS)
    assert {method for route in ROUTES for method in route.methods} == set(METHODS)
    assert all((FOLDER / method.cuda_source).is_file() for method in METHODS.values())
    assert get_args(MethodName) == tuple(METHODS)
    assert {name for name, method in METHODS.items() if method.exact} == {"integer", "bit"}
    assert [name for name, method in METHODS.items() if method.in_steps] == ["fused", "grouped"]
    assert all(set(method.fields) == (set(FIELDS) if method.in_steps else set()) for method in METHODS.values())


@pytest.mark.parametrize(
    ("opcode", "target", "level"),
    [
        (F16_F32, "sm_90a", "measured"),
        (F16_F32, "sm_90", "measured"),
        (F16_F32, "sm_80", "recorded"),
        (F16_F32, "sm_87", "reported"),
        (F16_F32, "sm_100a", "recorded"),
        (F16_F32, "sm_120a", "reported"),
        (WGMMA_E4M3, "sm_90a", "measured"),
        (MMA + "m8n8k4.row.col.f32.f16.f16.f32", "sm_70", "recorded"),
        (MMA + "m16n8k8.row.col.f32.f16.f16.f32", "sm_75", "reported"),
        (MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89", "recorded"),
        (MMA + "m8n8k16.row.col.s32.s8.s8.s32", "sm_75", "by definition"),
        (MMA + "m16n8k32.row.col.s32.s8.s8.s32", "RTX 5090", "by definition"),
        ("fma.rn.f32", "A100", "by definition"),
        (MMA + "m8n8k4.row.col.f64.f64.f64.f64", "sm_80", "reported"),
    ],
)
def test_fidelity_and_strictness(opcode: str, target: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fidelity(opcode, target).level == level
    ins = instruction(opcode)
    zeros = [
        np.zeros(shape, fastmma.FORMATS[fmt].dtype)
        for shape, fmt in (((ins.m, ins.k), ins.atype), ((ins.k, ins.n), ins.btype), ((ins.m, ins.n), ins.ctype))
    ]
    for value, strict in (("1", True), ("yes", True), ("0", False), ("", False)):
        monkeypatch.setenv("FASTMMA_STRICT", value)
        assert fidelity(opcode, target).level == level
        if strict and level == "reported":
            with pytest.raises(TargetError, match="only reported"):
                mma(ins, *zeros, target=target)
            with pytest.raises(TargetError, match="only reported"):
                fastmma.gemm(*zeros, instruction=ins, target=target)
        else:
            assert not mma(ins, *zeros, target=target).any()
    assert arithmetic(opcode, target, strict=False).evidence.level == level
    if level == "reported":
        with pytest.raises(TargetError, match="strict mode refuses"):
            arithmetic(opcode, target, strict=True)


def test_targets_that_cannot_run_the_opcode() -> None:
    with pytest.raises(TargetError, match=r"m16n8k16\.row\.col\.f32\.f16\.f16\.f32: illegal on sm_75; it needs one of sm_80"):
        arithmetic(F16_F32, "sm_75")
    for bad in ("sm_61", "", None, [], 90, "H1000", "SM_90"):
        with pytest.raises(TargetError, match="unknown target"):
            arithmetic(F16_F32, bad)
    assert "sm_90a" in TARGETS


def dot(opcode: str, target: str, products: list[tuple[float, float]], c: float = 0.0, *, backend: str = "numba") -> Any:
    """The result of one dot product, its place among the others changing with `backend`."""
    ins = instruction(opcode)
    a = np.zeros((ins.m, ins.k), fastmma.FORMATS[ins.atype].dtype)
    b = np.zeros((ins.k, ins.n), fastmma.FORMATS[ins.btype].dtype)
    d = np.zeros((ins.m, ins.n), fastmma.FORMATS[ins.ctype].dtype)
    row, column = (ins.m - 1, 3) if backend == "numba" else (0, 0)
    for k, (x, y) in enumerate(products):
        a[row, k], b[k, column] = x, y
        assert (float(a[row, k]), float(b[k, column])) == (x, y) or x != x or y != y
    d[row, column] = c
    return mma(opcode, a, b, d, target=target, backend=backend)[row, column]


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("target", "bits_kept"), [("sm_80", 24), ("sm_86", 24), ("sm_89", 24), ("sm_90", 25), ("sm_100", 25), ("sm_120", 25)]
)
def test_alignment_bits(target: str, bits_kept: int, backend: str) -> None:
    """One minus a little: the last place that survives alignment takes one unit of f32 away."""
    for place in (23, 24, 25, 26, 27):
        result = dot(F16_F32, target, [(1.0, 1.0), (-(2.0**-13), 2.0 ** (13 - place))], backend=backend)
        assert result == (1 - 2.0 ** -max(min(place, 24), 23) if place <= bits_kept else 1.0)


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("target", ["sm_70", "sm_75"])
def test_alignment_bits_of_m8n8k4(target: str, backend: str) -> None:
    opcode = MMA + "m8n8k4.row.col.f32.f16.f16.f32"
    assert dot(opcode, target, [(1.0, 1.0), (-(2.0**-12), 2.0**-11)], backend=backend) == 1 - 2.0**-23
    assert dot(opcode, target, [(1.0, 1.0), (-(2.0**-12), 2.0**-12)], backend=backend) == 1
    # f16: 2**-42 survives beside 2**-25 and breaks the tie, 2**-43 does not
    half, tie = opcode.replace("f32", "f16"), (2.0**-12, 2.0**-13)
    assert dot(half, target, [tie, (2.0**-21, 2.0**-21)], backend=backend) == 2.0**-24
    assert dot(half, target, [tie, (2.0**-21, 2.0**-22)], backend=backend) == 0


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_sm_75_takes_eight_products_a_step(backend: str) -> None:
    big = 2.0**12
    products = [(big, big), (1.0, 1.0), (0.0, 0.0), (0.0, 0.0), (-big, big)]
    assert dot(MMA + "m16n8k8.row.col.f32.f16.f16.f32", "sm_75", products, backend=backend) == 1


MXF4 = MMA + "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32."


def groups(stype: str, sums: list[list[tuple[float, float]]], exponents: list[int], c: float = 0.0, *, backend: str) -> Any:
    """One dot product of four groups of 16 on sm_120a; each has the power of two of an exponent for A's scale."""
    a, b = np.zeros((16, 64), ml_dtypes.float4_e2m1fn), np.zeros((64, 8), ml_dtypes.float4_e2m1fn)
    scale = ml_dtypes.float8_e8m0fnu if stype == "ue8m0" else ml_dtypes.float8_e4m3fn
    scale_a, scale_b = np.ones((16, 4), scale), np.ones((4, 8), scale)
    d = np.zeros((16, 8), np.float32)
    d[3, 5] = c
    for group, products in enumerate(sums):
        for place, (x, y) in enumerate(products):
            a[3, 16 * group + place], b[16 * group + place, 5] = x, y
        # below 2**-127 B's scale takes the rest
        low = min(max(exponents[group], -80), 80) if stype == "ue8m0" else exponents[group]
        scale_a[3, group], scale_b[group, 5] = (0.0 if low == -99 else 2.0**low), 2.0 ** (exponents[group] - low)
    return mma(MXF4 + stype, a, b, d, target="sm_120a", scale_a=scale_a, scale_b=scale_b, backend=backend)[3, 5]


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_groups_that_cancel_count_in_alignment(backend: str) -> None:
    """A group is aligned by its scales, whatever its sum; without a product that is not zero, or without a scale, it is not there."""
    one, cancelled, nothing = [(1.0, 1.0)], [(1.0, 1.0), (-1.0, 1.0)], [(1.0, 0.0), (0.0, -1.0)]
    assert groups("ue8m0", [cancelled, one, [], []], [35, 0, 0, 0], backend=backend) == 1
    assert groups("ue8m0", [cancelled, one, [], []], [36, 0, 0, 0], backend=backend) == 0
    assert groups("ue8m0", [cancelled, [], [], []], [60, 0, 0, 0], c=1.0, backend=backend) == 0
    assert groups("ue8m0", [nothing, one, [], []], [60, 0, 0, 0], backend=backend) == 1
    assert groups("ue4m3", [cancelled, [(0.5, 0.5)], [], []], [8, -6, 0, 0], backend=backend) == 2.0**-8
    assert groups("ue4m3", [cancelled, [(0.5, 0.5)], [], []], [-99, -6, 0, 0], backend=backend) == 2.0**-8


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_floor_of_groups(backend: str) -> None:
    """2**-174 less than the last bit of float32 rounds to zero, and 2**-175 is lost."""
    sums = [[(4.0, 4.0)] * 16, [(-0.5, 0.5)], [], []]
    assert groups("ue8m0", sums, [-157, -172, 0, 0], backend=backend) == 0
    assert groups("ue8m0", sums, [-157, -173, 0, 0], backend=backend) == 2.0**-149


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_round_toward_zero_between_eight_products(backend: str) -> None:
    """2**24 + 1 does not fit f32: what comes after it in the same step still sees the one."""
    big = (2.0**12, 2.0**12)
    products = [big, (1.0, 1.0), *[(0.0, 0.0)] * 6, (-(2.0**12), 2.0**12)]
    assert dot(F16_F32, "sm_80", products, backend=backend) == 0
    assert dot(F16_F32, "sm_90a", products, backend=backend) == 1
    same_step = [big, (1.0, 1.0), (-(2.0**12), 2.0**12)]
    assert dot(F16_F32, "sm_80", same_step, backend=backend) == 1


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_f32_results_are_truncated_and_f16_results_rounded(backend: str) -> None:
    tail = 2.0**-24 + 2.0**-25
    assert dot(F16_F32, "sm_90a", [(1.0, 1.0), (2.0**-12, 2.0**-12), (2.0**-12, 2.0**-13)], backend=backend) == 1
    assert dot(F16_F32, "sm_90a", [(-1.0, 1.0), (-(2.0**-12), 2.0**-12), (-(2.0**-12), 2.0**-13)], backend=backend) == -1
    assert tail > 2.0**-24
    assert dot(F16_F16, "sm_90a", [(1.0, 1.0), (2.0**-5, 2.0**-6)], backend=backend) == 1  # a tie
    assert dot(F16_F16, "sm_90a", [(1.0, 1.0), (2.0**-5, 2.0**-6), (2.0**-12, 2.0**-12)], backend=backend) == 1 + 2.0**-10
    assert dot(F16_F16, "sm_90a", [(1.0 + 2.0**-10, 1.0), (2.0**-5, 2.0**-6)], backend=backend) == 1 + 2.0**-9


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_floor_of_f16_results(backend: str) -> None:
    """Measured on an H200: 2**-46 survives beside 2**-25 and breaks the tie, 2**-47 does not."""
    tie = (2.0**-12, 2.0**-13)
    assert dot(F16_F16, "sm_90a", [tie], backend=backend) == 0
    assert dot(F16_F16, "sm_90a", [tie, (2.0**-23, 2.0**-23)], backend=backend) == 2.0**-24
    assert dot(F16_F16, "sm_90a", [tie, (2.0**-23, 2.0**-24)], backend=backend) == 0
    # alignment by the products themselves would reach 2**-50; sm_80 is said to reach 2**-44
    assert dot(F16_F16, "sm_80", [tie, (2.0**-22, 2.0**-22)], backend=backend) == 2.0**-24
    assert dot(F16_F16, "sm_80", [tie, (2.0**-22, 2.0**-23)], backend=backend) == 0


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("target", "last"), [("sm_90a", -158), ("sm_100a", -158), ("sm_80", -156)])
@pytest.mark.parametrize(("opcode", "count"), [(BF16, 2), (MMA + "m16n8k8.row.col.f32.tf32.tf32.f32", 1)])
def test_floor_of_f32_results(opcode: str, count: int, target: str, last: int, backend: str) -> None:
    """Tiny products that carry into the last place of the subnormals, 2**-149, as long as none of them is below the last place kept."""

    def carried(share: float, shares: int) -> float:
        most = (2.0**-60, (2.0**-149 - count * 2.0**last) * 2.0**60)
        return float(dot(opcode, target, [most, *[(2.0**-70, share * 2.0**70)] * shares], backend=backend))

    assert carried(2.0**last, count) == 2.0**-149
    assert carried(2.0 ** (last - 1), 2 * count) == 0


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_negative_zero_never_comes_out(backend: str) -> None:
    for opcode, smallest in ((F16_F16, 2.0**-24), (F16_F32, 2.0**-24)):
        assert np.signbit(dot(opcode, "sm_90a", [(-0.0, 1.0), (0.0, -1.0)], c=-0.0, backend=backend)) == np.False_
        negative = dot(opcode, "sm_90a", [(-smallest, smallest)], c=-0.0, backend=backend)
        assert negative == 0 if opcode is F16_F16 else negative == -(2.0**-48)
        assert not (np.signbit(negative) and negative == 0)


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_specials(backend: str) -> None:
    inf, nan = np.inf, np.nan
    for opcode, quiet in ((F16_F32, 0x7FFFFFFF), (F16_F16, 0x7FFF)):
        unsigned = f"u{4 if quiet > 0xFFFF else 2}"

        def result(products: list[tuple[float, float]], c: float = 0.0, opcode: str = opcode) -> Any:
            return dot(opcode, "sm_90a", products, c, backend=backend)

        for products, c in (
            ([(nan, 0.0)], 0.0),
            ([(inf, 0.0)], 0.0),
            ([(0.0, -inf)], 1.0),
            ([(inf, 1.0), (-inf, 1.0)], 0.0),
            ([(inf, 1.0)], -inf),
            ([], nan),
            ([(1.0, 1.0)], -nan),
        ):
            assert result(products, c).view(unsigned) == quiet
        assert result([(inf, 2.0), (1.0, 1.0)]) == inf
        assert result([(inf, -2.0)], c=-inf) == -inf
        assert result([(60000.0, 60000.0)], c=-inf) == -inf
    assert dot(F16_F16, "sm_90a", [(256.0, 256.0)], backend=backend) == inf
    assert dot(F16_F16, "sm_90a", [(255.875, 256.0)], backend=backend) == 65504
    assert dot(BF16, "sm_90a", [(2.0**64, 2.0**64)], backend=backend) == inf
    assert dot(BF16, "sm_90a", [(2.0**64, 2.0**64), (-(2.0**64), 2.0**63)], backend=backend) == 2.0**127


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_14_bit_accumulator_of_hoppers_fp8(backend: str) -> None:
    assert dot(WGMMA_E4M3, "sm_90a", [(1.0, 1.0), (2.0**-6, 2.0**-7)], backend=backend) == 1 + 2.0**-13
    assert dot(WGMMA_E4M3, "sm_90a", [(1.0, 1.0), (2.0**-7, 2.0**-7)], backend=backend) == 1
    assert dot(WGMMA_E4M3, "sm_90a", [(1.0, 1.0)] * 32, c=2.0**18, backend=backend) == 2.0**18  # each one is below the last place
    assert dot(WGMMA_E4M3, "sm_90a", [], c=1 + 2.0**-13 + 2.0**-14, backend=backend) == 1 + 2.0**-13
    assert dot(WGMMA_E4M3.replace(".f32.", ".f16."), "sm_90a", [(448.0, 448.0)], backend=backend) == np.inf


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", ["m16n8k16", "m16n8k32"])
def test_lowered_fp8_is_widened_before_it_is_aligned(shape: str, backend: str) -> None:
    """Measured on an H200: a subnormal e4m3 counts as the normal f16 it is converted to, which leaves room for three more bits."""
    opcode = MMA + shape + ".row.col.f32.e5m2.e4m3.f32"
    products = [(2.0**15, 2.0**-9), (2.0**-11, 2.0**-6)]
    assert dot(opcode, "sm_90a", products, backend=backend) == 2.0**6 * (1 + 2.0**-23)
    apart = [products[0], (0.0, 0.0), products[1]]  # the other half: the second step starts from 2**6
    assert dot(opcode, "sm_90a", apart, backend=backend) == 2.0**6 * (1 + 2.0**-23)
    # on sm_120 it is one step on the formats themselves
    assert dot(opcode, "sm_120", products, backend=backend) == 2.0**6


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_lowered_fp8_adds_c_at_the_end_to_nearest(backend: str) -> None:
    opcode = MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32"
    assert dot(opcode, "sm_90a", [(1.0, 1.0)], c=2.0**24 + 2, backend=backend) == 2.0**24 + 4  # a tie, to even
    assert dot(opcode, "sm_120", [(1.0, 1.0)], c=2.0**24 + 2, backend=backend) == 2.0**24 + 2
    assert dot(opcode, "sm_90a", [(1.0, 1.0)], c=-1.0, backend=backend) == 0


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_of_f64(backend: str) -> None:
    """Measured on an H200: the first NaN of b, c and a comes through, made quiet; invalid operations give a negative one."""
    ins = instruction(MMA + "m8n8k4.row.col.f64.f64.f64.f64")
    quiet = 1 << 51

    def result(a: int, b: int, c: int) -> int:
        tiles = [np.zeros((8, 4), np.uint64), np.zeros((4, 8), np.uint64), np.zeros((8, 8), np.uint64)]
        tiles[0][0, 0], tiles[1][0, 0], tiles[2][0, 0] = a, b, c
        return int(mma(ins, *(tile.view(np.float64) for tile in tiles), target="sm_90a", backend=backend)[0, 0].view(np.uint64))

    one, inf, nan = 0x3FF << 52, 0x7FF << 52, lambda payload: 0xFFF << 52 | payload
    assert result(nan(1), nan(2), nan(3)) == nan(2) | quiet
    assert result(nan(1), one, nan(3)) == nan(3) | quiet
    assert result(nan(1), one, one) == nan(1) | quiet
    assert result(inf, 0, one) == result(inf, one, 0xFFF << 52) == 0xFFF8 << 48
    assert result(one, inf, one) == inf


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("rounding", "expected"), [("", 1.0), (".rz", 1.0), (".rm", 1.0), (".rp", 1 + 2.0**-52)])
def test_rounding_of_f64(rounding: str, expected: float, backend: str) -> None:
    opcode = MMA + "m8n8k4.row.col.f64.f64.f64.f64" + rounding
    assert dot(opcode, "sm_90a", [(1.0, 1.0), (2.0**-27, 2.0**-27)], backend=backend) == expected
    assert dot(opcode, "sm_90a", [(-1.0, 1.0), (-(2.0**-27), 2.0**-27)], backend=backend) == {".rm": -1 - 2.0**-52}.get(rounding, -1.0)
    cancelled = dot(opcode, "sm_90a", [(1.0, 1.0), (-1.0, 1.0)], backend=backend)
    assert cancelled == 0
    assert np.signbit(cancelled) == (rounding == ".rm")


@pytest.mark.each_path
@pytest.mark.parametrize("backend", BACKENDS)
def test_integers_wrap_or_clamp(backend: str) -> None:
    def result(opcode: str, a: int, b: int, c: int) -> int:
        ins = instruction(opcode)
        inputs = np.full((16, 32), a, fastmma.FORMATS[ins.atype].dtype), np.full((32, 8), b, fastmma.FORMATS[ins.btype].dtype)
        return int(mma(ins, *inputs, np.full((16, 8), c, np.int32), target="sm_80", backend=backend)[0, 0])

    top = 2**31 - 1
    assert result(MMA + "m16n8k32.row.col.s32.s8.s8.s32", -128, -128, top) == top + 32 * 2**14 - 2**32
    assert result(MMA + "m16n8k32.row.col.satfinite.s32.s8.s8.s32", -128, -128, top) == top
    assert result(MMA + "m16n8k32.row.col.satfinite.s32.s8.u8.s32", -128, 255, -top) == -(2**31)
    assert result(MMA + "m16n8k32.row.col.s32.u4.s4.s32", 15, -8, 5) == 5 - 32 * 120


@pytest.mark.each_path
def test_tf32_ignores_what_it_cannot_hold() -> None:
    opcode = MMA + "m16n8k8.row.col.f32.tf32.tf32.f32"
    nan_in_the_low_bits = np.array(0x7F800001, np.uint32).view(np.float32)
    a, b, c = np.zeros((16, 8), np.float32), np.zeros((8, 8), np.float32), np.zeros((16, 8), np.float32)
    a[0, 0], b[0] = nan_in_the_low_bits, 1.0
    for backend in BACKENDS:
        assert (mma(opcode, a, b, c, target="sm_90a", backend=backend)[0] == np.inf).all()


@pytest.mark.each_path
def test_formats_below_8_bits() -> None:
    opcode = MMA + "m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32"
    for backend in BACKENDS:
        assert dot(opcode, "sm_120a", [(6.0, 28.0), (-0.5, 0.0625)], c=0.5, backend=backend) == 6 * 28 - 0.5 * 0.0625 + 0.5
    assert ml_dtypes.finfo(ml_dtypes.float4_e2m1fn).max == 6
