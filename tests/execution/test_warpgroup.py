"""wgmma on the registers and the shared memory of warpgroups."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import sparsity
from reference.descriptor import UNITS, byte_offset
from reference.fragments import CONTAINER_BITS
from reference.operands import finite_codes, matrices, multiplied

import fastmma
from fastmma import FORMATS, FastmmaError, InstructionError, OperandError, OperandTypeError, TargetError, sparse, warpgroup
from fastmma.execution.warpgroup import Descriptor

WGMMA = [ins for ins in fastmma.instructions(op="wgmma") if isinstance(ins, fastmma.Instruction)]
# one of each arithmetic; n is drawn
ARITHMETICS = list({(ins.types, ins.k, ins.sparse, ins.satfinite): ins for ins in WGMMA if ins.n == 8}.values())
OPCODE = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"


class Shared:
    """Shared memory into which matrices are put one after the other."""

    def __init__(self, tiles: int) -> None:
        self.memory = np.random.default_rng(1).integers(0, 256, (tiles, 1 << 17), dtype=np.uint8)
        self.end = 1024

    def put(self, matrices: NDArray[Any], bits: int, swizzle: int, mn_major: bool) -> Descriptor:
        """Codes (tiles, m or n, k) at the next free kilobyte, as the canonical layout has them."""
        _, outer, k = matrices.shape
        row = 16 * UNITS[swizzle]
        if mn_major:
            leading, stride = (k // 8 * 8 * row, 8 * row) if swizzle else (128, k // 8 * 128)
        else:
            leading, stride = (48, 8 * row + 1024) if swizzle else (128 + 16, k * bits // 128 * (128 + 16) + 32)
        fields = {"address": self.end, "leading": leading, "stride": stride, "swizzle": swizzle}
        for i in range(outer):
            for j in range(k):
                place = byte_offset(i, j, bits, mn_major=mn_major, **fields)
                if bits == 1:
                    self.memory[:, place] &= np.uint8(~(1 << j % 8) & 255)
                    self.memory[:, place] |= (matrices[:, i, j] << j % 8).astype(np.uint8)
                else:
                    self.memory[:, place : place + bits // 8] = np.ascontiguousarray(matrices[:, i, j, None]).view(np.uint8)
                self.last = max(getattr(self, "last", 0), place)
        self.end = (self.last // 1024 + 2) * 1024
        return Descriptor(**fields)


def by_matrices(ins: fastmma.Instruction, given: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The registers of d from the matrix level."""
    return fastmma.scatter(multiplied(ins, given, "sm_90a"), ins.operands["d"])


@pytest.mark.parametrize(("index", "like"), list(enumerate(ARITHMETICS)), ids=str)
def test_memory_and_registers_hold_the_same_matrices(index: int, like: fastmma.Instruction) -> None:
    sizes = [ins for ins in WGMMA if (ins.types, ins.k, ins.sparse, ins.satfinite) == (like.types, like.k, like.sparse, like.satfinite)]
    ins = sizes[index % min(9, len(sizes))]
    given = matrices(ins, index, 2)
    expected = by_matrices(ins, given)
    a_bits, b_bits = CONTAINER_BITS[ins.atype], CONTAINER_BITS[ins.btype]
    metadata: dict[str, Any] = {}
    if ins.sparse:
        selector = index % (4 // sparsity.contributors(ins))
        metadata = {"metadata": sparse.pack_metadata(ins, given["metadata"], selector=selector), "selector": selector}
    c = fastmma.scatter(given["c"], ins.operands["d"])
    registers = fastmma.scatter(given["a"], ins.operands["a"])
    for turn, (swizzle_a, swizzle_b) in enumerate(((0, 128), (32, 64), (64, 0), (128, 32))):
        if ins.sparse and swizzle_b == 32:
            swizzle_b = 64
        trans_a, trans_b = (turn % 2, turn // 2) if a_bits == 16 else (0, 0)
        shared = Shared(2)
        b = shared.put(given["b"].swapaxes(1, 2), b_bits, swizzle_b, bool(trans_b))
        a = shared.put(given["a"], a_bits, swizzle_a, bool(trans_a))
        both = {"memory": shared.memory, "imm_trans_b": trans_b, **metadata}
        from_memory = partial(warpgroup.mma, ins, c, a, b, imm_trans_a=trans_a, **both)
        np.testing.assert_array_equal(from_memory(), expected)
        from_registers = partial(warpgroup.mma, ins.opcode, c, registers, b.encode(), target="sm_90a", threads=2, **both)
        np.testing.assert_array_equal(from_registers(), expected)


@pytest.mark.parametrize("like", [ins for ins in ARITHMETICS if FORMATS[ins.atype].kind == "float" and not ins.sparse], ids=str)
def test_negated_operands(like: fastmma.Instruction) -> None:
    given = matrices(like, 3, 2)
    shared = Shared(2)
    b = shared.put(given["b"].swapaxes(1, 2), CONTAINER_BITS[like.btype], 128, False)
    a, c = fastmma.scatter(given["a"], like.operands["a"]), fastmma.scatter(given["c"], like.operands["d"])
    sign = {name: given[name].dtype.type(1 << FORMATS[fmt].bits - 1) for name, fmt in (("a", like.atype), ("b", like.btype))}
    for scale_a, scale_b in itertools.product((1, -1), repeat=2):
        turned = {**given, "a": given["a"] ^ sign["a"] * (scale_a < 0), "b": given["b"] ^ sign["b"] * (scale_b < 0)}
        result = warpgroup.mma(like, c, a, b, memory=shared.memory, imm_scale_a=scale_a, imm_scale_b=scale_b)
        np.testing.assert_array_equal(result, by_matrices(like, turned))


def simple(tiles: int = 1) -> dict[str, Any]:
    """Ones times ones, plus ones."""
    return {
        "d": np.full((tiles, 128, 4), 0x3F800000, np.uint32),
        "a": np.full((tiles, 128, 4), 0x3C003C00, np.uint32),
        "b": Descriptor(0, 128, 256),
        "memory": np.full((256,), 0x3C, np.uint8) * np.tile([0, 1], 128).astype(np.uint8),
    }


def test_scale_d() -> None:
    given = simple()
    assert (warpgroup.mma(OPCODE, **given).view(np.float32) == 17).all()
    assert (warpgroup.mma(OPCODE, **given, scale_d=0).view(np.float32) == 16).all()
    given["d"][:] = 0x7FFFFFFF  # a NaN does not matter then
    assert (warpgroup.mma(OPCODE, **given, scale_d=False).view(np.float32) == 16).all()
    assert np.isnan(warpgroup.mma(OPCODE, **given).view(np.float32)).all()


def test_leading_dimensions_broadcast() -> None:
    rng = np.random.default_rng(5)
    given = simple()
    d = rng.normal(size=(3, 1, 128, 4)).astype(np.float32).view(np.uint32)
    memory = finite_codes(rng, "f16", (2, 128)).view(np.uint8)
    result = warpgroup.mma(OPCODE, d, given["a"][0], given["b"], memory=memory)
    assert result.shape == (3, 2, 128, 4)
    for i, j in np.ndindex(3, 2):
        np.testing.assert_array_equal(result[i, j], warpgroup.mma(OPCODE, d[i, 0], given["a"][0], given["b"], memory=memory[j]))
    assert warpgroup.mma(OPCODE, d[:0], given["a"][0], given["b"], memory=memory).shape == (0, 2, 128, 4)
    with pytest.raises(OperandError, match="do not broadcast"):
        warpgroup.mma(OPCODE, d[:, 0], given["a"][0], given["b"], memory=memory)
    assert (given["d"] == 0x3F800000).all()


WRONG: dict[str, tuple[type[FastmmaError], str, dict[str, Any]]] = {
    "mma opcode": (InstructionError, "takes wgmma.mma_async opcodes only", {"ins": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"}),
    "target": (TargetError, "sm_100a", {"target": "sm_100a"}),
    "scale_d": (OperandError, "scale_d must be 1 or 0, not 2", {"scale_d": 2}),
    "imm_scale_a": (OperandError, "imm_scale_a must be 1 or -1, not 0", {"imm_scale_a": 0}),
    "imm_scale_b": (OperandError, "imm_scale_b must be 1 or -1, not '1'", {"imm_scale_b": "1"}),
    "imm_trans_a of registers": (OperandError, "imm_trans_a must be 0, not 1", {"imm_trans_a": 1}),
    "imm_trans_b": (OperandError, "imm_trans_b must be 0 or 1, not -1", {"imm_trans_b": -1}),
    "metadata": (OperandError, "is not sparse and takes no metadata", {"metadata": np.zeros((1, 128), np.uint32)}),
    "selector": (OperandError, "selector must be 0 where A is dense", {"selector": 1}),
    "memory of floats": (OperandTypeError, "memory must be an array", {"memory": np.zeros(256)}),
    "memory of nothing": (OperandTypeError, "memory must be an array", {"memory": np.uint8(0)}),
    "ragged memory": (OperandTypeError, "memory must be an array", {"memory": [[1], [1, 2]]}),
    "short memory": (OperandError, "b: the descriptor reaches byte 255 of a memory of 255 bytes", {"memory": np.zeros(255, np.uint8)}),
    "far memory": (OperandError, "b: the descriptor reaches byte", {"b": Descriptor(1 << 16)}),
    "b in registers": (OperandTypeError, "b must be a matrix descriptor", {"b": np.zeros((128, 4), np.uint32)}),
    "b of 65 bits": (OperandTypeError, "b must be a matrix descriptor", {"b": 1 << 64}),
    "negative b": (OperandTypeError, "b must be a matrix descriptor", {"b": -1}),
    "b of a flag": (OperandTypeError, "b must be a matrix descriptor", {"b": True}),
    "a of a flag": (FastmmaError, "a must", {"a": True}),
    "a of floats": (OperandTypeError, "a must hold registers of dtype uint32", {"a": np.zeros((128, 4))}),
    "a of one warp": (OperandError, r"a must have shape \(..., 128, 4\)", {"a": np.zeros((32, 4), np.uint32)}),
    "short d": (OperandError, r"d must have shape \(..., 128, 4\)", {"d": np.zeros((128, 2), np.uint32)}),
    "backend": (fastmma.BackendError, "backend", {"backend": "gpu?"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    error, message, change = WRONG[name]
    given = {"ins": OPCODE, **simple(), **change}
    with pytest.raises(error, match=message):
        warpgroup.mma(given.pop("ins"), given.pop("d"), given.pop("a"), given.pop("b"), **given)


def test_operands_that_other_types_have_not() -> None:
    given = simple()
    given["memory"] = np.zeros(512, np.uint8)
    for opcode, change, message in (
        ("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8", {"imm_scale_a": -1}, "imm_scale_a must be 1, not -1"),
        ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", {"imm_trans_b": 1}, "imm_trans_b must be 0, not 1"),
        ("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32", {"a": Descriptor(0), "imm_trans_a": 1}, "imm_trans_a must be 0, not 1"),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", {}, "is sparse and needs metadata"),
    ):
        with pytest.raises(OperandError, match=message):
            warpgroup.mma(opcode, **{**given, **change})


def test_metadata_that_is_wrong() -> None:
    opcode = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    given = {**simple(), "memory": np.zeros(512, np.uint8)}
    good = sparse.pack_metadata(opcode, np.full((64, 8), 4))
    assert (warpgroup.mma(opcode, **given, metadata=good).view(np.float32) == 1).all()
    for word in (*sparsity.INVALID_WORDS, *sparsity.unordered_words()):
        bad = good.copy()
        bad[64] = bad[64] & ~np.uint32(15) | np.uint32(word)  # warp 2, its first row
        with pytest.raises(OperandError, match=rf"metadata: {word} at \(32, 0\) is no 2:4 index"):
            warpgroup.mma(opcode, **given, metadata=bad)
    with pytest.raises(OperandError, match="selector must be one of 0, 1, not 2"):
        warpgroup.mma(opcode, **given, metadata=good, selector=2)
    with pytest.raises(OperandError, match=r"must have shape \(..., 128\)"):
        warpgroup.mma(opcode, **given, metadata=good[:32])
