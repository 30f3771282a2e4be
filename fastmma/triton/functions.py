"""Functions: those of the special function unit where it was recorded; NumPy's elsewhere, and the report says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from fastmma.functions import special
from fastmma.functions.libdevice import call_tritons
from fastmma.triton.arithmetic import remember_product
from fastmma.triton.contraction import QUOTIENT
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import FLOATS, elements
from fastmma.triton.handles import VALUE
from fastmma.triton.libdevice import tell
from fastmma.triton.numbers import converted

_RECORDED: dict[str, tuple[str, Callable[..., Any]]] = {
    "create_exp": ("ex2.approx.f32 of x log2(e)", special.exp),
    "create_exp2": ("ex2.approx.ftz.f32", partial(special.ex2, flush=True)),
    "create_sqrt": ("sqrt.approx.ftz.f32", special.sqrt),
    "create_rsqrt": ("rsqrt.approx.ftz.f32", special.rsqrt),
    "create_fdiv": ("div.full.f32", special.divided),
    "create_approx_divf": ("div.full.f32", special.divided),
}
_OF_LIBDEVICE = ("log", "log2", "sin", "cos", "erf")
_SUFFIXES = {"fp32": "f", "fp64": ""}  # of libdevice's symbols, by Triton's types
_BY_WAY_OF_F32 = ("f32", "f16", "bf16", "e4m3", "e5m2")
_IEEE_OF_F64 = ("fdiv", "sqrt")  # div.rn.f64 and sqrt.rn.f64


def _of_libdevice(run: Emulation, original: Operation, *operands: Any, name: str) -> Any:
    """Call the function of libdevice for a name and a type."""
    kind = operands[0].dtype.scalar
    symbol = f"__nv_{name}{_SUFFIXES.get(kind.name, '')}"
    result = call_tritons(symbol, *(operand.data for operand in operands)) if kind.name in _SUFFIXES else None
    if result is None:
        if kind.is_floating():
            run.report.passes(name, "code of libdevice: its approximation is not modelled")
        return original(*operands)
    tell(run, name, symbol)
    return TensorHandle(result, kind)


def _recorded(run: Emulation, original: Operation, *operands: Any, name: str, what: str, function: Callable[..., Any]) -> Any:
    fmt = FLOATS.get(operands[0].dtype.scalar.name, "")
    if fmt not in _BY_WAY_OF_F32:
        if name in _IEEE_OF_F64:
            return original(*operands)
        return _of_libdevice(run, original, *operands, name=name)
    if run.capability not in special.RECORDED:
        run.report.passes(name, f"{what}: recorded on an H100 only")
        return original(*operands)
    values = np.broadcast_arrays(*(np.asarray(elements(operand), np.float32) for operand in operands))
    is_quotient = function is special.divided
    constant = operands[1].attr.get(VALUE) if is_quotient else None
    x, y = special.factorise(values[0], values[1], constant=constant) if is_quotient else (values[0], values[0])
    result = special.multiplied(x, y) if is_quotient else function(*values)
    run.report.did(name, what)
    data = result if fmt == "f32" else converted(result, "f32", fmt)
    handle = TensorHandle(np.ascontiguousarray(data).view(interpreter._get_np_dtype(operands[0].dtype.scalar)), operands[0].dtype.scalar)
    if not is_quotient or fmt != "f32" or run.launch.compiled is None:
        return handle
    return remember_product(handle, x, y, QUOTIENT, None if constant is None or not y.size else float(y.flat[0]))


def _short(name: str) -> str:
    return name.removeprefix("create_").removeprefix("approx_")


OPERATIONS: dict[str, Operation] = {
    **{f"create_{name}": partial(_of_libdevice, name=name) for name in _OF_LIBDEVICE},
    **{name: partial(_recorded, name=_short(name), what=what, function=function) for name, (what, function) in _RECORDED.items()},
}
