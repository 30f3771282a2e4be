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

_NARROW = ("e4m3", "e5m2")  # their casts saturate


def converted(values: NDArray[Any], target: str, rounding: str) -> NDArray[Any]:
    """Values rounded to a format once, in its dtype; 8-bit formats take their largest number for what is beyond it, infinities too.

    Examples
    --------
    >>> import numpy as np
    >>> converted(np.float32([1.1, 1e9, -np.inf, np.nan]), "e4m3", "rn").tolist()
    [1.125, 448.0, -448.0, nan]
    """
    fmt = format_of(target)
    codes = encode(values, fmt, rounding="rz" if rounding == "rz" else "rn", saturate=target in _NARROW)
    return np.asarray(codes).astype(fmt.code_dtype).view(fmt.dtype)


def _is_wider(source: str, target: str) -> bool:
    first, second = format_of(source), format_of(target)
    return second.holds(first)


def _cast(run: Emulation, original: Operation, value: Any, kind: Any, rounding: Any = None) -> Any:
    source, target = (FLOATS.get(dtype.scalar.name) for dtype in (value.dtype, kind))
    if source is None or target is None or source == target:
        return original(value, kind) if rounding is None else original(value, kind, rounding)
    mode = "rz" if "RTZ" in str(rounding) else "rn"
    values = elements(value)
    data = values.astype(format_of(target).dtype) if _is_wider(source, target) else converted(values, target, mode)
    run.report.did("cast", f"{source} to {target}, {mode}")
    return TensorHandle(data.reshape(value.data.shape).view(interpreter._get_np_dtype(kind)), kind.scalar)


OPERATIONS = dict.fromkeys(("create_fp_to_fp", "create_fp_ext", "create_fp_trunc", "cast_impl"), _cast)
