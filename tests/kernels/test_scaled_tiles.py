"""The block-scaled kernels for tiles of whole instructions against exact integer arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.cases import cases
from reference.narrower import narrower
from reference.remembered import Remembered
from reference.scaled_codes import KINDS, MIXES, OPCODES, elements, expected, operands, parameters, scales

from fastmma.kernels.llvm import cpu
from fastmma.kernels.scaled import dispatch
from fastmma.kernels.scaled.group_tiles import group_tiles
from fastmma.kernels.scaled.tiles import scaled_tiles


@cases("mix", MIXES)
@cases("name", OPCODES)
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
    assert (fast is not None) == bool(cpu.usable() & {"avx2", "neon"})
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


NARROW = [(name, mix) for name in ("nvf4", "e4m3 e4m3 sparse") for mix in (MIXES[2], MIXES[7])]


def test_fast_tiles_with_narrower_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The AVX2 kernels on a CPU that has more, in a process that is told so; the portable kernels' results are those of this process."""
    results, path, tiles = Remembered(), tmp_path / "results", dispatch._portable_tiles

    def kept(p: Any, a: Any, b: Any, c: Any, out: Any, scale_a: Any, scale_b: Any, threads: int) -> None:
        tiles(p, a, b, c, out, scale_a, scale_b, threads)
        results.keep(p, (a, b, c, scale_a, scale_b), out)

    monkeypatch.setattr(dispatch, "_portable_tiles", kept)
    for name, mix in NARROW:
        test_tiles_of_instructions_agree(name, mix, monkeypatch)
    results.save(path)
    program = """
import sys
from pathlib import Path
import pytest
import test_scaled_tiles as t
results = t.Remembered(Path(sys.argv[1]))
t.dispatch._portable_tiles = lambda p, a, b, c, out, x, y, threads: results.find(p, (a, b, c, x, y), out)
for name, mix in t.NARROW:
    with pytest.MonkeyPatch.context() as patch:
        t.test_tiles_of_instructions_agree(name, mix, patch)
        t.test_what_is_out_of_reach_of_fast_tiles(name, patch)
"""
    narrower(program, str(path))


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
