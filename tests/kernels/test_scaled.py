"""The block-scaled kernels against exact integer arithmetic."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastmma.backends.call import Operation
from fastmma.backends.parameters import scaled_parameters
from fastmma.backends.resolve import operation_of
from fastmma.kernels.llvm import cpu
from fastmma.kernels.params import Scaled
from fastmma.kernels.scaled import dispatch, groups
from fastmma.kernels.scaled.group_tiles import group_tiles
from fastmma.kernels.scaled.tiles import scaled_tiles
from fastmma.kernels.tiles import GROUPS
from fastmma.numerics import reference

Codes = NDArray[Any]
TESTS = Path(__file__).parents[1]
_F4 = "f32.e2m1.e2m1.f32"
_SPARSE = "mma.sp::ordered_metadata.sync.aligned.{}.row.col.kind::{}.block_scale.scale_vec::{}.{}.{}"
_DENSE = "mma.sync.aligned.{}.row.col.kind::{}.block_scale.scale_vec::{}.{}.{}"
OPCODES = {
    "mxf4": _DENSE.format("m16n8k64", "mxf4", "2X", _F4, "ue8m0"),
    "nvf4": _DENSE.format("m16n8k64", "mxf4nvf4", "4X", _F4, "ue4m3"),
    "nvf4 2X": _DENSE.format("m16n8k64", "mxf4nvf4", "2X", _F4, "ue8m0"),
    "mxf4 sparse": _SPARSE.format("m16n8k128", "mxf4", "2X", _F4, "ue8m0"),
    "nvf4 sparse": _SPARSE.format("m16n8k128", "mxf4nvf4", "4X", _F4, "ue4m3"),
    **{
        f"{a} {b}": _DENSE.format("m16n8k32", "mxf8f6f4", "1X", f"f32.{a}.{b}.f32", "ue8m0")
        for a, b in (("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2"), ("e5m2", "e2m1"), ("e2m1", "e4m3"), ("e3m2", "e2m3"))
    },
    "e4m3 e4m3 sparse": _SPARSE.format("m16n8k64", "mxf8f6f4", "1X", "f32.e4m3.e4m3.f32", "ue8m0"),
    "e2m3 e5m2 sparse": _SPARSE.format("m16n8k64", "mxf8f6f4", "1X", "f32.e2m3.e5m2.f32", "ue8m0"),
}
KINDS = ["mxf4", "nvf4", "nvf4 sparse", "e4m3 e4m3", "e5m2 e2m1", "e4m3 e4m3 sparse"]
ONE = {"ue8m0": 127, "ue4m3": 0x38}


@cache
def operation(name: str) -> Operation:
    return operation_of(OPCODES[name], "sm_120a")


def parameters(name: str) -> Scaled:
    return scaled_parameters(operation(name))


def expected(name: str, a: Codes, b: Codes, c: Codes | None, scale_a: Codes, scale_b: Codes) -> Codes:
    """By the reference, zeros and scales of 1 filled in; sparse forms step over twice the elements, since their zeros are there."""
    ins, row, p = operation(name).instruction, operation(name).arithmetic, parameters(name)
    if ins.sparse:
        row = replace(row, terms=p.step) if p.group == 1 else replace(row, group=p.group)
    depth = -(-a.shape[1] // p.step) * p.step
    missing, blocks = depth - a.shape[1], depth // p.block
    one = ONE[ins.stype]
    start = np.zeros((len(a), b.shape[1]), np.uint32) if c is None else c
    return reference.tile(
        ins,
        row,
        np.pad(a, ((0, 0), (0, missing))),
        np.pad(b, ((0, missing), (0, 0))),
        start,
        scale_a=np.pad(scale_a, ((0, 0), (0, blocks - scale_a.shape[1])), constant_values=one),
        scale_b=np.pad(scale_b, ((0, blocks - len(scale_b)), (0, 0)), constant_values=one),
    )


@pytest.fixture(params=["portable", "fast"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which kernels run: those for any CPU, or the best for this one."""
    monkeypatch.setenv("FASTMMA_PORTABLE", "1" if request.param == "portable" else "0")
    return str(request.param)


def elements(rng: np.random.Generator, name: str, operand: str, shape: tuple[int, ...], kind: str) -> Codes:
    """Codes of one operand: any, only finite ones, mostly zeros, or few values that cancel."""
    element = parameters(name).a if operand == "a" else parameters(name).b
    width = element.exponent_bits + element.mantissa_bits
    signs = rng.integers(0, 2, shape) << width
    if kind == "cancelling":
        one = element.bias << element.mantissa_bits
        return (signs | rng.choice([0, one, one, one | 1], shape)).astype(np.uint8)
    magnitudes = rng.integers(0, 1 << width, shape)
    if kind != "any" and element.specials == 1:
        magnitudes %= ((1 << element.exponent_bits) - 1) << element.mantissa_bits
    elif kind != "any" and element.specials == 2:
        magnitudes %= (1 << width) - 1
    if kind == "sparse":
        magnitudes *= rng.random(shape) < 0.1
    return (signs | magnitudes).astype(np.uint8)


def scales(rng: np.random.Generator, name: str, shape: tuple[int, ...], kind: str) -> Codes:
    """Codes of scales."""
    if kind == "any":
        return rng.integers(0, 256, shape).astype(np.uint8)
    if operation(name).instruction.stype == "ue4m3":
        low, high = {"near": (0x38, 0x48), "wide": (0, 0x7F), "small": (0, 10), "large": (0x70, 0x7F)}[kind]
        return (rng.integers(low, high, shape) | (rng.integers(0, 2, shape) << 7)).astype(np.uint8)
    low, high = {"near": (124, 131), "wide": (100, 150), "small": (30, 62), "large": (186, 197)}[kind]
    return rng.integers(low, high, shape).astype(np.uint8)


def accumulators(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Codes:
    """float32 bits."""
    if kind == "any":
        return rng.integers(0, 1 << 32, shape, np.uint64).astype(np.uint32)
    if kind == "zero":
        return (rng.integers(0, 2, shape, np.uint64) << 31).astype(np.uint32)
    low, high = {"normal": (110, 145), "tiny": (0, 20), "huge": (240, 255), "finite": (0, 255)}[kind]
    fields = rng.integers(low, high, shape, np.uint64) << 23
    return (fields | rng.integers(0, 1 << 23, shape, np.uint64) | rng.integers(0, 2, shape, np.uint64) << 31).astype(np.uint32)


MIXES = [
    ("finite", "near", "normal"),
    ("finite", "near", "zero"),
    ("finite", "wide", "normal"),
    ("finite", "wide", "finite"),
    ("finite", "small", "tiny"),
    ("finite", "large", "huge"),
    ("cancelling", "near", "zero"),
    ("cancelling", "wide", "tiny"),
    ("sparse", "near", "finite"),
    ("sparse", "wide", "normal"),
    ("finite", "any", "finite"),
    ("any", "near", "any"),
    ("any", "any", "any"),
]


def operands(rng: np.random.Generator, name: str, m: int, n: int, k: int, mix: tuple[str, str, str]) -> tuple[Codes, ...]:
    blocks = -(-k // parameters(name).block)
    return (
        elements(rng, name, "a", (m, k), mix[0]),
        elements(rng, name, "b", (k, n), mix[0]),
        accumulators(rng, (m, n), mix[2]),
        scales(rng, name, (m, blocks), mix[1]),
        scales(rng, name, (blocks, n), mix[1]),
    )


def check(name: str, a: Codes, b: Codes, c: Codes | None, scale_a: Codes, scale_b: Codes, threads: int = 1) -> None:
    out = np.full((len(a), b.shape[1]), 0xABCDEF, np.uint32)
    dispatch.gemm(parameters(name), a, b, c, out, scale_a, scale_b, threads)
    np.testing.assert_array_equal(out, expected(name, a, b, c, scale_a, scale_b))


@pytest.mark.parametrize("mix", MIXES, ids=" ".join)
@pytest.mark.parametrize("name", OPCODES)
def test_gemm_is_exact(name: str, mix: tuple[str, str, str], path: str) -> None:
    rng = np.random.default_rng([len(path), MIXES.index(mix), list(OPCODES).index(name)])
    a, b, c, scale_a, scale_b = operands(rng, name, 5, 6, 2 * parameters(name).step, mix)
    check(name, a, b, c, scale_a, scale_b)


@pytest.mark.parametrize("mix", MIXES, ids=" ".join)
@pytest.mark.parametrize("name", OPCODES)
def test_tiles_are_exact(name: str, mix: tuple[str, str, str]) -> None:
    rng = np.random.default_rng([MIXES.index(mix), list(OPCODES).index(name)])
    p = parameters(name)
    batch = [operands(rng, name, 3, 5, p.step, mix) for _ in range(2)]
    a, b, c, scale_a, scale_b = (np.stack(each) for each in zip(*batch, strict=True))
    out = np.empty_like(c)
    dispatch.tiles(p, a, b, c, out, scale_a, scale_b, 1)
    for index, tile in enumerate(batch):
        np.testing.assert_array_equal(out[index], expected(name, *tile))


@pytest.mark.parametrize("mix", MIXES, ids=" ".join)
@pytest.mark.parametrize("name", OPCODES)
def test_tiles_of_instructions_agree(name: str, mix: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast kernels for whole instructions, where there are some, against the portable ones, which are exact."""
    rng = np.random.default_rng([MIXES.index(mix), list(OPCODES).index(name)])
    p = parameters(name)
    batch = [operands(rng, name, 16, 8, p.step, mix) for _ in range(70)]
    a, b, c, scale_a, scale_b = (np.stack(each) for each in zip(*batch, strict=True))
    for start in (c, None):
        results = []
        for portable in ("1", "0"):
            monkeypatch.setenv("FASTMMA_PORTABLE", portable)
            out = np.full_like(c, 0xABCDEF)
            dispatch.tiles(p, a, b, start, out, scale_a, scale_b, 2)
            results.append(out)
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("name", OPCODES)
def test_what_is_out_of_reach_of_fast_tiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of ordinary numbers are not; a special c, or a scale that is NaN, costs its own tile."""
    monkeypatch.setenv("FASTMMA_PORTABLE", "0")
    p = parameters(name)
    fast = scaled_tiles(p, 16, 8, p.step) or group_tiles(p, 16, 8, p.step)
    assert (fast is not None) == ("avx2" in cpu.usable())
    if fast is None:
        return
    rng = np.random.default_rng(5)
    batch = [operands(rng, name, 16, 8, p.step, ("finite", "near", "normal")) for _ in range(9)]
    a, b, c, scale_a, scale_b = (np.stack(each) for each in zip(*batch, strict=True))
    c[3, 2, 1] = 0x80000000
    assert not fast.run(a, b, c, np.empty_like(c), scale_a, scale_b, 1).any()
    c[2, 15, 7] = 0x7F800000
    scale_a[5, 3, 0] = 0x7F if p.scale.mantissa_bits else 0xFF
    scale_b[7, -1, 2] = 0x7F if p.scale.mantissa_bits else 0xFF
    assert np.flatnonzero(fast.run(a, b, c, np.empty_like(c), scale_a, scale_b, 1)).tolist() == [2, 5, 7]


def test_fast_tiles_with_narrower_vectors() -> None:
    """The AVX2 kernels on a CPU that has more, in a process that is told so."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(TESTS), str(TESTS / "kernels"), str(TESTS.parent)]))
    if "avx2" in cpu.features():
        environment["NUMBA_CPU_NAME"] = "haswell"
        environment["NUMBA_CPU_FEATURES"] = "+sse4.2,+ssse3,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt"
    program = """
import pytest
import test_scaled as t
for name in ("nvf4", "e4m3 e4m3 sparse"):
    for mix in (t.MIXES[2], t.MIXES[7]):
        with pytest.MonkeyPatch.context() as patch:
            t.test_tiles_of_instructions_agree(name, mix, patch)
    with pytest.MonkeyPatch.context() as patch:
        t.test_what_is_out_of_reach_of_fast_tiles(name, patch)
"""
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", KINDS)
def test_many_tiles(name: str, threads: int) -> None:
    """Column-major b, no c, more tiles than are decoded at a time."""
    rng = np.random.default_rng(threads)
    p = parameters(name)
    count, k = 300, p.step
    a, b = elements(rng, name, "a", (count, 16, k), "finite"), elements(rng, name, "b", (count, 8, k), "finite").transpose(0, 2, 1)
    scale_a, scale_b = scales(rng, name, (count, 16, k // p.block), "wide"), scales(rng, name, (count, k // p.block, 8), "wide")
    out = np.empty((count, 16, 8), np.uint32)
    dispatch.tiles(p, a, b, None, out, scale_a, scale_b, threads)
    for index in (0, 255, 256, 299):
        one = slice(index, index + 1)
        np.testing.assert_array_equal(out[index, :1], expected(name, a[index, :1], b[index], None, scale_a[one][0, :1], scale_b[index]))


@pytest.mark.parametrize(
    "features", [row.features for row in GROUPS if row.features <= cpu.features()], ids=lambda row: " ".join(sorted(row))
)
@pytest.mark.parametrize("mix", [MIXES[0], MIXES[2], MIXES[3], MIXES[7]], ids=" ".join)
@pytest.mark.parametrize("name", ["nvf4 sparse"])
def test_instruction_sets(name: str, mix: tuple[str, str, str], features: frozenset[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Register tiles that a lesser CPU would take."""
    row = next(row for row in GROUPS if row.features == features)
    monkeypatch.setattr(groups, "first_fit", lambda _table: row)
    rng = np.random.default_rng(len(features))
    check(name, *operands(rng, name, 5, 35, 2 * parameters(name).step, mix))


@pytest.mark.parametrize("size", [(1, 1, 1), (3, 2, 31), (2, 5, 33), (1, 3, 65), (5, 1, 130), (3, 67, 17), (2, 2, 257)], ids=str)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("path")
def test_odd_sizes(name: str, size: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(size)
    check(name, *operands(rng, name, *size, ("finite", "wide", "normal")))


@pytest.mark.parametrize("size", [(0, 3, 32), (3, 0, 32), (2, 3, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("path")
def test_nothing(name: str, size: tuple[int, int, int]) -> None:
    """Without k, d is c."""
    a, b, c, scale_a, scale_b = operands(np.random.default_rng(0), name, *size, ("finite", "near", "any"))
    for start in (c, None):
        for call, leading in ((dispatch.gemm, ()), (dispatch.tiles, (None,))):
            out = np.full(c.shape, 7, np.uint32)
            each = [None if x is None else x[leading] if leading else x for x in (a, b, start, out, scale_a, scale_b)]
            call(parameters(name), *each, 1)
            np.testing.assert_array_equal(out, np.zeros_like(c) if start is None else c)


LAYOUTS = {
    "fortran": np.asfortranarray,
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "every other": lambda x: np.repeat(np.repeat(x, 2, axis=0), 2, axis=1)[::2, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("path")
def test_layouts(name: str, layout: str) -> None:
    """Any strides; operands are read-only and stay as they are; out may be c."""
    rng = np.random.default_rng(1)
    a, b, c, scale_a, scale_b = operands(rng, name, 7, 37, 3 * parameters(name).step - 5, ("finite", "near", "normal"))
    want = expected(name, a, b, c, scale_a, scale_b)
    change = LAYOUTS[layout]
    strided = [change(x) for x in (a, b, scale_a, scale_b)]
    for each in strided:
        each.flags.writeable = False
    out = change(c).copy(order="K") if layout == "fortran" else change(c)
    dispatch.gemm(parameters(name), *strided[:2], out, out, *strided[2:], 2)
    np.testing.assert_array_equal(out, want)
    for before, after in zip((a, b, scale_a, scale_b), strided, strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("mix", [MIXES[0], MIXES[2], MIXES[10]], ids=" ".join)
@pytest.mark.parametrize("name", KINDS)
def test_threads_and_paths_agree(name: str, mix: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a piece has, more columns than a panel has, more of k than a slab has."""
    rng = np.random.default_rng(2)
    a, b, c, scale_a, scale_b = operands(rng, name, 1100, 70, 576, mix)
    results = []
    for portable, threads in (("1", 2), ("0", 1), ("0", 2)):
        monkeypatch.setenv("FASTMMA_PORTABLE", portable)
        out = np.empty_like(c)
        dispatch.gemm(parameters(name), a, b, c, out, scale_a, scale_b, threads)
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("name", ["mxf4", "nvf4", "mxf4 sparse", "nvf4 sparse"])
@pytest.mark.usefixtures("path")
def test_exponents_of_groups_without_a_sum(name: str) -> None:
    """Groups that cancel decide how far the others and c are truncated; groups of zeros, or whose scale is zero, do not."""
    p = parameters(name)
    rng = np.random.default_rng(3)
    a, b, c, scale_a, scale_b = operands(rng, name, 8, 40, p.step, ("finite", "near", "normal"))
    a[:4, : p.group // 2] = a[:4, p.group // 2 : p.group] ^ 8
    b[: p.group // 2] = b[p.group // 2 : p.group]
    a[4:, : p.group] = 0
    scale_a[:, 0] = 0x77 if p.scale.mantissa_bits else 180
    scale_b[0] = 0x77 if p.scale.mantissa_bits else 180
    if p.block > p.group:
        a[:, p.group : p.block] = 0
    c = (c & 0x807FFFFF) | ((100 + np.arange(8)[:, None] % 8).astype(np.uint32) << 23)
    check(name, a, b, c, scale_a, scale_b)


@pytest.mark.parametrize("where", ["first", "tail"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("path")
def test_a_nan_scale_makes_nan(name: str, where: str) -> None:
    """Of zeros, too; a scale that no element has does not exist."""
    p = parameters(name)
    nan = 0x7F if p.scale.mantissa_bits else 0xFF
    depth = p.step + 1
    for operand in (3, 4):
        each = list(operands(np.random.default_rng(4), name, 6, 9, depth, ("finite", "near", "normal")))
        each[0][:] = 0
        place = 0 if where == "first" else p.step // p.block
        each[operand][(2, place) if operand == 3 else (place, 2)] = nan
        check(name, *each)
        out = np.empty_like(each[2])
        dispatch.gemm(p, each[0], each[1], each[2], out, each[3], each[4], 1)
        assert (out[2] if operand == 3 else out[:, 2]).tolist() == [0x7FFFFFFF] * (9 if operand == 3 else 6)


@pytest.mark.parametrize("name", ["mxf4", "e4m3 e4m3", "e5m2 e2m1"])
@pytest.mark.usefixtures("path")
def test_zero_blocks_with_the_smallest_scale(name: str) -> None:
    """What quantisation makes of blocks of zeros."""
    p = parameters(name)
    a, b, c, scale_a, scale_b = operands(np.random.default_rng(5), name, 6, 35, 4 * p.step, ("finite", "near", "zero"))
    a[:3, : p.block] = 0
    scale_a[:3, 0] = 0
    b[p.block : 2 * p.block, 1::2] = 1 << (p.b.exponent_bits + p.b.mantissa_bits)
    scale_b[1, 1::2] = 0
    check(name, a, b, c, scale_a, scale_b)


@pytest.mark.parametrize("name", ["mxf4", "e4m3 e4m3", "e5m2 e5m2"])
@pytest.mark.parametrize("exponents", [(254, 254), (0, 0), (0, 254), (1, 20), (190, 185), (60, 64)], ids=str)
@pytest.mark.usefixtures("path")
def test_extreme_scales(name: str, exponents: tuple[int, int]) -> None:
    """Overflow to infinity, subnormal results, underflow to zero."""
    for start in ("zero", "finite", "tiny", "huge"):
        a, b, c, scale_a, scale_b = operands(np.random.default_rng(6), name, 4, 6, 2 * parameters(name).step, ("finite", "near", start))
        scale_a[:], scale_b[:] = exponents
        check(name, a, b, c, scale_a, scale_b)


@pytest.fixture
def rounding_up() -> Iterator[ctypes.CDLL]:
    """A caller's rounding mode."""
    library = ctypes.CDLL(None)
    mode = 0x400000 if platform.machine().lower() in ("arm64", "aarch64") else 0x800
    before = library.fegetround()
    library.fesetround(mode)
    yield library
    library.fesetround(before)


@pytest.mark.parametrize("mix", [MIXES[0], MIXES[3], MIXES[4]], ids=" ".join)
@pytest.mark.parametrize("name", ["nvf4", "e4m3 e4m3"])
@pytest.mark.usefixtures("path")
def test_the_callers_rounding_mode(name: str, mix: tuple[str, str, str], rounding_up: ctypes.CDLL) -> None:
    """It changes nothing and is as before afterwards."""
    mode = rounding_up.fegetround()
    each = operands(np.random.default_rng(7), name, 5, 33, 2 * parameters(name).step, mix)
    out = np.empty_like(each[2])
    dispatch.gemm(parameters(name), *each[:3], out, *each[3:], 1)
    assert rounding_up.fegetround() == mode != 0
    np.testing.assert_array_equal(out, expected(name, *each))
