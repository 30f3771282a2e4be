"""Comparisons, remainders, whole numbers and explicit fused multiply-adds, as the PTX that Triton makes of them computes them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime.interpreter import TensorHandle

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import FLOATS
from fastmma.triton.methods import METHODS
from fastmma.triton.numbers import converted, fused

_TINY = np.float32(float.fromhex("0x1p-126"))
# the compiler takes no 8-bit floats here, and the interpreter would compute with their codes
_NOT_OF_FP8 = (
    *("fadd", "fsub", "fmul", "fneg", "fma", "frem", "minimumf", "minnumf", "maximumf", "maxnumf", "clampf"),
    *("fcmpOLT", "fcmpOGT", "fcmpOLE", "fcmpOGE", "fcmpOEQ", "fcmpUNE"),
)


def _compare(_run: Emulation, original: Operation, x: Any, y: Any) -> Any:
    """Compare; the interpreter gives the result the type of its operands."""
    result = original(x, y)
    result.dtype = tl.int1
    return result


def _fuse(_run: Emulation, _original: Operation, x: Any, y: Any, z: Any) -> Any:
    return TensorHandle(fused(x.data, y.data, z.data), z.dtype.scalar)


def find_remainder(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Return x - trunc(x / y) y, the quotient rounded and the rest in one rounding; x where y is infinite.

    Examples
    --------
    >>> import numpy as np
    >>> find_remainder(np.float32([7, -7, 7]), np.float32([3, 3, np.inf])).tolist()
    [1.0, -1.0, 7.0]
    """
    return np.where(np.isinf(y), x, fused(-np.trunc(x / y), y, x))


def _remain(run: Emulation, original: Operation, x: Any, y: Any) -> Any:
    fmt = FLOATS.get(x.dtype.scalar.name)
    if fmt is None:
        return original(x, y)
    wide = np.float64 if fmt == "f64" else np.float32
    result = find_remainder(*np.broadcast_arrays(x.data.astype(wide), y.data.astype(wide)))
    run.report.did("%", "div.rn, cvt.rzi and fma.rn")
    data = result if fmt in ("f32", "f64") else converted(result, "f32", fmt)
    return TensorHandle(np.ascontiguousarray(data), x.dtype.scalar)


def _round(run: Emulation, original: Operation, x: Any, instruction: str) -> Any:
    """Round to a whole number; those of f32 that are no normal numbers are flushed to zero first."""
    if x.data.dtype != np.float32:
        return original(x)
    run.report.did(instruction.partition(":")[0], instruction.partition(":")[2])
    return original(TensorHandle(np.where(np.abs(x.data) < _TINY, np.copysign(np.float32(0), x.data), x.data), x.dtype))


def _check_fp8(operation: Operation | None, name: str, run: Emulation, original: Operation, *operands: Any) -> Any:
    """Compute, unless the compiler would refuse.

    Raises
    ------
    NotEmulatedError
    """
    if operands[0].dtype.primitive_bitwidth == 8:
        raise NotEmulatedError(f"{name} of {operands[0].dtype.scalar}: Triton's compiler takes no 8-bit floats here; convert them first")
    return original(*operands) if operation is None else operation(run, original, *operands)


def refuse_fp8(operations: dict[str, Operation]) -> dict[str, Operation]:
    """Give operations that raise where the compiler takes no 8-bit floats."""
    names = {f"create_{name}" for name in _NOT_OF_FP8}
    return operations | {name: partial(_check_fp8, operations.get(name), METHODS[name].operation) for name in names}


OPERATIONS: dict[str, Operation] = {
    **{name: _compare for name in METHODS if name.startswith(("create_fcmp", "create_icmp"))},
    "create_fma": _fuse,
    "create_frem": _remain,
    "create_floor": partial(_round, instruction="floor:cvt.rmi.ftz.f32.f32"),
    "create_ceil": partial(_round, instruction="ceil:cvt.rpi.ftz.f32.f32"),
}
