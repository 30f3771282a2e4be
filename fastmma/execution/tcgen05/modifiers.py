"""What modifies a tcgen05.mma besides its matrices: lanes and columns that are masked, D scaled down, signs changed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array, whole
from fastmma.host.errors import OperandError, OperandTypeError, TargetError
from fastmma.isa.formats import Format
from fastmma.isa.instruction import Instruction
from fastmma.isa.tcgen05.column_mask import ZeroColumnMask
from fastmma.isa.tcgen05.tensor_memory import LANES
from fastmma.numerics.lookup import is_strict


def kept_lanes(mask: Any, ins: Instruction) -> NDArray[np.bool_]:
    """Which lanes of the CTAs keep what they have.

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


def shrunk(codes: NDArray[Any], fmt: Format, shift: int, what: str) -> NDArray[Any]:
    """D times 2 ** -shift.

    Raises
    ------
    OperandError
        Where that would be subnormal: how it is rounded then, nobody has asked a GPU.
    """
    if not shift:
        return codes
    values = codes.view(fmt.dtype)
    with np.errstate(all="ignore"):
        scaled = values * fmt.dtype.type(2.0**-shift)
        least = np.finfo(fmt.dtype).tiny
        wrong = np.isfinite(values) & (values != 0) & (np.abs(scaled) < least)
    if wrong.any():
        found = values[wrong].flat[0]
        raise OperandError(f"{what}: {found} times 2 ** -{shift} is no normal number of {fmt}, and how it is rounded is not known")
    return np.asarray(scaled).view(codes.dtype)


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
