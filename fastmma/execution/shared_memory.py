"""Shared memory as an array of bytes, the registers of warps beside it, and a movement between them on the GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.resolve import backend_of, resolved_target
from fastmma.host.arrays import as_array
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.instruction import Movement

LANES = 32


def memory_bytes(memory: Any, what: str) -> NDArray[np.uint8]:
    array = as_array(memory, f"{what}: memory")
    if array.dtype != np.uint8:
        raise OperandTypeError(f"{what}: memory must have dtype uint8, not {array.dtype}")
    if array.ndim < 1:
        raise OperandError(f"{what}: memory must have shape (..., bytes), not ()")
    return array


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
