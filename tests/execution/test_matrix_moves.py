"""ldmatrix, stmatrix and movmatrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import movement as facts

import fastmma
from fastmma import FastmmaError, InstructionError, Movement, OperandError, OperandTypeError, warp

BYTES = 2048


def moves(op: str) -> list[Movement]:
    return [move for move in fastmma.instructions(op=op) if isinstance(move, Movement)]


SIGNED = [move for move in moves("ldmatrix") if move.unknown]
LDMATRIX, STMATRIX, MOVMATRIX = (
    [move for move in moves("ldmatrix") if not move.unknown],
    moves("stmatrix"),
    "movmatrix.sync.aligned.m8n8.trans.b16",
)


def parts(opcode: str) -> tuple[str, int, bool, str]:
    """Shape, num, whether .trans is there, and the last token."""
    tokens = opcode.split(".")
    return tokens[3], int(tokens[4][1:]), "trans" in tokens, tokens[-1]


def random_memory(rng: np.random.Generator, *lead: int) -> NDArray[np.uint8]:
    return rng.integers(0, 256, (*lead, BYTES), dtype=np.uint8)


def random_addresses(rng: np.random.Generator, *lead: int) -> NDArray[np.int64]:
    """32 different rows of 16 bytes."""
    return 16 * rng.permuted(np.broadcast_to(np.arange(BYTES // 16), (*lead, BYTES // 16)), axis=-1)[..., :32]


def random_registers(rng: np.random.Generator, *shape: int) -> NDArray[np.uint32]:
    return rng.integers(0, 1 << 32, shape, dtype=np.uint32)


def test_signed_4_bit_elements_are_known_and_refused() -> None:
    assert [move.opcode for move in SIGNED] == [f"ldmatrix.sync.aligned.m8n16.x{num}.s8.s4" for num in (1, 2, 4)]
    for move in SIGNED:
        assert (move.ptx, move.registers) == ((9, 4), move.num)
        assert "sm_90" not in move.targets
        assert {"sm_90a", "sm_107f", "sm_121a"} <= set(move.targets)
        with pytest.raises(InstructionError, match="not documented, so there is nothing to emulate"):
            warp.ldmatrix(move, np.zeros(BYTES, np.uint8), np.zeros(32, np.int64))


@pytest.mark.parametrize("move", LDMATRIX, ids=str)
def test_ldmatrix(move: Movement) -> None:
    rng = np.random.default_rng(1)
    shape, num, trans, source = parts(move.opcode)
    memory, addresses = random_memory(rng, 3), random_addresses(rng, 3)
    result = warp.ldmatrix(move.opcode, memory, addresses)
    assert result.dtype == np.uint32
    assert result.shape == (3, 32, move.registers)
    for i in range(3):
        expected = facts.ldmatrix(memory[i].tobytes(), addresses[i].tolist(), shape, num, trans, source)
        assert result[i].tolist() == expected
        np.testing.assert_array_equal(warp.ldmatrix(move, memory[i], addresses[i]), result[i])


@pytest.mark.parametrize("move", STMATRIX, ids=str)
def test_stmatrix(move: Movement) -> None:
    rng = np.random.default_rng(2)
    shape, num, trans, _ = parts(move.opcode)
    memory, addresses, registers = random_memory(rng, 3), random_addresses(rng, 3), random_registers(rng, 3, 32, move.registers)
    addresses[2] = 16 * rng.integers(0, 5, 32)  # where rows overlap, the higher lane wins
    before = memory.copy()
    result = warp.stmatrix(move.opcode, memory, addresses, registers)
    np.testing.assert_array_equal(memory, before)
    assert result.dtype == np.uint8
    for i in range(3):
        expected = facts.stmatrix(memory[i].tobytes(), addresses[i].tolist(), registers[i].tolist(), shape, num, trans)
        assert result[i].tobytes() == expected
        np.testing.assert_array_equal(warp.stmatrix(move, memory[i], addresses[i], registers[i]), result[i])


def test_movmatrix() -> None:
    registers = random_registers(np.random.default_rng(6), 2, 3, 32)
    result = warp.movmatrix(MOVMATRIX, registers)
    assert result.dtype == np.uint32
    for index in np.ndindex(2, 3):
        assert result[index].tolist() == facts.movmatrix(registers[index].tolist())
    np.testing.assert_array_equal(warp.movmatrix(MOVMATRIX, result), registers)
    np.testing.assert_array_equal(warp.movmatrix(MOVMATRIX, registers.astype(">u4")[::-1, :, :]), result[::-1])


@pytest.mark.parametrize("move", [LDMATRIX[0], LDMATRIX[-1], STMATRIX[3], STMATRIX[-1]], ids=str)
def test_leading_dimensions_broadcast(move: Movement) -> None:
    rng = np.random.default_rng(9)
    memory, addresses = random_memory(rng, 4, 1), random_addresses(rng, 3)
    registers = random_registers(rng, 2, 1, 1, 32, move.registers)

    def execute(memory: Any, addresses: Any, registers: Any) -> Any:
        if move.op == "ldmatrix":
            return warp.ldmatrix(move, memory, addresses)
        return warp.stmatrix(move, memory, addresses, registers)

    result = execute(memory, addresses, registers)
    assert result.shape[: -1 if move.op == "stmatrix" else -2] == ((2, 4, 3) if move.op == "stmatrix" else (4, 3))
    for i, j in np.ndindex(4, 3):
        single = execute(memory[i, 0], addresses[j], registers[1, 0, 0])
        np.testing.assert_array_equal(result[(1, i, j) if move.op == "stmatrix" else (i, j)], single)
    assert execute(memory[:0], addresses, registers).size == 0
    with pytest.raises(OperandError, match="the leading dimensions do not broadcast: memory"):
        execute(random_memory(rng, 2), addresses, registers)


@pytest.mark.parametrize("move", [*LDMATRIX, *STMATRIX], ids=str)
def test_addresses_that_are_wrong_name_their_lane(move: Movement) -> None:
    rng = np.random.default_rng(10)
    memory, good = random_memory(rng), random_addresses(rng, 2)
    registers = random_registers(rng, 32, move.registers)

    def execute(addresses: NDArray[Any], size: int = BYTES) -> None:
        if move.op == "ldmatrix":
            warp.ldmatrix(move, memory[:size], addresses)
        else:
            warp.stmatrix(move, memory[:size], addresses, registers)

    used = parts(move.opcode)[1] * (16 if "m16n16" in move.opcode else 8)
    for lane in (0, used - 1):
        for address, problem in (
            *((bad, "is not a multiple of 16") for bad in (8, 1, 17, BYTES - 1)),
            *((bad, "is outside the memory of 2048 bytes") for bad in (BYTES, -16, 1 << 40)),
        ):
            addresses = good.copy()
            addresses[1, lane] = address
            with pytest.raises(OperandError, match=f"the address of lane {lane}, {address}, {problem}") as caught:
                execute(addresses)
            assert str(caught.value).startswith(move.opcode)
    good[:, used:] = -1  # those of other lanes do not matter
    execute(good)
    with pytest.raises(OperandError, match="outside the memory of 0 bytes"):
        execute(good, 0)


def test_types_and_shapes() -> None:
    opcode, store = "ldmatrix.sync.aligned.m8n8.x1.b16", "stmatrix.sync.aligned.m8n8.x1.b16"
    memory, addresses, registers = np.zeros(512, np.uint8), np.arange(32) * 16, np.zeros((32, 1), np.uint32)
    for kind in (np.uint8, np.int16, np.uint64):
        assert warp.ldmatrix(opcode, memory, (addresses % 128).astype(kind)).shape == (32, 1)
    wrong: list[tuple[type[FastmmaError], str, Any]] = [
        (OperandTypeError, "memory must have dtype uint8, not int8", lambda: warp.ldmatrix(opcode, memory.view(np.int8), addresses)),
        (OperandError, r"memory must have shape \(..., bytes\)", lambda: warp.ldmatrix(opcode, np.uint8(0), addresses)),
        (OperandTypeError, "addresses must be integers, not float64", lambda: warp.ldmatrix(opcode, memory, addresses * 1.0)),
        (OperandError, r"addresses must have shape \(..., 32\), not \(31,\)", lambda: warp.ldmatrix(opcode, memory, addresses[:31])),
        (OperandError, r"addresses must have shape \(..., 32\), not \(\)", lambda: warp.ldmatrix(opcode, memory, 0)),
        (OperandTypeError, "registers must have dtype uint32", lambda: warp.stmatrix(store, memory, addresses, registers.view(np.int32))),
        (OperandError, r"registers must have shape \(..., 32, 1\)", lambda: warp.stmatrix(store, memory, addresses, registers[:, 0])),
        (OperandTypeError, "registers must have dtype uint32", lambda: warp.movmatrix(MOVMATRIX, np.zeros(32))),
        (OperandError, r"registers must have shape \(..., 32\)", lambda: warp.movmatrix(MOVMATRIX, registers)),
        (InstructionError, "is no ldmatrix", lambda: warp.ldmatrix(store, memory, addresses)),
        (InstructionError, "is no stmatrix", lambda: warp.stmatrix(opcode, memory, addresses, registers)),
        (InstructionError, "is no movmatrix", lambda: warp.movmatrix("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", registers)),
        (InstructionError, "moves matrices and multiplies nothing", lambda: warp.mma(opcode, 0, 0, 0, target="sm_90a")),
    ]
    for error, message, call in wrong:
        with pytest.raises(error, match=message):
            call()
