"""Replays of what real GPUs computed: every bit must be the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.recordings import GPUS, DotProducts, dot_products, register_file

import fastmma
from fastmma.isa.codes import from_codes

pytestmark = pytest.mark.each_path

Registers = dict[str, NDArray[Any]]


def elements(codes: NDArray[Any], fmt: str) -> NDArray[Any]:
    return from_codes(codes.astype(fastmma.FORMATS[fmt].code_dtype), fmt)


def words_to_codes(words: NDArray[np.uint32], bits: int) -> NDArray[Any]:
    """Elements packed along the last axis, low bits first."""
    if bits == 1:
        return np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    return words.view(f"u{bits // 8}")


def warp_result(opcode: str, recorded: Registers) -> NDArray[Any]:
    return fastmma.warp.mma(opcode, recorded["a"], recorded["b"], recorded["c"], target="sm_90a")


def wgmma_result(opcode: str, recorded: Registers) -> tuple[NDArray[Any], NDArray[Any]]:
    """Codes of d as computed and as recorded; b is the matrix n x k, k contiguous."""
    ins = fastmma.instruction(opcode)
    a, c, d = (fastmma.gather(recorded[name], ins.operands[name]) for name in "acd")
    bits = fastmma.FORMATS[ins.btype].bits
    b = words_to_codes(np.ascontiguousarray(recorded["b"]), bits)[..., : ins.k].swapaxes(-1, -2)
    inputs = elements(a, ins.atype), elements(b, ins.btype), elements(c, ins.ctype)
    result = fastmma.mma(ins, *inputs, target="sm_90a")
    return result.view(d.dtype), d


def replay(recorded: DotProducts) -> NDArray[Any]:
    """Eight dot products a tile, on its diagonal."""
    ins = fastmma.instruction(recorded.opcode)
    tiles = len(recorded.d) // 8
    a = np.zeros((tiles, ins.m, ins.k), recorded.a.dtype)
    b = np.zeros((tiles, ins.k, ins.n), recorded.b.dtype)
    c = np.zeros((tiles, ins.m, ins.n), recorded.c.dtype)
    diagonal = np.arange(8)
    a[:, :8] = recorded.a.reshape(tiles, 8, ins.k)
    b[:, :, :8] = recorded.b.reshape(tiles, 8, ins.k).swapaxes(1, 2)
    c[:, diagonal, diagonal] = recorded.c.reshape(tiles, 8)
    inputs = elements(a, ins.atype), elements(b, ins.btype), elements(c, ins.ctype)
    result = fastmma.mma(ins, *inputs, target=recorded.target)
    return result[:, diagonal, diagonal].reshape(-1).view(recorded.d.dtype)


@pytest.mark.parametrize("gpu", GPUS)
def test_recorded_dot_products(gpu: str, hw_vectors: Path) -> None:
    seen = 0
    for recorded in dot_products(hw_vectors, gpu):
        result = replay(recorded)
        wrong = np.flatnonzero(result != recorded.d)
        assert not len(wrong), f"{recorded.opcode} on {gpu}: {len(wrong)} wrong, the first at {wrong[0]}"
        seen += len(recorded.d)
    assert seen >= 10_000


def test_recorded_dot_products_are_all_replayed(hw_vectors: Path) -> None:
    assert sum(len(recorded.d) for gpu in GPUS for recorded in dot_products(hw_vectors, gpu)) == 240_000


def test_recorded_registers(hw_vectors: Path) -> None:
    seen = set()
    for (opcode, distribution), recorded in register_file(hw_vectors).items():
        if opcode.startswith("mma.sp"):
            continue
        ins = fastmma.instruction(opcode)
        if ins.dtype == "f64":
            recorded = {name: np.ascontiguousarray(array).view(np.uint64) for name, array in recorded.items()}
        if ins.op == "wgmma":
            result, expected = wgmma_result(opcode, recorded)
        else:
            result, expected = warp_result(opcode, recorded), recorded["d"]
        np.testing.assert_array_equal(result, expected, err_msg=f"{opcode}, {distribution}")
        seen.add(opcode)
    assert len(seen) == 126 + 21
