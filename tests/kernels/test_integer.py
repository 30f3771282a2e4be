"""The integer kernels against exact int64 arithmetic, on every path that this machine can run."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference.cases import cases
from reference.integer_products import INT_MAX, INT_MIN, SHAPES, TYPES, accumulators, bits, expected, expected_bits, force, numbers

from fastmma.kernels.integer import b1, int8


@pytest.fixture(params=["host", "portable"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's best path, and the portable one."""
    force(request.param, monkeypatch)


on_every_path = pytest.mark.usefixtures("path")


def run(a: Any, b: Any, c: Any, period: int | None = None, threads: int = 1) -> NDArray[np.int32]:
    """`int8.gemm` into an array that was full of other numbers."""
    out = np.full((a.shape[0], b.shape[1]), 0x5A5A5A5A, np.int32)
    int8.gemm(a, b, c, out, period is not None, period or 32, threads)
    return out


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("threads", [1, 2])
@on_every_path
def test_sums_wrap(types: tuple[Any, Any], threads: int) -> None:
    for seed, (m, n, k) in enumerate(SHAPES):
        a, b, c = numbers(seed, (m, k), types[0]), numbers(seed + 1, (k, n), types[1]), accumulators(seed, (m, n))
        np.testing.assert_array_equal(run(a, b, c, threads=threads), expected(a, b, c))
        np.testing.assert_array_equal(run(a, b, None, threads=threads), expected(a, b, None))


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("period", [16, 32, 64])
@on_every_path
def test_sums_saturate_after_every_instruction(types: tuple[Any, Any], period: int) -> None:
    for seed, (m, n, k) in enumerate(SHAPES):
        a, b, c = numbers(seed, (m, k), types[0]), numbers(seed + 1, (k, n), types[1]), accumulators(seed, (m, n))
        np.testing.assert_array_equal(run(a, b, c, period, 1 + seed % 2), expected(a, b, c, period))


@on_every_path
def test_the_place_of_the_clamp_shows() -> None:
    rng = np.random.default_rng(0)
    signs = rng.choice(np.array([-1, 1]), (23, 40)).repeat(16, 1)
    a = (signs * rng.integers(100, 128, signs.shape)).astype(np.int8)
    b = rng.integers(100, 128, (640, 75)).astype(np.int8)
    c = rng.choice(np.array([INT_MIN, INT_MAX], np.int32), (23, 75))
    results = [run(a, b, c, period, 2) for period in (16, 32, 64, 640)]
    for period, result in zip((16, 32, 64, 640), results, strict=True):
        np.testing.assert_array_equal(result, expected(a, b, c, period))
    assert not any((one == other).all() for one, other in itertools.combinations(results, 2))


@cases(("x", "y"), [(-128, -128), (-128, 127), (255, 255), (255, -128), (-128, 255)])
@cases("period", [None, 64])
@on_every_path
def test_sums_past_int32(x: int, y: int, period: int | None) -> None:
    k = 140_003
    a, b = np.full((3, k), x, np.int8 if x < 128 else np.uint8), np.full((k, 9), y, np.int8 if y < 128 else np.uint8)
    a[1, ::3] = 0
    assert abs(k * x * y) > 2**31
    np.testing.assert_array_equal(run(a, b, None, period), expected(a, b, None, period))


@pytest.mark.parametrize("c", [INT_MAX, INT_MIN])
@pytest.mark.parametrize("period", [None, 16])
@on_every_path
def test_the_first_number_past_int32(c: int, period: int | None) -> None:
    a = np.zeros((2, 16), np.int8)
    b = np.zeros((16, 2), np.int8)
    a[:, 15] = 1
    b[15] = 1, -1
    start = np.full((2, 2), c, np.int32)
    np.testing.assert_array_equal(run(a, b, start, period), expected(a, b, start, period))
    safe = start - np.int32(np.sign(c))
    np.testing.assert_array_equal(run(a, b, safe, period), expected(a, b, safe, period))


LAYOUTS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "fortran": np.asfortranarray,
    "every third of a larger array": lambda x: _spread(x, (2, 3)),
    "rows of a larger array": lambda x: _spread(x, (2, 1)),
    "columns of a larger array": lambda x: _spread(np.asfortranarray(x), (1, 2)),
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "reversed rows": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "reversed fortran": lambda x: np.asfortranarray(x[:, ::-1])[:, ::-1],
    "odd address": lambda x: _at_odd_address(x),
}


def _spread(x: NDArray[Any], steps: tuple[int, int]) -> NDArray[Any]:
    order: Any = "F" if x.flags.f_contiguous and not x.flags.c_contiguous else "C"
    large = np.full((x.shape[0] * steps[0], x.shape[1] * steps[1]), 99, x.dtype, order=order)
    view = large[:: steps[0], :: steps[1]]
    view[...] = x
    return view


def _at_odd_address(x: NDArray[Any]) -> NDArray[Any]:
    view = np.empty(x.nbytes + 3, np.uint8)[3:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


@cases("layout", LAYOUTS)
@cases("shape", [(19, 85, 150), (1, 40, 33), (50, 1, 64), (20, 30, 1)])
@on_every_path
def test_any_strides(layout: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    place = LAYOUTS[layout]
    a, b, c = numbers(1, (m, k), np.int8), numbers(2, (k, n), np.uint8), accumulators(3, (m, n))
    one_a, one_b = bits(4, (m, k), bool), bits(5, (k, n))
    for left, right in itertools.product((place, np.ascontiguousarray), repeat=2):
        operands = left(a), right(b)
        ones = left(one_a), right(one_b)
        starts = place(c)
        for array in (*operands, *ones, starts):
            array.flags.writeable = False
        out = place(np.zeros((m, n), np.int32))
        int8.gemm(*operands, starts, out, True, 32, 2)
        np.testing.assert_array_equal(out, expected(a, b, c, 32))
        b1.gemm(*ones, starts, out, "xor", 2)
        np.testing.assert_array_equal(out, expected_bits(one_a, one_b, c, "xor"))


@on_every_path
def test_only_the_result_is_written() -> None:
    large = np.full((40, 90), 1234, np.int32)
    out = large[3:22, 5:75]
    a, b = numbers(1, (19, 50), np.int8), numbers(2, (50, 70), np.int8)
    int8.gemm(a, b, None, out, False, 32, 2)
    np.testing.assert_array_equal(out, expected(a, b, None))
    out[...] = 1234
    assert (large == 1234).all()


@pytest.mark.parametrize("overlap", ["same", "transposed", "reversed", "shifted"])
@on_every_path
def test_c_may_share_memory_with_the_result(overlap: str) -> None:
    a, b = numbers(1, (70, 1100), np.int8), numbers(2, (1100, 70), np.int8)
    memory = np.random.default_rng(3).integers(INT_MIN, INT_MAX, (71, 70)).astype(np.int32)
    out = memory[:70]
    c = {"same": out, "transposed": out.T, "reversed": out[::-1], "shifted": memory[1:]}[overlap]
    wanted = expected(a, b, c)
    int8.gemm(a, b, c, out, False, 32, 2)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("shape", [(0, 5, 7), (5, 0, 7), (0, 0, 0), (5, 7, 0)])
@on_every_path
def test_empty(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, c = np.zeros((m, k), np.uint8), np.zeros((k, n), np.uint8), accumulators(0, (m, n))
    for start in (c, None):
        for saturate in (False, True):
            out = np.full((m, n), 7, np.int32)
            int8.gemm(a, b, start, out, saturate, 32, 2)
            np.testing.assert_array_equal(out, expected(a, b, start))
        out = np.full((m, n), 7, np.int32)
        b1.gemm(a, b, start, out, "xor", 2)
        np.testing.assert_array_equal(out, expected(a, b, start))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_many_blocks(threads: int) -> None:
    a, b, c = numbers(1, (1700, 600), np.int8), numbers(2, (600, 330), np.uint8), accumulators(3, (1700, 330))
    np.testing.assert_array_equal(run(a, b, c, threads=threads), expected(a, b, c))


TILES = [
    (16, 8, 32),
    (16, 8, 16),
    (8, 8, 16),
    (8, 8, 32),
    (32, 8, 16),
    (8, 32, 16),
    (16, 16, 16),
    (64, 24, 32),
    (64, 256, 32),
    (5, 3, 7),
    (1, 1, 1),
]


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("saturate", [False, True])
@on_every_path
def test_batches(types: tuple[Any, Any], saturate: bool) -> None:
    for seed, (m, n, k) in enumerate(TILES):
        count = 1 + 40 * (seed % 2)
        a, b = numbers(seed, (count, m, k), types[0]), numbers(seed + 1, (count, k, n), types[1])
        for c in (accumulators(seed, (count, m, n)), None):
            out = np.full((count, m, n), 77, np.int32)
            int8.tiles(a, b, c, out, saturate, 1 + seed % 2)
            np.testing.assert_array_equal(out, expected(a, b, c, k if saturate else None))


@on_every_path
def test_long_batches() -> None:
    a, b, c = numbers(1, (5001, 8, 16), np.int8), numbers(2, (5001, 16, 8), np.int8), accumulators(3, (5001, 8, 8))
    for threads in (1, 2):
        out = np.zeros_like(c)
        int8.tiles(a, b, c, out, True, threads)
        np.testing.assert_array_equal(out, expected(a, b, c, 16))
    in_place = c.copy()
    int8.tiles(a, b, in_place, in_place, True, 2)
    np.testing.assert_array_equal(in_place, out)


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("shape", [(0, 8, 16), (8, 0, 16), (8, 8, 0), (8, 8, 16)])
@on_every_path
def test_empty_batches(count: int, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, c = bits(1, (count, m, k)), bits(2, (count, k, n)), accumulators(3, (count, m, n))
    for start in (c, None):
        out = np.full((count, m, n), 7, np.int32)
        int8.tiles(a, b, start, out, True, 2)
        np.testing.assert_array_equal(out, expected(a, b, start, 16))
        b1.tiles(a, b, start, out, "and", 2)
        np.testing.assert_array_equal(out, expected_bits(a, b, start, "and"))


@pytest.mark.parametrize("forced", ["avx2", "avx512bw"])
def test_tiles_of_other_instruction_sets(forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(forced, monkeypatch)
    for types in TYPES:
        a, b, c = numbers(1, (37, 203), types[0]), numbers(2, (203, 131), types[1]), accumulators(3, (37, 131))
        np.testing.assert_array_equal(run(a, b, c), expected(a, b, c))
        np.testing.assert_array_equal(run(a, b, c, 32), expected(a, b, c, 32))
    one_a, one_b, out = bits(1, (37, 203)), bits(2, (203, 131)), np.zeros((37, 131), np.int32)
    b1.gemm(one_a, one_b, c, out, "xor", 1)
    np.testing.assert_array_equal(out, expected_bits(one_a, one_b, c, "xor"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 150), st.integers(1, 300)),
    seed=st.integers(0, 2**32),
    types=st.sampled_from(TYPES),
    period=st.sampled_from([None, 16, 32, 64]),
    orders=st.tuples(st.sampled_from("CF"), st.sampled_from("CF")),
    threads=st.sampled_from([1, 2]),
)
@on_every_path
def test_random_problems(
    sizes: tuple[int, int, int], seed: int, types: tuple[Any, Any], period: int | None, orders: Any, threads: int
) -> None:
    m, n, k = sizes
    a = np.array(numbers(seed, (m, k), types[0]), order=orders[0])
    b = np.array(numbers(seed + 1, (k, n), types[1]), order=orders[1])
    c = accumulators(seed + 2, (m, n))
    np.testing.assert_array_equal(run(a, b, c, period, threads), expected(a, b, c, period))


def test_another_process_finds_the_compiled_kernels(tmp_path: Path) -> None:
    program = (
        "import numpy as np\n"
        "from fastmma.kernels.integer import int8, panels\n"
        "out = np.zeros((3, 3), np.int32)\n"
        "int8.gemm(np.ones((3, 5), np.int8), np.ones((5, 3), np.int8), None, out, False, 32, 1)\n"
        "kernels = panels.pack_rows, panels.multiply_block\n"
        "print((out == 5).all(), *(sum(getattr(k.stats, name).values()) for name in ('cache_hits', 'cache_misses') for k in kernels))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True
        ).stdout
        for _ in range(2)
    ]
    assert outputs == ["True 0 0 1 1\n", "True 1 1 0 0\n"]
