"""Moving matrices between shared memory and registers: ldmatrix, stmatrix, movmatrix, wmma.load and wmma.store.

Memory is an array of bytes, and addresses are byte offsets into it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.arrays import as_array, whole
from fastmma.errors import OperandError, OperandTypeError
from fastmma.isa.movement import Movement
from fastmma.isa.table import movement
from fastmma.numerics import fragment_evidence

_LANES = 32
_LINE_BYTES = 16  # what one address of ldmatrix and stmatrix stands for
# the formats that expand put 4-bit elements where mma reads them: into the central bits of the byte
_EXPANDED_SHIFT = {6: 0, 4: 2}


def _memory(memory: Any, what: str) -> NDArray[np.uint8]:
    array = as_array(memory, f"{what}: memory")
    if array.dtype != np.uint8:
        raise OperandTypeError(f"{what}: memory must have dtype uint8, not {array.dtype}")
    if array.ndim < 1:
        raise OperandError(f"{what}: memory must have shape (..., bytes), not ()")
    return array


def _registers(registers: Any, dtype: np.dtype[Any], tail: tuple[int, ...], what: str) -> NDArray[Any]:
    array = as_array(registers, f"{what}: registers")
    if array.dtype.newbyteorder("=") != dtype:
        raise OperandTypeError(f"{what}: registers must have dtype {dtype}, not {array.dtype}")
    if array.shape[max(array.ndim - len(tail), 0) :] != tail:
        raise OperandError(f"{what}: registers must have shape (..., {', '.join(map(str, tail))}), not {array.shape}")
    return array.astype(dtype, copy=False)


def _lead(what: str, **shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        shown = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise OperandError(f"{what}: the leading dimensions do not broadcast: {shown}") from None


def _addresses(addresses: Any, move: Movement, size: int) -> NDArray[np.int64]:
    """Addresses (..., matrices, lines), checked."""
    array = as_array(addresses, f"{move}: addresses")
    if array.dtype.kind not in "ui":
        raise OperandTypeError(f"{move}: addresses must be integers, not {array.dtype}")
    if array.ndim < 1 or array.shape[-1] != _LANES:
        raise OperandError(f"{move}: addresses must have shape (..., {_LANES}), not {array.shape}")
    used = array[..., : move.num * move.lines]
    for problem, wrong in (
        (f"is not a multiple of {_LINE_BYTES}", used % _LINE_BYTES != 0),
        (f"is outside the memory of {size} bytes", (used < 0) | (used > size - _LINE_BYTES)),
    ):
        if wrong.any():
            where = tuple(int(index) for index in np.argwhere(wrong)[0])
            raise OperandError(f"{move}: the address of lane {where[-1]}, {int(used[where])}, {problem}")
    return used.astype(np.int64).reshape(*array.shape[:-1], move.num, move.lines)


def _lines_to_elements(lines: NDArray[np.uint8], move: Movement) -> NDArray[Any]:
    """Lines of 16 bytes to elements as wide as their containers."""
    if move.source_bits == move.bits:
        elements: NDArray[Any] = lines.view(f"u{move.bits // 8}")
        return elements
    bits = np.unpackbits(lines, axis=-1, bitorder="little")[..., : 16 * move.source_bits]
    places = 1 << np.arange(move.source_bits)
    values = np.asarray((bits.reshape(*lines.shape[:-1], 16, move.source_bits) * places).sum(axis=-1))
    return (values << _EXPANDED_SHIFT[move.source_bits]).astype(np.uint8)


def ldmatrix(opcode: str | Movement, memory: Any, addresses: Any) -> NDArray[np.uint32]:
    """Load matrices from shared memory into the registers of whole warps.

    Parameters
    ----------
    opcode : str
        For example ``"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"``.
    memory : uint8 array (..., bytes)
        Leading dimensions (warps) broadcast with those of `addresses`.
    addresses : integer array (..., 32)
        Byte offsets of rows, one a lane, multiples of 16. Those of lanes that the instruction does not read are ignored.

    Returns
    -------
    uint32 array (..., 32, registers)

    Raises
    ------
    InstructionError, OperandError, OperandTypeError
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
    array = _memory(memory, str(move))
    places = _addresses(addresses, move, array.shape[-1])
    lead = _lead(str(move), memory=array.shape[:-1], addresses=places.shape[:-2])
    count = math.prod(lead)
    flat = np.broadcast_to(array, (*lead, array.shape[-1])).reshape(count, array.shape[-1])
    wanted = np.broadcast_to(places, (*lead, *places.shape[-2:])).reshape(count, move.num, move.lines)
    lines = flat[np.arange(count)[:, None, None, None], wanted[..., None] + np.arange(_LINE_BYTES)]
    elements = _lines_to_elements(lines, move)
    if move.trans:
        elements = elements.swapaxes(-1, -2)
    held = elements[..., move.layout.rows, move.layout.cols]  # (warps, matrices, lanes, elements)
    registers = np.ascontiguousarray(held).view(np.uint32).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(registers).reshape(*lead, _LANES, move.registers)


def stmatrix(opcode: str | Movement, memory: Any, addresses: Any, registers: Any) -> NDArray[np.uint8]:
    """Store matrices from the registers of whole warps to shared memory.

    Parameters
    ----------
    opcode : str
        For example ``"stmatrix.sync.aligned.m8n8.x2.shared.b16"``.
    memory : uint8 array (..., bytes)
        What is there before; it is not modified.
    addresses : integer array (..., 32)
        As for `ldmatrix`. Where rows overlap, those of higher lanes win.
    registers : uint32 array (..., 32, registers)

    Returns
    -------
    uint8 array (..., bytes)
        The memory afterwards, with the broadcast leading dimensions.

    Raises
    ------
    InstructionError, OperandError, OperandTypeError

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
    array = _memory(memory, str(move))
    places = _addresses(addresses, move, array.shape[-1])
    given = _registers(registers, np.dtype(np.uint32), (_LANES, move.registers), str(move))
    lead = _lead(str(move), memory=array.shape[:-1], addresses=places.shape[:-2], registers=given.shape[:-2])
    count = math.prod(lead)
    result = np.array(np.broadcast_to(array, (*lead, array.shape[-1]))).reshape(count, array.shape[-1])
    per_matrix = move.registers // move.num
    held = np.broadcast_to(given, (*lead, *given.shape[-2:])).reshape(count, _LANES, move.num, per_matrix)
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


def movmatrix(opcode: str | Movement, registers: Any) -> NDArray[np.uint32]:
    """Transpose an 8 x 8 matrix of 16-bit elements across the registers of whole warps.

    Parameters
    ----------
    opcode : str
        ``"movmatrix.sync.aligned.m8n8.trans.b16"``.
    registers : uint32 array (..., 32)

    Returns
    -------
    uint32 array (..., 32)

    Raises
    ------
    InstructionError, OperandError, OperandTypeError

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
    given = np.ascontiguousarray(_registers(registers, np.dtype(np.uint32), (_LANES,), str(move)))
    layout = move.layout
    matrices = np.empty((*given.shape[:-1], *layout.shape), dtype=np.uint16)
    matrices[..., layout.rows, layout.cols] = given[..., None].view(np.uint16)
    return np.ascontiguousarray(matrices.swapaxes(-1, -2)[..., layout.rows, layout.cols]).view(np.uint32)[..., 0]


def _stride(move: Movement, stride: Any, size: int) -> int:
    """The stride in elements between rows (columns, if column-major), checked against the memory's size."""
    row_major = move.layout_in_memory == "row"
    least = move.cols if row_major else move.rows
    count = move.rows if row_major else move.cols
    if stride is None:
        stride = least
    elements = whole(stride)
    if elements is None or elements < least:
        raise OperandError(f"{move}: stride must be an integer of at least {least} elements, not {stride!r}")
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


def wmma_load(opcode: str | Movement, memory: Any, *, stride: int | None = None, target: str) -> NDArray[Any]:
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

    Returns
    -------
    uint32 array (..., 32, registers), uint64 for f64

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError

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
    fragment_evidence(move, target)
    array = np.ascontiguousarray(_memory(memory, str(move)))
    places = _positions(move, _stride(move, stride, array.shape[-1]))
    dtype = f"u{move.layout.register_bits // 8}"
    if move.bits >= 8:
        whole = array[..., : array.shape[-1] // (move.bits // 8) * (move.bits // 8)]
        held = np.ascontiguousarray(whole).view(f"u{move.bits // 8}")[..., places]
        return np.ascontiguousarray(held).view(dtype)
    per_byte = 8 // move.bits
    held = (array[..., places // per_byte] >> (places % per_byte * move.bits).astype(np.uint8)) & np.uint8((1 << move.bits) - 1)
    per_register = 32 // move.bits
    grouped = held.reshape(*held.shape[:-1], -1, per_register).astype(np.uint32)
    packed: NDArray[Any] = np.bitwise_or.reduce(grouped << (move.bits * np.arange(per_register, dtype=np.uint32)), axis=-1)
    return packed


def wmma_store(opcode: str | Movement, memory: Any, registers: Any, *, stride: int | None = None, target: str) -> NDArray[np.uint8]:
    """Store a wmma result to the matrix at offset 0 of memory.

    Parameters
    ----------
    opcode : str
        For example ``"wmma.store.d.sync.aligned.row.m16n16k16.f32"``.
    memory : uint8 array (..., bytes)
        What is there before; it is not modified.
    registers : uint32 array (..., 32, registers), uint64 for f64
    stride : int, optional
        As for `wmma_load`.
    target : str

    Returns
    -------
    uint8 array (..., bytes)
        The memory afterwards, with the broadcast leading dimensions.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError

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
    fragment_evidence(move, target)
    array = _memory(memory, str(move))
    dtype = np.dtype(f"u{move.layout.register_bits // 8}")
    given = _registers(registers, dtype, (_LANES, move.registers), str(move))
    places = _positions(move, _stride(move, stride, array.shape[-1]))
    lead = _lead(str(move), memory=array.shape[:-1], registers=given.shape[:-2])
    result = np.array(np.broadcast_to(array, (*lead, array.shape[-1])), order="C")
    width = move.bits // 8
    elements = np.ascontiguousarray(np.broadcast_to(given, (*lead, *given.shape[-2:]))).view(f"u{width}")
    flat = result.reshape(math.prod(lead), result.shape[-1])
    whole = flat.shape[-1] // width * width
    stored = np.ascontiguousarray(flat[:, :whole]).view(f"u{width}")
    stored[:, places] = elements.reshape(len(flat), *places.shape)
    flat[:, :whole] = stored.view(np.uint8)
    return result
