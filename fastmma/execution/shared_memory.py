"""Shared memory as an array of bytes, the registers of warps beside it, and a movement between them on the GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.resolve import backend_of, resolved_target
from fastmma.host.errors import OperandError
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.formats import Format
from fastmma.isa.instruction import Movement
from fastmma.shared.packing import UNIT, unpacked

_EXPANDED_SHIFT = {6: 0, 4: 2}


def expanded(units: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The bytes that ldmatrix and tcgen05.cp make of such units: codes of 4 bits go where mma reads them, into the central bits."""
    return np.asarray(unpacked(units, bits) << np.uint8(_EXPANDED_SHIFT[bits]))


def matrix_in_memory(
    memory: NDArray[np.uint8], descriptor: Descriptor, outer: int, k: int, fmt: Format, mn_major: bool, what: str, bits: int = 0
) -> NDArray[Any]:
    """Codes (..., outer, k) of an operand in shared memory; `bits` is the width of their containers where it is another than theirs."""
    bits = bits or fmt.bits
    try:
        places = descriptor.offsets(outer, k, bits, mn_major=mn_major)
    except OperandError as error:
        raise OperandError(f"{what}: {error}") from None
    width = max(1, bits // 8)
    size = memory.shape[-1]
    if places.max() + width > size:
        raise OperandError(f"{what}: the descriptor reaches byte {int(places.max()) + width - 1} of a memory of {size} bytes")
    if bits < 8:
        return (memory[..., places] >> (np.arange(k) * bits % 8).astype(np.uint8)) & np.uint8((1 << bits) - 1)
    if bits != fmt.bits:  # narrow codes are packed within units of 16 bytes
        units = memory[..., places].reshape(*memory.shape[:-1], outer, k // UNIT, UNIT)
        return unpacked(units, fmt.bits).reshape(*memory.shape[:-1], outer, k)
    raw = np.ascontiguousarray(memory[..., places[..., None] + np.arange(width)])
    return np.asarray(raw.view(fmt.code_dtype)[..., 0])


def gpu_target(backend: str) -> str | None:
    """The target of the GPU that is to move the data, or None where it is moved here: copies of bytes are the same in every backend.

    Raises
    ------
    BackendError, TargetError
    """
    return resolved_target("native") if backend_of(backend).raw is not None else None


def move_on_gpu(
    move: Movement,
    target: str,
    lead: tuple[int, ...],
    memory: NDArray[np.uint8],
    addresses: NDArray[Any],
    registers: NDArray[Any],
    stride: int | None = None,
) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Execute the real opcode once a warp: memory (..., bytes) and registers (..., 32, registers) afterwards.

    `addresses` are (..., 32) byte offsets. Leading dimensions broadcast to `lead`.
    """
    from fastmma.backends.gpu import raw

    count = math.prod(lead)

    def flat(array: NDArray[Any], keep: int) -> NDArray[Any]:
        tail = array.shape[array.ndim - keep :]
        return np.ascontiguousarray(np.broadcast_to(array, (*lead, *tail))).reshape(count, *tail)

    after, held = raw.move(move, target, flat(memory, 1), flat(addresses, 1), flat(registers, 2), stride=stride)
    return after.reshape(*lead, after.shape[-1]), held.reshape(*lead, *held.shape[1:])
