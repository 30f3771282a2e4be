"""Replays of what real GPUs computed: every bit must be the same."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.recordings import GOLDEN, GPUS, MANIFEST, OPCODES, DotProducts, dot_products, golden, register_file

import fastmma
from fastmma.formats import from_codes

MMA = [opcode for opcode in OPCODES if opcode.startswith("mma")]
WGMMA = [opcode for opcode in OPCODES if opcode.startswith("wgmma")]
Registers = dict[str, NDArray[Any]]


def elements(codes: NDArray[Any], fmt: str) -> NDArray[Any]:
    return from_codes(codes.astype(fastmma.FORMATS[fmt].code_dtype), fmt)


def words_to_codes(words: NDArray[np.uint32], bits: int) -> NDArray[Any]:
    """Elements packed along the last axis, low bits first."""
    if bits == 1:
        return np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    return words.view(f"u{bits // 8}")


def warp_result(opcode: str, recorded: Registers, backend: str) -> NDArray[Any]:
    return fastmma.warp.mma(opcode, recorded["a"], recorded["b"], recorded["c"], target="sm_90a", backend=backend)


def wgmma_result(opcode: str, recorded: Registers, backend: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Codes of d as computed and as recorded; b is the matrix n x k, k contiguous."""
    ins = fastmma.instruction(opcode)
    a, c, d = (fastmma.gather(recorded[name], ins.operands[name]) for name in "acd")
    bits = fastmma.FORMATS[ins.btype].bits
    b = words_to_codes(np.ascontiguousarray(recorded["b"]), bits)[..., : ins.k].swapaxes(-1, -2)
    inputs = elements(a, ins.atype), elements(b, ins.btype), elements(c, ins.ctype)
    result = fastmma.mma(ins, *inputs, target="sm_90a", backend=backend)
    return result.view(d.dtype), d


def sample_of(recorded: Registers, index: int) -> Registers:
    """Every fifth distribution, a different fifth for every index."""
    start = index % min(5, len(recorded["d"]))
    return {name: array[start::5] for name, array in recorded.items()}


@pytest.mark.parametrize("name", MANIFEST["files"])
def test_golden_files_are_those_of_the_manifest(name: str) -> None:
    assert hashlib.sha256((GOLDEN / name).read_bytes()).hexdigest() == MANIFEST["files"][name]["sha256"]
    for opcode, distributions in MANIFEST["files"][name]["opcodes"].items():
        assert {len(array) for array in golden(opcode).values()} == {len(distributions)}


def test_golden_vectors_cover_every_dense_opcode() -> None:
    dense = {ins.opcode for ins in fastmma.instructions("sm_90a", op="mma") if not ins.sparse}
    assert dense == set(MMA)
    arithmetics = {(ins.types, ins.k, ins.bit_op) for ins in fastmma.instructions("sm_90a", op="wgmma") if not ins.sparse}
    recorded = {(ins.types, ins.k, ins.bit_op) for ins in map(fastmma.instruction, WGMMA)}
    assert arithmetics == recorded


@pytest.mark.parametrize("opcode", MMA)
def test_golden_mma(opcode: str) -> None:
    recorded = golden(opcode)
    np.testing.assert_array_equal(warp_result(opcode, recorded, "numba"), recorded["d"])


@pytest.mark.parametrize("opcode", WGMMA)
def test_golden_wgmma(opcode: str) -> None:
    result, expected = wgmma_result(opcode, golden(opcode), "numba")
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("index", "opcode"), list(enumerate(MMA)))
def test_golden_mma_by_the_reference(index: int, opcode: str) -> None:
    recorded = sample_of(golden(opcode), index)
    np.testing.assert_array_equal(warp_result(opcode, recorded, "reference"), recorded["d"])


@pytest.mark.parametrize(("index", "opcode"), list(enumerate(WGMMA)))
def test_golden_wgmma_by_the_reference(index: int, opcode: str) -> None:
    result, expected = wgmma_result(opcode, sample_of(golden(opcode), index), "reference")
    np.testing.assert_array_equal(result, expected)


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
            result, expected = wgmma_result(opcode, recorded, "numba")
        else:
            result, expected = warp_result(opcode, recorded, "numba"), recorded["d"]
        np.testing.assert_array_equal(result, expected, err_msg=f"{opcode}, {distribution}")
        seen.add(opcode)
    assert len(seen) == 126 + 21
