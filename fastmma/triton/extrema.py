"""The smaller and the larger of two numbers and of many: +0 is above -0, and NaN is left out unless it is to be kept."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton._C.libtriton import ir
from triton.runtime.interpreter import TensorHandle

from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import FLOATS
from fastmma.triton.numbers import take_extremum

_FAST = ("_argmin_combine_tie_break_fast", "_argmax_combine_tie_break_fast")


def _choose(_run: Emulation, original: Operation, x: Any, y: Any, *, largest: bool, keeps_nan: bool) -> Any:
    if x.dtype.scalar.name not in FLOATS:
        return original(x, y)
    return TensorHandle(take_extremum(x.data, y.data, largest=largest, keeps_nan=keeps_nan), x.dtype.scalar)


def _clamp(_run: Emulation, original: Operation, x: Any, low: Any, high: Any, propagates: Any) -> Any:
    if x.dtype.scalar.name not in FLOATS:
        return original(x, low, high, propagates)
    keeps = propagates != ir.PROPAGATE_NAN.NONE
    raised = take_extremum(x.data, low.data, largest=True, keeps_nan=keeps)
    return TensorHandle(take_extremum(raised, high.data, largest=False, keeps_nan=keeps), x.dtype.scalar)


def reduce_to_extremum(data: NDArray[Any], axis: int | None, *, largest: bool, keepdims: bool) -> NDArray[Any]:
    """Return the largest or smallest number along an axis, NaN left out.

    Examples
    --------
    >>> import numpy as np
    >>> reduce_to_extremum(np.float32([-0.0, 0.0, np.nan]), 0, largest=True, keepdims=False).tolist()
    0.0
    """
    function: Any = np.fmax if largest else np.fmin
    result = np.asarray(function.reduce(data, axis=axis, keepdims=keepdims))
    has_zero = ((data == 0) & (np.signbit(data) != largest)).any(axis=axis, keepdims=keepdims)
    return np.where((result == 0) & has_zero, result.dtype.type(0.0 if largest else -0.0), result)


def _reduce(run: Emulation, original: Operation, given: Any, value_of: Any = None, index_of: Any = None) -> Any:
    """Find the extremum along an axis, and where it lies."""
    tensor = given[0] if isinstance(given, tuple) else given
    reduction = cast(partial[Any], original).args[0]
    data, axis, keep = tensor.handle.data, reduction.axis, reduction.keep_dims
    is_float, largest = tensor.dtype.is_floating(), value_of is np.nanmax
    if index_of is None:
        if not is_float:
            return original(given, value_of, index_of)
        return reduction.to_tensor(reduce_to_extremum(data, axis, largest=largest, keepdims=keep), tensor.dtype)
    if is_float and np.isnan(data).any():
        run.report.passes("reduction", "where NaN is among the numbers, the place of the extremum depends on the layout of the threads")
        data = np.where(np.isnan(data), data.dtype.type(-np.inf if largest else np.inf), data)
    data, axis = (data.reshape(-1), 0) if axis is None else (data, axis)
    places = (np.argmax if largest else np.argmin)(data, axis=axis, keepdims=True)
    values = np.take_along_axis(data, places, axis)
    fast = [getattr(tl.standard, name) for name in _FAST]
    if any(reduction.combine_fn is one for one in fast) and ((data == values).sum(axis=axis) > 1).any():
        run.report.passes("reduction", "tie_break_left=False: which of equal numbers is found depends on the layout of the threads")
    shape = tensor.handle.data.shape
    if reduction.axis is None:
        shape = (1,) * len(shape) if keep else ()
    else:
        shape = tuple(1 if index == axis % len(shape) else size for index, size in enumerate(shape) if keep or index != axis % len(shape))
    return reduction.to_tensor(values.reshape(shape), tensor.dtype), reduction.to_tensor(places.reshape(shape), tl.int32)


OPERATIONS: dict[str, Operation] = {
    "create_maxnumf": partial(_choose, largest=True, keeps_nan=False),
    "create_maximumf": partial(_choose, largest=True, keeps_nan=True),
    "create_minnumf": partial(_choose, largest=False, keeps_nan=False),
    "create_minimumf": partial(_choose, largest=False, keeps_nan=True),
    "create_clampf": _clamp,
}
REDUCTIONS = {"min_max": _reduce}
