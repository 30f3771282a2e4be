"""Structured sparsity: compressing matrices for mma.sp and packing their metadata into registers (PTX: Sparse matrix storage)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.host.integers import flag
from fastmma.isa.codes import decode, from_codes, to_codes
from fastmma.isa.formats import Format, format_of
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import PATTERNS, Pattern, check_selector, metadata_bit, metadata_lanes, metadata_layout, pattern_of
from fastmma.isa.table import multiply
from fastmma.operands.check import register_words

__all__ = ["compress", "decompress", "pack_metadata", "unpack_metadata"]


def __dir__() -> list[str]:
    return list(__all__)


def _pattern(fmt: Format, pattern: str | None) -> Pattern:
    if pattern is None:
        pattern = {32: "1:2", 4: "4:8"}.get(fmt.bits, "2:4")
    if not isinstance(pattern, str) or pattern not in PATTERNS:
        raise OperandError(f"there is no sparsity pattern {pattern!r}; there are {', '.join(PATTERNS)}")
    return PATTERNS[pattern]


@public_call
def compress(a: Any, *, pattern: str | None = None, prune: bool = False) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Store a structured sparse matrix without its zeros.

    Parameters
    ----------
    a : array (..., m, k)
        Elements in the dtype of their format; k is a multiple of the pattern's chunk.
    pattern : {"2:4", "1:2", "4:8"}, optional
        By default 1:2 for float32 (tf32), 4:8 in pairs for 4-bit elements, else 2:4. Give ``"2:4"`` for e2m1 in ``.kind::f8f6f4``.
    prune : bool
        Keep the largest magnitudes of each chunk (the first of equal ones) and drop the rest. Without it, a matrix that breaks the pattern
        is an error.

    Returns
    -------
    stored : array (..., m, k / 2)
    metadata : uint8 array (..., m, k / chunk)
        The 4-bit words, one a chunk, in ascending (ordered) form.

    Raises
    ------
    OperandError
        If k is not a multiple of the chunk, or a chunk has more elements that are not zero than the pattern stores.

    Examples
    --------
    >>> stored, metadata = compress(np.array([[0, 5, 0, 7]], dtype=np.float16))
    >>> stored.tolist(), metadata.tolist()
    ([[5.0, 7.0]], [[13]])
    """
    array = as_array(a, "a")
    fmt = format_of(array.dtype)
    rule = _pattern(fmt, pattern)
    if array.ndim < 1 or array.shape[-1] % rule.chunk:
        raise OperandError(f"a must have shape (..., k) with k a multiple of {rule.chunk} for {rule.name}, not {array.shape}")
    codes = to_codes(array, fmt)
    chunks = codes.reshape(*codes.shape[:-1], codes.shape[-1] // rule.chunk, rule.chunk)
    magnitude = np.abs(decode(chunks, fmt).astype(np.float64))
    magnitude[np.isnan(magnitude)] = np.inf
    words = np.array([word for word, _ in rule.words[: rule.ordered]], dtype=np.uint8)
    places = np.array([where for _, where in rule.words[: rule.ordered]])
    if flag(prune, "prune"):
        # by rank and not by sum, in which a large magnitude would hide the others
        units = magnitude.reshape(*magnitude.shape[:-1], rule.chunk // rule.unit, rule.unit).sum(axis=-1)
        rank = np.argsort(np.argsort(-units, axis=-1, kind="stable"), axis=-1)
        choice = rank[..., places[:, :: rule.unit] // rule.unit].sum(axis=-1).argmin(axis=-1)
    else:
        nonzero = magnitude != 0
        complete: NDArray[np.bool_] = np.asarray(nonzero[..., places].sum(axis=-1) == nonzero.sum(axis=-1)[..., None])
        if not complete.any(axis=-1).all():
            where = tuple(int(index) for index in np.argwhere(~complete.any(axis=-1))[0])
            row, start = where[:-1], where[-1] * rule.chunk
            raise OperandError(
                f"a is not {rule.name} sparse: row {row if len(row) != 1 else row[0]}, columns {start} to {start + rule.chunk - 1}; "
                "prune=True keeps the largest"
            )
        choice = complete.argmax(axis=-1)
    stored = np.take_along_axis(chunks, places[choice], axis=-1).reshape(*codes.shape[:-1], chunks.shape[-2] * rule.stored)
    return from_codes(stored, fmt), words[choice]


@public_call
def decompress(stored: Any, metadata: Any, *, pattern: str | None = None) -> NDArray[Any]:
    """Return the dense matrix of a stored one: the inverse of `compress`.

    Parameters
    ----------
    stored : array (..., m, k / 2)
    metadata : integer array (..., m, k / chunk)
        The 4-bit words of the chunks.
    pattern : {"2:4", "1:2", "4:8"}, optional
        By default 1:2 for float32 (tf32), 4:8 in pairs for 4-bit elements, else 2:4.

    Returns
    -------
    array (..., m, k)

    Raises
    ------
    OperandError
        If the shapes do not belong together or a word of the metadata is invalid.

    Examples
    --------
    >>> decompress(*compress(np.array([[0, 5, 0, 7]], dtype=np.float16))).tolist()
    [[0.0, 5.0, 0.0, 7.0]]
    """
    array = as_array(stored, "stored")
    if array.ndim < 1:
        raise OperandError("stored must have shape (..., k / 2), not ()")
    fmt = format_of(array.dtype)
    rule = _pattern(fmt, pattern)
    words = check_metadata(metadata, (*array.shape[:-1], array.shape[-1] // rule.stored), rule, ordered=False, what="metadata")
    return from_codes(expand(to_codes(array, fmt), words, rule), fmt)


def check_metadata(metadata: Any, shape: tuple[int, ...], rule: Pattern, *, ordered: bool, what: str) -> NDArray[np.uint8]:
    """Metadata words as an array of a shape, all valid.

    Raises
    ------
    OperandError, OperandTypeError
        PTX calls invalid words undefined behaviour; here they are errors.
    """
    words = as_array(metadata, what)
    if words.dtype.kind not in "ui":
        raise OperandTypeError(f"{what} must be an array of integers, not {words.dtype}")
    if words.shape != shape:
        raise OperandError(f"{what} must have shape {shape}, not {words.shape}")
    legal = np.asarray((rule.table(ordered) >= 0).all(axis=1))
    if words.dtype == np.uint8 and np.pad(legal, (0, 240)).take(words).all():
        return words.copy()
    inside: NDArray[np.bool_] = np.asarray((words >= 0) & (words < 16))
    wrong: NDArray[np.bool_] = np.asarray(~(inside & legal[np.where(inside, words, 0)]))
    if wrong.any():
        where = tuple(int(index) for index in np.argwhere(wrong)[0])
        valid = ", ".join(f"0b{word:04b}" for word, _ in rule.words[: rule.ordered if ordered else None])
        raise OperandError(f"{what}: {int(words[where])} at {where} is no {rule.name} index; valid are {valid}")
    return words.astype(np.uint8)


def expand(stored: NDArray[Any], words: NDArray[np.uint8], rule: Pattern) -> NDArray[Any]:
    """Stored codes (..., k / 2) and valid words (..., k / chunk) to dense codes (..., k)."""
    from fastmma.kernels.matrices import expand

    dense = np.empty((*stored.shape[:-1], words.shape[-1] * rule.chunk), dtype=stored.dtype)
    count = math.prod(stored.shape[:-1])
    rows, row_words, dense_rows = (np.ascontiguousarray(array).reshape(count, array.shape[-1]) for array in (stored, words, dense))
    expand.expand(rows, row_words, rule.table(False), rule.chunk, dense_rows)
    return dense


def _sparse(ins: str | Instruction) -> Instruction:
    found = multiply(ins)
    if not found.sparse:
        raise InstructionError(f"{found}: the instruction is not sparse and has no metadata")
    return found


def _contributing(ins: Instruction, selector: int) -> NDArray[np.intp]:
    """The lanes that hold the metadata, in the order of `metadata_layout`."""
    count = metadata_lanes(ins)
    return (np.arange(0, ins.lanes, 4)[:, None] + selector * count % 4 + np.arange(count)).ravel()


def _places(ins: Instruction, selector: int) -> NDArray[np.uint32]:
    """The lowest bits of a lane's words."""
    return np.uint32(metadata_bit(ins, selector)) + 4 * np.arange(metadata_layout(ins).elements, dtype=np.uint32)


@public_call
def pack_metadata(ins: str | Instruction, metadata: Any, *, selector: int = 0) -> NDArray[np.uint32]:
    """Pack metadata words into the registers that an instruction takes.

    Parameters
    ----------
    ins : str or Instruction
        A sparse opcode.
    metadata : integer array (..., m, k / chunk)
        The 4-bit words that `compress` returns.
    selector : int
        Which lanes of each group of four hold it.

    Returns
    -------
    uint32 array (..., 32), or (..., 128) for wgmma
        Lanes that contribute nothing are zero.

    Raises
    ------
    InstructionError, OperandError, OperandTypeError
        If the instruction is not sparse, or a word is invalid, or unsorted for ``sp::ordered_metadata``.

    Examples
    --------
    >>> ins = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    >>> _, words = compress(np.eye(16, 32, dtype=np.float16))
    >>> pack_metadata(ins, words).shape
    (32,)
    """
    found = _sparse(ins)
    chosen = check_selector(found, selector)
    lanes, layout, rule = _contributing(found, chosen), metadata_layout(found), pattern_of(found)
    array = as_array(metadata, f"{found}: metadata")
    shape = (*array.shape[:-2], *layout.shape)
    words = check_metadata(array, shape, rule, ordered=found.ordered_metadata, what=f"{found}: metadata")
    nibbles = words[..., layout.rows, layout.cols].astype(np.uint32)
    registers = np.zeros((*words.shape[:-2], found.lanes), dtype=np.uint32)
    registers[..., lanes] = np.bitwise_or.reduce(nibbles << _places(found, chosen), axis=-1)
    return registers


@public_call
def unpack_metadata(ins: str | Instruction, registers: Any, *, selector: int = 0) -> NDArray[np.uint8]:
    """Unpack metadata words from registers: the inverse of `pack_metadata`.

    Parameters
    ----------
    ins : str or Instruction
        A sparse opcode.
    registers : uint32 array (..., 32), or (..., 128) for wgmma
    selector : int
        Which lanes of each group of four hold the metadata.

    Returns
    -------
    uint8 array (..., m, k / chunk)
        The 4-bit words, one a chunk.

    Raises
    ------
    InstructionError, OperandError, OperandTypeError
        If the instruction is not sparse, or a word is invalid, or unsorted for ``sp::ordered_metadata``.

    Examples
    --------
    >>> ins = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    >>> _, words = compress(np.eye(16, 32, dtype=np.float16))
    >>> bool((unpack_metadata(ins, pack_metadata(ins, words, selector=1), selector=1) == words).all())
    True
    """
    found = _sparse(ins)
    chosen = check_selector(found, selector)
    lanes, layout = _contributing(found, chosen), metadata_layout(found)
    array = register_words(registers, (found.lanes,), f"{found}: metadata")
    nibbles = (array[..., lanes, None] >> _places(found, chosen)) & np.uint32(15)
    words = nibbles.reshape(*array.shape[:-1], layout.elements * len(lanes))[..., layout.inverse[0]]
    return check_metadata(words, words.shape, pattern_of(found), ordered=found.ordered_metadata, what=f"{found}: metadata")
