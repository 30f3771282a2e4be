"""Scales of block-scaled instructions: out of registers and into them (PTX: Block Scaling)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.host.integers import one_of
from fastmma.isa.instruction import Instruction
from fastmma.isa.scales import scale_lanes, scale_selectors
from fastmma.isa.table import multiply
from fastmma.isa.targets import target_of
from fastmma.operands.check import check_shape, register_words


def _warp(ins: Instruction) -> int:
    """Count the lanes whose registers hold scales."""
    return target_of(ins.targets[0]).lanes


def _select(ins: str | Instruction, operand: str, byte_id: Any, thread_id: Any) -> tuple[Instruction, NDArray[np.intp], NDArray[np.intp]]:
    """The instruction, the lane of each row (or column), and the bytes of its scales."""
    found = multiply(ins)
    if not found.scale_vec_size:
        raise InstructionError(f"{found}: the instruction is not block-scaled")
    if not isinstance(operand, str) or operand not in ("a", "b"):
        raise OperandError(f"operand must be 'a' or 'b', not {operand!r}")
    valid = scale_selectors(found, operand)
    first = one_of(byte_id, valid.byte_id, f"{found}: byte_id_{operand}")
    lanes = scale_lanes(found, operand, one_of(thread_id, valid.thread_id, f"{found}: thread_id_{operand}"))
    return found, lanes, np.arange(first, first + found.scale_vec_size)


@public_call
def unpack_scales(ins: str | Instruction, registers: Any, operand: str, byte_id: int = 0, thread_id: int = 0) -> NDArray[np.uint8]:
    """Codes of the scales that a block-scaled instruction takes from a register.

    Parameters
    ----------
    ins : str or Instruction
    registers : uint32 array (..., 32)
        scale-a-data or scale-b-data.
    operand : {"a", "b"}
    byte_id, thread_id : int
        The selectors.

    Returns
    -------
    uint8 array (..., m, scales) for a, (..., n, scales) for b
        The top bit of ue4m3, an unsigned format of 7 bits, is cleared.

    Raises
    ------
    InstructionError, OperandError, OperandTypeError
        If the instruction is not block-scaled, or a selector is outside PTX's table.

    Examples
    --------
    >>> ins = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
    >>> unpack_scales(ins, np.full(32, 0x7F, np.uint32), "b").ravel().tolist()
    [127, 127, 127, 127, 127, 127, 127, 127]
    """
    found, lanes, places = _select(ins, operand, byte_id, thread_id)
    what = f"{found}: scale_{operand}"
    array = register_words(registers, (_warp(found),), what)
    scales = (array[..., lanes, None] >> (8 * places).astype(np.uint32)) & np.uint32(0xFF if found.stype == "ue8m0" else 0x7F)
    return scales.astype(np.uint8)


@public_call
def pack_scales(ins: str | Instruction, scales: Any, operand: str, byte_id: int = 0, thread_id: int = 0) -> NDArray[np.uint32]:
    """Codes of scales into the register that a block-scaled instruction takes: the inverse of `unpack_scales`.

    Parameters
    ----------
    ins : str or Instruction
    scales : uint8 array (..., m, scales) for a, (..., n, scales) for b
        Codes.
    operand : {"a", "b"}
    byte_id, thread_id : int
        The selectors.

    Returns
    -------
    uint32 array (..., 32)
        Lanes and bytes that are not selected are zero.

    Raises
    ------
    InstructionError, OperandError, OperandTypeError
        If the instruction is not block-scaled, or a selector is outside PTX's table.

    Examples
    --------
    >>> ins = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
    >>> pack_scales(ins, np.full((8, 1), 127, np.uint8), "b")[:5].tolist()
    [127, 0, 0, 0, 127]
    """
    found, lanes, places = _select(ins, operand, byte_id, thread_id)
    what = f"{found}: scale_{operand}"
    array = as_array(scales, what)
    if array.dtype != np.uint8:
        raise OperandTypeError(f"{what} must be codes of dtype uint8, not {array.dtype}")
    shape = (len(lanes), found.scale_vec_size)
    check_shape(array, shape, what)
    registers = np.zeros((*array.shape[:-2], _warp(found)), dtype=np.uint32)
    registers[..., lanes] = np.bitwise_or.reduce(array.astype(np.uint32) << (8 * places).astype(np.uint32), axis=-1)
    return registers
