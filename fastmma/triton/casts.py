"""Casts between float formats, rounded as the GPU's instructions do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from fastmma.isa.codes import encode
from fastmma.isa.formats import format_of
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import FLOATS, elements

_SATURATED = ("e4m3", "e5m2")
_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "e4m3": 0x7F, "e5m2": 0x7F}  # all ones, positive (seen on an H100)


def converted(values: NDArray[Any], source: str, target: str, rounding: str = "rn") -> NDArray[Any]:
    """Values of one format in another, in its dtype, rounded once.

    8-bit formats take their largest number for what is beyond it, infinities too, but under ``"rz"`` infinities stay. NaN has all bits set
    but the sign. bf16 becomes f32 bit by bit, and e5m2 becomes bf16 as if it had no infinities and NaN: Triton only moves the bits.

    Examples
    --------
    >>> import numpy as np
    >>> converted(np.float32([1.1, 1e9, -np.inf, np.nan]), "f32", "e4m3").tolist()
    [1.125, 448.0, -448.0, nan]
    """
    fmt = format_of(target)
    if (source, target) == ("bf16", "f32"):
        return np.asarray(values.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if (source, target) == ("e5m2", "bf16"):
        codes = values.view(np.uint8)
        finite = np.ldexp((codes & 3) + np.where(codes & 0x7C, 4.0, 0.0), np.maximum(codes >> 2 & 31, 1).astype(np.int32) - 17)
        return np.asarray(np.where(codes & 0x80, -finite, finite).astype(fmt.dtype))
    if fmt.holds(format_of(source)):
        result = values.astype(fmt.dtype)
    else:
        codes = encode(values, fmt, rounding="rz" if rounding == "rz" else "rn", saturate=target in _SATURATED and rounding == "rn")
        result = np.asarray(codes).astype(fmt.code_dtype).view(fmt.dtype)
    if target in _NAN:
        np.putmask(result.view(fmt.code_dtype), np.isnan(values), np.asarray(_NAN[target], fmt.code_dtype))
    return result


def _cast(run: Emulation, original: Operation, value: Any, kind: Any, rounding: Any = None) -> Any:
    source, target = (FLOATS.get(dtype.scalar.name) for dtype in (value.dtype, kind))
    if source is not None and kind.scalar.name == "int32":
        whole = np.nan_to_num(elements(value).astype(np.float64), nan=0.0)
        return TensorHandle(np.clip(whole, -(2.0**31), 2.0**31 - 1).astype(np.int32).reshape(value.data.shape), kind.scalar)
    if source is None or target is None or source == target:
        return original(value, kind) if rounding is None else original(value, kind, rounding)
    mode = "rz" if "RTZ" in str(rounding) else "rn"
    data = converted(elements(value), source, target, mode)
    run.report.did("cast", f"{source} to {target}, {mode}")
    return TensorHandle(data.reshape(value.data.shape).view(interpreter._get_np_dtype(kind)), kind.scalar)


OPERATIONS: dict[str, Operation] = dict.fromkeys(
    ("create_fp_to_fp", "create_fp_ext", "create_fp_trunc", "create_fp_to_si", "cast_impl"), _cast
)
