"""tcgen05.ld, .st, .cp and .shift."""

from __future__ import annotations

import itertools
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import tensor_memory as facts
from reference.cases import cases
from reference.descriptor import byte_offset
from reference.ptxas import accepted, known_targets, needs_ptxas, registers, version

import fastmma
from fastmma import FastmmaError, InstructionError, Movement, OperandError, OperandTypeError, TargetError, tcgen05
from fastmma.isa.tcgen05.copies import COPIES, SHIFTS
from fastmma.isa.tcgen05.moves import MOVEMENTS

LOADS = [move for move in MOVEMENTS if move.op == "tcgen05.ld"]
STORES = [move for move in MOVEMENTS if move.op == "tcgen05.st"]
REDUCED = [move for move in MOVEMENTS if move.op == "tcgen05.ld.red"]
TARGETS = {"sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_107a", "sm_107f", "sm_110a", "sm_110f"}
X8 = "tcgen05.ld.sync.aligned.32x32b.x8.b32"


def random_words(*shape: int, seed: int = 1) -> NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(0, 1 << 32, shape, dtype=np.uint32)


def split_of(move: Movement) -> dict[str, int]:
    """An offset that keeps the halves apart."""
    return (
        {"half_split_offset": 131}
        if move.shape == "16x32bx2" and move.num < 128
        else {"half_split_offset": 256}
        if "bx2" in move.shape
        else {}
    )


@needs_ptxas
@pytest.mark.parametrize(
    "target", [target for target in ("sm_90a", "sm_100", "sm_100a", "sm_103f", "sm_110a", "sm_120a") if target in known_targets()]
)
def test_ptxas_takes_them(target: str, tmp_path: Path) -> None:
    statements: dict[str, tuple[str, tuple[str, ...]]] = {}
    for move in MOVEMENTS:
        vector, imm = registers("r", 0, move.registers), ", 16" * ("bx2" in move.shape)
        operands = f"[%r300]{imm}, {vector}" if move.op == "tcgen05.st" else f"{vector}, {'%r301, ' * (move in REDUCED)}[%r300]{imm}"
        statements[f"{move.opcode} {operands};"] = move.opcode, move.targets
    for copy in COPIES:
        statements[f"{copy.opcode} [%r300], %q0;"] = copy.opcode, copy.targets
    for shift in SHIFTS:
        statements[f"{shift.opcode} [%r300];"] = shift.opcode, shift.targets
    assert version() >= (8, 8)
    # all tcgen05 of a kernel agree on cta_group
    for group in ("", "cta_group::1", "cta_group::2"):
        texts = [text for text in statements if ("cta_group" not in text) == (not group) and group in text]
        verdicts = accepted(texts, target, tmp_path)
        assert {text: verdict for text, verdict in zip(texts, verdicts, strict=True) if verdict != (target in statements[text][1])} == {}


@pytest.mark.parametrize("shape", facts.SHAPES)
@pytest.mark.parametrize("packed", [False, True])
def test_ld(shape: str, packed: bool) -> None:
    tmem = random_words(2, 128, 512)
    for move in (each for each in LOADS if each.shape == shape and ("pack" in each.opcode) == packed):
        columns, _, _ = facts.SHAPES[shape]
        if columns * move.num * (2 if packed else 1) > 512:
            continue
        lane, column = (96, 0) if shape == "32x32b" else (80, 0)
        split = split_of(move)
        if packed and move.num == 128:
            split = dict.fromkeys(split, 512 - 256)
        found = tcgen05.ld(move.opcode, tmem, lane << 16 | column, **split)
        assert found.shape == (2, 32, move.registers)
        expected = np.zeros((2, 32, move.registers), np.uint32)
        for thread, register, half, row, col in facts.cells(shape, move.num, packed, *split.values()):
            cell = tmem[:, lane + row, column + col]
            expected[:, thread, register] |= (cell & np.uint32(0xFFFF)) << np.uint32(16 * half) if packed else cell
        np.testing.assert_array_equal(found, expected)


@cases("move", [move for move in STORES if move.num in (1, 2, 8)])
def test_st(move: Movement) -> None:
    packed, split = "unpack" in move.opcode, split_of(move)
    tmem, given = random_words(3, 128, 512), random_words(32, move.registers, seed=2)
    lane, column = (32, 17) if move.rows == 32 else (48, 17)
    found = tcgen05.st(move, tmem, lane << 16 | column, given, **split)
    expected = tmem.copy()
    for thread, register, half, row, col in facts.cells(move.shape, move.num, packed, *split.values()):
        word = int(given[thread, register])
        kept = expected[:, lane + row, column + col] & np.uint32(0xFFFF0000)
        expected[:, lane + row, column + col] = kept | np.uint32(word >> 16 * half & 0xFFFF) if packed else word
    np.testing.assert_array_equal(found, expected)


@cases("move", STORES)
def test_what_is_stored_is_loaded(move: Movement) -> None:
    columns, _, _ = facts.SHAPES[move.shape]
    wide = columns * move.num * 32 // move.bits
    if wide > 512:
        with pytest.raises(OperandError, match="outside the 128 lanes and 512 columns"):
            tcgen05.st(move, random_words(128, 512), 0, random_words(32, move.registers))
        return
    split = {"half_split_offset": wide} if "bx2" in move.shape else {}
    ones = tcgen05.st(move, np.zeros((128, 512), np.uint32), 0, np.full((32, move.registers), 0xFFFFFFFF, np.uint32), **split)
    reached = (move.rows, wide * (2 if split else 1))  # every cell of a rectangle, and no other
    assert np.argwhere(ones).tolist() == list(map(list, itertools.product(*map(range, reached))))
    given = random_words(4, 32, move.registers)
    load = move.opcode.replace(".st.", ".ld.").replace(".unpack", ".pack")
    where = np.arange(4) << 21
    tmem = tcgen05.st(move, random_words(128, 512), where, given, **split)
    np.testing.assert_array_equal(tcgen05.ld(load, tmem, where, **split), given)


def test_fragments_are_placed() -> None:
    for opcode in ("tcgen05.ld.sync.aligned.16x256b.x2.b32", "tcgen05.st.sync.aligned.16x128b.x2.unpack::16b.b32"):
        move = fastmma.instruction(opcode)
        held, packed = fastmma.placement(move, "r"), move.bits == 16
        for thread, register, half, row, col in facts.cells(move.shape, move.num, packed):
            cell = held.at(row, col % move.cols, col // move.cols)
            assert (cell.lane, cell.register, cell.bit) == (thread, register, 16 * half)


def test_warps_and_leading_dimensions() -> None:
    tmem = random_words(5, 2, 128, 512)
    warps = np.arange(4) * (32 << 16) + 7
    together = tcgen05.ld(X8, tmem, warps)
    assert together.shape == (5, 2, 4, 32, 8)
    for warp in range(4):
        np.testing.assert_array_equal(tcgen05.ld(X8, tmem, int(warps[warp])), together[:, :, warp])
    np.testing.assert_array_equal(together.reshape(5, 2, 128, 8), tmem[..., 7:15])
    several = tcgen05.ld(X8, tmem, np.stack([warps, warps + 1]))
    np.testing.assert_array_equal(several[:, 1], tcgen05.ld(X8, tmem, warps + 1)[:, 1])
    store = X8.replace(".ld.", ".st.")
    after = tcgen05.st(store, tmem[0, 0], warps, together)
    assert after.shape == (5, 2, 128, 512)
    np.testing.assert_array_equal(after[..., 7:15], tmem[..., 7:15])
    np.testing.assert_array_equal(after[..., 15:], np.broadcast_to(tmem[0, 0, :, 15:], (5, 2, 128, 497)))


def test_nothing_given_is_changed() -> None:
    tmem, given = random_words(128, 512), random_words(32, 8)
    copies = tmem.copy(), given.copy()
    tcgen05.st(X8.replace(".ld.", ".st."), tmem, 0, given)
    tcgen05.shift(SHIFTS[0].opcode, tmem, 0)
    tcgen05.cp(COPIES[0].opcode, tmem, 0, tcgen05.MatrixDescriptor(0, 128, 256), np.zeros(4096, np.uint8))
    np.testing.assert_array_equal(tmem, copies[0])
    np.testing.assert_array_equal(given, copies[1])


def as_float(code: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", code))[0])


def reduced(codes: list[int], move: Movement) -> int:
    """The least or greatest of some words, one after the other."""
    least, *qualifiers = move.reduction.split(".")
    if move.dtype != "f32":
        signed = [code - (1 << 32) if move.dtype == "s32" and code >> 31 else code for code in codes]
        return (min if least == "min" else max)(signed) % (1 << 32)
    if "abs" in qualifiers:
        codes = [code & 0x7FFFFFFF for code in codes]
    numbers = [code for code in codes if not math.isnan(as_float(code))]
    if not numbers or ("NaN" in qualifiers and len(numbers) < len(codes)):
        return 0x7FFFFFFF
    return (min if least == "min" else max)(numbers, key=lambda code: (as_float(code), -(code >> 31)))


@cases("move", [move for move in REDUCED if move.num in (2, 16)])
def test_ld_red(move: Movement) -> None:
    rng = np.random.default_rng(3)
    tmem = random_words(128, 512)
    special = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 1, 0x80000001, 0x3F800000, 0xBF800000], np.uint32)
    tmem[:, :200] = rng.choice(special, (128, 200))
    tmem[3, :40] = 0x7FC00000
    split = {"half_split_offset": 20} if "bx2" in move.shape else {}
    registers, least = tcgen05.ld_red(move, tmem, 5, **split)
    plain = f"tcgen05.ld.sync.aligned.{move.shape}.x{move.num}.b32"
    np.testing.assert_array_equal(registers, tcgen05.ld(plain, tmem, 5, **split))
    assert least.tolist() == [reduced(row, move) for row in registers.tolist()]


@cases("copy", COPIES)
def test_cp(copy: Any) -> None:
    shape = copy.opcode.removeprefix(f"tcgen05.cp.cta_group::{copy.cta_group}.").partition(".b8x16")[0]
    rows, columns, lanes_of = facts.COPIES[shape]
    rng = np.random.default_rng(4)
    ctas = (2,) if copy.cta_group == 2 else ()
    tmem, memory = random_words(3, *ctas, 128, 512), rng.integers(0, 256, (*ctas, 1 << 15), dtype=np.uint8)
    for swizzle in (0, 32, 64, 128):
        leading, stride = (144, 4096 // 8 + 16) if swizzle == 0 else (16, 1024)
        fields = {"address": 1024, "leading": leading, "stride": stride, "swizzle": swizzle}
        lane = 31 if shape == "4x256b" else 0
        found = tcgen05.cp(copy.opcode, tmem, lane << 16 | 300, tcgen05.MatrixDescriptor(**fields), memory)
        expected = tmem.copy()
        for cta in range(max(1, len(ctas) * 2)):
            source = memory[cta] if ctas else memory
            target = expected[:, cta] if ctas else expected
            for row, unit in itertools.product(range(rows), range(columns // 4)):
                place = byte_offset(row, 16 * unit, 8, **fields)
                words = np.frombuffer(facts.decompressed(source[place : place + 16].tobytes(), copy.source_bits), "<u4")
                for each in lanes_of(row):
                    target[:, lane + each, 300 + 4 * unit : 304 + 4 * unit] = words
        np.testing.assert_array_equal(found, expected)


def test_shift() -> None:
    tmem = random_words(2, 128, 512)
    found = tcgen05.shift("tcgen05.shift.cta_group::1.down", tmem, 64 << 16 | 100)
    expected = tmem.copy()
    for lane in range(64, 95):
        expected[:, lane, 100:108] = tmem[:, lane + 1, 100:108]
    np.testing.assert_array_equal(found, expected)
    pair = tcgen05.shift("tcgen05.shift.down.cta_group::2", tmem, 64 << 16 | 100)
    np.testing.assert_array_equal(pair, expected)


def test_shift_in_strict_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMMA_STRICT", "1")
    with pytest.raises(TargetError, match="direction is only reported"):
        tcgen05.shift("tcgen05.shift.cta_group::1.down", random_words(128, 512), 0)


T = random_words(128, 512)
SPLIT = "tcgen05.ld.sync.aligned.16x32bx2.x2.b32"
STORE = X8.replace(".ld.", ".st.")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tcgen05.ld(X8, T, 16 << 16), OperandError, "lane of the address must be a multiple of 32, not 16"),
        (lambda: tcgen05.ld(X8, T, 505), OperandError, "reaches lane 0, column 512, outside the 128 lanes and 512 columns"),
        (lambda: tcgen05.ld(X8, T, 512), OperandError, r"taddr: 0x00000200 \(lane 0, column 512\) is outside"),
        (lambda: tcgen05.ld(X8, T, 128 << 16), OperandError, r"taddr: 0x00800000 \(lane 128, column 0\) is outside"),
        (lambda: tcgen05.ld(X8, T, -1), OperandError, "taddr: .*is outside"),
        (lambda: tcgen05.ld(X8, T, 1 << 40), OperandError, "taddr: .*is outside"),
        (lambda: tcgen05.ld(X8, T, 0.5), OperandTypeError, "taddr must be an integer, not 0.5"),
        (lambda: tcgen05.ld(X8, T.astype(np.int64), 0), OperandTypeError, "tmem must have dtype uint32, not int64"),
        (lambda: tcgen05.ld(X8, T[:64], 0), OperandError, r"tmem must have shape \(..., 128, 512\), not \(64, 512\)"),
        (lambda: tcgen05.ld(X8, T, 0, half_split_offset=4), OperandError, "takes no half_split_offset"),
        (lambda: tcgen05.ld(SPLIT, T, 0), OperandError, "needs half_split_offset"),
        (lambda: tcgen05.ld(SPLIT, T, 0, half_split_offset="4"), OperandError, "half_split_offset must be an integer from -511 to 511"),  # type: ignore[arg-type]
        (lambda: tcgen05.ld(SPLIT, T, 0, half_split_offset=-1), OperandError, "reaches lane 0, column -1"),
        (lambda: tcgen05.ld(SPLIT, T, 8 << 16, half_split_offset=2), OperandError, "multiple of 16, not 8"),
        (
            lambda: tcgen05.st(SPLIT.replace(".ld.", ".st."), T, 3, random_words(32, 2), half_split_offset=1),
            OperandError,
            "two threads write lane 0, column 4",
        ),
        (lambda: tcgen05.st(STORE, T, np.array([0, 4]), random_words(2, 32, 8)), OperandError, "two threads write lane 0, column 4"),
        (lambda: tcgen05.st(STORE, T, 0, random_words(32, 4)), OperandError, r"registers must have shape \(..., 32, 8\), not \(32, 4\)"),
        (lambda: tcgen05.st(STORE, np.stack([T] * 3), 0, random_words(2, 32, 8)), OperandError, "leading dimensions do not broadcast"),
        (lambda: tcgen05.st(X8, T, 0, random_words(32, 8)), InstructionError, "the instruction is no tcgen05.st"),
        (lambda: tcgen05.ld(STORE, T, 0), InstructionError, "the instruction is no tcgen05.ld"),
        (lambda: tcgen05.ld_red(X8, T, 0), InstructionError, "the instruction is no tcgen05.ld.red"),
        (lambda: tcgen05.ld("tcgen05.ld.sync.aligned.16x128b.x128.b32", T, 0), InstructionError, ".16x128b takes .x1 to .x64. The nearest"),
        (lambda: tcgen05.ld("tcgen05.ld.sync.aligned.x1.b32", T, 0), InstructionError, "the shape is missing: one of 16x64b"),
        (lambda: tcgen05.ld("tcgen05.ld.sync.aligned.8x8b.x1.b32", T, 0), InstructionError, "there is no .8x8b"),
        (lambda: tcgen05.ld("tcgen05.ld.sync.aligned.32x32b.x1.unpack::16b.b32", T, 0), InstructionError, "do not go together"),
        (lambda: tcgen05.shift(SHIFTS[0].opcode, T, 8 << 16), OperandError, "multiple of 32, not 8"),
        (lambda: tcgen05.shift(SHIFTS[0].opcode, T, 505), OperandError, "reaches lane 0, column 512"),
        (lambda: tcgen05.shift(SHIFTS[0].opcode, T, np.array([0])), OperandError, "taddr must be one address"),
        (lambda: tcgen05.shift(SHIFTS[1].opcode, T, 0), OperandError, r"tmem must have shape \(..., 2, 128, 512\)"),
        (lambda: tcgen05.shift("tcgen05.shift.cta_group::1.up", T, 0), InstructionError, "it is no tcgen05.shift. The nearest"),
        (lambda: tcgen05.shift(COPIES[0].opcode, T, 0), InstructionError, "it is no tcgen05.shift"),
    ],
)
def test_errors(call: Any, error: type[FastmmaError], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def copied(**changes: Any) -> Any:
    given = {
        "opcode": "tcgen05.cp.cta_group::1.128x128b",
        "tmem": T,
        "taddr": 0,
        "descriptor": tcgen05.MatrixDescriptor(0, stride=128),
        "memory": np.zeros(2048, np.uint8),
    }
    return tcgen05.cp(**{**given, **changes})


def test_a_descriptor_may_be_a_word() -> None:
    memory = np.arange(2048, dtype=np.uint16).astype(np.uint8)
    word = tcgen05.MatrixDescriptor(0, stride=128).encode()
    np.testing.assert_array_equal(copied(memory=memory), copied(memory=memory, descriptor=word))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"memory": np.zeros(2047, np.uint8)}, OperandError, "reaches byte 2047 of a memory of 2047 bytes"),
        ({"memory": np.zeros(2048, np.int8)}, OperandTypeError, "memory must have dtype uint8"),
        ({"taddr": 1 << 16}, OperandError, "reaches lane 128, column 0"),
        ({"taddr": 509}, OperandError, "reaches lane 0, column 512"),
        ({"descriptor": None}, OperandTypeError, "descriptor must be a MatrixDescriptor or its 64 bits, not NoneType"),
        ({"descriptor": 0}, OperandError, "descriptor: bits 46 to 48 of a descriptor of tcgen05 must be 1"),
        (
            {"opcode": "tcgen05.cp.cta_group::1.64x128b"},
            InstructionError,
            "it is no tcgen05.cp. The nearest are tcgen05.cp.cta_group::1.64x128b.warpx2",
        ),
        ({"opcode": 5}, InstructionError, "an opcode must be a string"),
        (
            {"opcode": "tcgen05.cp.cta_group::2.128x128b", "tmem": np.stack([T, T])},
            OperandError,
            r"memory must have shape \(..., 2, bytes\)",
        ),
    ],
)
def test_errors_of_cp(changes: dict[str, Any], error: type[FastmmaError], message: str) -> None:
    with pytest.raises(error, match=message):
        copied(**changes)
