"""Triton's functions for CUDA alone: those of libdevice, and `triton.language.extra.cuda`."""

from __future__ import annotations

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
from fastmma.functions.libdevice import call_tritons
from fastmma.functions.libdevice import tritons_release as libdevice_release
from fastmma.host.errors import NotEmulatedError
from fastmma.products.report import NEUTRAL
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.twins import list_codes

_MODULES = (stubs, libdevice, cuda)
_FUNCTIONS = {name: value for module in (libdevice, cuda) for name, value in vars(module).items() if tl.core.is_builtin(value)}
_EXTRA = tl.extra.__name__

# symbols without __nv_ and without the f of those of f32: IEEE 754 fixes the results
_ALONE = """
    fabs floor ceil trunc rint nearbyint copysign fmod remainder isnan isnand isinf isinfd finite isfinited signbit nextafter fma sqrt_rn
    fsqrt_rn dsqrt_rn frcp_rn drcp_rn
"""
_EXACT = frozenset(_ALONE.split()) | {
    f"{kind}{name}_{rounding}" for kind in "fd" for name in ("add", "sub", "mul", "div") for rounding in ("rn", "rz", "rd", "ru")
}


def _is_exact(symbol: str) -> bool:
    name = symbol.removeprefix("__nv_")
    return name in _EXACT or name.removesuffix("f") in _EXACT


def tell(run: Emulation, name: str, symbol: str) -> None:
    """Say in the report what a function of libdevice is.

    Raises
    ------
    NotEmulatedError
        If it is passed, and the settings do not allow it.
    """
    release, others = libdevice_release() or ("", frozenset())
    if _is_exact(symbol) and symbol not in others:
        run.report.tell(NEUTRAL, name, "IEEE 754")
    elif run.capability not in special.RECORDED:
        run.report.passes(name, f"{symbol}: recorded on an H100 and an H200 only")
    elif not release or symbol in others:
        run.report.assumes(name, f"{symbol} of a release of libdevice that was not recorded")
    else:
        run.report.did(name, f"{symbol} of {release}'s libdevice")


def _extern(run: Emulation, _original: Operation, _library: str, _path: str, symbol: str, operands: Any, kind: Any, _pure: bool) -> Any:
    """Call a function of libdevice.

    Raises
    ------
    NotEmulatedError
        If it is made of what nothing on this machine computes.
    """
    values = np.broadcast_arrays(*(operand.data for operand in operands))
    result = call_tritons(symbol, *values)
    if result is None:
        raise NotEmulatedError(f"{symbol} of libdevice: nothing on this machine computes it")
    tell(run, symbol, symbol)
    return TensorHandle(np.asarray(result).astype(interpreter._get_np_dtype(kind.scalar)), kind.scalar)


def _assembly(run: Emulation, _original: Operation, text: str, *_rest: Any) -> Any:
    """Refuse.

    Raises
    ------
    NotEmulatedError
        Always.
    """
    executable = run.launch.executable
    machine = executable.machine(run.target) if executable is not None else None
    if isinstance(machine, str):
        why = f"nothing here executes {machine}"
    else:
        why = run.launch.refusal or 'the kernel\'s PTX executes it: take lowering="compile"'
    raise NotEmulatedError(f"inline assembly ({text.strip().splitlines()[0][:60]}): {why}")


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
