"""Orders of k: where parts are cut, and how they are joined."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference.ieee import fused, nearest, times
from reference.products import bits

import fastmma
from fastmma import LastWave, OperandError, OperandTypeError, StreamK, gemm, gemm_plan, matmul
from fastmma.scaling import quantize

RNG = np.random.default_rng(0)
A, B = (RNG.standard_normal(shape).astype(np.float16) for shape in ((37, 300), (300, 29)))
C = RNG.standard_normal((37, 29)).astype(np.float32)


def parts(cuts: list[tuple[int, int]], c: NDArray[Any] | None = None, a: NDArray[Any] = A, b: NDArray[Any] = B) -> list[NDArray[Any]]:
    return [gemm(a[:, start:stop], b[start:stop], c if start == 0 else None) for start, stop in cuts]


def tree(sums: list[NDArray[Any]]) -> NDArray[Any]:
    while len(sums) > 1:
        sums = [sum(sums[i + 1 : i + 2], sums[i]) for i in range(0, len(sums), 2)]
    return sums[0]


def equal(found: NDArray[Any], expected: NDArray[Any]) -> None:
    np.testing.assert_array_equal(bits(found), bits(expected))


@pytest.mark.parametrize("places", [(0, 300), (0, 16, 300), (0, 7, 8, 200, 300), tuple(range(0, 301, 25)), tuple(range(0, 301, 60))])
def test_cuts_and_joins(places: tuple[int, ...]) -> None:
    cuts = list(pairwise(places))
    for c in (None, C):
        sums = parts(cuts, c)
        equal(gemm(A, B, c, split_k=cuts), sum(sums[1:], sums[0]))
        equal(gemm(A, B, c, split_k=tuple(cuts), join="pairwise"), tree(sums))
        halves = [each.astype(np.float16).astype(np.float32) for each in sums]
        total = halves[0]
        for each in halves[1:]:
            total = (total + each).astype(np.float16).astype(np.float32)
        equal(gemm(A, B, c, split_k=cuts, join_dtype=np.float16), total if len(cuts) > 1 else sums[0])
        in_place = halves[0]
        for each in sums[1:]:
            in_place = (in_place + each).astype(np.float16).astype(np.float32)
        equal(gemm(A, B, c, split_k=cuts, join="in-place", join_dtype="f16"), in_place if len(cuts) > 1 else sums[0])
        equal(gemm(A, B, c, split_k=cuts, join="workspace", join_dtype="f16"), sum(halves[1:], halves[0]) if len(cuts) > 1 else sums[0])
    few_k = gemm(A[:, :9], B[:9])
    equal(gemm(A[:, :9], B[:9], split_k=3, join="workspace", join_dtype="f16"), few_k.astype(np.float16).astype(np.float32))
    equal(gemm(A[:, :9], B[:9], split_k=3, join="in-place", join_dtype="f16"), few_k)
    stacked = matmul(np.stack([A, A]), B, split_k=cuts, join="pairwise", join_dtype="bf16")
    equal(stacked[1], gemm(A, B, split_k=cuts, join="pairwise", join_dtype="bf16", backend="numba"))
    few = slice(0, 2), slice(0, 3)
    equal(gemm(A[:2], B[:, :3], split_k=cuts, join_dtype="bf16", backend="reference"), gemm(A, B, split_k=cuts, join_dtype="bf16")[few])


def streamed(tile: tuple[int, int, int], ctas: int, tiles: int | None, raster: str) -> NDArray[Any]:
    """Every CTA takes its k-tiles one by one; a new sum begins with each CTA, and each output tile."""
    (m, n, k), (rows, depth), columns = tile, A.shape, B.shape[1]
    high, wide, deep = -(-rows // m), -(-columns // n), -(-depth // k)
    order = [(i, j) for j in range(wide) for i in range(high)] if raster == "m" else [(i, j) for i in range(high) for j in range(wide)]
    count = len(order) if tiles is None else min(tiles, len(order))
    work = [(tile, step) for tile in order[:count] for step in range(deep)]
    sums: dict[tuple[int, int], list[list[int]]] = {tile: [] for tile in order}
    place = 0
    for cta in range(ctas):
        size = len(work) // ctas + (cta < len(work) % ctas)
        for tile_at, step in work[place : place + size]:
            runs = sums[tile_at]
            if not runs or runs[-1][0] != cta:
                runs.append([cta, step * k, step * k])
            runs[-1][2] = min((step + 1) * k, depth)
        place += size
    result = np.empty((rows, columns), np.float32)
    for (i, j), runs in sums.items():
        at = slice(i * m, (i + 1) * m), slice(j * n, (j + 1) * n)
        cuts = [(start, stop) for _, start, stop in runs] or [(0, depth)]
        found = parts(cuts, None, A[at[0]], B[:, at[1]])
        result[at] = sum(found[1:], found[0])
    return result


@pytest.mark.parametrize(
    ("tile", "ctas", "tiles", "raster"),
    [
        ((16, 16, 32), 7, None, "m"),
        ((16, 8, 16), 5, None, "n"),
        ((16, 16, 64), 4, 2, "m"),
        ((8, 8, 16), 200, None, "m"),
        ((16, 16, 16), 300, 1, "n"),
    ],
)
def test_stream_k(tile: tuple[int, int, int], ctas: int, tiles: int | None, raster: str) -> None:
    equal(gemm(A, B, split_k=StreamK(tile, ctas, tiles, raster)), streamed(tile, ctas, tiles, raster))


def test_stream_k_covers_every_element_once() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        tile, ctas = tuple(int(each) for each in rng.integers(1, 9, 3)), int(rng.integers(1, 40))
        rows, columns, depth = (int(each) for each in rng.integers(0, 30, 3))
        order = StreamK(tile, ctas, int(rng.integers(0, 20)) if rng.random() < 0.5 else None, "mn"[int(rng.integers(2))])
        seen = np.zeros((rows, columns), np.int64)
        for block_rows, block_columns, cuts in order.blocks(rows, columns, depth):
            seen[block_rows, block_columns] += 1
            assert cuts[0][0] == 0
            assert cuts[-1][1] == depth
            assert all(one[1] == other[0] for one, other in pairwise(cuts))
        assert (seen == 1).all()


def test_the_last_wave_is_cut() -> None:
    """Tiles are counted one by one, back and forth."""
    rng, parts = np.random.default_rng(2), ((0, 3), (3, 7))
    for _ in range(200):
        tile, wave, width = tuple(rng.integers(1, 5, 2).tolist()), int(rng.integers(1, 12)), int(2 ** rng.integers(0, 5))
        rows, columns, raster = *rng.integers(1, 60, 2).tolist(), "mn"[int(rng.integers(2))]
        high, wide = -(-rows // tile[0]), -(-columns // tile[1])
        along, across = (high, wide) if raster == "m" else (wide, high)
        walk, start, back, band = [], 0, False, width
        while start < across:
            while band > 4 and across - start < band:
                band //= 2
            steps = range(along)[::-1] if back else range(along)
            walk += [(step, beside) for step in steps for beside in range(start, min(start + band, across))]
            start, back = start + band, not back
        last = walk[len(walk) - len(walk) % wave :]
        cut = np.zeros((rows, columns), np.int64)
        for step, beside in last:
            row, column = (step, beside) if raster == "m" else (beside, step)
            cut[row * tile[0] : (row + 1) * tile[0], column * tile[1] : (column + 1) * tile[1]] = 1
        seen = np.zeros((rows, columns), np.int64)
        for down, beyond, cuts in LastWave(tile, wave, parts, raster, width).blocks(rows, columns, 7):
            seen[down, beyond] += 1 + (cuts == parts)
        assert (seen == 1 + cut).all()


def test_with_a_bias_and_a_remainder_first() -> None:
    plan = replace(gemm_plan(A, B, target="sm_80"), split_k=((0, 100), (100, 300)), first_tile=32)
    sums = [gemm(A[:, k], B[k], plan=replace(plan, split_k=1)) for k in (slice(0, 100), slice(100, 300))]
    equal(gemm(A, B, plan=plan), sums[0] + sums[1])
    bias = np.arange(29, dtype=np.float32)
    cuts = [(0, 160), (160, 300)]
    equal(gemm(A, B, split_k=cuts, bias=bias, out_dtype="bf16"), (gemm(A, B, split_k=cuts) + bias).astype(ml_dtypes.bfloat16))


def test_parts_in_place_go_through_the_epilogue_one_by_one() -> None:
    cuts, few = [(0, 100), (100, 230), (230, 300)], (slice(0, 4), slice(0, 5))
    sums = [each[few].astype(np.float64) for each in parts(cuts)]
    bias, c = np.linspace(-9, 9, 29).astype(np.float16), (9 * C).astype(np.float16)
    cases: tuple[tuple[dict[str, Any], tuple[str, ...], NDArray[Any], float], ...] = (
        ({"bias": bias}, ("bias", "round"), np.broadcast_to(bias, C.shape), 1.0),
        ({"c": c, "beta": 0.7, "alpha": 0.3}, ("alpha+c", "round"), c, 0.3),
        ({"c": c, "beta": 0.7, "alpha": 0.3}, ("alpha", "beta*c", "round"), c, 0.3),
    )
    for given, steps, first, alpha in cases:
        plan = replace(gemm_plan(A, B, out_dtype="bf16"), split_k=tuple(cuts), join="in-place", join_dtype="bf16", epilogue=steps)
        scale, beta = nearest(alpha), nearest(given.get("beta", 1.0))
        expected = np.empty((4, 5), ml_dtypes.bfloat16)
        for at in np.ndindex(4, 5):
            total = float(first[at])
            for number, part in enumerate(sums):
                x, factor = float(part[at]), beta if number == 0 else 1.0
                links = (x, scale, times(factor, total)) if steps[0] == "alpha+c" else (factor, total, times(x, scale))
                total = nearest(fused(*links), "bf16")
            expected[at] = total
        for backend in ("numba", "reference"):
            held = {name: value[few] if name == "c" else value[few[1]] if name == "bias" else value for name, value in given.items()}
            equal(gemm(A[few[0]], B[:, few[1]], plan=plan, backend=backend, **held), expected)
    with pytest.raises(OperandError, match="parts that are added in place take an epilogue that ends by rounding"):
        replace(plan, epilogue=("alpha", "round", "bias"))
    plain = replace(plan, epilogue=("alpha", "round"))
    equal(gemm(A, B, plan=replace(plan, epilogue=("alpha", "relu", "round"))), np.maximum(gemm(A, B, plan=plain), 0))


def test_scaled_products_in_parts() -> None:
    a, b = quantize(A[:, :256].astype(np.float32), "fp8_1x128"), quantize(B[:256].T.astype(np.float32), "fp8_128x128").T
    halves = fastmma.scaled_matmul(a, b, split_k=2)
    equal(fastmma.scaled_matmul(a, b, split_k=[(0, 128), (128, 256)]), halves)
    rounded = fastmma.scaled_matmul(a, b, split_k=2, join="pairwise", join_dtype="bf16")
    equal(rounded, rounded.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert (rounded != halves).any()
    bias = np.linspace(-3, 3, 29, dtype=np.float32)
    equal(
        fastmma.scaled_matmul(a, b, c=C, beta=0.5, bias=bias, activation="relu"),
        np.maximum(fastmma.scaled_matmul(a, b) + np.float32(0.5) * C + bias, 0),
    )
    with pytest.raises(OperandError, match="parts of k must begin at multiples of 128"):
        fastmma.scaled_matmul(a, b, split_k=[(0, 64), (64, 256)])
    with pytest.raises(OperandError, match="k of a tile of stream-K must be a multiple of 128"):
        fastmma.scaled_matmul(a, b, split_k=StreamK((16, 16, 32), 4))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"split_k": [(0, 100)]}, OperandError, "the parts end at k = 100, but K is 300"),
        ({"split_k": [(0, 100), (101, 300)]}, OperandError, "each where the one before ends"),
        ({"split_k": [(1, 300)]}, OperandError, "parts must begin at 0"),
        ({"split_k": [(0, 0), (0, 300)]}, OperandError, "at least one k"),
        ({"split_k": []}, OperandError, "split_k must be an integer of at least 1"),
        ({"split_k": [(0, 1.5), (1.5, 300)]}, OperandTypeError, "must be a number of parts or a sequence"),
        ({"split_k": StreamK((16, 16, 8), 4)}, OperandError, "k of a tile of stream-K must be a multiple of 16, not 8"),
        ({"join": "random"}, OperandError, "join must be one of ascending, pairwise"),
        ({"join": "workspace"}, OperandError, "join 'workspace' needs a join_dtype of bf16 or f16, not ''"),
        ({"join_dtype": "e4m3"}, OperandError, "join_dtype must be one of '', 'bf16', 'f16'"),
        ({"join_dtype": "f16", "accumulator": "f16"}, OperandError, "join_dtype must be one of ''"),
    ],
)
def test_errors(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gemm(A, B, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((16, 16), 4), r"tile must be a tuple \(m, n, k\)"),
        (((16, 0, 16), 4), "n of a tile must be an integer of at least 1"),
        (((16, 16, 16), 0), "ctas must be an integer of at least 1"),
        (((16, 16, 16), 4, -1), "tiles must be an integer of at least 0"),
        (((16, 16, 16), 4, None, "k"), "raster must be m or n"),
    ],
)
def test_stream_k_of_nothing(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(fastmma.FastmmaError, match=message):
        StreamK(*arguments)
