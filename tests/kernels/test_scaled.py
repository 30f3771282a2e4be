"""The block-scaled kernels against exact integer arithmetic."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator

import numpy as np
import pytest
from reference.cases import cases
from reference.scaled_codes import (
    KINDS,
    MIXES,
    OPCODES,
    Codes,
    expected,
    operands,
    parameters,
)

from fastmma.kernels.llvm import cpu
from fastmma.kernels.scaled import dispatch, groups
from fastmma.kernels.tiles import GROUPS


@pytest.fixture(params=["portable", "fast"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which kernels run: those for any CPU, or the best for this one."""
    monkeypatch.setenv("FASTMMA_PORTABLE", "1" if request.param == "portable" else "0")
    return str(request.param)


def check(name: str, a: Codes, b: Codes, c: Codes | None, scale_a: Codes, scale_b: Codes, threads: int = 1) -> None:
    out = np.full((len(a), b.shape[1]), 0xABCDEF, np.uint32)
    dispatch.gemm(parameters(name), a, b, c, out, scale_a, scale_b, threads)
    np.testing.assert_array_equal(out, expected(name, a, b, c, scale_a, scale_b))


@cases("mix", MIXES)
@pytest.mark.parametrize("name", OPCODES)
def test_gemm_is_exact(name: str, mix: tuple[str, str, str], path: str) -> None:
    rng = np.random.default_rng([len(path), MIXES.index(mix), list(OPCODES).index(name)])
    a, b, c, scale_a, scale_b = operands(rng, name, 5, 6, 2 * parameters(name).step, mix)
    check(name, a, b, c, scale_a, scale_b)


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


@cases("size", [(1, 1, 1), (3, 2, 31), (2, 5, 33), (1, 3, 65), (5, 1, 130), (3, 67, 17), (2, 2, 257)])
@cases("name", KINDS)
@pytest.mark.usefixtures("path")
def test_odd_sizes(name: str, size: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(size)
    check(name, *operands(rng, name, *size, ("finite", "wide", "normal")))


@cases("size", [(0, 3, 32), (3, 0, 32), (2, 3, 0), (0, 0, 0)])
@cases("name", KINDS)
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
    monkeypatch.setattr(groups, "_CHUNK_ROWS", 1024)
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
