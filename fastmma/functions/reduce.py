"""Reductions of torch: sums, means, extrema, variances, norms and logarithms of sums (PyTorch 2.11).

Strides count: they decide in which order a GPU's kernel adds (`fastmma.functions.reduce_threads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastmma.functions import libdevice
from fastmma.functions.arithmetic import Floats, round_to, widen
from fastmma.functions.moments import Moments
from fastmma.functions.reduce_plan import sort_axes
from fastmma.functions.reduce_threads import (
    LARGEST,
    LARGEST_MAGNITUDE,
    MAGNITUDES,
    MOMENTS,
    PLAIN_SUM,
    PRODUCT,
    SMALLEST_MAGNITUDE,
    SQUARES,
    SUM,
    finish,
    reduce_array,
)
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
        The axes to reduce; None reduces all.
    keepdims : bool
    dtype : dtype, optional
        The dtype of the result; halves are summed to float32 without a copy.
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


def _axes(x: NDArray[Any], axes: Sequence[int] | int | None) -> tuple[int, ...] | None:
    """Return the axes of an array as NumPy takes them."""
    return None if axes is None or not x.ndim else (axes,) if isinstance(axes, int) else tuple(axes)


@default_floats
def reduce_max(x: NDArray[Any], axes: Sequence[int] | int | None = None, *, keepdims: bool = False, offset: int = 0) -> NDArray[Any]:
    """Compute ``aten::amax``. Parameters are those of `reduce_sum`.

    Examples
    --------
    >>> float(reduce_max(np.float32([1, 6, 2])))
    6.0
    """
    values = widen(x)
    largest: Floats = np.max(values, _axes(x, axes), keepdims=True)  # in whatever order, but of zeros of both signs
    if (largest == 0).any():
        state, _, _ = reduce_array(x, axes, LARGEST, offset, values)
        largest = state[0].reshape(largest.shape)
    return finish(largest, largest.shape, x, axes, keepdims, None)


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
        As in `reduce_sum`.
    correction : float
        The number subtracted from the count.
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
def reduce_product(
    x: NDArray[Any],
    axes: Sequence[int] | int | None = None,
    *,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
    offset: int = 0,
) -> NDArray[Any]:
    """Compute ``aten::prod``. Parameters are those of `reduce_sum`.

    Examples
    --------
    >>> float(reduce_product(np.float32([1, 6, 2])))
    12.0
    """
    state, _, shape = reduce_array(x, axes, PRODUCT, offset)
    return finish(state[0], shape, x, axes, keepdims, dtype)


@default_floats
def reduce_present(
    x: NDArray[Any],
    axes: Sequence[int] | int | None = None,
    *,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
    offset: int = 0,
) -> NDArray[Any]:
    """Compute ``aten::nansum``, which takes NaN for 0. Parameters are those of `reduce_sum`.

    Examples
    --------
    >>> float(reduce_present(np.float32([1, np.nan, 2])))
    3.0
    """
    values = widen(x)
    state, _, shape = reduce_array(x, axes, PLAIN_SUM, offset, np.where(np.isnan(values), np.float32(0), values))
    return finish(state[0], shape, x, axes, keepdims, dtype)


@default_floats
def reduce_moments(
    x: NDArray[Any],
    axes: Sequence[int] | int | None = None,
    *,
    correction: float = 1,
    root: bool = False,
    keepdims: bool = False,
    offset: int = 0,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Compute ``aten::var_mean.correction``, or ``aten::std_mean.correction`` with `root`: what `reduce_variance` returns, and the mean.

    Parameters are those of `reduce_variance`.

    Examples
    --------
    >>> [float(each) for each in reduce_moments(np.float32([1, 2, 6]))]
    [7.0, 3.0]
    """
    state, _, shape = reduce_array(x, axes, MOMENTS, offset)
    found = Moments(*state)
    with np.errstate(all="ignore"):
        variance = found.squares / np.maximum(found.counts - np.float32(correction), np.float32(0))
        results = np.sqrt(variance) if root else variance, found.mean
        first, second = (finish(each, shape, x, axes, keepdims, None) for each in results)
    return first, second


_EUCLIDEAN = 2
_NORMS = {1: MAGNITUDES, _EUCLIDEAN: SQUARES, np.inf: LARGEST_MAGNITUDE, -np.inf: SMALLEST_MAGNITUDE}


def _norm_values(values: Floats, order: float) -> Floats:
    """Return what threads take for a norm of an order."""
    if order == 0:
        return np.asarray(values != 0, np.float32)
    if abs(order) == np.inf:
        return np.asarray(np.abs(values))
    return values if order in _NORMS else libdevice.call("powf", np.abs(values), np.float32(order))


@default_floats
def reduce_norm(
    x: NDArray[Any],
    order: float,
    axes: Sequence[int] | int | None = None,
    *,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
    offset: int = 0,
) -> NDArray[Any]:
    """Compute ``aten::linalg_vector_norm``.

    Parameters
    ----------
    x, axes, keepdims, dtype, offset
        As in `reduce_sum`.
    order : float
        1, the sum of magnitudes; 2, the root of the sum of squares; infinite ones, the largest or the smallest magnitude; 0, how many
        are not 0; others, the root of the sum of powers.

    Examples
    --------
    >>> float(reduce_norm(np.float32([3, 4]), 2))
    5.0
    """
    operation = _NORMS.get(order, PLAIN_SUM)
    over = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    if order and x.ndim and all(x.shape[axis] == 1 for axis in over):  # torch takes the magnitude
        return finish(np.abs(widen(x)), x.shape, x, axes, keepdims, dtype)
    with np.errstate(all="ignore"):
        state, _, shape = reduce_array(x, axes, operation, offset, _norm_values(widen(x), order))
        found = state[0]
        if order == _EUCLIDEAN:
            found = np.sqrt(found)
        elif order not in _NORMS and order:
            found = libdevice.call("powf", found, np.float32(1) / np.float32(order))
        return finish(found, shape, x, axes, keepdims, dtype)


@default_floats
def reduce_logsumexp(x: NDArray[Any], axes: Sequence[int] | int, *, keepdims: bool = False) -> NDArray[Any]:
    """Compute ``aten::logsumexp``. Its steps are separate operators, each rounded to the format of `x`.

    Parameters are those of `reduce_sum`.

    Examples
    --------
    >>> float(reduce_logsumexp(np.float32([0, 0]), 0))  # doctest: +SKIP
    0.6931471824645996
    """
    dtype = x.dtype
    order = sort_axes(x.shape, [x.strides])[::-1]  # results of each element lie as their operands do
    back = [order.index(axis) for axis in range(x.ndim)]
    with np.errstate(all="ignore"):
        largest = reduce_max(x, axes, keepdims=True)
        largest = np.where(np.isinf(widen(largest)), dtype.type(0), largest).astype(dtype)
        less = round_to(np.ascontiguousarray((widen(x) - widen(largest)).transpose(order)), dtype)
        exponentials = round_to(libdevice.call("expf", widen(less)), dtype)
        total = reduce_sum(exponentials.transpose(back), axes, keepdims=True)
        result = round_to(libdevice.call("logf", widen(total)), dtype)
        return finish(widen(result) + widen(largest), result.shape, x, axes, keepdims, None)
