"""Sums of groups on AMX: by plain code on any CPU, by AMX itself where there is one; what might be rounded is left to others."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from reference.cases import cases

from fastmma.backends import route, runs
from fastmma.backends.call import Operands
from fastmma.backends.parameters import scaled_parameters
from fastmma.backends.problem import Extents, Problem, Strides, problem_of
from fastmma.backends.resolve import operation_of
from fastmma.backends.routes import ROUTES
from fastmma.isa.table import instruction
from fastmma.kernels.llvm import cpu
from fastmma.kernels.scaled import amx_groups
from fastmma.kernels.scaled.amx_group_kernel import KERNEL, AmxGroupConfig
from fastmma.kernels.scaled.amx_small_groups import FixedGroups
from fastmma.kernels.scaled.lines import ScaledOperands

HAS_AMX = {"amx-tile", "amx-bf16"} <= cpu.usable()
PLAIN = (True, False) if HAS_AMX else (True,)
MMA = "mma.sync.aligned.m16n8k64.row.col.kind::"
NVFP4 = MMA + "mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
MXFP4 = MMA + "mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "f16c"})
INTEL = "x86_64-unknown-linux-gnu", "sapphirerapids"
NEAR = {NVFP4: (0x30, 0x44), MXFP4: (125, 129)}  # codes of scales that are near each other
NAN = {NVFP4: 0x7F, MXFP4: 0xFF}
emitted = pytest.mark.skipif(not amx_groups.supported(scaled_parameters(operation_of(instruction(NVFP4), "sm_120a"))), reason="no kernels")


@cache
def parameters(opcode: str) -> Any:
    return scaled_parameters(operation_of(instruction(opcode), "sm_120a"))


def draw(opcode: str, shape: tuple[int, int, int], seed: Any, orders: str = "CC", scales: tuple[int, int] | None = None) -> ScaledOperands:
    """Elements of all codes, and scales of some; `out` is full of other numbers."""
    (m, n, k), rng, block = shape, np.random.default_rng(seed), parameters(opcode).block
    low, high = NEAR[opcode] if scales is None else scales
    a, b = rng.integers(0, 16, (m, k), np.uint8), rng.integers(0, 16, (k, n), np.uint8)
    scale_a, scale_b = (rng.integers(low, high, of).astype(np.uint8) for of in ((m, -(-k // block)), (-(-k // block), n)))
    a, scale_a = (np.asarray(each, order=orders[0]) for each in (a, scale_a))
    b, scale_b = (np.asarray(each, order=orders[1]) for each in (b, scale_b))
    return ScaledOperands(a, b, None, np.full((m, n), 0x5A5A5A5A, np.uint32), scale_a, scale_b)


def expected(opcode: str, operands: ScaledOperands) -> Any:
    """The results of integers of any size."""
    operation, p = operation_of(instruction(opcode), "sm_120a"), parameters(opcode)
    rest = -operands.a.shape[1] % p.step
    blocks = (operands.a.shape[1] + rest) // p.block
    a, b = np.pad(operands.a, ((0, 0), (0, rest))), np.pad(operands.b, ((0, rest), (0, 0)))
    scale_a = np.pad(operands.scale_a, ((0, 0), (0, blocks - operands.scale_a.shape[1])))
    scale_b = np.pad(operands.scale_b, ((0, blocks - len(operands.scale_b)), (0, 0)))
    c = None if operands.c is None else operands.c[None]
    given, out = Operands(a[None], b[None], c, None, scale_a[None], scale_b[None]), np.empty(operands.out.shape, np.uint32)[None]
    runs.general(problem_of(operation, given, out), given, out, 1)
    return out[0]


@emitted
@cases("opcode", [NVFP4, MXFP4])
@cases("shape", [(1, 1, 1), (35, 3, 1), (33, 31, 67), (70, 129, 300), (257, 40, 64)])
@pytest.mark.parametrize("plain", PLAIN)
def test_products(opcode: str, shape: tuple[int, int, int], plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx_groups, "_WORK_OF_A_THREAD", 1)
    monkeypatch.setattr(amx_groups, "_PACKED_AT_ONCE", 1)
    for orders, threads, part in (("CC", 1, 4096), ("FC", 2, 128), ("CF", 2, 4096), ("FF", 1, 128)):
        monkeypatch.setattr(amx_groups, "_SLICE", part)
        given = draw(opcode, shape, shape, orders)
        results = expected(opcode, given)
        assert amx_groups.multiply(parameters(opcode), given, threads, plain)
        np.testing.assert_array_equal(given.out, results)
        wide = np.full((shape[0], 2 * shape[1]), 0x5A5A5A5A, np.uint32)
        assert amx_groups.multiply(parameters(opcode), given._replace(out=wide[:, ::2]), threads, plain)
        np.testing.assert_array_equal(wide[:, ::2], results)
        assert (wide[:, 1::2] == 0x5A5A5A5A).all()
        small = FixedGroups(parameters(opcode), (shape[0], shape[1], shape[2]), plain)
        for factor in (1.0, 3.1, 1e-40, 3e38, np.inf, np.nan):
            assert small(given, np.float32(factor))
            with np.errstate(all="ignore"):
                products = results.view(np.float32) * np.float32(factor)
            np.testing.assert_array_equal(given.out, np.where(np.isnan(products), 0x7FFFFFFF, products.view(np.uint32)))


@emitted
@cases("opcode", [NVFP4, MXFP4])
@pytest.mark.parametrize("plain", PLAIN)
def test_sums_start_from_multiples_of_the_unit(opcode: str, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx_groups, "_SLICE", 128)
    given = draw(opcode, (40, 50, 200), 5)
    rng = np.random.default_rng(6)
    c = rng.integers(-(2**20), 2**20, (40, 50)).astype(np.float32)
    c[0, :2] = 0.0, -0.0
    for starts in (c, np.asfortranarray(c)):
        one = given._replace(c=starts.view(np.uint32))
        assert amx_groups.multiply(parameters(opcode), one, 1, plain)
        np.testing.assert_array_equal(one.out, expected(opcode, one))
    for place, value in ((7, 2.0**-60), (8, 2.0**60), (9, np.inf), (10, np.nan)):
        other = c.copy()
        other[39, place] = value
        assert not amx_groups.multiply(parameters(opcode), given._replace(c=other.view(np.uint32)), 1, plain)


@emitted
@cases("opcode", [NVFP4, MXFP4])
@pytest.mark.parametrize("plain", PLAIN)
def test_what_is_within_reach_is_right(opcode: str, plain: bool) -> None:
    """Scales spread more and more: at first all sums are exact, at last they are left to others; whatever is not left is right."""
    reached = []
    for spread in range(0, 64, 4):
        low, _ = NEAR[opcode]
        given = draw(opcode, (16, 48, 192), spread, scales=(low, low + 1 + spread // (1 if opcode == NVFP4 else 3)))
        given.a[0], given.b[:, 0] = 7, 7  # sixes, whose sums are as large as they may be
        reached.append(amx_groups.multiply(parameters(opcode), given, 1, plain))
        if reached[-1]:
            np.testing.assert_array_equal(given.out, expected(opcode, given))
    assert reached[0]
    assert not reached[-1]
    assert reached == sorted(reached, reverse=True)


@emitted
@cases("opcode", [NVFP4, MXFP4])
@pytest.mark.parametrize("plain", PLAIN)
def test_special_scales(opcode: str, plain: bool) -> None:
    """NaN, and what is far from 1, is out of reach, unless it is the scale of zeros; a scale of zero is none."""
    p, usual = parameters(opcode), draw(opcode, (20, 20, 128), 9)
    for code in (NAN[opcode], 0) if opcode == MXFP4 else (NAN[opcode],):
        special = usual.scale_a.copy()
        special[3, 1] = code
        assert not amx_groups.multiply(p, usual._replace(scale_a=special), 1, plain)
    assert amx_groups.multiply(p, usual._replace(a=np.zeros_like(usual.a)), 1, plain)
    assert not usual.out.any()
    none = usual.scale_b.copy()
    none[:, 4] = 0
    b = usual.b.copy()
    if opcode == MXFP4:
        b[:, 4] = 0
    given = usual._replace(scale_b=none, b=b)
    assert amx_groups.multiply(p, given, 1, plain)
    np.testing.assert_array_equal(given.out, expected(opcode, given))


@emitted
def test_instructions_are_those_of_amx() -> None:
    found = re.findall(r"^\t(tdp\w+|ldtilecfg|tile\w+)", KERNEL.assembly(AmxGroupConfig(2), *INTEL), re.MULTILINE)
    assert (found[0], found[-1]) == ("ldtilecfg", "tilerelease")
    assert {each for each in found if each.startswith("tdp")} == {"tdpbf16ps"}


@cases(
    ("starts", "shape", "call", "taken"),
    [
        (False, (1536, 1536, 1536), "products", "groups on AMX"),
        (True, (64, 64, 64), "products", "groups on AMX"),
        (False, (8, 64, 4096), "products", "small groups"),
        (False, (256, 256, 256), "forms", "groups on AMX of a form"),
    ],
)
def test_groups_take_amx(starts: bool, shape: tuple[int, int, int], call: str, taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "usable", lambda: AVX512 | {"amx-tile", "amx-bf16"})
    problem = Problem(operation_of(NVFP4, "sm_120a"), Extents(1, *shape), Strides((1, 1, 1), (1, 1, 1)), starts, True, False)
    fit = [each.name for each in ROUTES if each.call == call and not route.refusal(each, problem, 1, call)]
    assert fit[0] == taken
