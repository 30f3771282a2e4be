"""Gather and scatter: matrices of codes to the registers of whole warps, and back, for any number of warps at once."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.threads import parallel_for, thread_count
from fastmma.isa.fragments import container_bits, container_shift
from fastmma.isa.instruction import Operand
from fastmma.isa.layout import Layout
from fastmma.operands.check import register_words

if TYPE_CHECKING:
    from fastmma.kernels.matrices.permutation import Permutation

# warps handled at a time, so that what one pass writes is still in the cache for the next
_GRAIN = 512


def register_dtype(operand: Operand) -> np.dtype[Any]:
    """uint64 for f64, else uint32."""
    return operand.layout.register_dtype


def check_registers(registers: Any, operand: Operand, what: str) -> NDArray[Any]:
    """The registers of an operand as an array (..., lanes, registers) of the right dtype.

    Raises
    ------
    OperandError, OperandTypeError
        `what` names the instruction and the operand.
    """
    tail = operand.layout.lanes, operand.registers
    return register_words(registers, tail, what, register_dtype(operand), "hold registers of")


def _padding(operand: Operand, kind: str) -> tuple[int, int]:
    """Shift and mask of an element in its container; the mask is 0 when there is nothing to cut off."""
    layout, fmt = operand.layout, operand.format
    if layout.bits == fmt.bits:
        return 0, 0
    return container_shift(fmt, kind), (1 << fmt.bits) - 1


@lru_cache(1024)
def _unpacking(layout: Layout) -> Permutation:
    """From registers to storage: the elements of matrices row by row; of narrow elements whole words."""
    from fastmma.kernels.matrices import permutation

    if layout.bits < 8 or not layout.column_major:
        return _of_words(layout.words[0], layout)
    return permutation.permutation(layout.inverse, layout.bits // 8)


@lru_cache(1024)
def _packing(layout: Layout) -> Permutation:
    """From storage to registers."""
    from fastmma.kernels.matrices import permutation

    if layout.bits < 8 or not layout.column_major:
        return _of_words(np.argsort(layout.words, axis=None) % layout.words.shape[1], layout)
    return permutation.permutation(layout.offsets, layout.bits // 8)


def _of_words(origin: NDArray[Any], layout: Layout) -> Permutation:
    """A permutation of registers, whose halves move together where they have 64 bits."""
    from fastmma.kernels.matrices import permutation

    halves = layout.register_bits // 32
    return permutation.permutation(origin[:, None] * halves + np.arange(halves), 4)


def unpack_range(registers: NDArray[Any], operand: Operand, kind: str, codes: NDArray[Any]) -> None:
    """Registers (warps, lanes * registers) to codes in storage order, (warps, elements): see `as_matrices`."""
    from fastmma.kernels.matrices import permutation
    from fastmma.kernels.matrices import words as kernels

    layout = operand.layout
    if layout.bits >= 8:
        permutation.permute(registers, _unpacking(layout), codes)
        shift, mask = _padding(operand, kind)
        if mask:
            np.right_shift(codes, shift, out=codes)
            np.bitwise_and(codes, codes.dtype.type(mask), out=codes)
        return
    words = np.empty(registers.shape, registers.dtype)
    permutation.permute(registers, _unpacking(layout), words)
    kernels.expand_bits(words.reshape(-1), layout.bits, codes.reshape(-1))


def pack_range(codes: NDArray[Any], operand: Operand, kind: str, registers: NDArray[Any]) -> None:
    """The inverse of `unpack_range`; padding bits of containers are zero."""
    from fastmma.kernels.matrices import permutation
    from fastmma.kernels.matrices import words as kernels

    layout = operand.layout
    if layout.bits >= 8:
        shift, mask = _padding(operand, kind)
        if mask:
            codes = ((codes & codes.dtype.type(mask)) << codes.dtype.type(shift)).astype(codes.dtype)
        permutation.permute(codes, _packing(layout), registers)
        return
    words = np.empty(registers.shape, dtype=np.uint32)
    kernels.pack_bits(codes.reshape(-1), layout.bits, words.reshape(-1))
    permutation.permute(words, _packing(layout), registers)


def stored_dtype(operand: Operand) -> np.dtype[Any]:
    """dtype of one code in storage: as wide as the container, at least a byte."""
    return np.dtype(f"u{max(8, operand.layout.bits) // 8}")


def _by_columns(layout: Layout) -> bool:
    """Tell whether codes are stored column by column."""
    return layout.bits < 8 and layout.column_major


def _shape(layout: Layout) -> tuple[int, ...]:
    """The shape of what a warp holds: that of the matrix, behind the number of matrices where they are several."""
    return layout.shape if layout.tiles == 1 else (layout.tiles, *layout.shape)


def as_matrices(codes: NDArray[Any], operand: Operand) -> NDArray[Any]:
    """View stored codes (warps, elements) as matrices (warps, tiles, rows, columns).

    They are stored row by row; elements that are narrower than a byte along the words that they share.
    """
    layout = operand.layout
    rows, cols = layout.shape
    if _by_columns(layout):
        return codes.reshape(-1, layout.tiles, cols, rows).swapaxes(-1, -2)
    return codes.reshape(-1, layout.tiles, rows, cols)


def _check(operand: Any, kind: Any) -> None:
    if not isinstance(operand, Operand):
        raise OperandTypeError(f"the operand must be one of an instruction's operands, not {type(operand).__name__}")
    if not isinstance(kind, str):
        raise OperandTypeError(f"kind must be that of an instruction, not {type(kind).__name__}")
    fmt, bits = operand.format, operand.layout.bits
    if fmt.bits == 4 and container_bits(fmt, kind) != bits:
        raise OperandError(f"operand {operand.name} has {fmt} in containers of {bits} bits, give the instruction's kind, not {kind!r}")


@public_call
def gather(registers: Any, operand: Operand, *, kind: str = "", threads: int | None = None) -> NDArray[Any]:
    """Read matrices out of registers.

    Parameters
    ----------
    registers : array (..., lanes, registers) of uint32 (uint64 for f64)
    operand : Operand
        For example ``instruction(text).operands["a"]``.
    kind : str
        The instruction's ``kind``, which decides where narrow elements sit in their containers.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``.

    Returns
    -------
    array of codes (..., rows, columns), or (..., tiles, rows, columns) where a warp holds several matrices

    Raises
    ------
    OperandError, OperandTypeError
        If the registers are of another dtype or shape.

    Examples
    --------
    >>> from fastmma.isa.table import instruction
    >>> c = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").operands["c"]
    >>> gather(np.arange(128, dtype=np.uint32).reshape(32, 4), c)[9].tolist()
    [18, 19, 22, 23, 26, 27, 30, 31]
    """
    _check(operand, kind)
    array = check_registers(registers, operand, f"operand {operand.name}")
    layout = operand.layout
    lead = array.shape[:-2]
    flat = np.ascontiguousarray(array).reshape(-1, layout.lanes * layout.registers)
    shape = _shape(layout)
    codes = np.empty((len(flat), math.prod(shape)), dtype=stored_dtype(operand))

    def work(start: int, stop: int, _worker: int) -> None:
        unpack_range(flat[start:stop], operand, kind, codes[start:stop])

    parallel_for(work, len(flat), thread_count(threads), _GRAIN)
    return as_matrices(codes, operand).reshape(*lead, *shape)


@public_call
def scatter(matrices: Any, operand: Operand, *, kind: str = "", threads: int | None = None) -> NDArray[Any]:
    """Put matrices of codes into registers: the inverse of `gather`.

    Parameters
    ----------
    matrices : array of codes (..., rows, columns), or (..., tiles, rows, columns) where a warp holds several matrices
        Unsigned integers as wide as the containers of the elements, at least 8 bits.
    operand : Operand
        For example ``instruction(text).operands["a"]``.
    kind : str
        The instruction's ``kind``, which decides where narrow elements sit in their containers.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``.

    Returns
    -------
    array (..., lanes, registers) of uint32 (uint64 for f64)

    Raises
    ------
    OperandError, OperandTypeError
        If the array is not of unsigned codes of the operand's width, or not of its shape.

    Examples
    --------
    >>> from fastmma.isa.table import instruction
    >>> c = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").operands["c"]
    >>> scatter(np.arange(128, dtype=np.uint32).reshape(16, 8), c)[5].tolist()
    [10, 11, 74, 75]
    """
    _check(operand, kind)
    array = as_array(matrices, f"operand {operand.name}")
    layout = operand.layout
    dtype = stored_dtype(operand)
    shape = _shape(layout)
    if array.dtype.newbyteorder("=") != dtype:
        raise OperandTypeError(f"operand {operand.name} must hold codes of dtype {dtype}, not {array.dtype}")
    if array.shape[array.ndim - len(shape) :] != shape:
        raise OperandError(f"operand {operand.name} must have shape (..., {', '.join(map(str, shape))}), not {array.shape}")
    lead = array.shape[: array.ndim - len(shape)]
    stored = array.swapaxes(-1, -2) if _by_columns(layout) else array
    codes = np.ascontiguousarray(stored, dtype=dtype).reshape(-1, math.prod(shape))
    registers = np.empty((len(codes), layout.lanes * layout.registers), dtype=register_dtype(operand))

    def work(start: int, stop: int, _worker: int) -> None:
        pack_range(codes[start:stop], operand, kind, registers[start:stop])

    parallel_for(work, len(codes), thread_count(threads), _GRAIN)
    return registers.reshape(*lead, layout.lanes, layout.registers)
