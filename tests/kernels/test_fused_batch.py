"""The fast path for batches of tiles and small products against the portable kernels and the exact reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.fused import ELEMENTS, accumulator, reference
from reference.narrower import narrower
from reference.products import random_codes
from reference.remembered import Remembered

from fastmma.isa.codes import decode, encode
from fastmma.isa.formats import format_of
from fastmma.kernels.fused import batch, portable
from fastmma.kernels.params import Coded, Fused

Codes = NDArray[Any]

KINDS = ("bits", "normal", "spread", "vanishing", "large", "exact", "rare", "extreme")
HALVES = tuple(k for half in (0, 1) for k in range(32) if k // 2 % 2 == half)
E4M3 = format_of("e4m3")
WIDENED = encode(decode(np.arange(256), E4M3), "f16")


class Case:
    """Parameters, a shape, and how narrow codes are multiplied as wider ones."""

    def __init__(
        self, a: str, b: str, shape: tuple[int, int, int], terms: int, align: int, floor: int, keep: int = 23, *, widened: bool = False
    ) -> None:
        self.names, self.shape, self.widened = (a, b), shape, widened
        elements = [ELEMENTS["f16" if widened else name] for name in (a, b)]
        self.p = Fused(elements[0], elements[1], terms, align, floor, keep, int(keep == 10), 2 if widened else 0)
        self.coded = Coded(ELEMENTS[a], ELEMENTS[b], HALVES if widened else ())
        self.order = np.array(HALVES, np.int32) if widened else None

    def operands(self, rng: np.random.Generator, count: int, kind: str) -> tuple[Codes, Codes, Codes]:
        """A batch."""
        m, n, k = self.shape
        a, b = random_codes(rng, self.names[0], (count, m, k), kind), random_codes(rng, self.names[1], (count, k, n), kind)
        return a, b, accumulator(rng, self.p, (count, m, n), kind)

    def blocks(self, *shape: int) -> batch.Blocks | None:
        """The fast path for rows, columns and k, if there is one."""
        return batch.blocks(self.p, self.coded, *(shape or self.shape))

    def wide(self, codes: Codes) -> Codes:
        """Codes of the elements that are multiplied."""
        return WIDENED[codes] if self.widened else codes

    def expected(self, a: Codes, b: Codes, c: Codes | None) -> Codes:
        """What the portable kernel makes."""
        out = np.empty((*a.shape[:2], b.shape[2]), np.uint16 if self.p.half else np.uint32)
        arrays = (np.ascontiguousarray(self.wide(a)), np.ascontiguousarray(self.wide(b)), None if c is None else np.ascontiguousarray(c))
        portable.tiles(self.p, *arrays, out, 1, self.order)
        return out

    def found(self, a: Codes, b: Codes, c: Codes | None, threads: int = 1, out: Codes | None = None) -> tuple[Codes, int]:
        """What the fast path makes, and how many products it left to the portable one, which does all where there is no fast one."""
        redone = 0

        def slow(a: Codes, b: Codes, c: Codes | None, out: Codes) -> None:
            nonlocal redone
            redone += len(out)
            out[...] = self.expected(a, b, c)

        if out is None:
            out = np.full((*a.shape[:2], b.shape[2]), 0xABCD, np.uint16 if self.p.half else np.uint32)
        blocks = self.blocks(*out.shape[1:], a.shape[2])
        if blocks is None:
            slow(a, b, c, out)
        else:
            blocks.multiply(a, b, c, out, threads, slow)
        return out, redone


CASES = {
    "f16 sm_80": Case("f16", "f16", (16, 8, 16), 8, 24, -132),
    "f16 sm_90": Case("f16", "f16", (16, 8, 16), 16, 25, -133),
    "f16 sm_90 to f16": Case("f16", "f16", (16, 8, 16), 16, 25, -21, 10),
    "f16 of any shape": Case("f16", "f16", (21, 13, 37), 16, 25, -133),
    "bf16 sm_90": Case("bf16", "bf16", (16, 8, 16), 16, 25, -133),
    "tf32 sm_80": Case("tf32", "tf32", (16, 8, 8), 4, 24, -132),
    "e4m3 sm_89": Case("e4m3", "e5m2", (16, 8, 32), 16, 13, -132, 13),
    "e4m3 wgmma to f16": Case("e4m3", "e4m3", (64, 24, 32), 32, 13, -21, 10),
    "e4m3 lowered": Case("e4m3", "e4m3", (16, 8, 32), 16, 25, -133, widened=True),
    "e4m3 lowered to f16": Case("e4m3", "e4m3", (16, 16, 32), 16, 25, -21, 10, widened=True),
    "e4m3 sparse sm_120": Case("e4m3", "e4m3", (16, 8, 64), 64, 25, -133),
    "e5m2 sparse wgmma": Case("e5m2", "e4m3", (64, 8, 64), 64, 13, -132, 13),
    "e4m3 sparse sm_89": Case("e4m3", "e4m3", (16, 8, 64), 32, 13, -132, 13),
    "e2m1 x e4m3 sm_120": Case("e2m1", "e4m3", (16, 8, 32), 32, 25, -133),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_against_the_portable_kernel(name: str, kind: str) -> None:
    case = CASES[name]
    rng = np.random.default_rng([KINDS.index(kind), *case.shape])
    for count in (1, 2, 37):
        a, b, c = case.operands(rng, count, kind)
        for start in (c, None):
            expected = case.expected(a, b, start)
            np.testing.assert_array_equal(case.found(a, b, start)[0], expected)
            np.testing.assert_array_equal(case.found(a, b, start, threads=3)[0], expected)


@pytest.mark.parametrize("name", CASES)
def test_against_integers(name: str) -> None:
    case = CASES[name]
    rng = np.random.default_rng(3)
    for kind in ("rare", "spread"):
        a, b, c = case.operands(rng, 2, kind)
        out, _ = case.found(a, b, c)
        for index in range(2):
            wide = case.wide(a[index]), case.wide(b[index])
            np.testing.assert_array_equal(out[index], reference(case.p, *wide, c[index], case.order))


@pytest.mark.parametrize("name", CASES)
def test_a_special_value_costs_its_product(name: str) -> None:
    case = CASES[name]
    rng = np.random.default_rng(4)
    a, b, c = case.operands(rng, 50, "normal")
    fast = case.blocks() is not None
    out, redone = case.found(a, b, c)
    np.testing.assert_array_equal(out, case.expected(a, b, c))
    assert redone == (0 if fast else 50)
    element = ELEMENTS[case.names[1]]
    b[17, 3, 5] = (1 << element.exponent_bits + element.mantissa_bits + element.shift) - 1
    out, redone = case.found(a, b, c)
    np.testing.assert_array_equal(out, case.expected(a, b, c))
    assert redone <= (4 if fast else 50)  # neighbours share what is noted of sums
    c[[0, 30, 49], -1, -1] = 0x7C00 if case.p.half else 0x7F800000
    out, redone = case.found(a, b, c, 2)
    np.testing.assert_array_equal(out, case.expected(a, b, c))
    assert redone <= (16 if fast else 50)


def test_layouts() -> None:
    rng = np.random.default_rng(5)
    for name in ("f16 sm_90", "e4m3 lowered", "f16 of any shape"):
        case = CASES[name]
        a, b, c = case.operands(rng, 9, "normal")
        expected = case.expected(a, b, c)
        every = np.zeros((18, *(2 * each for each in a.shape[1:])), a.dtype)
        every[::2, ::2, ::2] = a
        for left in (a, every[::2, ::2, ::2], np.asfortranarray(a), a[::-1].copy()[::-1]):
            for right in (b, np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2), b[:, :, ::-1].copy()[:, :, ::-1]):
                np.testing.assert_array_equal(case.found(left, right, c)[0], expected)
        np.testing.assert_array_equal(case.found(a, b, np.asfortranarray(c))[0], expected)
        both = c.copy()
        np.testing.assert_array_equal(case.found(a, b, both, out=both)[0], expected)
        around = np.full(tuple(each + 2 for each in c.shape), 0x5A5A, c.dtype)
        case.found(a, b, c, out=around[1:-1, 1:-1, 1:-1])
        np.testing.assert_array_equal(around[1:-1, 1:-1, 1:-1], expected)
        around[1:-1, 1:-1, 1:-1] = 0x5A5A
        assert (around == 0x5A5A).all()
        one = np.broadcast_to(b[:1], b.shape)
        start = np.broadcast_to(c[:1, :1], c.shape)
        np.testing.assert_array_equal(case.found(a, one, start, 2)[0], case.expected(a, one, start))


def test_nothing_outside_the_operands_is_read() -> None:
    """Not even what would be a special value."""
    rng = np.random.default_rng(6)
    for name, case in CASES.items():
        a, b, c = case.operands(rng, 4, "normal")
        inside = []
        for array in (a, b, c):
            memory = np.full(array.size + 2048, -1, np.int64).astype(array.dtype)
            memory[1024 : 1024 + array.size] = array.ravel()
            inside.append(memory[1024 : 1024 + array.size].reshape(array.shape))
        out, redone = case.found(*inside)
        np.testing.assert_array_equal(out, case.expected(a, b, c), name)
        assert redone == (4 if case.blocks() is None else 0), name


def test_empty() -> None:
    case = CASES["f16 sm_90"]
    rng = np.random.default_rng(7)
    for count, m, n, k in ((0, 16, 8, 16), (3, 0, 8, 16), (3, 16, 0, 16)):
        c = rng.integers(0, 1 << 32, (count, m, n), np.uint32)
        a, b = np.zeros((count, m, k), np.uint16), np.zeros((count, k, n), np.uint16)
        np.testing.assert_array_equal(case.found(a, b, c, 2)[0], c)
        assert not case.found(a, b, None)[0].any()


def test_zero_results_are_positive() -> None:
    for name, case in CASES.items():
        m, n, k = case.shape
        element = ELEMENTS[case.names[0]]
        dtype, result = (array.dtype for array in case.operands(np.random.default_rng(8), 1, "normal")[::2])
        a = np.full((3, m, k), 1 << (element.exponent_bits + element.mantissa_bits + element.shift), dtype)
        b = np.zeros((3, k, n), dtype)
        c = np.full((3, m, n), 0x8000 if case.p.half else 0x80000000, result)
        out = case.found(a, b, c)[0]
        np.testing.assert_array_equal(out, case.expected(a, b, c), name)
        assert not out.any(), name


def test_a_subnormal_c_of_zero_products() -> None:
    rng = np.random.default_rng(9)
    for name, case in CASES.items():
        a, b, c = case.operands(rng, 5, "normal")
        a[:, ::2] = 0
        bits = 10 if case.p.half else 23
        c[...] = rng.integers(0, 1 << bits, c.shape) | rng.integers(0, 2, c.shape) << (15 if case.p.half else 31)
        np.testing.assert_array_equal(case.found(a, b, c)[0], case.expected(a, b, c), name)


NARROW = [(name, kind) for name in ("f16 sm_80", "e4m3 sm_89", "e4m3 lowered") for kind in ("normal", "rare", "exact")]


def test_narrower_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The AVX2 kernels on a CPU that has more, in a process that is told so; the portable kernels' results are those of this process."""
    results, path, tiles = Remembered(), tmp_path / "results", portable.tiles

    def kept(p: Fused, a: Codes, b: Codes, c: Codes | None, out: Codes, threads: int, order: Codes | None) -> None:
        tiles(p, a, b, c, out, threads, order)
        results.keep((p, order is None), (a, b, c), out)

    monkeypatch.setattr(portable, "tiles", kept)
    for name, kind in NARROW:
        test_against_the_portable_kernel(name, kind)
    results.save(path)
    program = """
import sys
from pathlib import Path
import test_fused_batch as t
results = t.Remembered(Path(sys.argv[1]))
t.portable.tiles = lambda p, a, b, c, out, threads, order: results.find((p, order is None), (a, b, c), out)
for name, kind in t.NARROW:
    t.test_against_the_portable_kernel(name, kind)
print(*{t.CASES[name].blocks() is None for name, _ in t.NARROW})
"""
    assert narrower(program, str(path)).split() == [str(CASES["f16 sm_80"].blocks() is None)]


def test_what_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    able = CASES["f16 sm_90"].blocks() is not None
    for name, case in CASES.items():
        assert (case.blocks() is not None) == able, name
        for change in ({"terms": 3}, {"align_bits": 35}):
            assert batch.blocks(case.p._replace(**change), case.coded, *case.shape) is None, name
    assert CASES["f16 sm_90"].blocks(16, 8, 1 << 20) is None
    assert CASES["e4m3 lowered"].blocks(16, 8, 33) is None  # c joins after every 32 k
    monkeypatch.setenv("FASTMMA_PORTABLE", "1")
    assert not any(case.blocks() for case in CASES.values())
