"""Reductions of torch: sums, means, extrema, variances, norms and logarithms of sums (PyTorch 2.11).

Strides count: they decide in which order a GPU's kernel adds (`fastmma.functions.reduce_threads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastmma.functions import libdevice
from fastmma.functions.arithmetic import round_to, widen
from fastmma.functions.moments import Moments
from fastmma.functions.reduce_threads import LARGEST, MAGNITUDES, MOMENTS, SQUARES, SUM, finish, reduce_array
from fastmma.host.float_mode import default_floats


@default_floats
def reduce_sum(
    x: NDArray[Any],
    axes: Sequence[int] | int | None = None,
    *,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
    offset: int = 0,
) -> NDArray[Any]:
    """Compute ``aten::sum.dim_IntList`` (``aten::sum`` where `axes` is None).

    Parameters
    ----------
    x : float32, float16 or bfloat16 array
        Of at least one element; its strides decide in which order elements are added.
    axes : int or sequence of int, optional
        Those reduced; all, if None.
    keepdims : bool
    dtype : dtype, optional
        Of the result: float32 of halves is summed without a copy.
    offset : int
        Where the array begins on the GPU, in elements after an aligned address.

    Examples
    --------
    >>> x = np.float32([2**24, 1, 1, 1, 1])
    >>> float(reduce_sum(x)) - 2**24, float(np.add.reduce(x)) - 2**24
    (2.0, 0.0)
    """
    state, _, shape = reduce_array(x, axes, SUM, offset)
    return finish(state[0], shape, x, axes, keepdims, dtype)


@default_floats
def reduce_mean(
    x: NDArray[Any],
    axes: Sequence[int] | int | None = None,
    *,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
    offset: int = 0,
) -> NDArray[Any]:
    """Compute ``aten::mean.dim`` (``aten::mean`` where `axes` is None): the sum times the rounded share of one element.

    Parameters are those of `reduce_sum`.

    Examples
    --------
    >>> float(reduce_mean(np.float32([1, 2, 6])))
    3.0
    """
    state, view, shape = reduce_array(x, axes, SUM, offset)
    share = np.float32(view.outputs) / np.float32(view.outputs * view.inputs)
    return finish(state[0] * share, shape, x, axes, keepdims, dtype)


@default_floats
def reduce_max(x: NDArray[Any], axes: Sequence[int] | int | None = None, *, keepdims: bool = False, offset: int = 0) -> NDArray[Any]:
    """Compute ``aten::amax``. Parameters are those of `reduce_sum`.

    Examples
    --------
    >>> float(reduce_max(np.float32([1, 6, 2])))
    6.0
    """
    state, _, shape = reduce_array(x, axes, LARGEST, offset)
    return finish(state[0], shape, x, axes, keepdims, None)


@default_floats
def reduce_variance(
    x: NDArray[Any],
    axes: Sequence[int] | int | None = None,
    *,
    correction: float = 1,
    root: bool = False,
    keepdims: bool = False,
    offset: int = 0,
) -> NDArray[Any]:
    """Compute ``aten::var.correction``, or ``aten::std.correction`` with `root`.

    Parameters
    ----------
    x, axes, keepdims, offset
        As of `reduce_sum`.
    correction : float
        That is taken off the count.
    root : bool
        Whether to take the square root.

    Examples
    --------
    >>> float(reduce_variance(np.float32([1, 2, 6])))
    7.0
    """
    state, _, shape = reduce_array(x, axes, MOMENTS, offset)
    found = Moments(*state)
    with np.errstate(all="ignore"):
        variance = found.squares / np.maximum(found.counts - np.float32(correction), np.float32(0))
        return finish(np.sqrt(variance) if root else variance, shape, x, axes, keepdims, None)


@default_floats
def reduce_norm(
    x: NDArray[Any], order: int, axes: Sequence[int] | int | None = None, *, keepdims: bool = False, offset: int = 0
) -> NDArray[Any]:
    """Compute ``aten::linalg_vector_norm`` of order 1 or 2.

    Parameters
    ----------
    x, axes, keepdims, offset
        As of `reduce_sum`.
    order : int
        1, the sum of magnitudes, or 2, the root of the sum of squares.

    Examples
    --------
    >>> float(reduce_norm(np.float32([3, 4]), 2))
    5.0
    """
    state, _, shape = reduce_array(x, axes, {1: MAGNITUDES, 2: SQUARES}[order], offset)
    return finish(state[0] if order == 1 else np.sqrt(state[0]), shape, x, axes, keepdims, None)


@default_floats
def reduce_logsumexp(x: NDArray[Any], axes: Sequence[int] | int, *, keepdims: bool = False) -> NDArray[Any]:
    """Compute ``aten::logsumexp``, whose steps are operators of their own, rounded each to the format of `x`.

    Parameters are those of `reduce_sum`.

    Examples
    --------
    >>> float(reduce_logsumexp(np.float32([0, 0]), 0))  # doctest: +SKIP
    0.6931471824645996
    """
    dtype = x.dtype
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))  # results of each element lie as their operands do
    back = [order.index(axis) for axis in range(x.ndim)]
    with np.errstate(all="ignore"):
        largest = reduce_max(x, axes, keepdims=True)
        largest = np.where(np.isinf(widen(largest)), dtype.type(0), largest).astype(dtype)
        less = round_to(np.ascontiguousarray((widen(x) - widen(largest)).transpose(order)), dtype)
        exponentials = round_to(libdevice.call("expf", widen(less)), dtype)
        total = reduce_sum(exponentials.transpose(back), axes, keepdims=True)
        result = round_to(libdevice.call("logf", widen(total)), dtype)
        return finish(widen(result) + widen(largest), result.shape, x, axes, keepdims, None)
