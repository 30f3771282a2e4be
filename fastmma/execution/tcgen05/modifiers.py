"""Modifiers of a tcgen05.mma besides its matrices: lanes and columns that are masked, D scaled down, signs changed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Operation
from fastmma.host.arrays import as_array
from fastmma.host.errors import OperandError, OperandTypeError, TargetError
from fastmma.host.integers import whole
from fastmma.isa.formats import Format
from fastmma.isa.instruction import Instruction
from fastmma.isa.tcgen05.column_mask import ZeroColumnMask
from fastmma.isa.tcgen05.tensor_memory import LANES
from fastmma.numerics import reference
from fastmma.numerics.lookup import is_strict
from fastmma.operands.check import flatten


def kept_lanes(mask: Any, ins: Instruction) -> NDArray[np.bool_]:
    """Return which lanes of the CTAs keep what they have.

    Raises
    ------
    OperandTypeError, OperandError
    """
    if mask is None:
        return np.zeros(2 * LANES, np.bool_)
    words = as_array(mask, f"{ins}: disable_output_lane")
    count = 4 * ins.cta_group
    if words.dtype.kind not in "ui" or words.shape != (count,) or (words < 0).any() or (words >> 32).any():
        raise OperandError(f"{ins}: disable_output_lane must be {count} words of 32 bits, not {mask!r:.60}")
    bits = words[:, None].astype(np.uint32) >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    return np.pad(bits.ravel().astype(np.bool_), (0, 2 * LANES - 32 * count))


def shrunk(codes: NDArray[Any], fmt: Format, shift: int, what: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """D times 2 ** -shift, and where that is no normal number: there it is 0 for now, and `exact_shift` has the result.

    Raises
    ------
    TargetError
        In strict mode, where there are such numbers: that they are not rounded is only assumed.
    """
    if not shift:
        return codes, np.zeros((), np.bool_)
    values = codes.view(fmt.dtype)
    with np.errstate(all="ignore"):
        scaled = values * fmt.dtype.type(2.0**-shift)
        beyond = np.asarray(np.isfinite(values) & (values != 0) & (np.abs(scaled) < np.finfo(fmt.dtype).tiny))
    if beyond.any() and is_strict():
        found = values[beyond].flat[0]
        raise TargetError(f"{what}: {found} times 2 ** -{shift} is no normal number of {fmt}; how it is rounded is only assumed")
    return np.where(beyond, codes.dtype.type(0), scaled.view(codes.dtype)), beyond


def exact_shift(
    operation: Operation, given: dict[str, NDArray[Any]], where: NDArray[np.bool_], shift: int, lead: tuple[int, ...], result: NDArray[Any]
) -> None:
    """Some elements of a result, (..., m, n), again, from D times 2 ** -shift without a rounding."""
    ins, tail = operation.instruction, given["a"].shape[-3:]
    copies = np.broadcast_to(given["a"], (*lead, *tail)).reshape(-1, *tail)
    flat = {name: flatten(array, lead) for name, array in given.items() if name != "a"}
    codes = result.reshape(-1, ins.m, ins.n)
    for product, row, column in np.argwhere(flatten(where, lead)):
        line, one = slice(row, row + 1), slice(column, column + 1)
        codes[product, row, column] = reference.tile(
            ins,
            operation.arithmetic,
            copies[product, column * tail[0] // ins.n, line],
            flat["b"][product, :, one],
            flat["c"][product, line, one],
            metadata=flat["metadata"][product, line] if "metadata" in flat else None,
            shift=shift,
        )[0, 0]


def check_row_shift(ins: Instruction) -> None:
    """Raise TargetError in strict mode: what .ashift shifts is only reported."""
    if is_strict():
        raise TargetError(f"{ins}: what .ashift shifts is only reported (PTX's text, read as for tcgen05.shift), which strict mode refuses")


def shifted_rows(codes: NDArray[Any], ins: Instruction) -> NDArray[Any]:
    """Rows (..., m, k) of A or of its metadata under .ashift: each CTA's row i is its row i + 1, and its last row stays."""
    rows = np.arange(ins.m).reshape(ins.cta_group, -1)
    return np.take(codes, np.minimum(rows + 1, rows[:, -1:]).ravel(), axis=-2)


def negated(codes: NDArray[Any], fmt: Format, negate: bool) -> NDArray[Any]:
    """Codes with the other sign, where that is asked for."""
    return codes ^ codes.dtype.type(1 << fmt.bits - 1) if negate else codes


def zero_columns(mask: Any, ins: Instruction, max_shift: int) -> ZeroColumnMask:
    """The zero-column mask of a call; 0 is the one that changes nothing.

    Raises
    ------
    OperandTypeError, OperandError
        If it is none, or shifts by more columns than the instruction descriptor says.
    TargetError
        In strict mode, unless it is 0: what it does is only reported.
    """
    what = f"{ins}: zero_column_mask"
    word = mask.encode() if isinstance(mask, ZeroColumnMask) else whole(mask)
    if word is None:
        raise OperandTypeError(f"{what} must be a ZeroColumnMask or its 64 bits, not {type(mask).__name__}")
    try:
        found = ZeroColumnMask.decode(word)
    except OperandError as error:
        raise OperandError(f"{what}: {error}") from None
    if found.shift > max_shift:
        raise OperandError(f"{what} shifts B by {found.shift} columns, but the max_shift of the instruction descriptor is {max_shift}")
    if word and is_strict():
        raise TargetError(f"{what}: what it does is only reported (CUTLASS's code), which strict mode refuses")
    return found
