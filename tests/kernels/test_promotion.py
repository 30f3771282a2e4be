"""Promotion: partial sums of the tensor core join a running f32 total, with and without scales."""

from __future__ import annotations

from itertools import pairwise
from itertools import product as product_of
from typing import Any

import numpy as np
import pytest
from drivers.kernels import smallest_parts
from numpy.typing import NDArray
from reference.cases import cases
from reference.ieee import fused, plus, times
from reference.paths import PATHS, taking

from fastmma.backends.call import Operands, Operation
from fastmma.backends.exact import Exact
from fastmma.backends.resolve import backend_of, operation_of
from fastmma.isa.table import instruction
from fastmma.kernels.params import PROMOTIONS, Promotion
from fastmma.numerics import reference_sums
from fastmma.products.loop import accumulate
from fastmma.products.order import Order
from fastmma.verification.inputs import codes

Codes = NDArray[Any]
NAN = 0x7FFFFFFF
WGMMA = "wgmma.mma_async.sync.aligned."
MMA = "mma.sync.aligned."
# the fast path in f32 and in f64 lanes, the exact kernels, sparse A
FAST = [
    (WGMMA + "m64n8k32.f32.e4m3.e5m2", "sm_90a"),
    (WGMMA + "m64n8k16.f32.f16.f16", "sm_90a"),
    (MMA + "m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e2m1.f32", "sm_120a"),
]
CASES = [*FAST, (MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90a"), (MMA + "m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80")]
SCALES = np.array(
    [0, 1 << 31, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800001, 0x3DCCCCCD, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001],
    np.uint32,
)


def by_definition(rule: str, partial: float, total: float, a: float, b: float) -> float:
    """The formulas, every operation rounded once; for finite values."""
    match rule:
        case "add":
            return plus(total, partial)
        case "fma":
            return fused(times(a, b), partial, total)
        case "multiply-add":
            return plus(total, times(times(a, b), partial))
        case "fma-each":
            return fused(times(partial, a), b, total)
    return plus(total, times(times(partial, a), b))


def product(
    opcode: str,
    target: str,
    a: Codes,
    b: Codes,
    c: Codes | None,
    promotion: Promotion | None,
    *,
    split_k: int = 1,
    threads: int = 2,
    backend: str = "numba",
) -> Codes:
    d = np.empty((a.shape[0], b.shape[1]), np.uint32)
    given = Operands(a[None], b[None], None if c is None else c[None])
    scaled = promotion is not None and promotion.scale_a is not None
    order = Order(split_k, promotion.every if promotion is not None and scaled else instruction(opcode).k)
    accumulate(backend_of(backend), operation_of(opcode, target), given, d[None], promotion, order, threads)
    return d


def operands(opcode: str, shape: tuple[int, int, int], distribution: str, seed: int = 0) -> tuple[Codes, Codes, Codes]:
    ins = instruction(opcode)
    m, n, k = shape
    rng = np.random.default_rng(seed)
    drawn = ((ins.atype, (m, k)), (ins.btype, (k, n)), ("f32", (m, n)))
    return tuple(codes(fmt, distribution, x * y, rng).reshape(x, y) for fmt, (x, y) in drawn)  # type: ignore[return-value]


def scaling(rule: str, every: int, shape: tuple[int, int, int], special: bool, seed: int = 0) -> Promotion:
    m, n, k = shape
    if rule == "add":
        return Promotion(every)
    rng = np.random.default_rng(seed)
    chunks = -(-k // every)
    a, b = ((2 ** rng.uniform(-20, 20, (chunks, size))).astype(np.float32) for size in (m, n))
    if special:
        for scales in (a, b):
            places = rng.random(scales.shape) < 0.3
            scales.view(np.uint32)[places] = rng.choice(SCALES, places.sum())
    return Promotion(every, rule, a, b)


@pytest.mark.parametrize("rule", PROMOTIONS)
def test_the_reference_follows_the_formulas(rule: str) -> None:
    rng = np.random.default_rng(1)
    for exponents in ((-3, 3), (-40, 40), (-150, -30)):
        values = (rng.standard_normal((4, 200)) * 2.0 ** rng.uniform(*exponents, (4, 200))).astype(np.float32)
        for partial, total, a, b in values.T:
            codes_of = [np.array([x], np.float32).view(np.uint32) for x in (partial, total, a, b)]
            found = reference_sums.promote(rule, codes_of[0][None], codes_of[1][None], codes_of[2], codes_of[3])
            expected = by_definition(rule, *(float(x) for x in (partial, total, a, b)))
            assert found.view(np.float32)[0, 0] == expected, (rule, partial, total, a, b)


@pytest.mark.each_path
@pytest.mark.parametrize(
    ("rule", "partial", "total", "a", "b", "expected"),
    [
        # 2**-80 * 2**-80 is below every f32, but not times 2**100 in between
        ("fma", 2.0**100, 0.0, 2.0**-80, 2.0**-80, 0.0),
        ("fma-each", 2.0**100, 0.0, 2.0**-80, 2.0**-80, 2.0**-60),
        ("multiply-add", 3.0, 1.0, 2.0, 0.5, 4.0),
        ("multiply-add-each", 2.0**100, 1.0, 2.0**60, 2.0**-60, np.inf),
        ("fma", np.inf, -np.inf, 1.0, 1.0, np.nan),
        ("fma", 0.0, 1.0, np.inf, 1.0, np.nan),
        ("add", -1.0, 1.0, 0.0, 0.0, 0.0),
    ],
)
def test_facts(rule: str, partial: float, total: float, a: float, b: float, expected: float) -> None:
    """By hand; the partial sum comes from a product with one."""
    opcode, target = WGMMA + "m64n8k8.f32.tf32.tf32", "sm_90a"
    left, right, start = (np.array([[x]], np.float32).view(np.uint32) for x in (partial, 1.0, total))
    scales = (None, None) if rule == "add" else (np.array([[a]], np.float32), np.array([[b]], np.float32))
    for backend in ("numba", "reference"):
        found = product(opcode, target, left, right, start, Promotion(8, rule, *scales), backend=backend)
        wanted = np.float32(expected).view(np.uint32) if not np.isnan(expected) else NAN
        assert found[0, 0] == wanted


@pytest.fixture
def products_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference multiplies the same matrices by one instruction once, however their products are promoted."""
    known: dict[bytes, Codes] = {}
    execute = Exact.execute

    def once(self: Exact, operation: Operation, given: Operands, c: Codes) -> Codes:
        key = b"".join(each.tobytes() for each in (given.a, given.b, c))
        if key not in known:
            known[key] = execute(self, operation, given, c)
        return known[key]

    monkeypatch.setattr(Exact, "execute", once)


@pytest.mark.parametrize(("opcode", "target"), CASES)
@cases(("rule", "special"), list(product_of(PROMOTIONS, (False, True))))
@pytest.mark.usefixtures("products_once")
def test_kernels_equal_the_reference(opcode: str, target: str, rule: str, special: bool) -> None:
    ins = instruction(opcode)
    every = 2 * ins.k
    for index, distribution in enumerate(("mid", "special", "bits", "tiny", "big", "cancel")):
        shape = (5, 7, 2 * every + 9)
        a, b, c = operands(opcode, shape, distribution, index)
        promotion = scaling(rule, every, shape, special, index)
        for start in (None, c):
            expected = product(opcode, target, a, b, start, promotion, backend="reference")
            for path in PATHS:
                with taking(path):
                    found = product(opcode, target, a, b, start, promotion)
                np.testing.assert_array_equal(found, expected, err_msg=path)


@pytest.mark.parametrize("every", [32, 96, 4096])
@pytest.mark.parametrize(("opcode", "target"), FAST)
def test_fast_and_exact_kernels_agree(opcode: str, target: str, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for index, (shape, distribution) in enumerate((((70, 67, 700), "mid"), ((9, 130, 1000), "finite edges"), ((40, 33, 333), "special"))):
        a, b, c = operands(opcode, shape, distribution, index)
        promotion = scaling("fma", every, shape, True, index)
        found = [product(opcode, target, a, b, c, promotion, threads=threads) for threads in (1, 3)]
        with smallest_parts(2 * instruction(opcode).k):
            found.append(product(opcode, target, np.asfortranarray(a), b, c, promotion))
        monkeypatch.setenv("FASTMMA_PORTABLE", "1")
        expected = product(opcode, target, a, b, c, promotion)
        monkeypatch.delenv("FASTMMA_PORTABLE")
        for each in found:
            np.testing.assert_array_equal(each, expected)


@pytest.mark.each_path
def test_parts_are_cut_between_chunks_that_have_scales() -> None:
    opcode, target = FAST[0]
    shape, every = (6, 9, 500), 128
    a, b, c = operands(opcode, shape, "mid")
    promotion = scaling("fma", every, shape, False)
    for parts, cuts in ((2, [0, 256, 500]), (3, [0, 256, 500]), (4, [0, 128, 256, 384, 500]), (9, [0, 128, 256, 384, 500])):
        total = None
        for start, stop in pairwise(cuts):
            inside = promotion.part(slice(start // every, -(-stop // every)), slice(None), slice(None))
            part = product(opcode, target, a[:, start:stop], b[start:stop], c if start == 0 else None, inside, backend="reference")
            total = part if total is None else (total.view(np.float32) + part.view(np.float32)).view(np.uint32)
        for backend in ("numba", "reference"):
            np.testing.assert_array_equal(product(opcode, target, a, b, c, promotion, split_k=parts, backend=backend), total)
