"""Casts between float formats, rounded as the GPU's instructions do."""

from __future__ import annotations

from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import FLOATS, elements
from fastmma.triton.numbers import converted, cut_to_integers, round_integers


def _cut_to_integer(run: Emulation, _original: Operation, value: Any, kind: Any) -> Any:
    source, target = value.dtype.scalar, kind.scalar
    bits, signed = target.primitive_bitwidth, target.is_int_signed()
    run.report.did("cast", f"{FLOATS[source.name]} to {'s' if signed else 'u'}{bits}, cvt.rzi{'' if bits > 8 else ' to 16 bits, cut to 8'}")
    return TensorHandle(cut_to_integers(elements(value), bits, signed=signed).reshape(value.data.shape), target)


def _round_integer(run: Emulation, _original: Operation, value: Any, kind: Any) -> Any:
    """Convert; before Hopper, integers become bf16 by way of f32."""
    fmt = FLOATS[kind.scalar.name]
    data = value.data
    if fmt == "bf16" and run.capability < 90:
        result = converted(data.astype(np.float32), "f32", "bf16")
    else:
        result = round_integers(data.astype(np.uint8) if data.dtype == np.bool_ else data, fmt)
    return TensorHandle(result, kind.scalar)


def _cast(run: Emulation, original: Operation, value: Any, kind: Any, *rounding: Any) -> Any:
    source, target = (FLOATS.get(dtype.scalar.name) for dtype in (value.dtype, kind))
    if source is None or target is None:
        run.report.passes("cast", f"{value.dtype.scalar} to {kind.scalar}: how it rounds is not modelled")
    if source is None or target is None or source == target:
        return original(value, kind, *rounding)
    mode = "rz" if "RTZ" in str(rounding) else "rn"
    data = converted(elements(value), source, target, mode)
    run.report.did("cast", f"{source} to {target}, {mode}")
    return TensorHandle(data.reshape(value.data.shape).view(interpreter._get_np_dtype(kind)), kind.scalar)


OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(("create_fp_to_fp", "create_fp_ext", "create_fp_trunc"), _cast),
    **dict.fromkeys(("create_fp_to_si", "create_fp_to_ui"), _cut_to_integer),
    **dict.fromkeys(("create_si_to_fp", "create_ui_to_fp"), _round_integer),
}
