"""CuPy arrays in, CuPy arrays out: public calls take them as they take NumPy's."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fastmma.backends.gpu import device
from fastmma.host.arrays import RawCodes
from fastmma.host.errors import OperandTypeError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def accepts_cupy(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Let a function of NumPy arrays take CuPy's: they are copied to main memory, checked there as any others, and the result goes back.

    Elements of formats that CuPy has no dtype for are their codes, as uint8 or uint16. ``out=`` is written in place.
    """

    @wraps(function)
    def wrapped(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if "cupy" not in sys.modules or not any(map(device.is_device_array, (*args, *kwargs.values()))):
            return function(*args, **kwargs)
        bound = inspect.signature(function).bind(*args, **kwargs)
        on_device = [name for name, value in bound.arguments.items() if device.is_device_array(value)]
        on_host = [name for name, value in bound.arguments.items() if isinstance(value, np.ndarray) and value.ndim]
        if on_host:
            raise OperandTypeError(
                f"{function.__name__}: {on_device[0]} is a CuPy array and {on_host[0]} a NumPy array; pass all arrays as one kind"
            )
        out = bound.arguments.get("out")
        for name in on_device:
            bound.arguments[name] = device.to_host(bound.arguments[name]).view(RawCodes)
        if out is not None:
            bound.arguments["out"] = np.asarray(bound.arguments["out"])
        result: Any = function(*bound.args, **bound.kwargs)
        if isinstance(result, tuple):
            return tuple(map(device.to_device, result))  # type: ignore[return-value]
        if out is None:
            return device.to_device(result)  # type: ignore[no-any-return]
        out[...] = device.to_device(result)
        return out  # type: ignore[no-any-return]

    return wrapped
