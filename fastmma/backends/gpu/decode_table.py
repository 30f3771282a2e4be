"""Every code of a format as the emulator's CUDA kernels read it: a table of four 32-bit words a code."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.isa.codes import decode
from fastmma.isa.formats import Format

# as in operands.cuh
NO_EXPONENT = -8000
FINITE, INFINITE, NOT_A_NUMBER = range(3)
# a zero's value in the tile kernel: it has a sign, and times anything it is below every unit of a sum
TINY = math.ldexp(1.0, -480)


@lru_cache(256)
def decode_table(fmt: Format, wide: Format | None = None) -> NDArray[np.int32]:
    """The entries of a format, in the order of codes: high word of the value as float64, exponent, significand, special.

    Parameters
    ----------
    fmt : Format
        Of at most 19 significant bits; bits above the format's width are ignored.
    wide : Format, optional
        The wider format whose exponents and fraction bits count; `fmt` by default.

    Returns
    -------
    int32 array (codes, 4)

    Examples
    --------
    >>> from fastmma.isa.formats import FORMATS
    >>> decode_table(FORMATS["e4m3"])[0x01].tolist()[1:]  # 2**-9 is 1 / 8 of the smallest normal number
    [-6, 1, 0]
    """
    wide = wide or fmt
    values = decode(np.arange(1 << (max(fmt.bits, 8) - fmt.padding), dtype=np.uint32) << np.uint32(fmt.padding), fmt)
    table: NDArray[Any] = np.zeros((len(values), 4), dtype=np.int32)
    if fmt.kind != "float":
        table[:, 2] = values
        table.flags.writeable = False
        return table
    usual = np.isfinite(values) & (values != 0)
    magnitude = np.where(usual, np.abs(values), 1.0)
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, wide.emin)
    significand = np.ldexp(magnitude, wide.mantissa_bits - exponent)
    table[:, 0] = np.where(values == 0, np.copysign(TINY, values), values).view(np.int64) >> 32
    table[:, 1] = np.where(usual, exponent, NO_EXPONENT)
    table[:, 2] = np.where(usual, np.copysign(significand, values), 0)
    table[:, 3] = np.where(np.isnan(values), NOT_A_NUMBER, np.where(np.isinf(values), INFINITE, FINITE))
    table.flags.writeable = False
    return table
