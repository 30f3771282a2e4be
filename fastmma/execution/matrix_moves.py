"""Moving matrices between shared memory and registers: ldmatrix, stmatrix and movmatrix.

Memory is an array of bytes, and addresses are byte offsets into it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.execution.shared_memory import expanded, gpu_target, move_on_gpu
from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.instruction import Movement
from fastmma.isa.table import movement
from fastmma.operands.check import leading_dimensions, register_words
from fastmma.shared.memory import memory_bytes

_LINE_BYTES = 16  # what one address of ldmatrix and stmatrix stands for


def _addresses(addresses: Any, move: Movement, size: int) -> NDArray[np.int64]:
    """Addresses (..., matrices, lines), checked."""
    array = as_array(addresses, f"{move}: addresses")
    if array.dtype.kind not in "ui":
        raise OperandTypeError(f"{move}: addresses must be integers, not {array.dtype}")
    if array.ndim < 1 or array.shape[-1] != move.lanes:
        raise OperandError(f"{move}: addresses must have shape (..., {move.lanes}), not {array.shape}")
    used = array[..., : move.num * move.lines]
    for problem, wrong in (
        (f"is not a multiple of {_LINE_BYTES}", used % _LINE_BYTES != 0),
        (f"is outside the memory of {size} bytes", (used < 0) | (used > size - _LINE_BYTES)),
    ):
        if wrong.any():
            where = tuple(int(index) for index in np.argwhere(wrong)[0])
            raise OperandError(f"{move}: the address of lane {where[-1]}, {int(used[where])}, {problem}")
    return used.astype(np.int64).reshape(*array.shape[:-1], move.num, move.lines)


def _all_lanes(places: NDArray[np.int64], move: Movement) -> NDArray[np.int64]:
    """Addresses (..., matrices, lines) as those of all lanes, zero where the instruction reads none."""
    flat = places.reshape(*places.shape[:-2], math.prod(places.shape[-2:]))
    return np.concatenate([flat, np.zeros((*flat.shape[:-1], move.lanes - flat.shape[-1]), np.int64)], axis=-1)


def _lines_to_elements(lines: NDArray[np.uint8], move: Movement) -> NDArray[Any]:
    """Lines of 16 bytes to elements as wide as their containers."""
    if move.source_bits == move.bits:
        elements: NDArray[Any] = lines.view(f"u{move.bits // 8}")
        return elements
    return expanded(lines, move.source_bits)


@public_call
@accepts_cupy
def ldmatrix(opcode: str | Movement, memory: Any, addresses: Any, *, backend: str = "numba") -> NDArray[np.uint32]:
    """Load matrices from shared memory into the registers of whole warps.

    Parameters
    ----------
    opcode : str
        For example ``"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"``.
    memory : uint8 array (..., bytes)
        Leading dimensions (warps) broadcast with those of `addresses`.
    addresses : integer array (..., 32)
        Byte offsets of rows, one a lane, multiples of 16. Those of lanes that the instruction does not read are ignored.
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        ``"cupy"`` executes the opcode on the GPU in the machine, with at most 48 KiB of memory; the others move bytes here.

    Returns
    -------
    uint32 array (..., 32, registers)

    Raises
    ------
    InstructionError, OperandError, OperandTypeError, BackendError, TargetError
        A misaligned address or one outside the memory names its lane.

    Notes
    -----
    PTX: Warp-level matrix load instruction: ldmatrix.

    Examples
    --------
    >>> memory = np.arange(128, dtype=np.uint8)
    >>> registers = ldmatrix("ldmatrix.sync.aligned.m8n8.x1.b16", memory, np.arange(32) % 8 * 16)
    >>> hex(registers[5, 0])
    '0x17161514'
    """
    move = movement(opcode, "ldmatrix")
    array = memory_bytes(memory, str(move))
    places = _addresses(addresses, move, array.shape[-1])
    lead = leading_dimensions(move, memory=array.shape[:-1], addresses=places.shape[:-2])
    if (target := gpu_target(backend)) is not None:
        empty = np.zeros((move.lanes, move.registers), np.uint32)
        return move_on_gpu(move, target, lead, array, _all_lanes(places, move), empty)[1]
    count = math.prod(lead)
    flat = np.broadcast_to(array, (*lead, array.shape[-1])).reshape(count, array.shape[-1])
    wanted = np.broadcast_to(places, (*lead, *places.shape[-2:])).reshape(count, move.num, move.lines)
    lines = flat[np.arange(count)[:, None, None, None], wanted[..., None] + np.arange(_LINE_BYTES)]
    elements = _lines_to_elements(lines, move)
    if move.trans:
        elements = elements.swapaxes(-1, -2)
    held = elements[..., move.layout.rows, move.layout.cols]  # (warps, matrices, lanes, elements)
    registers = np.ascontiguousarray(held).view(np.uint32).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(registers).reshape(*lead, move.lanes, move.registers)


@public_call
@accepts_cupy
def stmatrix(opcode: str | Movement, memory: Any, addresses: Any, registers: Any, *, backend: str = "numba") -> NDArray[np.uint8]:
    """Store matrices from the registers of whole warps to shared memory.

    Parameters
    ----------
    opcode : str
        For example ``"stmatrix.sync.aligned.m8n8.x2.shared.b16"``.
    memory : uint8 array (..., bytes)
        What is there before; it is not modified. Leading dimensions (warps) broadcast with those of `addresses` and `registers`.
    addresses : integer array (..., 32)
        Byte offsets of rows, one a lane, multiples of 16. Those of lanes that the instruction does not read are ignored. Where rows
        overlap, those of higher lanes win.
    registers : uint32 array (..., 32, registers)
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        ``"cupy"`` executes the opcode on the GPU in the machine, with at most 48 KiB of memory; the others move bytes here.

    Returns
    -------
    uint8 array (..., bytes)
        The memory afterwards, with the broadcast leading dimensions.

    Raises
    ------
    InstructionError, OperandError, OperandTypeError, BackendError, TargetError
        All are `fastmma.FastmmaError`. A misaligned address or one outside the memory names its lane.

    Notes
    -----
    PTX: Warp-level matrix store instruction: stmatrix.

    Examples
    --------
    >>> registers = np.arange(32, dtype=np.uint32).reshape(32, 1)
    >>> memory = stmatrix("stmatrix.sync.aligned.m8n8.x1.b16", np.zeros(128, np.uint8), np.arange(32) % 8 * 16, registers)
    >>> memory.view(np.uint32)[:8].tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    move = movement(opcode, "stmatrix")
    array = memory_bytes(memory, str(move))
    places = _addresses(addresses, move, array.shape[-1])
    given = register_words(registers, (move.lanes, move.registers), f"{move}: registers")
    lead = leading_dimensions(move, memory=array.shape[:-1], addresses=places.shape[:-2], registers=given.shape[:-2])
    if (target := gpu_target(backend)) is not None:
        return move_on_gpu(move, target, lead, array, _all_lanes(places, move), given)[0]
    count = math.prod(lead)
    result = np.array(np.broadcast_to(array, (*lead, array.shape[-1]))).reshape(count, array.shape[-1])
    per_matrix = move.registers // move.num
    held = np.broadcast_to(given, (*lead, *given.shape[-2:])).reshape(count, move.lanes, move.num, per_matrix)
    elements = np.ascontiguousarray(held.transpose(0, 2, 1, 3)).view(f"u{move.bits // 8}")
    matrices = np.empty((count, move.num, *move.layout.shape), dtype=elements.dtype)
    matrices[..., move.layout.rows, move.layout.cols] = elements
    lines = np.ascontiguousarray(matrices.swapaxes(-1, -2) if move.trans else matrices).view(np.uint8)
    wanted = np.broadcast_to(places, (*lead, *places.shape[-2:])).reshape(count, move.num, move.lines)
    warps = np.arange(count)[:, None]
    for matrix in range(move.num):
        for line in range(move.lines):
            result[warps, wanted[:, matrix, line, None] + np.arange(_LINE_BYTES)] = lines[:, matrix, line]
    return result.reshape(*lead, array.shape[-1])


@public_call
@accepts_cupy
def movmatrix(opcode: str | Movement, registers: Any, *, backend: str = "numba") -> NDArray[np.uint32]:
    """Transpose an 8 x 8 matrix of 16-bit elements across the registers of whole warps.

    Parameters
    ----------
    opcode : str
        ``"movmatrix.sync.aligned.m8n8.trans.b16"``.
    registers : uint32 array (..., 32)
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        ``"cupy"`` executes the opcode on the GPU in the machine; the others move bytes here.

    Returns
    -------
    uint32 array (..., 32)

    Raises
    ------
    InstructionError, OperandError, OperandTypeError, BackendError, TargetError
        All are `fastmma.FastmmaError`.

    Notes
    -----
    PTX: Warp-level matrix transpose instruction: movmatrix.

    Examples
    --------
    >>> once = movmatrix("movmatrix.sync.aligned.m8n8.trans.b16", np.arange(32, dtype=np.uint32))
    >>> movmatrix("movmatrix.sync.aligned.m8n8.trans.b16", once).tolist() == list(range(32))
    True
    """
    move = movement(opcode, "movmatrix")
    given = np.ascontiguousarray(register_words(registers, (move.lanes,), f"{move}: registers"))
    if (target := gpu_target(backend)) is not None:
        nothing, nowhere = np.zeros(_LINE_BYTES, np.uint8), np.zeros(move.lanes, np.int64)
        return move_on_gpu(move, target, given.shape[:-1], nothing, nowhere, given[..., None])[1][..., 0]
    layout = move.layout
    matrices = np.empty((*given.shape[:-1], *layout.shape), dtype=np.uint16)
    matrices[..., layout.rows, layout.cols] = given[..., None].view(np.uint16)
    return np.ascontiguousarray(matrices.swapaxes(-1, -2)[..., layout.rows, layout.cols]).view(np.uint32)[..., 0]
