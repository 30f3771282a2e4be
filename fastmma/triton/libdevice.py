"""Triton's functions for CUDA alone: libdevice, of which NumPy computes what it has, and `triton.language.extra.cuda`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.extra import cuda
from triton.language.extra import libdevice as stubs
from triton.language.extra.cuda import libdevice
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from fastmma.functions import special
from fastmma.host.errors import NotEmulatedError
from fastmma.products.report import NEUTRAL
from fastmma.triton.arithmetic import fused
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.twins import list_codes

_MODULES = (stubs, libdevice, cuda)
_FUNCTIONS = {name: value for module in (libdevice, cuda) for name, value in vars(module).items() if tl.core.is_builtin(value)}
_EXTRA = tl.extra.__name__

Function = Callable[..., Any]


def _vectorise(function: Callable[[float], float]) -> Function:
    return np.vectorize(function, otypes=[np.float64])


# by the symbol without __nv_ and without the f of those of f32: results that IEEE 754 fixes, and those that libdevice approximates
_EXACT: dict[str, Function] = {
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "nearbyint": np.rint,
    "copysign": np.copysign,
    "sqrt_rn": np.sqrt,
    "fsqrt_rn": np.sqrt,
    "dsqrt_rn": np.sqrt,
    "fdiv_rn": np.divide,
    "ddiv_rn": np.divide,
    "fadd_rn": np.add,
    "dadd_rn": np.add,
    "fmul_rn": np.multiply,
    "dmul_rn": np.multiply,
    "fmaf_rn": fused,
    "fma_rn": fused,
    "isnan": np.isnan,
    "isnand": np.isnan,
    "isinf": np.isinf,
    "isinfd": np.isinf,
    "finite": np.isfinite,
    "isfinited": np.isfinite,
    "signbit": np.signbit,
}
_APPROXIMATED: dict[str, Function] = {
    **{name: getattr(np, name) for name in ("tanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh")},
    **{name: getattr(np, name) for name in ("cosh", "cbrt", "hypot", "sqrt", "fmod")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh")},
    **{f"fast_{name}": getattr(np, name) for name in ("exp", "log", "log2", "log10", "sin", "cos", "tan")},
    "exp10": lambda x: np.power(10.0, x),
    "fast_exp10": lambda x: np.power(10.0, x),
    "pow": np.power,
    "powi": np.power,
    "fast_pow": np.power,
    "fast_fdivide": np.divide,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "erf": _vectorise(math.erf),
    "erfc": _vectorise(math.erfc),
    "lgamma": _vectorise(math.lgamma),
    "tgamma": _vectorise(math.gamma),
}


def _look_up(table: dict[str, Function], symbol: str) -> Function | None:
    name = symbol.removeprefix("__nv_")
    return table.get(name) or table.get(name.removesuffix("f"))


def _extern(run: Emulation, _original: Operation, _library: str, _path: str, symbol: str, operands: Any, kind: Any, _pure: bool) -> Any:
    """Call a function of libdevice.

    Raises
    ------
    NotEmulatedError
        If NumPy has no such function.
    """
    values = np.broadcast_arrays(*(operand.data for operand in operands))
    exact, approximated = (_look_up(table, symbol) for table in (_EXACT, _APPROXIMATED))
    dtype = interpreter._get_np_dtype(kind.scalar)
    if symbol == "__nv_rsqrtf" and run.capability in special.RECORDED:
        run.report.did("rsqrt", "rsqrt.approx.ftz.f32")
        result = special.rsqrt(*values)
    elif exact is not None:
        run.report.tell(NEUTRAL, symbol, "IEEE 754")
        result = exact(*values)
    elif approximated is not None:
        run.report.passes(symbol, "code of libdevice: its approximation is not modelled")
        result = approximated(*(value.astype(np.float64) if value.dtype.kind == "f" else value for value in values))
    else:
        raise NotEmulatedError(f"{symbol} of libdevice: nothing on this machine computes it")
    return TensorHandle(np.asarray(result).astype(dtype), kind.scalar)


def _assembly(_run: Emulation, _original: Operation, text: str, *_rest: Any) -> Any:
    """Refuse.

    Raises
    ------
    NotEmulatedError
        Always.
    """
    raise NotEmulatedError(f"inline assembly ({text.strip().splitlines()[0][:60]}): nothing here runs it")


def _make_interpreted(name: str) -> Callable[..., Any]:
    function = _FUNCTIONS[name]
    return lambda *operands: function(*operands, _semantic=interpreter.interpreter_semantic)


def find_functions(function: Any) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Find the names under which a kernel reaches libdevice, with what the interpreter can call in the place of each.

    Yields
    ------
    tuple of dict, str and callable
        A namespace, a name in it, and its value while the kernel is interpreted.
    """
    used = {name for code in list_codes(function.__code__) for name in code.co_names}
    for name in used & _FUNCTIONS.keys():
        for module in _MODULES:
            if name in vars(module):
                yield vars(module), name, _make_interpreted(name)
    space = function.__globals__
    for name in used & space.keys():
        function = space[name]
        if str(getattr(function, "__module__", "")).startswith(_EXTRA) and getattr(function, "__name__", "") in _FUNCTIONS:
            yield space, name, _make_interpreted(function.__name__)


OPERATIONS: dict[str, Operation] = {"create_extern_elementwise": _extern, "create_inline_asm": _assembly}
