"""wmma: fragments as an H200 has them, loads and stores, products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.cases import cases
from reference.operands import matrices, multiplied

import fastmma
from fastmma import FORMATS, Instruction, Movement, OperandError, OperandTypeError, TargetError, warp

LOADS = [move for move in fastmma.instructions(op="wmma.load") if isinstance(move, Movement)]
STORES = [move for move in fastmma.instructions(op="wmma.store") if isinstance(move, Movement)]
PRODUCTS = [ins for ins in fastmma.instructions(op="wmma") if isinstance(ins, Instruction)]
# measured on an H200, element by element
with np.load(Path(__file__).parents[1] / "reference" / "wmma_fragments.npz") as archive:
    FRAGMENTS = dict(archive)


def measured(move: Movement) -> NDArray[np.int64]:
    """For loads the place in dense memory of each (lane, element), for stores the register element of each place."""
    known = FRAGMENTS.get(move.opcode)
    if known is None:  # f32 with the shapes of 4-bit and 1-bit types lies as s32 does
        assert move.opcode.endswith("f32")
        known = FRAGMENTS[move.opcode.replace(".f32", ".s32")]
    return known.astype(np.int64)


def sizes(move: Movement) -> tuple[int, int]:
    """Lines in memory (rows or columns) and elements of one."""
    m, n, k = (int(part) for part in move.opcode.split(".m")[1].split(".")[0].replace("n", " ").replace("k", " ").split())
    rows, columns = {"a": (m, k), "b": (k, n)}.get(move.opcode.split(".")[2], (m, n))
    return (rows, columns) if ".row." in move.opcode else (columns, rows)


def width(move: Movement) -> int:
    return FORMATS[move.opcode.split(".")[-1]].bits


def legal_step(move: Movement) -> int:
    """Elements of which a stride is a multiple: the fragment's size or 16 bytes."""
    per_lane = move.registers * (8 if width(move) == 64 else 4)
    return min(per_lane, 16) * 8 // width(move)


def unpack(memory: NDArray[np.uint8], bits: int) -> NDArray[Any]:
    """Elements of the last axis, one an entry."""
    if bits >= 8:
        return memory.view(f"u{bits // 8}")
    flat = np.unpackbits(memory, axis=-1, bitorder="little")
    return (flat.reshape(*flat.shape[:-1], -1, bits) << np.arange(bits)).sum(axis=-1).astype(np.uint8)


def pack(elements: NDArray[Any], bits: int) -> NDArray[Any]:
    """Elements of the last axis to registers."""
    if bits >= 8:
        return np.ascontiguousarray(elements).view(np.uint64 if bits == 64 else np.uint32)
    spread = (elements[..., None] >> np.arange(bits)) & 1
    return np.packbits(spread.reshape(*elements.shape[:-1], -1).astype(np.uint8), axis=-1, bitorder="little").view(np.uint32)


def strides(move: Movement) -> list[int | None]:
    line, step = sizes(move)[1], legal_step(move)
    return [None, line, *(stride for stride in (line + step, 3 * line) if stride * width(move) % 8 == 0)]


def memory_for(move: Movement, stride: int | None, *lead: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Random memory of exactly the size that is needed, and the element offset of each place of the dense matrix."""
    lines, line = sizes(move)
    offsets = (np.arange(lines)[:, None] * (stride or line) + np.arange(line)).ravel()
    size = ((lines - 1) * (stride or line) + line) * width(move) // 8
    return np.random.default_rng(1).integers(0, 256, (*lead, size), dtype=np.uint8), offsets


def test_the_fragments_of_every_opcode_were_measured() -> None:
    for move in (*LOADS, *STORES):
        assert measured(move).size
    assert set(FRAGMENTS) <= {move.opcode for move in (*LOADS, *STORES)}


@cases("move", LOADS)
def test_load(move: Movement) -> None:
    for stride in strides(move):
        memory, offsets = memory_for(move, stride, 2, 3)
        result = warp.wmma_load(move.opcode, memory, stride=stride, target="sm_90a")
        expected = pack(unpack(memory, width(move))[..., offsets[measured(move)]], width(move))
        assert result.shape == (2, 3, 32, move.registers)
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype
        none = warp.wmma_load(move.opcode, memory[:0], stride=stride, target="sm_90a")
        assert (none.shape, none.dtype) == ((0, 3, 32, move.registers), expected.dtype)


@cases("move", STORES)
def test_store(move: Movement) -> None:
    rng = np.random.default_rng(2)
    dtype = np.uint64 if width(move) == 64 else np.uint32
    registers = rng.integers(0, 1 << 8 * dtype().itemsize, (3, 32, move.registers), dtype=dtype)
    for stride in strides(move):
        memory, offsets = memory_for(move, stride)
        before = memory.copy()
        result = warp.wmma_store(move.opcode, memory, registers, stride=stride, target="sm_90a")
        assert result.shape == (3, len(memory))
        np.testing.assert_array_equal(memory, before)
        for one, held in zip(result, registers, strict=True):
            expected = unpack(memory, width(move)).copy()
            expected[offsets] = unpack(held.reshape(-1).view(np.uint8), width(move))[measured(move)]
            np.testing.assert_array_equal(unpack(one, width(move)), expected)


@cases("move", [*LOADS, *STORES])
def test_strides_that_are_wrong(move: Movement) -> None:
    lines, line = sizes(move)
    memory, registers = np.zeros(1 << 16, np.uint8), np.zeros((32, move.registers), np.uint64 if width(move) == 64 else np.uint32)

    def execute(stride: Any, memory: NDArray[np.uint8] = memory) -> None:
        if move.op == "wmma.load":
            warp.wmma_load(move, memory, stride=stride, target="sm_90a")
        else:
            warp.wmma_store(move, memory, registers, stride=stride, target="sm_90a")

    for bad in (line - 1, 0, -line, 1.5, "16", True):
        with pytest.raises(OperandError, match=f"stride must be an integer of at least {line} elements") as caught:
            execute(bad)
        assert str(caught.value).startswith(move.opcode)
    if legal_step(move) > 1:
        with pytest.raises(OperandError, match=f"the stride must be a multiple of {legal_step(move)} elements"):
            execute(line * legal_step(move) + 1)
    stride = 2 * line
    needed = ((lines - 1) * stride + line) * width(move) // 8
    execute(np.int16(stride), memory[:needed])
    with pytest.raises(
        OperandError, match=f"memory must have at least {needed} bytes with a stride of {stride} elements, not {needed - 1}"
    ):
        execute(stride, memory[: needed - 1])


def test_memory_may_be_longer_and_of_any_strides() -> None:
    opcode = "wmma.load.a.sync.aligned.row.m16n16k16.f16"
    memory = np.random.default_rng(3).integers(0, 256, (2, 1001), dtype=np.uint8)
    expected = warp.wmma_load(opcode, memory[:, :512].copy(), target="sm_90a")
    np.testing.assert_array_equal(warp.wmma_load(opcode, memory, target="sm_90a"), expected)
    backwards = memory[:, ::-1].copy()
    np.testing.assert_array_equal(warp.wmma_load(opcode, backwards[:, ::-1], target="sm_90a"), expected)
    stored = warp.wmma_store("wmma.store.d.sync.aligned.row.m16n16k16.f16", memory, expected[..., :4], target="sm_90a")
    np.testing.assert_array_equal(stored[:, 512:], memory[:, 512:])
    assert warp.wmma_store("wmma.store.d.sync.aligned.row.m16n16k16.f16", memory[:0], expected[:0, :, :4], target="sm_90a").shape == (
        0,
        1001,
    )


def test_errors_of_moves() -> None:
    load, store = "wmma.load.c.sync.aligned.row.m16n16k16.f32", "wmma.store.d.sync.aligned.row.m16n16k16.f32"
    memory, registers = np.zeros(1024, np.uint8), np.zeros((32, 8), np.uint32)
    with pytest.raises(OperandTypeError, match="memory must have dtype uint8"):
        warp.wmma_load(load, memory.view(np.float32), target="sm_90a")
    with pytest.raises(OperandError, match=r"registers must have shape \(..., 32, 8\)"):
        warp.wmma_store(store, memory, registers[:, :4], target="sm_90a")
    with pytest.raises(OperandTypeError, match="registers must have dtype uint32"):
        warp.wmma_store(store, memory, registers.view(np.float32), target="sm_90a")
    with pytest.raises(OperandError, match="do not broadcast"):
        warp.wmma_store(store, np.zeros((2, 1024), np.uint8), np.zeros((3, 32, 8), np.uint32), target="sm_90a")
    with pytest.raises(fastmma.InstructionError, match=r"is no wmma\.load"):
        warp.wmma_load(store, memory, target="sm_90a")
    for target in ("sm_70", "sm_75"):
        with pytest.raises(TargetError, match="PTX leaves the fragments of wmma unspecified"):
            warp.wmma_load(load, memory, target=target)
    with pytest.raises(TargetError, match="illegal on sm_75"):
        warp.wmma_load("wmma.load.a.sync.aligned.row.m16n16k16.bf16", memory, target="sm_75")
    with pytest.raises(TargetError, match="unknown target"):
        warp.wmma_load(load, memory, target="sm_1")


def moved(opcode: str, codes: NDArray[Any], bits: int) -> NDArray[Any]:
    """Codes to memory as the load wants it, and from there to registers."""
    lines = np.ascontiguousarray(codes if ".row." in opcode else codes.T)
    flat = lines.reshape(-1) if bits >= 8 else pack(lines.reshape(-1).astype(np.uint8), bits)
    return warp.wmma_load(opcode, flat.view(np.uint8), target="sm_90a")


@cases(("index", "ins"), list(enumerate(PRODUCTS)))
def test_load_multiply_store_is_the_product_of_matrices(index: int, ins: Instruction) -> None:
    given = matrices(ins, index)
    layouts = {"a": ins.alayout, "b": ins.blayout, "c": ("row", "col")[index % 2]}
    formats = {"a": ins.atype, "b": ins.btype, "c": ins.ctype}
    registers = {
        name: moved(f"wmma.load.{name}.sync.aligned.{layouts[name]}.{ins.shape}.{formats[name]}", codes, FORMATS[formats[name]].bits)
        for name, codes in given.items()
    }
    d = warp.mma(ins, registers["a"], registers["b"], registers["c"], target="sm_90a")
    width = FORMATS[ins.dtype].bits // 8
    memory = warp.wmma_store(
        f"wmma.store.d.sync.aligned.row.{ins.shape}.{ins.dtype}", np.zeros(ins.m * ins.n * width, np.uint8), d, target="sm_90a"
    )
    np.testing.assert_array_equal(memory.view(f"u{width}"), multiplied(ins, given, "sm_90a").reshape(-1))


def test_registers_on_targets_whose_fragments_are_unknown() -> None:
    opcode = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
    registers = np.zeros((32, 8), np.uint32)
    with pytest.raises(TargetError, match="use matrices"):
        warp.mma(opcode, registers, registers, registers, target="sm_70")
    assert (
        fastmma.mma(
            opcode, np.ones((16, 16), np.float16), np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32), target="sm_70"
        ).max()
        == 16
    )
