"""The numerics table, and the effects by which its rows were told apart on real GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, get_args

import ml_dtypes
import numpy as np
import pytest
from reference import reviewed
from reference.paths import PATHS, taking
from reference.silicon import ARITHMETIC

import fastmma
from fastmma import TARGETS, TargetError, arithmetic, fidelity, instruction, mma
from fastmma.backends.gpu.cuda_source import FOLDER
from fastmma.backends.routes import ROUTES
from fastmma.numerics.evidence import LEVELS
from fastmma.numerics.methods import METHODS, MethodName
from fastmma.numerics.own import FIELDS
from fastmma.numerics.rows import ROWS

WAYS = (*PATHS, "reference")
MMA = "mma.sync.aligned."
F16_F32 = MMA + "m16n8k16.row.col.f32.f16.f16.f32"
F16_F16 = MMA + "m16n8k16.row.col.f16.f16.f16.f16"
BF16 = MMA + "m16n8k16.row.col.f32.bf16.bf16.f32"
WGMMA_E4M3 = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3"


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
    assert all((FOLDER / method.cuda_source).is_file() for method in METHODS.values() if method.cuda_source)
    assert [name for name, method in METHODS.items() if not method.cuda_source] == ["f32-tree"]
    assert get_args(MethodName) == tuple(METHODS)
    assert {name for name, method in METHODS.items() if method.exact} == {"integer", "bit"}
    assert [name for name, method in METHODS.items() if method.in_steps] == ["fused", "grouped"]
    fields = {"steps": set(FIELDS), "trees": {"terms"}}
    assert all(set(method.fields) == fields.get(method.sums, set()) for method in METHODS.values())


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


def dot(opcode: str, target: str, products: Sequence[tuple[float, float]], c: float = 0.0, *, way: str = "fast") -> Any:
    """The result of one dot product, by the kernels of a path or by the reference; its place among the others changes with the way."""
    ins = instruction(opcode)
    a = np.zeros((ins.m, ins.k), fastmma.FORMATS[ins.atype].dtype)
    b = np.zeros((ins.k, ins.n), fastmma.FORMATS[ins.btype].dtype)
    d = np.zeros((ins.m, ins.n), fastmma.FORMATS[ins.ctype].dtype)
    row, column = (0, 0) if way == "reference" else (ins.m - 1, 3)
    for k, (x, y) in enumerate(products):
        a[row, k], b[k, column] = x, y
        assert (float(a[row, k]), float(b[k, column])) == (x, y) or x != x or y != y
    d[row, column] = c
    return computed(way, opcode, a, b, d, target=target)[row, column]


def computed(way: str, *operands: Any, **options: Any) -> Any:
    with nullcontext() if way == "reference" else taking(way):
        return mma(*operands, **options, backend="reference" if way == "reference" else "numba")


def carried(opcode: str, count: int, target: str, last: int) -> list[tuple[Any, ...]]:
    """Tiny products that carry into the last place of the subnormals, 2**-149, as long as none of them is below the last place kept."""
    most = (2.0**-60, (2.0**-149 - count * 2.0**last) * 2.0**60)
    return [
        (opcode, target, [most, *[(2.0**-70, 2.0 ** (last + 70))] * count], 0.0, 2.0**-149),
        (opcode, target, [most, *[(2.0**-70, 2.0 ** (last + 69))] * (2 * count)], 0.0, 0.0),
    ]


INF, NAN = np.inf, np.nan
ONE, BIG, TIE, ZERO = (1.0, 1.0), (2.0**12, 2.0**12), (2.0**-12, 2.0**-13), (0.0, 0.0)
F64, TF32 = MMA + "m8n8k4.row.col.f64.f64.f64.f64", MMA + "m16n8k8.row.col.f32.tf32.tf32.f32"
VOLTA_F32, VOLTA_F16 = MMA + "m8n8k4.row.col.f32.f16.f16.f32", MMA + "m8n8k4.row.col.f16.f16.f16.f16"
LOWERED, MIXED = MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32", [(2.0**15, 2.0**-9), (2.0**-11, 2.0**-6)]
ROUNDED = (("", 1.0, -1.0, 0.0), (".rz", 1.0, -1.0, 0.0), (".rm", 1.0, -1 - 2.0**-52, -0.0), (".rp", 1 + 2.0**-52, -1.0, 0.0))
# sums of few products, which tell rows apart: the opcode, the target, factors, c, and the bits of the result
FACTS: dict[str, list[tuple[Any, ...]]] = {
    # one minus a little: the last place that survives alignment takes one unit of f32 away
    "alignment bits": [
        (F16_F32, target, [ONE, (-(2.0**-13), 2.0 ** (13 - place))], 0.0, 1 - 2.0 ** -max(min(place, 24), 23) if place <= kept else 1.0)
        for target, kept in (("sm_80", 24), ("sm_86", 24), ("sm_89", 24), ("sm_90", 25), ("sm_100", 25), ("sm_120", 25))
        for place in (23, 24, 25, 26, 27)
    ],
    "alignment bits of m8n8k4": [
        row
        for target in ("sm_70", "sm_75")
        for row in (
            (VOLTA_F32, target, [ONE, (-(2.0**-12), 2.0**-11)], 0.0, 1 - 2.0**-23),
            (VOLTA_F32, target, [ONE, (-(2.0**-12), 2.0**-12)], 0.0, 1.0),
            # f16: 2**-42 survives beside 2**-25 and breaks the tie, 2**-43 does not
            (VOLTA_F16, target, [TIE, (2.0**-21, 2.0**-21)], 0.0, 2.0**-24),
            (VOLTA_F16, target, [TIE, (2.0**-21, 2.0**-22)], 0.0, 0.0),
        )
    ],
    # 2**24 + 1 does not fit f32: what comes after it in the same step still sees the one
    "steps": [
        (MMA + "m16n8k8.row.col.f32.f16.f16.f32", "sm_75", [BIG, ONE, ZERO, ZERO, (-(2.0**12), 2.0**12)], 0.0, 1.0),
        (F16_F32, "sm_80", [BIG, ONE, *[ZERO] * 6, (-(2.0**12), 2.0**12)], 0.0, 0.0),
        (F16_F32, "sm_90a", [BIG, ONE, *[ZERO] * 6, (-(2.0**12), 2.0**12)], 0.0, 1.0),
        (F16_F32, "sm_80", [BIG, ONE, (-(2.0**12), 2.0**12)], 0.0, 1.0),
    ],
    "f32 is truncated, f16 rounded": [
        (F16_F32, "sm_90a", [ONE, (2.0**-12, 2.0**-12), TIE], 0.0, 1.0),
        (F16_F32, "sm_90a", [(-1.0, 1.0), (-(2.0**-12), 2.0**-12), (-(2.0**-12), 2.0**-13)], 0.0, -1.0),
        (F16_F16, "sm_90a", [ONE, (2.0**-5, 2.0**-6)], 0.0, 1.0),  # a tie
        (F16_F16, "sm_90a", [ONE, (2.0**-5, 2.0**-6), (2.0**-12, 2.0**-12)], 0.0, 1 + 2.0**-10),
        (F16_F16, "sm_90a", [(1.0 + 2.0**-10, 1.0), (2.0**-5, 2.0**-6)], 0.0, 1 + 2.0**-9),
    ],
    # measured on an H200: 2**-46 survives beside 2**-25 and breaks the tie, 2**-47 does not
    "floor of f16": [
        (F16_F16, "sm_90a", [TIE], 0.0, 0.0),
        (F16_F16, "sm_90a", [TIE, (2.0**-23, 2.0**-23)], 0.0, 2.0**-24),
        (F16_F16, "sm_90a", [TIE, (2.0**-23, 2.0**-24)], 0.0, 0.0),
        # alignment by the products themselves would reach 2**-50; sm_80 is said to reach 2**-44
        (F16_F16, "sm_80", [TIE, (2.0**-22, 2.0**-22)], 0.0, 2.0**-24),
        (F16_F16, "sm_80", [TIE, (2.0**-22, 2.0**-23)], 0.0, 0.0),
    ],
    "floor of f32": [
        row
        for target, last in (("sm_90a", -158), ("sm_100a", -158), ("sm_80", -156))
        for opcode, count in ((BF16, 2), (TF32, 1))
        for row in carried(opcode, count, target, last)
    ],
    "no negative zero": [
        (F16_F16, "sm_90a", [(-0.0, 1.0), (0.0, -1.0)], -0.0, 0.0),
        (F16_F32, "sm_90a", [(-0.0, 1.0), (0.0, -1.0)], -0.0, 0.0),
        (F16_F16, "sm_90a", [(-(2.0**-24), 2.0**-24)], -0.0, 0.0),
        (F16_F32, "sm_90a", [(-(2.0**-24), 2.0**-24)], -0.0, -(2.0**-48)),
    ],
    "specials": [
        *(
            (opcode, "sm_90a", products, c, expected)
            for opcode in (F16_F32, F16_F16)
            for products, c, expected in (
                ([(NAN, 0.0)], 0.0, NAN),
                ([(INF, 0.0)], 0.0, NAN),
                ([(0.0, -INF)], 1.0, NAN),
                ([(INF, 1.0), (-INF, 1.0)], 0.0, NAN),
                ([(INF, 1.0)], -INF, NAN),
                ([], NAN, NAN),
                ([ONE], -NAN, NAN),
                ([(INF, 2.0), ONE], 0.0, INF),
                ([(INF, -2.0)], -INF, -INF),
                ([(60000.0, 60000.0)], -INF, -INF),
            )
        ),
        (F16_F16, "sm_90a", [(256.0, 256.0)], 0.0, INF),
        (F16_F16, "sm_90a", [(255.875, 256.0)], 0.0, 65504.0),
        (BF16, "sm_90a", [(2.0**64, 2.0**64)], 0.0, INF),
        (BF16, "sm_90a", [(2.0**64, 2.0**64), (-(2.0**64), 2.0**63)], 0.0, 2.0**127),
    ],
    "14 bits of Hopper's fp8": [
        (WGMMA_E4M3, "sm_90a", [ONE, (2.0**-6, 2.0**-7)], 0.0, 1 + 2.0**-13),
        (WGMMA_E4M3, "sm_90a", [ONE, (2.0**-7, 2.0**-7)], 0.0, 1.0),
        (WGMMA_E4M3, "sm_90a", [ONE] * 32, 2.0**18, 2.0**18),  # each one is below the last place
        (WGMMA_E4M3, "sm_90a", [], 1 + 2.0**-13 + 2.0**-14, 1 + 2.0**-13),
        (WGMMA_E4M3.replace(".f32.", ".f16."), "sm_90a", [(448.0, 448.0)], 0.0, INF),
    ],
    # measured on an H200: a subnormal e4m3 counts as the normal f16 it is converted to, which leaves room for three more bits
    "lowered fp8 is widened before it is aligned": [
        row
        for opcode in (f"{MMA}m16n8k16.row.col.f32.e5m2.e4m3.f32", f"{MMA}m16n8k32.row.col.f32.e5m2.e4m3.f32")
        for row in (
            (opcode, "sm_90a", MIXED, 0.0, 2.0**6 * (1 + 2.0**-23)),
            (opcode, "sm_90a", [MIXED[0], ZERO, MIXED[1]], 0.0, 2.0**6 * (1 + 2.0**-23)),  # the second step starts from 2**6
            (opcode, "sm_120", MIXED, 0.0, 2.0**6),  # one step on the formats themselves
        )
    ],
    "lowered fp8 adds c at the end to nearest": [
        (LOWERED, "sm_90a", [ONE], 2.0**24 + 2, 2.0**24 + 4),  # a tie, to even
        (LOWERED, "sm_120", [ONE], 2.0**24 + 2, 2.0**24 + 2),
        (LOWERED, "sm_90a", [ONE], -1.0, 0.0),
    ],
    "rounding of f64": [
        row
        for rounding, above, below, cancelled in ROUNDED
        for row in (
            (F64 + rounding, "sm_90a", [ONE, (2.0**-27, 2.0**-27)], 0.0, above),
            (F64 + rounding, "sm_90a", [(-1.0, 1.0), (-(2.0**-27), 2.0**-27)], 0.0, below),
            (F64 + rounding, "sm_90a", [ONE, (-1.0, 1.0)], 0.0, cancelled),
        )
    ],
    "below 8 bits": [
        (MMA + "m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", "sm_120a", [(6.0, 28.0), (-0.5, 0.0625)], 0.5, 168.46875),
    ],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FACTS)
def test_facts(name: str, way: str) -> None:
    for opcode, target, products, c, expected in FACTS[name]:
        result = dot(opcode, target, products, c, way=way)
        code = result.view(f"u{result.itemsize}")
        wanted = {2: 0x7FFF, 4: 0x7FFFFFFF}[result.itemsize] if np.isnan(expected) else result.dtype.type(expected).view(code.dtype)
        assert code == wanted, f"{opcode} on {target}: {products}, {c} gives {result}, not {expected}"


MXF4 = MMA + "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32."


def groups(stype: str, sums: list[list[tuple[float, float]]], exponents: list[int], c: float = 0.0, *, way: str) -> Any:
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
    return computed(way, MXF4 + stype, a, b, d, target="sm_120a", scale_a=scale_a, scale_b=scale_b)[3, 5]


@pytest.mark.parametrize("way", WAYS)
def test_groups_that_cancel_count_in_alignment(way: str) -> None:
    """A group is aligned by its scales, whatever its sum; without a product that is not zero, or without a scale, it is not there."""
    one, cancelled, nothing = [(1.0, 1.0)], [(1.0, 1.0), (-1.0, 1.0)], [(1.0, 0.0), (0.0, -1.0)]
    assert groups("ue8m0", [cancelled, one, [], []], [35, 0, 0, 0], way=way) == 1
    assert groups("ue8m0", [cancelled, one, [], []], [36, 0, 0, 0], way=way) == 0
    assert groups("ue8m0", [cancelled, [], [], []], [60, 0, 0, 0], c=1.0, way=way) == 0
    assert groups("ue8m0", [nothing, one, [], []], [60, 0, 0, 0], way=way) == 1
    assert groups("ue4m3", [cancelled, [(0.5, 0.5)], [], []], [8, -6, 0, 0], way=way) == 2.0**-8
    assert groups("ue4m3", [cancelled, [(0.5, 0.5)], [], []], [-99, -6, 0, 0], way=way) == 2.0**-8


@pytest.mark.parametrize("way", WAYS)
def test_floor_of_groups(way: str) -> None:
    """2**-174 less than the last bit of float32 rounds to zero, and 2**-175 is lost."""
    sums = [[(4.0, 4.0)] * 16, [(-0.5, 0.5)], [], []]
    assert groups("ue8m0", sums, [-157, -172, 0, 0], way=way) == 0
    assert groups("ue8m0", sums, [-157, -173, 0, 0], way=way) == 2.0**-149


@pytest.mark.parametrize("way", WAYS)
def test_nan_of_f64(way: str) -> None:
    """Measured on an H200: the first NaN of b, c and a comes through, made quiet; invalid operations give a negative one."""
    ins = instruction(F64)
    quiet = 1 << 51

    def result(a: int, b: int, c: int) -> int:
        tiles = [np.zeros((8, 4), np.uint64), np.zeros((4, 8), np.uint64), np.zeros((8, 8), np.uint64)]
        tiles[0][0, 0], tiles[1][0, 0], tiles[2][0, 0] = a, b, c
        return int(computed(way, ins, *(tile.view(np.float64) for tile in tiles), target="sm_90a")[0, 0].view(np.uint64))

    one, inf, nan = 0x3FF << 52, 0x7FF << 52, lambda payload: 0xFFF << 52 | payload
    assert result(nan(1), nan(2), nan(3)) == nan(2) | quiet
    assert result(nan(1), one, nan(3)) == nan(3) | quiet
    assert result(nan(1), one, one) == nan(1) | quiet
    assert result(inf, 0, one) == result(inf, one, 0xFFF << 52) == 0xFFF8 << 48
    assert result(one, inf, one) == inf


@pytest.mark.parametrize("way", WAYS)
def test_integers_wrap_or_clamp(way: str) -> None:
    def result(opcode: str, a: int, b: int, c: int) -> int:
        ins = instruction(opcode)
        inputs = np.full((16, 32), a, fastmma.FORMATS[ins.atype].dtype), np.full((32, 8), b, fastmma.FORMATS[ins.btype].dtype)
        return int(computed(way, ins, *inputs, np.full((16, 8), c, np.int32), target="sm_80")[0, 0])

    top = 2**31 - 1
    assert result(MMA + "m16n8k32.row.col.s32.s8.s8.s32", -128, -128, top) == top + 32 * 2**14 - 2**32
    assert result(MMA + "m16n8k32.row.col.satfinite.s32.s8.s8.s32", -128, -128, top) == top
    assert result(MMA + "m16n8k32.row.col.satfinite.s32.s8.u8.s32", -128, 255, -top) == -(2**31)
    assert result(MMA + "m16n8k32.row.col.s32.u4.s4.s32", 15, -8, 5) == 5 - 32 * 120


@pytest.mark.parametrize("way", WAYS)
def test_tf32_ignores_what_it_cannot_hold(way: str) -> None:
    a, b, c = np.zeros((16, 8), np.float32), np.zeros((8, 8), np.float32), np.zeros((16, 8), np.float32)
    a[0, 0], b[0] = np.array(0x7F800001, np.uint32).view(np.float32), 1.0  # NaN in the low bits
    assert (computed(way, TF32, a, b, c, target="sm_90a")[0] == np.inf).all()
