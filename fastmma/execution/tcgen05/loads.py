"""tcgen05.ld, tcgen05.ld.red and tcgen05.st: between Tensor Memory and the registers of warps."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.execution.tcgen05.cells import addresses, check_inside, check_lane, tensor_memory
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError
from fastmma.host.integers import whole
from fastmma.isa.instruction import Movement
from fastmma.isa.table import movement
from fastmma.isa.tcgen05.moves import LOAD, LOAD_REDUCED, SPLIT_SHAPE, STORE
from fastmma.isa.tcgen05.tensor_memory import COLUMNS, LANES
from fastmma.operands.check import leading_dimensions, register_words

_NAN = np.uint32(0x7FFFFFFF)
_SIGN = np.uint32(1 << 31)


@lru_cache(1024)
def _places(move: Movement, split: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Lanes and columns, counted from the address, of each (thread, register, half of the register)."""
    layout, halves = move.layout, 32 // move.bits
    cols, step = layout.cols, move.cols
    if move.shape == SPLIT_SHAPE:
        step = move.cols // 2
        cols = cols % step + cols // step * split
    columns = (np.arange(move.num)[:, None] * step + cols[:, None, :]).reshape(move.lanes, move.registers, halves)
    lanes = np.broadcast_to(layout.rows[:, None, :], (move.lanes, move.num, layout.elements)).reshape(columns.shape)
    return lanes, columns


class _Access:
    """The cells that the warps of a call reach: arrays of indices (products, warps, threads, registers, halves)."""

    def __init__(self, move: Movement, tmem: Any, taddr: Any, split: int | None, registers: Any = None) -> None:
        what = str(move)
        self.move, self.before = move, tensor_memory(tmem, what)
        where = addresses(taddr, f"{what}: taddr")
        check_lane(where.lane, move.rows, what)
        lanes, columns = _places(move, _split(move, split))
        self.many = where.lane.ndim > 0
        shape = where.lane.shape if self.many else (1,)
        self.lanes = where.lane.reshape(shape)[..., None, None, None] + lanes
        self.columns = where.column.reshape(shape)[..., None, None, None] + columns
        check_inside(self.lanes, self.columns, what)
        warps = shape[-1:] if self.many else ()
        leads = {"tmem": self.before.shape[:-2], "taddr": shape[:-1]}
        if registers is not None:
            given = register_words(registers, (*warps, move.lanes, move.registers), f"{what}: registers")
            leads["registers"] = given.shape[: given.ndim - len(warps) - 2]
        self.lead = leading_dimensions(move, **leads)
        self.warps = shape[-1]
        if registers is not None:
            self.given = np.broadcast_to(given, (*self.lead, *warps, move.lanes, move.registers)).reshape(
                self.count, self.warps, move.lanes, move.registers
            )

    @property
    def count(self) -> int:
        return math.prod(self.lead)

    def memory(self) -> NDArray[np.uint32]:
        """A copy of Tensor Memory for each product."""
        return np.array(np.broadcast_to(self.before, (*self.lead, LANES, COLUMNS))).reshape(self.count, LANES, COLUMNS)

    def index(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        tail = self.lanes.shape[-4:]
        lanes, columns = (np.broadcast_to(each, (*self.lead, *tail)).reshape(self.count, *tail) for each in (self.lanes, self.columns))
        return np.arange(self.count)[:, None, None, None, None], lanes, columns

    def shaped(self, registers: NDArray[Any]) -> NDArray[Any]:
        """Results (products, warps, threads, ...) with the dimensions of the call."""
        return registers.reshape(*self.lead, *((self.warps,) if self.many else ()), *registers.shape[2:])

    def read(self) -> NDArray[np.uint32]:
        """Registers (products, warps, threads, registers)."""
        product, lanes, columns = self.index()
        whole_memory = np.broadcast_to(self.before, (*self.lead, LANES, COLUMNS)).reshape(self.count, LANES, COLUMNS)
        found = whole_memory[product, lanes, columns]
        if self.move.bits == 32:
            return np.asarray(found[..., 0])
        return np.asarray(found[..., 0] & np.uint32(0xFFFF) | found[..., 1] << np.uint32(16))

    def check_apart(self) -> None:
        """Raise OperandError where two threads write one cell."""
        _, lanes, columns = self.index()
        flat = np.sort((lanes * COLUMNS + columns).reshape(self.count, -1), axis=-1)
        twice = np.argwhere(np.diff(flat, axis=-1) == 0)
        if len(twice):
            lane, column = divmod(int(flat[tuple(twice[0])]), COLUMNS)
            raise OperandError(f"{self.move}: two threads write lane {lane}, column {column}")


def _split(move: Movement, split: int | None) -> int:
    """The column offset of the upper half of the threads."""
    if (split is None) != (move.shape != SPLIT_SHAPE):
        needs = "needs" if split is None else "takes no"
        raise OperandError(f"{move}: the instruction {needs} half_split_offset")
    found = 0 if split is None else whole(split)
    if found is None or not -COLUMNS < found < COLUMNS:
        raise OperandError(f"{move}: half_split_offset must be an integer from {1 - COLUMNS} to {COLUMNS - 1}, not {split!r:.60}")
    return found


@public_call
@accepts_cupy
def ld(opcode: str | Movement, tmem: Any, taddr: Any, *, half_split_offset: int | None = None) -> NDArray[np.uint32]:
    """Load cells of Tensor Memory into the registers of whole warps.

    Parameters
    ----------
    opcode : str
        For example ``"tcgen05.ld.sync.aligned.16x64b.x4.b32"``.
    tmem : uint32 array (..., 128, 512)
        Lanes and columns of Tensor Memory.
    taddr : int, or integer array (..., warps)
        The address of a warp, ``lane << 16 | column``, or the addresses of several. The lane is a multiple of 32, or of 16 for the shapes
        of 16 lanes.
    half_split_offset : int, optional
        ``.16x32bx2`` only: the columns between those of the lower and of the upper half of the threads.

    Returns
    -------
    uint32 array (..., 32, registers), or (..., warps, 32, registers) where `taddr` is an array

    Raises
    ------
    InstructionError, OperandError, OperandTypeError
        If an address lies outside Tensor Memory, the message names its lane and column.

    Notes
    -----
    PTX: tcgen05.ld. The fragments are those of CUTLASS's copy traits.

    Examples
    --------
    >>> tmem = np.arange(128 * 512, dtype=np.uint32).reshape(128, 512)
    >>> ld("tcgen05.ld.sync.aligned.32x32b.x2.b32", tmem, 32 << 16 | 7)[1].tolist()
    [16903, 16904]
    """
    access = _Access(movement(opcode, LOAD), tmem, taddr, half_split_offset)
    return access.shaped(access.read())


@public_call
@accepts_cupy
def ld_red(
    opcode: str | Movement, tmem: Any, taddr: Any, *, half_split_offset: int | None = None
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Load cells as `ld` does, and find the least or the greatest of each thread.

    Parameters
    ----------
    opcode : str
        For example ``"tcgen05.ld.red.sync.aligned.32x32b.x4.max.abs.f32"``.
    tmem, taddr, half_split_offset
        As for `ld`.

    Returns
    -------
    registers : uint32 array (..., 32, registers), or (..., warps, 32, registers)
    reduced : uint32 array (..., 32), or (..., warps, 32)

    Raises
    ------
    InstructionError, OperandError, OperandTypeError

    Notes
    -----
    PTX: tcgen05.ld. Floats are compared as PTX's min and max do: -0 is below +0. NaNs are left out, unless all are NaN or the opcode has
    ``.NaN``; the result is then 0x7FFFFFFF. PTX says that this instruction does the same; there is no recording.

    Examples
    --------
    >>> tmem = np.arange(128 * 512, dtype=np.uint32).reshape(128, 512)
    >>> ld_red("tcgen05.ld.red.sync.aligned.32x32b.x2.max.u32", tmem, 0)[1][:3].tolist()
    [1, 513, 1025]
    """
    access = _Access(movement(opcode, LOAD_REDUCED), tmem, taddr, half_split_offset)
    registers = access.read()
    return access.shaped(registers), access.shaped(_reduce(registers, access.move))


def _reduce(registers: NDArray[np.uint32], move: Movement) -> NDArray[np.uint32]:
    """The least or greatest of the last dimension, by keys that order codes as numbers."""
    choose = np.min if move.reduction.startswith("min") else np.max
    if move.dtype != "f32":
        signed = registers.view(np.int32) if move.dtype == "s32" else registers
        return np.asarray(choose(signed, axis=-1)).view(np.uint32)
    codes = registers & ~_SIGN if ".abs" in move.reduction else registers
    nan = codes & ~_SIGN > np.uint32(0x7F800000)
    keys = np.where(codes & _SIGN, ~codes, codes | _SIGN)
    left_out = np.uint32(0xFFFFFFFF if choose is np.min else 0)
    chosen = choose(np.where(nan, left_out, keys), axis=-1)
    found = np.where(chosen & _SIGN, chosen & ~_SIGN, ~chosen)
    lost = nan.any(axis=-1) if ".NaN" in move.reduction else nan.all(axis=-1)
    return np.asarray(np.where(lost, _NAN, found), dtype=np.uint32)


@public_call
@accepts_cupy
def st(opcode: str | Movement, tmem: Any, taddr: Any, registers: Any, *, half_split_offset: int | None = None) -> NDArray[np.uint32]:
    """Store the registers of whole warps to Tensor Memory.

    Parameters
    ----------
    opcode : str
        For example ``"tcgen05.st.sync.aligned.32x32b.x8.unpack::16b.b32"``.
    tmem : uint32 array (..., 128, 512)
        The contents before; the array is not modified.
    taddr : int, or integer array (..., warps)
        As for `ld`.
    registers : uint32 array (..., 32, registers), or (..., warps, 32, registers) where `taddr` is an array
    half_split_offset : int, optional
        As for `ld`.

    Returns
    -------
    uint32 array (..., 128, 512)
        Tensor Memory afterwards, with the broadcast leading dimensions.

    Raises
    ------
    InstructionError, OperandError, OperandTypeError
        Also if two threads write the same cell; the message names its lane and column.

    Notes
    -----
    PTX: tcgen05.st. ``.unpack::16b`` leaves the upper halves of cells unchanged; PTX does not say so.

    Examples
    --------
    >>> registers = np.arange(64, dtype=np.uint32).reshape(32, 2)
    >>> tmem = st("tcgen05.st.sync.aligned.32x32b.x2.b32", np.zeros((128, 512), np.uint32), 0, registers)
    >>> tmem[:2, :3].tolist()
    [[0, 1, 0], [2, 3, 0]]
    """
    access = _Access(movement(opcode, STORE), tmem, taddr, half_split_offset, registers)
    access.check_apart()
    after = access.memory()
    index, given = access.index(), access.given[..., None]
    if access.move.bits == 16:
        low = np.uint32(0xFFFF)
        given = after[index] & ~low | given >> np.array([0, 16], np.uint32) & low
    after[index] = given
    return after.reshape(*access.lead, LANES, COLUMNS)
