"""tcgen05.cp, from shared memory to Tensor Memory, and tcgen05.shift, within it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.execution.shared_memory import expanded
from fastmma.execution.tcgen05.cells import address, check_inside, check_lane, tensor_memory
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError, TargetError
from fastmma.isa.tcgen05.copies import COPY, SHIFT, Copy, Shift, read
from fastmma.isa.tcgen05.matrix_descriptor import MatrixDescriptor
from fastmma.isa.tcgen05.tensor_memory import COLUMNS, LANES
from fastmma.numerics.lookup import is_strict
from fastmma.operands.check import leading_dimensions
from fastmma.shared.memory import memory_bytes

_UNIT = 16


def matrix_descriptor(value: Any, what: str) -> MatrixDescriptor:
    """A descriptor, or the one that 64 bits say.

    Raises
    ------
    OperandTypeError, OperandError
    """
    if isinstance(value, MatrixDescriptor):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        try:
            return MatrixDescriptor.decode(int(value))
        except OperandError as error:
            raise OperandError(f"{what}: {error}") from None
    raise OperandTypeError(f"{what} must be a MatrixDescriptor or its 64 bits, not {type(value).__name__}")


def _one(found: Copy | Shift) -> int:
    """CTAs that have a dimension of their own."""
    return 0 if found.cta_group == 1 else found.cta_group


@public_call
@accepts_cupy
def cp(opcode: str, tmem: Any, taddr: int, descriptor: MatrixDescriptor | int, memory: Any) -> NDArray[np.uint32]:
    """Copy rows of shared memory to Tensor Memory.

    Parameters
    ----------
    opcode : str
        For example ``"tcgen05.cp.cta_group::1.32x128b.warpx4"``.
    tmem : uint32 array (..., 128, 512); (..., 2, 128, 512) for ``.cta_group::2``
        The contents before; the array is not modified.
    taddr : int
        The address of the first row, ``lane << 16 | column``.
    descriptor : MatrixDescriptor or int
        The place of the rows, which lie as a K-major operand of 8-bit elements does, 16 or 32 to a row.
    memory : uint8 array (..., bytes); (..., 2, bytes) for ``.cta_group::2``
        Shared memory. With ``.b8x16`` every 16 bytes begin with 16 packed codes of 4 or 6 bits.

    Returns
    -------
    uint32 array of the shape of `tmem`, with the broadcast leading dimensions

    Raises
    ------
    InstructionError, OperandError, OperandTypeError
        If a row lies outside Tensor Memory, the message names its lane and column; outside shared memory, its byte.

    Notes
    -----
    PTX: tcgen05.cp. Rows go where CUTLASS's copy traits put them.

    Examples
    --------
    >>> memory = np.arange(512, dtype=np.uint16).astype(np.uint8)  # scales: 32 rows of 16 bytes
    >>> rows = MatrixDescriptor(0, stride=128)
    >>> tmem = cp("tcgen05.cp.cta_group::1.32x128b.warpx4", np.zeros((128, 512), np.uint32), 4, rows, memory)
    >>> [hex(cell) for cell in tmem[[1, 33, 97], 4]]
    ['0x13121110', '0x13121110', '0x13121110']
    """
    copy = read(opcode, COPY)
    assert isinstance(copy, Copy)
    what = str(copy)
    before, source = tensor_memory(tmem, what, _one(copy)), memory_bytes(memory, what)
    if _one(copy) and source.shape[-2:-1] != (copy.cta_group,):
        raise OperandError(f"{what}: memory must have shape (..., {copy.cta_group}, bytes), not {source.shape}")
    lane, column = address(taddr, f"{what}: taddr")
    lanes, columns = copy.lanes + lane, np.arange(copy.columns) + column
    check_inside(lanes[:, :, None], columns, what)
    size = 4 * copy.columns
    places = matrix_descriptor(descriptor, f"{what}: descriptor").offsets(lanes.shape[1], size, 8)
    if places.max() >= source.shape[-1]:
        raise OperandError(f"{what}: the descriptor reaches byte {int(places.max())} of a memory of {source.shape[-1]} bytes")
    lead = leading_dimensions(what, tmem=before.shape[:-2], memory=source.shape[:-1])
    rows = np.ascontiguousarray(source[..., places])
    if copy.source_bits < 8:
        rows = expanded(rows.reshape(*rows.shape[:-1], size // _UNIT, _UNIT), copy.source_bits).reshape(rows.shape)
    after = np.array(np.broadcast_to(before, (*lead, LANES, COLUMNS)))
    after[..., lanes[:, :, None], columns] = np.ascontiguousarray(rows).view("<u4")[..., None, :, :]
    return after


@public_call
@accepts_cupy
def shift(opcode: str, tmem: Any, taddr: int) -> NDArray[np.uint32]:
    """Move 31 of 32 lanes of eight columns down by one lane.

    Parameters
    ----------
    opcode : str
        ``"tcgen05.shift.cta_group::1.down"`` or ``"tcgen05.shift.cta_group::2.down"``.
    tmem : uint32 array (..., 128, 512); (..., 2, 128, 512) for ``.cta_group::2``
        The contents before; the array is not modified.
    taddr : int
        The first lane, a multiple of 32, and the first column.

    Returns
    -------
    uint32 array of the shape of `tmem`

    Raises
    ------
    InstructionError, OperandError, OperandTypeError
    TargetError
        In strict mode (``FASTMMA_STRICT``), because the direction is only reported.

    Notes
    -----
    PTX: tcgen05.shift. PTX says that all rows but the last are shifted. Here lane i + 1 goes to lane i and the last lane stays, because
    CUTLASS fills the last lanes anew by ``tcgen05.cp.4x256b``. No GPU was measured.

    Examples
    --------
    >>> tmem = np.arange(128 * 512, dtype=np.uint32).reshape(128, 512) // 512
    >>> shift("tcgen05.shift.cta_group::1.down", tmem, 32 << 16)[30:65, 0].tolist()[:4]
    [30, 31, 33, 34]
    """
    found = read(opcode, SHIFT)
    assert isinstance(found, Shift)
    what = str(found)
    if is_strict():
        raise TargetError(f"{what}: the direction is only reported (PTX's words and CUTLASS), which strict mode refuses")
    after = np.array(tensor_memory(tmem, what, _one(found)))
    lane, column = address(taddr, f"{what}: taddr")
    check_lane(lane, found.rows + 1, what)
    lanes, columns = np.arange(lane, lane + found.rows)[:, None], np.arange(column, column + found.columns)
    check_inside(lanes, columns, what)
    after[..., lanes, columns] = after[..., lanes + 1, columns]
    return after
