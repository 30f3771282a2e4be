"""Additions and products of floats: a dot takes its addend, a product and a sum become one fused multiply-add, as the compiler has it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton.runtime.interpreter import TensorHandle

from fastmma.triton.contraction import COMPARED, OTHER, PRODUCT, SUM, Origin
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.handles import CONSTANT, FACTORS, KIND, VALUE, Factors, ProductHandle
from fastmma.triton.numbers import fused
from fastmma.triton.positions import Position, position, sites, straight
from fastmma.triton.sources import list_sources


def _is_float(handle: Any) -> bool:
    return bool(handle.dtype.scalar.is_floating())


def remember_product(handle: Any, x: NDArray[Any], y: NDArray[Any], kind: str = PRODUCT, factor: float | None = None) -> Any:
    """Remember of which factors a value is the product, for an addition that may take them."""
    handle.attr[FACTORS] = Factors(x, y, position(), x is y, factor)
    handle.attr[KIND] = kind
    return handle


def _find_origin(handle: Any) -> Origin:
    factors = handle.attr.get(FACTORS)
    kind, loads = handle.attr.get(KIND, OTHER), list_sources(handle)
    return Origin(kind, loads) if factors is None else Origin(kind, loads, factors.is_square, factors.factor)


def _multiply(_run: Emulation, original: Operation, x: Any, y: Any) -> Any:
    result = original(x, y)
    factor = x.attr.get(VALUE, y.attr.get(VALUE))
    return remember_product(result, x.data, y.data, factor=factor) if _is_float(result) else result


def _negate(_run: Emulation, original: Operation, x: Any) -> Any:
    result = original(x)
    factors = x.attr.get(FACTORS)
    if factors is not None:
        result.attr[FACTORS] = Factors(-factors.x, factors.y, factors.where, factors.is_square, factors.factor)
    if KIND in x.attr:
        result.attr[KIND] = x.attr[KIND]
    return result


def _guess(x: Any, y: Any, here: Position) -> int:
    """Return which operand rules would fuse: the first that is a product of the same stretch of code."""
    factors = (value.attr.get(FACTORS) for value in (x, y))
    return next((index for index, one in enumerate(factors) if one is not None and straight(one.where, here)), -1)


def _choose(run: Emulation, x: Any, y: Any, here: Position) -> int | None:
    """Return which of two operands the compiler fuses with their sum: 0, 1, -1 for neither, None where that is not known."""
    if not run.fuses:
        return -1
    compiled = run.launch.compiled
    if compiled is not None:
        return compiled.contractions.find_fused_operand(sites(here), _find_origin(x), _find_origin(y))
    return _guess(x, y, here)


def _join(run: Emulation, original: Operation, x: Any, y: Any, sign: int, operation: str) -> Any:
    """Compute ``x + y`` or ``x - y``, in one rounding where one of them is a product that the compiler fuses with it."""
    here = position()
    index = _choose(run, x, y, here)
    is_product = any(FACTORS in value.attr for value in (x, y))
    if index is None:
        run.report.passes(operation, "whether the compiler fuses a product with it is not clear")
        index = _guess(x, y, here)
    elif run.fuses and is_product and run.launch.compiled is None:
        run.report.assumes(operation, "fused multiply-add, by rules" if index >= 0 else "no fused multiply-add, by rules")
    elif run.fuses and is_product and run.capability >= COMPARED:
        run.report.assumes(operation, "fused multiply-adds as PTX has them: which others ptxas makes for this GPU is not known")
    elif index >= 0:
        run.report.did(operation, "fused multiply-add")
    if index < 0:
        return original(x, y)
    factors, addend = (x, y)[index].attr[FACTORS], (y, x)[index].data
    first = factors.x if index == 0 or sign > 0 else -factors.x
    return TensorHandle(fused(first, factors.y, addend if index == 1 or sign > 0 else -addend), x.dtype.scalar)


def add_or_fuse(run: Emulation, x: Any, y: Any) -> Any:
    """Add, with a product fused if the compiler does so."""
    return _mark_sum(_join(run, lambda *_: TensorHandle(x.data + y.data, x.dtype.scalar), x, y, 1, "+"))


def _add(run: Emulation, original: Operation, x: Any, y: Any) -> Any:
    if not (_is_float(x) and _is_float(y)):
        return original(x, y)
    for dot, addend in ((y, x), (x, y)):
        if isinstance(dot, ProductHandle) and dot.joins(position()) and run.launch.takes_addend(dot.where):
            run.report.did("+", "start of the dot that was added")
            return TensorHandle(dot.onto(addend.data), dot.dtype.scalar)
    return _mark_sum(_join(run, original, x, y, 1, "+"))


def _subtract(run: Emulation, original: Operation, x: Any, y: Any) -> Any:
    return _mark_sum(_join(run, original, x, y, -1, "-")) if _is_float(x) and _is_float(y) else original(x, y)


def _mark_sum(handle: Any) -> Any:
    handle.attr[KIND] = SUM
    return handle


def _view(_run: Emulation, original: Operation, x: Any, shape: Any) -> Any:
    """A broadcast, or a dimension more: threads hold the same products as before."""
    result = original(x, shape)
    factors = x.attr.get(FACTORS)
    if factors is not None:
        parts = (TensorHandle(np.broadcast_to(part, x.data.shape), x.dtype) for part in (factors.x, factors.y))
        first, second = (original(part, shape).data for part in parts)
        result.attr[FACTORS] = Factors(first, second, factors.where, factors.is_square, factors.factor)
    if KIND in x.attr:
        result.attr[KIND] = x.attr[KIND]
    return result


def _splat(run: Emulation, original: Operation, kind: Any, value: Any) -> Any:
    result = original(kind, value)
    if CONSTANT in value.attr and not value.data.any():
        result.attr[CONSTANT] = position()
    for name in (FACTORS, KIND, VALUE) if run.launch.compiled is not None else (VALUE,):
        if name in value.attr:
            result.attr[name] = value.attr[name]
    return result


def _constant(_run: Emulation, original: Operation, value: Any) -> Any:
    result = original(value)
    result.attr[CONSTANT] = ()
    result.attr[VALUE] = float(result.data[0])
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
