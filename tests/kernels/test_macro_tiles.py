"""Products cut into macro tiles, what is left out, and the tile that a CPU takes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from reference.fallbacks import fall_back

from fastmma.kernels import tiles
from fastmma.kernels.llvm import cpu
from fastmma.kernels.macro_tiles import FallbackMask, Index, MacroTile, MacroTiles, OfWorkers, cut, finish_empty


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(1, 1), (7, 70), (64, 64), (130, 33), (2050, 200)], ids=str)
def test_macro_tiles_cover_a_product_once(shape: tuple[int, int], threads: int) -> None:
    macro_tiles = cut(*shape, (4, 32), threads, 1024, 4)
    assert macro_tiles.height % 4 == 0
    assert macro_tiles.height <= 1024 + 4
    times = np.zeros(shape, np.int32)
    lock = threading.Lock()

    def compute(macro_tile: MacroTile, memory: list[MacroTile]) -> None:
        memory.append(macro_tile)
        with lock:
            times[macro_tile.row : macro_tile.last_row, macro_tile.column : macro_tile.last_column] += 1

    memory: OfWorkers[list[MacroTile]] = OfWorkers(list)
    macro_tiles.run(threads, memory, compute)
    np.testing.assert_array_equal(times, 1)
    assert len(memory) <= threads
    done = [macro_tile for each in memory.values() for macro_tile in each]
    whole = macro_tiles.panels * -(-shape[0] // macro_tiles.height)
    assert whole <= len(done) <= whole + 3 * macro_tiles.cut_again
    assert all(macro_tile.row % 4 == 0 for macro_tile in done)


def test_more_threads_get_more_pieces() -> None:
    assert cut(4096, 64, (4, 64), 1, 4096, 4).height == 4096
    assert cut(4096, 64, (4, 64), 4, 4096, 4).height == 256
    assert cut(4096, 64 * 16, (4, 64), 4, 4096, 4).height == 4096
    assert cut(40, 64, (4, 64), 8, 4096, 4).height == 20  # a macro tile has some blocks for its panel of B
    assert [cut(rows, 64 * 16, (4, 64), threads, 4096, 4).cut_again for rows, threads in ((4096, 4), (4096, 1), (1020, 4))] == [8, 0, 0]


@pytest.mark.parametrize("apart", [False, True])
def test_all_that_is_marked_is_computed(apart: bool) -> None:
    macro_tiles = MacroTiles(20, 50, 8, 16)
    fallback = FallbackMask(macro_tiles)
    wanted = np.zeros((20, 50), bool)
    rows, columns = ([3, 4, 9], [0, 20, 49]) if apart else ([3, 4, 5], [20, 21])
    fallback.rows[rows], fallback.columns[columns] = True, True
    fallback.parts[1, [4, 15, 17]] = True
    fallback.parts[3, 19] = True
    wanted[rows], wanted[:, columns] = True, True
    wanted[[15, 17], 16:32], wanted[19, 48:] = True, True
    out = np.zeros((20, 50), np.int64)
    right = np.arange(1, 1001).reshape(20, 50)

    def compute(lines: Index, panel: Index, results: Any) -> None:
        results[...] = right[lines][:, panel]

    fall_back(fallback, out, compute)
    np.testing.assert_array_equal(out, np.where(wanted, right, 0))


def test_nothing_is_computed_where_nothing_is_marked() -> None:
    def compute(*_: object) -> None:
        raise AssertionError

    fall_back(FallbackMask(MacroTiles(3, 4, 8, 16)), np.zeros((3, 4)), compute)


def test_what_is_settled() -> None:
    out = np.full((2, 3), 7)
    assert not finish_empty(1, None, out)
    assert finish_empty(1, None, out[:0])
    assert (out == 7).all()
    assert finish_empty(0, np.arange(3), out)
    np.testing.assert_array_equal(out, [[0, 1, 2]] * 2)
    assert finish_empty(0, None, out)
    assert not out.any()


@pytest.mark.parametrize("table", [tiles.FUSED, tiles.GROUPS, tiles.BYTES, tiles.BITS], ids=("fused", "groups", "bytes", "bits"))
def test_the_first_tile_that_fits(table: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for number, row in enumerate(table):
        monkeypatch.setattr(cpu, "usable", lambda row=row: row.features)
        assert tiles.first_fit(table) is row, number
    monkeypatch.setattr(cpu, "usable", frozenset[str])
    assert tiles.first_fit(table) is (None if table[-1].features else table[-1])


def test_portable_kernels_use_no_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMMA_PORTABLE", "1")
    assert cpu.usable() == frozenset()
    monkeypatch.setenv("FASTMMA_PORTABLE", "0")
    assert cpu.usable() <= cpu.features()
