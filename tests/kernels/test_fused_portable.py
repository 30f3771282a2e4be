"""The portable fused dot-product-add against the exact reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases
from reference.fused import ELEMENTS, F16, accumulator, f16, lowered_order, reference
from reference.products import nearby_codes, random_codes

from fastmma.kernels.fused.portable import gemm, tiles
from fastmma.kernels.params import Fused

KINDS = ("bits", "normal", "spread", "vanishing", "large", "exact", "rare", "extreme")
# a, b, terms, align_bits, emax_floor, keep_bits, half, restart
CASES = [
    ("f16", "f16", 4, 23, -200, 23, 0, 0),
    ("f16", "f16", 4, 23, -19, 10, 1, 0),
    ("f16", "f16", 8, 24, -132, 23, 0, 0),
    ("f16", "f16", 8, 24, -20, 10, 1, 0),
    ("f16", "f16", 16, 25, -133, 23, 0, 0),
    ("f16", "f16", 16, 25, -21, 10, 1, 0),
    ("f16", "f16", 32, 25, -133, 23, 0, 0),
    ("bf16", "bf16", 8, 24, -132, 23, 0, 0),
    ("bf16", "bf16", 16, 25, -133, 23, 0, 0),
    ("tf32", "tf32", 4, 24, -132, 23, 0, 0),
    ("tf32", "tf32", 8, 25, -133, 23, 0, 0),
    ("e4m3", "e4m3", 16, 13, -133, 13, 0, 0),
    ("e4m3", "e5m2", 32, 13, -133, 13, 0, 0),
    ("e5m2", "e4m3", 32, 13, -21, 10, 1, 0),
    ("e5m2", "e5m2", 32, 25, -133, 23, 0, 0),
    ("e4m3", "e4m3", 32, 25, -21, 10, 1, 0),
    ("e3m2", "e2m3", 32, 25, -133, 23, 0, 0),
    ("e2m1", "e4m3", 32, 25, -133, 23, 0, 0),
    ("e2m1", "e2m1", 32, 25, -21, 10, 1, 0),
    ("e2m3", "e3m2", 32, 25, -133, 23, 0, 0),
    ("e4m3", "e4m3", 16, 25, -133, 23, 0, 2),
    ("e4m3", "e5m2", 8, 25, -21, 10, 1, 2),
    ("e5m2", "e5m2", 16, 25, -133, 23, 0, 2),
    ("tf32", "tf32", 4, 25, -133, 23, 0, 2),
    ("f16", "f16", 8, 25, -133, 23, 0, 1),
]


def parameters(case: tuple[Any, ...]) -> Fused:
    return Fused(ELEMENTS[case[0]], ELEMENTS[case[1]], *case[2:])


def check(p: Fused, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, order: NDArray[np.int32] | None, threads: int = 1) -> None:
    out = np.full((a.shape[0], b.shape[1]), 0xABCD, np.uint16 if p.half else np.uint32)
    gemm(p, a, b, c, out, threads, order)
    np.testing.assert_array_equal(out, reference(p, a, b, c, order))


@cases("kind", KINDS)
@cases("case", CASES)
def test_gemm_is_exact(case: tuple[Any, ...], kind: str) -> None:
    p = parameters(case)
    rng = np.random.default_rng([KINDS.index(kind), CASES.index(case)])
    depth = 3 * p.terms - 1
    a, b = random_codes(rng, case[0], (9, depth), kind), random_codes(rng, case[1], (depth, 11), kind)
    check(p, a, b, accumulator(rng, p, (9, 11), kind), lowered_order(p))


@cases("kind", KINDS)
@cases("case", CASES)
def test_tiles_are_exact(case: tuple[Any, ...], kind: str) -> None:
    p = parameters(case)
    rng = np.random.default_rng([KINDS.index(kind), CASES.index(case), 1])
    depth = p.terms * max(p.restart, 1)
    a, b = random_codes(rng, case[0], (3, 4, depth), kind), random_codes(rng, case[1], (3, depth, 8), kind)
    c = accumulator(rng, p, (3, 4, 8), kind)
    out = np.empty_like(c)
    order = lowered_order(p)
    tiles(p, a, b, c, out, 1, order)
    for t in range(3):
        np.testing.assert_array_equal(out[t], reference(p, a[t], b[t], c[t], order))


HOPPER = Fused(F16, F16, 16, 25, -133, 23, 0, 0)
HOPPER_HALF = Fused(F16, F16, 16, 25, -21, 10, 1, 0)
E4M3 = ELEMENTS["e4m3"]
LOWERED = Fused(E4M3, E4M3, 16, 25, -133, 23, 0, 2)


@pytest.mark.parametrize("p", [HOPPER, HOPPER_HALF], ids=["f32", "f16"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 1), (1, 17, 9), (8, 16, 8), (7, 5, 13), (17, 31, 16)], ids=str)
def test_sizes(p: Fused, shape: tuple[int, int, int]) -> None:
    rows, depth, columns = shape
    rng = np.random.default_rng(shape)
    a, b = random_codes(rng, "f16", (rows, depth), "spread"), random_codes(rng, "f16", (depth, columns), "spread")
    for threads in (1, 2):
        check(p, a, b, accumulator(rng, p, (rows, columns), "spread"), None, threads)
        check(p, a, b, None, None, threads)


@pytest.mark.parametrize("p", [HOPPER, HOPPER_HALF], ids=["f32", "f16"])
def test_empty(p: Fused) -> None:
    dtype: Any = np.uint16 if p.half else np.uint32
    c = np.arange(0x7F00, 0x7F0F).astype(dtype).reshape(3, 5) * (1 if p.half else 0x10001)
    out = np.empty_like(c)
    none = np.empty((3, 0), np.uint16), np.empty((0, 5), np.uint16)
    gemm(p, *none, c, out, 2)
    np.testing.assert_array_equal(out, c)
    gemm(p, *none, None, out, 2)
    assert not out.any()
    gemm(p, np.empty((0, 4), np.uint16), np.empty((4, 5), np.uint16), None, np.empty((0, 5), dtype), 2)
    gemm(p, np.empty((4, 4), np.uint16), np.empty((4, 0), np.uint16), None, np.empty((4, 0), dtype), 2)
    tiles(p, np.empty((0, 16, 16), np.uint16), np.empty((0, 16, 8), np.uint16), None, np.empty((0, 16, 8), dtype), 2)


@pytest.mark.parametrize("case", [CASES[4], CASES[5], CASES[10], CASES[20]], ids=str)
def test_layouts(case: tuple[Any, ...]) -> None:
    p, order = parameters(case), lowered_order(parameters(case))
    rng = np.random.default_rng(11)
    rows, depth, columns = 11, 2 * p.terms + 3, 19
    a, b = random_codes(rng, case[0], (rows, depth), "spread"), random_codes(rng, case[1], (depth, columns), "spread")
    c = accumulator(rng, p, (rows, columns), "spread")
    expected = reference(p, a, b, c, order)

    def layouts(array: NDArray[Any]) -> list[NDArray[Any]]:
        wide = np.zeros((array.shape[0] * 2, array.shape[1] * 3), array.dtype)
        strided = wide[::2, ::3]
        strided[...] = array
        reversed_ = np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1]
        frozen = array.copy()
        frozen.flags.writeable = False
        return [np.asfortranarray(array), strided, reversed_, frozen]

    for x, y, z in zip(layouts(a), layouts(b), layouts(c), strict=True):
        for left, right, start in ((x, b, c), (a, y, c), (a, b, z), (x, y, z)):
            for out in (np.empty_like(c), np.empty_like(c, order="F"), np.empty((2 * rows, 2 * columns), c.dtype)[1::2, ::-2]):
                gemm(p, left, right, start, out, 2, order)
                np.testing.assert_array_equal(out, expected)
    gemm(p, a, b, c, c, 2, order)
    np.testing.assert_array_equal(c, expected)


def test_writes_nothing_but_out() -> None:
    rng = np.random.default_rng(12)
    a, b = random_codes(rng, "f16", (5, 16), "normal"), random_codes(rng, "f16", (16, 3), "normal")
    for p, dtype in ((HOPPER, np.uint32), (HOPPER_HALF, np.uint16)):
        frame = np.full((9, 11), 0x5A5A, dtype)
        gemm(p, a, b, None, frame[2:7, 4:7], 1)
        np.testing.assert_array_equal(frame[2:7, 4:7], reference(p, a, b, None))
        frame[2:7, 4:7] = 0x5A5A
        assert (frame == 0x5A5A).all()


def test_in_place_where_some_blocks_hold_infinities() -> None:
    rng = np.random.default_rng(13)
    a, b = random_codes(rng, "f16", (40, 48), "normal"), random_codes(rng, "f16", (48, 24), "normal")
    a[13, 7], b[30, 20] = 0x7C00, 0xFC00
    c = accumulator(rng, HOPPER, (40, 24), "normal")
    expected = reference(HOPPER, a, b, c)
    gemm(HOPPER, a, b, c, c, 2)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("n", [3, 8, 24])
@pytest.mark.parametrize("m", [1, 8, 16])
def test_tiles_of_any_size_and_number(m: int, n: int) -> None:
    rng = np.random.default_rng([m, n])
    count = 1100
    a, b = random_codes(rng, "f16", (count, m, 8), "normal"), random_codes(rng, "f16", (count, 8, n), "normal")
    a[700, 0, 3] = 0x7C01
    c = accumulator(rng, HOPPER, (count, m, n), "normal")
    out = [np.empty_like(c), np.empty_like(c)]
    for threads in (1, 2):
        tiles(HOPPER, a, b, c, out[threads - 1], threads)
    np.testing.assert_array_equal(out[0], out[1])
    for t in (0, 1, 511, 512, 700, 701, count - 1):
        np.testing.assert_array_equal(out[0][t], reference(HOPPER, a[t], b[t], c[t]))


def test_threads_give_the_same_bits() -> None:
    rng = np.random.default_rng(14)
    a, b = random_codes(rng, "e4m3", (70, 200), "rare"), random_codes(rng, "e4m3", (200, 90), "rare")
    c = accumulator(rng, LOWERED, (70, 90), "rare")
    out = [np.empty_like(c), np.empty_like(c)]
    for threads in (1, 2):
        gemm(LOWERED, a, b, c, out[threads - 1], threads, lowered_order(LOWERED))
    np.testing.assert_array_equal(out[0], out[1])
    some = np.s_[10:14], np.s_[30:35]
    expected = reference(LOWERED, a[some[0]], b[:, some[1]], c[some[0], some[1]], lowered_order(LOWERED))
    np.testing.assert_array_equal(out[0][some[0], some[1]], expected)


def test_emax_floor_shows_in_the_last_bit() -> None:
    # 2**-25 + 2**-46 rounds up in f16; 2**-47 is lost below the floor of -21, which leaves a tie
    p = HOPPER_HALF
    a = f16([[2.0**-12, 2.0**-23], [2.0**-12, 2.0**-24], [2.0**-13, 2.0**-24]])
    b = f16([[2.0**-13], [2.0**-23]])
    out = np.empty((3, 1), np.uint16)
    gemm(p, a, b, None, out, 1)
    assert out.ravel().tolist() == [1, 0, 0]
    # without the floor the smaller term counts
    gemm(p._replace(emax_floor=-40), a, b, None, out, 1)
    assert out.ravel().tolist() == [1, 1, 0]


def test_truncation_is_toward_zero_and_zeros_do_not_align() -> None:
    one, tiny = 1.0, 2.0**-13
    p = HOPPER._replace(terms=4)
    a = f16([[one, tiny, tiny, 0.0], [one, -tiny, -tiny, 0.0], [-one, tiny, 0.0, -0.0], [0.0, tiny, 0.0, 0.0], [65504, 0.0, tiny, 0.0]])
    b = f16([[one, 0.0], [tiny, tiny], [tiny, tiny], [65504, 65504]])
    check(p, a, b, None, None)
    c = np.full((5, 2), 0x80000000, np.uint32)
    check(p, a, b, c, None)
    check(p, f16([[-0.0, 0.0]]), f16([[1.0], [-0.0]]), np.full((1, 1), 0x80000000, np.uint32), None)


def test_overflow_on_the_way_stays() -> None:
    a, b = f16([[65504.0] * 4 + [-65504.0] * 4]), f16([[65504.0]] * 8)
    top = np.array([[0x7F7FFFFF]], np.uint32)
    p = HOPPER._replace(terms=4)
    check(p, a, b, top, None)
    check(HOPPER_HALF._replace(terms=4), f16([[256.0] * 4 + [-256.0] * 4]), f16([[64.0]] * 8), None, None)
    wide = Fused(ELEMENTS["bf16"], ELEMENTS["bf16"], 4, 25, -133, 23, 0, 0)
    big = np.full((1, 12), 0x7F00, np.uint16)
    big[0, 6] = 0xFF80
    check(wide, big, np.full((12, 1), 0x7F00, np.uint16), None, None)


@pytest.mark.parametrize("p", [HOPPER, HOPPER_HALF, LOWERED._replace(a=F16, b=F16)], ids=["f32", "f16", "lowered"])
@pytest.mark.parametrize("nan", [False, True])
def test_accumulators_that_are_special(p: Fused, nan: bool) -> None:
    a, b = f16(np.ones((2, 16))), f16(np.ones((16, 8)))
    infinity = 0x7C00 if p.half else 0x7F800000
    c = np.full((2, 8), infinity + nan, np.uint16 if p.half else np.uint32)
    c[1] |= 0x8000 if p.half else 0x80000000
    check(p, a, b, c, None)
    b[3, :4] = 0x7C00
    check(p, a, b, c, None)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("p", [HOPPER, HOPPER_HALF], ids=["f32", "f16"])
def test_a_sum_of_more_than_31_bits(p: Fused, sign: int) -> None:
    a, b = (
        f16(np.full((2, 16), 65504.0 if not p.half else 63.96875)),
        f16(np.full((16, 8), sign * 65504.0 if not p.half else sign * 63.96875)),
    )
    c = np.array([1.0, 1.999, -1.999, 0.25, -1.0, 0.0, 1.5, -1.5]) * np.array([[2.0**30], [2.0**31]])
    check(p, a, b, f16(c * 2.0**-20) if p.half else c.astype(np.float32).view(np.uint32), None)


@pytest.mark.parametrize("keep_bits", [23, 13])
def test_without_products_c_is_only_cut(keep_bits: int) -> None:
    p = Fused(E4M3, E4M3, 16, 25 if keep_bits == 23 else 13, -133, keep_bits, 0, 0)
    rng = np.random.default_rng(15)
    c = rng.integers(0, 1 << 32, (16, 64), np.uint64).astype(np.uint32)
    c[8:] &= 0x80FFFFFF
    c[12:] &= 0x807FFFFF
    c[15] &= 0x80000FFF
    check(p, np.zeros((16, 16), np.uint8), np.full((16, 64), 0x38, np.uint8), c, None)
    check(HOPPER_HALF, f16(np.zeros((16, 16))), f16(np.ones((16, 64))), (c >> 8).astype(np.uint16), None)


@pytest.mark.parametrize("name", ["bf16", "tf32"])
@pytest.mark.parametrize("ends", [(-72, -58, -50, -40), (-130, -98, -10, 20), (60, 64, 60, 65), (110, 127, 0, 20)])
def test_exponents_around_the_ends_of_float32_panels(name: str, ends: tuple[int, int, int, int]) -> None:
    p = Fused(ELEMENTS[name], ELEMENTS[name], 8, 25, -133, 23, 0, 0)
    rng = np.random.default_rng(list(map(abs, ends)))
    a = nearby_codes(name, rng.standard_normal((24, 8)) * 2.0 ** rng.integers(*ends[:2], (24, 1)))
    b = nearby_codes(name, rng.standard_normal((8, 24)) * 2.0 ** rng.integers(*ends[2:], (1, 24)))
    check(p, a, b, None, None)
    with np.errstate(under="ignore"):
        tiny = (rng.standard_normal((24, 24)) * 2.0 ** rng.integers(-150, -100, (24, 24))).astype(np.float32)
    check(p, a, b, tiny.view(np.uint32), None)


def test_exponent_of_a_subnormal_accumulator() -> None:
    # c = 2**-23 has the exponent -14 in f16, so that 2**-40 is lost and 2**-25 leaves a tie
    a, b = f16([[2.0**-12, 2.0**-20]]), f16([[2.0**-13], [2.0**-20]])
    out = np.empty((1, 1), np.uint16)
    gemm(HOPPER_HALF, a, b, np.array([[2]], np.uint16), out, 1)
    assert out[0, 0] == 2
    check(HOPPER_HALF, a, b, np.array([[2]], np.uint16), None)
    check(HOPPER, f16([[2.0**-24, 0.0]]), f16([[2.0**-24], [1.0]]), np.array([[3]], np.uint32), None)
