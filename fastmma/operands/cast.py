"""Large arrays of floats rounded to a multiplicand's format, by compiled code; `fastmma.encode` is what they equal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for, thread_count
from fastmma.isa.codes import encode, encode_array
from fastmma.isa.formats import Format

_FEWEST = 1 << 14  # elements for which kernels are loaded
_PIECE = 1 << 17


def rounded(array: NDArray[Any], fmt: Format) -> NDArray[Any]:
    """Codes of float16, float32 or float64 numbers, to nearest even; beyond a format without infinity and NaN, its largest value.

    Raises
    ------
    OperandError
        If there is a NaN, and the format has none.
    """
    saturate = fmt.nan is None
    wide = array.astype(np.float32) if array.dtype.itemsize == 2 else array.astype(array.dtype.newbyteorder("="), copy=False)
    small = array.size < _FEWEST or np.finfo(wide.dtype).nmant <= fmt.mantissa_bits
    if small or (saturate and np.isnan(array).any()):
        return encode_array(array, fmt, "rn", saturate)
    from fastmma.kernels import quantize

    unpadded = fmt.magnitude_bits + 1
    limit = int(encode(fmt.max if saturate else np.inf, fmt)) >> fmt.padding
    nan = 0 if fmt.nan is None else fmt.nan >> fmt.padding
    narrow = quantize.Narrow(
        fmt.mantissa_bits, fmt.emin + np.finfo(wide.dtype).maxexp - 1, limit, nan, unpadded - 1, 0, int(fmt.has_negative_zero)
    )
    codes = np.empty_like(wide, fmt.code_dtype, order="K")
    dense = wide.flags.forc and codes.flags.c_contiguous == wide.flags.c_contiguous
    source = wide.ravel("A") if dense else np.ascontiguousarray(wide).ravel()
    target = codes.ravel("A") if dense else np.empty(source.shape, codes.dtype)

    def work(start: int, stop: int, _worker: int) -> None:
        quantize.round_codes(source[start:stop], narrow, target[start:stop])
        if fmt.padding:
            target[start:stop] <<= fmt.padding

    parallel_for(work, len(source), thread_count(None), _PIECE)
    return codes if dense else target.reshape(array.shape)
