"""Functions and reductions whose bits on a GPU nobody has written down yet: NumPy computes them, and the report says so."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastmma.triton.emulation import Emulation, Operation

_APPROXIMATE = {
    "create_exp": "ex2.approx.f32 of a product",
    "create_exp2": "ex2.approx.ftz.f32",
    "create_log": "a polynomial of libdevice",
    "create_log2": "a polynomial of libdevice",
    "create_sin": "code of libdevice",
    "create_cos": "code of libdevice",
    "create_erf": "code of libdevice",
    "create_sqrt": "sqrt.approx.ftz.f32",
    "create_rsqrt": "rsqrt.approx.ftz.f32",
    "create_fdiv": "div.full.f32",
    "create_approx_divf": "div.full.f32",
    "create_frem": "code of libdevice",
}


def _function(run: Emulation, original: Operation, *operands: Any, name: str, what: str) -> Any:
    if operands[0].dtype.scalar.is_floating():
        run.report.passes(name, f"{what}: its approximation is not modelled")
    return original(*operands)


def _sum(run: Emulation, original: Operation, value: Any, *rest: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    if any(tensor.dtype.is_floating() for tensor in values):
        run.report.passes("sum", "the order of its additions depends on the layout of the threads, which is not modelled")
    return original(value, *rest)


OPERATIONS = {
    name: partial(_function, name=name.removeprefix("create_").removeprefix("approx_"), what=what) for name, what in _APPROXIMATE.items()
}
REDUCTIONS = {"sum": _sum, "generic_reduce": _sum}
SCANS = {"cumsum": _sum, "cumprod": _sum, "generic_scan": _sum}
