"""The matrices of tcgen05.mma out of Tensor Memory and shared memory, and its result back into Tensor Memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.execution.shared_memory import matrix_in_memory
from fastmma.execution.tcgen05.cells import address
from fastmma.host.errors import OperandError
from fastmma.isa.formats import Format
from fastmma.isa.fragments import container_bits, container_shift
from fastmma.isa.instruction import Instruction
from fastmma.isa.layout import Layout
from fastmma.isa.tcgen05.descriptor import InstructionDescriptor
from fastmma.isa.tcgen05.matrix_descriptor import MatrixDescriptor
from fastmma.isa.tcgen05.tensor_memory import COLUMNS, LANES, first_lanes, metadata_layout, parts, scale_places

_WORD = 4  # scales in a cell


class Cells(NamedTuple):
    """Indices of cells in Tensor Memory, whose lanes count through the CTAs of a pair; they broadcast."""

    lanes: NDArray[np.intp]
    columns: NDArray[np.intp]


def _check_columns(columns: NDArray[Any], what: str) -> None:
    if columns.max() >= COLUMNS:
        raise OperandError(f"{what} reaches column {int(columns.max())}, outside the {COLUMNS} columns of Tensor Memory")


def matrix_cells(layout: Layout, ins: Instruction, taddr: Any, what: str, first_column: int = 0) -> Cells:
    """Return where a matrix lies that begins some columns behind an address: lanes by columns.

    Raises
    ------
    OperandTypeError, OperandError
    """
    lane, column = address(taddr, what)
    if lane not in first_lanes(ins):
        raise OperandError(f"{what}: it must begin in lane {' or '.join(map(str, first_lanes(ins)))}, not {lane}")
    lanes = np.array(layout.lane_numbers or range(layout.lanes)) + lane
    columns = np.arange(-(-layout.elements * layout.bits // 32)) + column + first_column
    _check_columns(columns, what)
    return Cells(lanes[:, None], columns[None, :])


def scale_cells(ins: Instruction, operand: str, taddr: Any, first: int, what: str) -> Cells:
    """Return where the scales of A or B lie, which begin with a byte of their words: copies by rows (or columns) by words.

    Raises
    ------
    OperandTypeError, OperandError
    """
    lane, column = address(taddr, what)
    if lane:
        raise OperandError(f"{what}: it must begin in lane 0, not {lane}")
    lanes, columns = scale_places(ins, operand, -(-(first + ins.scale_vec_size) // _WORD))
    _check_columns(columns + column, what)
    return Cells(lanes, columns + column)


def check_apart(cells: dict[str, Cells], what: str) -> None:
    """Raise OperandError where another operand lies in a cell of D."""

    def mask(each: Cells) -> NDArray[np.bool_]:
        used = np.zeros((2 * LANES, COLUMNS), np.bool_)
        used[each.lanes, each.columns] = True
        return used

    of_d = mask(cells["d"])
    for name, each in cells.items():
        if name != "d" and len(both := np.argwhere(of_d & mask(each))):
            lane, column = (int(place) for place in both[0])
            where = f"lane {lane % LANES}, column {column}" + f" of CTA {lane // LANES}" * (lane >= LANES)
            raise OperandError(f"{what}: d and {name} overlap in {where}")


def _elements(held: NDArray[np.uint32], layout: Layout) -> NDArray[Any]:
    """Cells (..., lanes, columns) as containers (..., lanes, elements)."""
    held = np.ascontiguousarray(held, dtype="<u4")
    if layout.bits >= 8:
        return held.view(f"<u{layout.bits // 8}")[..., : layout.elements]
    packed = held.view(np.uint8)[..., None]
    return ((packed >> np.array([0, 4], np.uint8)) & np.uint8(15)).reshape(*packed.shape[:-2], -1)[..., : layout.elements]


def _copies(tmem: NDArray[np.uint32], layout: Layout, cells: Cells, ins: Instruction) -> NDArray[Any]:
    """The containers of a matrix, (..., copies, rows, columns): a copy for each part of N where those lie above each other."""
    count = parts(ins) if layout.copies > 1 else 1
    found = _elements(tmem[..., cells.lanes, cells.columns], layout)
    run = layout.lanes // count // ins.cta_group  # lanes of a copy
    result = np.empty((*found.shape[:-2], count, *layout.shape), found.dtype)
    lane = np.arange(layout.lanes)
    for copy in range(count):
        chosen = lane // run % count == copy
        result[..., copy, layout.rows[chosen], layout.cols[chosen]] = found[..., chosen, :]
    return result


def a_in_tensor_memory(tmem: NDArray[np.uint32], cells: Cells, ins: Instruction) -> NDArray[Any]:
    """Codes of A, (..., copies, m, stored k); one copy where all are the same."""
    layout, fmt = ins.operands["a"].layout, ins.formats.a
    codes = _copies(tmem, layout, cells, ins)
    if layout.bits != fmt.bits:
        codes = codes >> np.uint8(container_shift(fmt, ins.kind)) & np.uint8((1 << fmt.bits) - 1)
    if (codes == codes[..., :1, :, :]).all():
        codes = codes[..., :1, :, :]
    return codes.astype(fmt.code_dtype, copy=False)


def metadata_words(tmem: NDArray[np.uint32], cells: Cells, ins: Instruction, what: str) -> NDArray[np.uint8]:
    """The 4-bit words of A, (..., m, chunks).

    Raises
    ------
    OperandError
        If the copies for the parts of N are not the same: what the hardware takes then is not known.
    """
    words = _copies(tmem, metadata_layout(ins), cells, ins)
    if not (words == words[..., :1, :, :]).all():
        raise OperandError(f"{what}: the copies for the parts of N differ")
    return np.asarray(words[..., 0, :, :])


def scale_codes(tmem: NDArray[np.uint32], cells: Cells, first: int, ins: Instruction, what: str) -> NDArray[np.uint8]:
    """Codes of scales, (..., rows or columns, scales), of which the first is that byte of their words.

    Raises
    ------
    OperandError
        If the copies are not the same: what the hardware takes then is not known.
    """
    mask = np.uint32(0xFF if ins.stype == "ue8m0" else 0x7F)
    word, byte = np.divmod(np.arange(first, first + ins.scale_vec_size), _WORD)
    found = tmem[..., cells.lanes, cells.columns][..., word] >> (8 * byte).astype(np.uint32) & mask
    wrong = np.argwhere(found != found[..., :1, :, :])
    if len(wrong):
        copy, line, scale = (int(place) for place in wrong[0][-3:])
        one, other = (int(cells.lanes[each, line, 0]) % LANES for each in (0, copy))
        raise OperandError(f"{what}: the copies in lanes {one} and {other} of column {int(cells.columns[line, word[scale]])} differ")
    return np.asarray(found[..., 0, :, :], dtype=np.uint8)


def in_shared_memory(
    memory: NDArray[np.uint8], descriptor: MatrixDescriptor, operand: str, ins: Instruction, first: int = 0
) -> NDArray[Any]:
    """Codes (..., m, stored k) of A or (..., n, k) of B, without its first lines; the CTAs of a pair hold half of the lines each."""
    fmt: Format = getattr(ins.formats, operand)
    lines, k, mn_major = (ins.m, ins.stored_k, ins.alayout == "col") if operand == "a" else (ins.n, ins.k, ins.blayout == "row")
    own = lines // ins.cta_group
    each = memory if ins.cta_group == 2 else memory[..., None, :]
    codes = matrix_in_memory(each, descriptor, own + first, k, fmt, mn_major, f"{ins}: {operand}", container_bits(fmt, ins.kind))
    return codes[..., first:, :].reshape(*codes.shape[:-3], lines, k)


def accumulators(tmem: NDArray[np.uint32], cells: Cells, ins: Instruction) -> NDArray[Any]:
    """Codes of D, (..., m, n); of 16-bit ones the upper half of a cell is ignored."""
    layout, held = ins.operands["d"].layout, tmem[..., cells.lanes, cells.columns]
    codes = np.empty((*held.shape[:-2], ins.m, ins.n), ins.formats.d.code_dtype)
    codes[..., layout.rows, layout.cols] = held.astype(codes.dtype)
    return codes


def write_accumulators(tmem: NDArray[np.uint32], cells: Cells, codes: NDArray[Any], ins: Instruction, kept: NDArray[np.bool_]) -> None:
    """Put D back, but for the lanes that are kept as they are; the upper half of a cell of 16 bits becomes zero."""
    layout = ins.operands["d"].layout
    written = ~kept[cells.lanes[:, 0]]
    tmem[..., cells.lanes[written], cells.columns] = codes[..., layout.rows, layout.cols][..., written, :].astype(np.uint32)


def descriptor_of(ins: Instruction) -> InstructionDescriptor:
    """Return what the instruction descriptor of an instruction says."""
    return InstructionDescriptor.decode(ins.kind, ins.idesc)
