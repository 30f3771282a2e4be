"""Moving wmma operands between memory and registers: wmma.load and wmma.store. Memory is an array of bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.backends.resolve import backend_of, resolved_target
from fastmma.execution.shared_memory import move_on_gpu
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError
from fastmma.host.integers import integer
from fastmma.isa.instruction import Movement
from fastmma.isa.table import movement
from fastmma.numerics.lookup import fragment_evidence
from fastmma.operands.check import leading_dimensions, register_words
from fastmma.shared.memory import memory_bytes

_LINE_BYTES = 16  # the widest access of a lane


def _stride(move: Movement, stride: Any, size: int) -> int:
    """The stride in elements between rows (columns, if column-major), checked against the memory's size."""
    row_major = move.layout_in_memory == "row"
    least = move.cols if row_major else move.rows
    count = move.rows if row_major else move.cols
    if stride is None:
        stride = least
    elements = integer(stride, f"{move}: stride", least, "elements")
    aligned = min(move.registers * move.layout.register_bits // 8, _LINE_BYTES)
    step = 8 * aligned // move.bits
    if elements % step:
        raise OperandError(f"{move}: the stride must be a multiple of {step} elements ({aligned} bytes), not {elements}")
    needed = ((count - 1) * elements + least) * move.bits // 8
    if size < needed:
        raise OperandError(f"{move}: memory must have at least {needed} bytes with a stride of {elements} elements, not {size}")
    return elements


def _positions(move: Movement, stride: int) -> NDArray[np.intp]:
    """Element offset in memory of each (lane, element)."""
    layout = move.layout
    if move.layout_in_memory == "row":
        return layout.rows * stride + layout.cols
    return layout.cols * stride + layout.rows


@public_call
@accepts_cupy
def wmma_load(opcode: str | Movement, memory: Any, *, stride: int | None = None, target: str, backend: str = "numba") -> NDArray[Any]:
    """Load a wmma operand: the matrix at offset 0 of memory into the registers of whole warps.

    Parameters
    ----------
    opcode : str
        For example ``"wmma.load.a.sync.aligned.row.m16n16k16.f16"``.
    memory : uint8 array (..., bytes)
    stride : int, optional
        Elements between the starts of rows (columns if column-major); by default the matrix is dense. A multiple of the smaller of the
        fragment's size and 16 bytes.
    target : str
        PTX leaves the fragments unspecified: they are those of this target's silicon (measured on sm_90).
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        ``"cupy"`` executes the opcode on the GPU in the machine, from global memory; the others move bytes here.

    Returns
    -------
    uint32 array (..., 32, registers), uint64 for f64

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Notes
    -----
    PTX: Warp-level Matrix Load Instruction: wmma.load.

    Examples
    --------
    >>> memory = np.arange(256, dtype=np.float16).view(np.uint8)
    >>> wmma_load("wmma.load.a.sync.aligned.row.m16n16k16.f16", memory, target="sm_90a").shape
    (32, 8)
    """
    move = movement(opcode, "wmma.load")
    runner = backend_of(backend)
    target = resolved_target(target)
    fragment_evidence(move, target)
    array = np.ascontiguousarray(memory_bytes(memory, str(move)))
    elements = _stride(move, stride, array.shape[-1])
    places = _positions(move, elements)
    dtype = f"u{move.layout.register_bits // 8}"
    if runner.raw is not None:
        empty = np.zeros((move.lanes, move.registers), dtype)
        return move_on_gpu(move, target, array.shape[:-1], array, np.zeros(move.lanes, np.int64), empty, elements)[1]
    if move.bits >= 8:
        whole = array[..., : array.shape[-1] // (move.bits // 8) * (move.bits // 8)]
        held = np.ascontiguousarray(whole).view(f"u{move.bits // 8}")[..., places]
        return np.ascontiguousarray(held).view(dtype)
    per_byte = 8 // move.bits
    held = (array[..., places // per_byte] >> (places % per_byte * move.bits).astype(np.uint8)) & np.uint8((1 << move.bits) - 1)
    per_register = 32 // move.bits
    grouped = held.reshape(*held.shape[:-1], held.shape[-1] // per_register, per_register).astype(np.uint32)
    packed: NDArray[Any] = np.bitwise_or.reduce(grouped << (move.bits * np.arange(per_register, dtype=np.uint32)), axis=-1)
    return packed


@public_call
@accepts_cupy
def wmma_store(
    opcode: str | Movement, memory: Any, registers: Any, *, stride: int | None = None, target: str, backend: str = "numba"
) -> NDArray[np.uint8]:
    """Store a wmma result to the matrix at offset 0 of memory.

    Parameters
    ----------
    opcode : str
        For example ``"wmma.store.d.sync.aligned.row.m16n16k16.f32"``.
    memory : uint8 array (..., bytes)
        What is there before; it is not modified.
    registers : uint32 array (..., 32, registers), uint64 for f64
    stride : int, optional
        Elements between the starts of rows (columns if column-major); by default the matrix is dense. A multiple of the smaller of the
        fragment's size and 16 bytes.
    target : str
        PTX leaves the fragments unspecified: they are those of this target's silicon (measured on sm_90).
    backend : {"numba", "reference", "cupy", "cupy-emulate"}
        ``"cupy"`` executes the opcode on the GPU in the machine, on global memory; the others move bytes here.

    Returns
    -------
    uint8 array (..., bytes)
        The memory afterwards, with the broadcast leading dimensions.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError, BackendError
        All are `fastmma.FastmmaError`.

    Notes
    -----
    PTX: Warp-level Matrix Store Instruction: wmma.store.

    Examples
    --------
    >>> d = np.zeros((32, 8), dtype=np.uint32)
    >>> wmma_store("wmma.store.d.sync.aligned.row.m16n16k16.f32", np.ones(1024, np.uint8), d, target="sm_90a").max()
    np.uint8(0)
    """
    move = movement(opcode, "wmma.store")
    runner = backend_of(backend)
    target = resolved_target(target)
    fragment_evidence(move, target)
    array = memory_bytes(memory, str(move))
    dtype = np.dtype(f"u{move.layout.register_bits // 8}")
    given = register_words(registers, (move.lanes, move.registers), f"{move}: registers", dtype)
    pitch = _stride(move, stride, array.shape[-1])
    places = _positions(move, pitch)
    lead = leading_dimensions(move, memory=array.shape[:-1], registers=given.shape[:-2])
    if runner.raw is not None:
        return move_on_gpu(move, target, lead, array, np.zeros(move.lanes, np.int64), given, pitch)[0]
    result = np.array(np.broadcast_to(array, (*lead, array.shape[-1])), order="C")
    width = move.bits // 8
    elements = np.ascontiguousarray(np.broadcast_to(given, (*lead, *given.shape[-2:]))).view(f"u{width}")
    flat = result.reshape(math.prod(lead), result.shape[-1])
    whole = flat.shape[-1] // width * width
    stored = np.ascontiguousarray(flat[:, :whole]).view(f"u{width}")
    stored[:, places] = elements.reshape(len(flat), *places.shape)
    flat[:, :whole] = stored.view(np.uint8)
    return result
