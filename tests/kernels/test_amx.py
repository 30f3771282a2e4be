"""Products on AMX: their packing and tiles by plain code on any CPU, by AMX itself where there is one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from reference.cases import cases

from fastmma.backends import route
from fastmma.backends.problem import Extents, Problem, Strides
from fastmma.backends.resolve import operation_of
from fastmma.kernels.integer import amx, b1
from fastmma.kernels.integer.amx_kernel import KERNEL, AmxConfig
from fastmma.kernels.integer.amx_lines import BYTES, HALVES, Numbers
from fastmma.kernels.llvm import cpu

HAS_AMX = {"amx-tile", "amx-int8"} <= cpu.usable()
PLAIN = (True, False) if HAS_AMX else (True,)
AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "f16c"})
S8, U8 = np.dtype(np.int8), np.dtype(np.uint8)
INTEL = "x86_64-unknown-linux-gnu", "sapphirerapids"
emitted = pytest.mark.skipif(not cpu.usable(), reason="needs a CPU that micro-kernels are emitted for")


def draw(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, int], order: Any) -> Any:
    """Bytes of all values, in rows or in columns."""
    return np.asarray(np.frombuffer(rng.bytes(shape[0] * shape[1]), dtype).reshape(shape, order=order))


@emitted
@cases(("a", "b"), [(S8, S8), (S8, U8), (U8, S8), (U8, U8)])
@cases("shape", [(1, 1, 1), (33, 31, 67), (70, 129, 300), (257, 40, 64)])
@pytest.mark.parametrize("plain", PLAIN)
def test_bytes(a: np.dtype[Any], b: np.dtype[Any], shape: tuple[int, int, int], plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "_WORK_OF_A_THREAD", 1)
    monkeypatch.setattr(amx, "_CHUNKS", 2)
    monkeypatch.setattr(amx, "_ROWS_BYTES", 1)
    (m, n, k), rng = shape, np.random.default_rng(shape)
    for order_a, order_b, threads in (("C", "C", 1), ("F", "C", 2), ("C", "F", 2), ("F", "F", 1)):
        left, right = draw(rng, a, (m, k), order_a), draw(rng, b, (k, n), order_b)
        c = None if order_a == order_b else np.frombuffer(rng.bytes(4 * m * n), np.int32).reshape(m, n)
        out = np.full((m, 2 * n), 0x5A5A5A5A, np.int32)[:, :: 1 + (threads == 2)][:, :n]
        monkeypatch.setattr(amx, "_UNDIVIDED", 0 if order_a == "F" else 1 << 32)
        amx.gemm(left, right, c, out, threads, plain=plain)
        exact = left.astype(np.int64) @ right.astype(np.int64) + (0 if c is None else c)
        wrapped = exact.astype(np.uint64).astype(np.uint32).view(np.int32)
        np.testing.assert_array_equal(out, wrapped)
        config, whole = AmxConfig(a.kind == "i", b.kind == "i", plain), np.full((m, n), 0x5A5A5A5A, np.int32)
        fixed = amx.FixedBytes(config, (m, n, k), left.strides, right.strides, start=c is not None)
        for _ in range(2):  # in new memory, and in that of the first call
            assert fixed(left, right, whole.ctypes.data, c)
            np.testing.assert_array_equal(whole, wrapped)


@emitted
@cases("how", [(HALVES, BYTES), (BYTES, HALVES), (HALVES, HALVES)])
@cases(("order_a", "order_b"), [("C", "C"), ("F", "F")])
@pytest.mark.parametrize("plain", PLAIN)
def test_four_bits_become_bytes(how: tuple[Numbers, Numbers], order_a: Any, order_b: Any, plain: bool) -> None:
    """Codes with a sign bit are numbers from -8 to 7, those without it from 0 to 15."""
    rng = np.random.default_rng(4)
    left, right = (rng.integers(0, 16, shape, np.uint8) for shape in ((35, 150), (150, 37)))
    numbers = [(x.astype(np.int64) ^ each.sign) - each.sign for x, each in zip((left, right), how, strict=True)]
    out = np.empty((35, 37), np.int32)
    amx.gemm(np.asarray(left, order=order_a), np.asarray(right, order=order_b), None, out, 1, how=how, plain=plain)
    np.testing.assert_array_equal(out, numbers[0] @ numbers[1])


@emitted
@cases("operation", ["xor", "and"])
@cases(("order_a", "order_b", "threads"), [("C", "C", 1), ("F", "F", 2)])
@pytest.mark.parametrize("plain", PLAIN)
def test_bits(operation: str, order_a: Any, order_b: Any, threads: int, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ones are counted by products of bytes; a byte that is not zero is a one."""
    monkeypatch.setattr(amx, "_WORK_OF_A_THREAD", 1)
    rng = np.random.default_rng(5)
    left, right = (np.asarray(rng.choice(np.array([0, 0, 1, 200], np.uint8), shape), order=order_a) for shape in ((35, 150), (150, 37)))
    right = np.asarray(right, order=order_b)
    room = rng.integers(-(2**31), 2**31, (35, 40), np.int64).astype(np.int32)
    for c in (None, room[:, 1:38].copy(), room[:, 1:38]):
        expected, out = np.empty((35, 37), np.int32), room[:, 1:38]
        b1.gemm(left, right, c, expected, operation, 1)
        b1.gemm_on_amx(left, right, c, out, operation, threads, plain=plain)
        np.testing.assert_array_equal(out, expected)


@emitted
@cases("place", [0, 1, 5, 16])
@cases("shape", [(32, 32, 64), (33, 96, 130), (64, 97, 260)])
@pytest.mark.parametrize("plain", PLAIN)
def test_results_at_any_place(place: int, shape: tuple[int, int, int], plain: bool) -> None:
    """Whole cache lines are written, wherever rows begin, and nothing beside them; `c` may be the results themselves."""
    (m, n, k), rng = shape, np.random.default_rng([place, *shape])
    left, right = draw(rng, S8, (m, k), "C"), draw(rng, U8, (k, n), "C")
    exact = (left.astype(np.int64) @ right.astype(np.int64)).astype(np.int32)
    for starts in (False, True):
        room = rng.integers(-(2**31), 2**31, (m + 2, n + 24), np.int64).astype(np.int32)
        expected, rows, columns = room.copy(), slice(1, m + 1), slice(place, place + n)
        expected[rows, columns] = exact + room[rows, columns] * starts
        amx.gemm(left, right, room[rows, columns] if starts else None, room[rows, columns], 1, plain=plain)
        np.testing.assert_array_equal(room, expected)


@emitted
@cases(
    ("signed", "dot"),
    [((True, True), "tdpbssd"), ((True, False), "tdpbsud"), ((False, True), "tdpbusd"), ((False, False), "tdpbuud")],
)
def test_instructions_are_those_of_amx(signed: tuple[bool, bool], dot: str) -> None:
    found = re.findall(r"^\t(tdp\w+|ldtilecfg|tile\w+)", KERNEL.assembly(AmxConfig(*signed), *INTEL), re.MULTILINE)
    assert (found[0], found[-1]) == ("ldtilecfg", "tilerelease")
    assert {each for each in found if each.startswith("tdp")} == {dot}


@cases("permitted", [True, False])
def test_tiles_are_used_where_the_system_permits(permitted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "features", lambda: AVX512 | {"amx-tile", "amx-int8"})
    monkeypatch.setattr(cpu, "_tiles_permitted", lambda: permitted)
    assert ("amx-tile" in cpu._permitted.__wrapped__()) is permitted


@cases(
    ("satfinite", "starts", "depth", "features", "taken"),
    [
        (False, True, 1 << 18, {"amx-tile", "amx-int8"}, "bytes on AMX"),
        (True, False, 1024, {"amx-tile", "amx-int8"}, "bytes on AMX"),
        (True, False, 1 << 18, {"amx-tile", "amx-int8"}, "bytes"),
        (True, True, 1024, {"amx-tile", "amx-int8"}, "bytes"),
        (False, False, 1024, set[str](), "bytes"),
    ],
)
def test_sums_that_wrap_take_amx(
    satfinite: bool, starts: bool, depth: int, features: set[str], taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "usable", lambda: AVX512 | features)
    operation = operation_of("mma.sync.aligned.m16n8k32.row.col" + ".satfinite" * satfinite + ".s32.s8.s8.s32", "sm_80")
    problem = Problem(operation, Extents(1, 512, 512, depth), Strides((1, 1, 1), (1, 1, 1)), starts, False, False)
    assert route.choose(problem).row.name == taken
