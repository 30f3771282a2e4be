"""Additions and products of floats: a dot takes its addend, a product and a sum become one fused multiply-add, as the compiler has it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from fastmma.isa.codes import encode
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import BF16
from fastmma.triton.handles import CONSTANT, FACTORS, Factors, Product
from fastmma.triton.positions import position, straight

_FUSED = {np.dtype(np.float32): "fma_fp32", np.dtype(np.float64): "fma_fp64"}


def fused(x: NDArray[Any], y: NDArray[Any], z: NDArray[Any]) -> NDArray[Any]:
    """``x * y + z`` in one rounding."""
    x, y, z = np.broadcast_arrays(x, y, z)
    if z.dtype in _FUSED:
        return np.asarray(getattr(interpreter._interpreter, _FUSED[z.dtype])(*(np.ascontiguousarray(v) for v in (x, y, z))))
    product, addend = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)  # exact
    total = product + addend
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    bits = total.view(np.int64)
    away = (lost > 0) == (total > 0)
    odd = np.where((lost != 0) & (bits & 1 == 0), np.where(away, bits + 1, bits - 1), bits)
    total = np.where(np.isfinite(total), odd.view(np.float64), total)
    return encode(total, "bf16").view(BF16) if z.dtype == BF16 else total.astype(z.dtype)


def _is_float(handle: Any) -> bool:
    return bool(handle.dtype.scalar.is_floating())


def _multiply(_run: Emulation, original: Operation, x: Any, y: Any) -> Any:
    result = original(x, y)
    if _is_float(result):
        result.attr[FACTORS] = Factors(x.data, y.data, position())
    return result


def _negate(_run: Emulation, original: Operation, x: Any) -> Any:
    result = original(x)
    factors = x.attr.get(FACTORS)
    if factors is not None:
        result.attr[FACTORS] = Factors(-factors.x, factors.y, factors.where)
    return result


def _joined(run: Emulation, x: Any, y: Any, sign: int, operation: str) -> Any:
    """``x + y`` or ``x - y`` in one rounding where one of them is a product, the first if both are, and the compiler fuses them."""
    if not run.fuses or not (FACTORS in x.attr or FACTORS in y.attr):
        return None
    here = position()
    may_be = run.launch.products(here)
    for product, addend, of_product, of_addend, may in ((x, y, 1, sign, may_be[0]), (y, x, sign, 1, may_be[1])):
        factors = product.attr.get(FACTORS)
        if may and factors is not None and straight(factors.where, here):
            run.report.did(operation, "fused multiply-add")
            first = factors.x if of_product > 0 else -factors.x
            return TensorHandle(fused(first, factors.y, addend.data if of_addend > 0 else -addend.data), product.dtype.scalar)
    return None


def _add(run: Emulation, original: Operation, x: Any, y: Any) -> Any:
    if not (_is_float(x) and _is_float(y)):
        return original(x, y)
    for dot, addend in ((y, x), (x, y)):
        if isinstance(dot, Product) and dot.joins(position()) and run.launch.takes_addend(dot.where):
            run.report.did("+", "start of the dot that was added")
            return TensorHandle(dot.onto(addend.data), dot.dtype.scalar)
    result = _joined(run, x, y, 1, "+")
    return original(x, y) if result is None else result


def _subtract(run: Emulation, original: Operation, x: Any, y: Any) -> Any:
    result = _joined(run, x, y, -1, "-") if _is_float(x) and _is_float(y) else None
    return original(x, y) if result is None else result


def _view(_run: Emulation, original: Operation, x: Any, shape: Any) -> Any:
    """A broadcast, or a dimension more: threads hold the same products as before."""
    result = original(x, shape)
    factors = x.attr.get(FACTORS)
    if factors is not None:
        parts = (TensorHandle(np.broadcast_to(part, x.data.shape), x.dtype) for part in (factors.x, factors.y))
        first, second = (original(part, shape).data for part in parts)
        result.attr[FACTORS] = Factors(first, second, factors.where)
    return result


def _splat(_run: Emulation, original: Operation, kind: Any, value: Any) -> Any:
    result = original(kind, value)
    if CONSTANT in value.attr and not value.data.any():
        result.attr[CONSTANT] = position()
    return result


def _constant(_run: Emulation, original: Operation, value: Any) -> Any:
    result = original(value)
    result.attr[CONSTANT] = ()
    return result


OPERATIONS: dict[str, Operation] = {
    "create_fmul": _multiply,
    "create_fneg": _negate,
    "create_fadd": _add,
    "create_fsub": _subtract,
    "create_broadcast": _view,
    "create_expand_dims": _view,
    "create_splat": _splat,
    **dict.fromkeys(("get_fp16", "get_fp32", "get_fp64", "get_int32"), _constant),
}
