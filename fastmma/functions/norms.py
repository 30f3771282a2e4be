"""Layer norm and RMS norm as torch's CUDA kernels compute them (``layer_norm_kernel.cu``, PyTorch 2.11), with their gradients.

With d = x - mean (x, of RMS norm), r = rsqrt(variance + eps), w and b weight and bias:

- y = fma(w, r * d, b), where columns are a multiple of 4: 128 threads take vectors of 4. Otherwise y = fma(d * r, w, b), and 512 threads
  take single elements; the variance of RMS norm, the mean square, is then fma(mean, mean, variance).
- dx = (fma(n * w, dy, -(d * r) * s2) - s1) * (1 / n * r), where 128 threads add s1 = sum(dy * w) and s2 = sum(dy * w * d * r), of 4
  columns at a time.
- dw = sum(dy * d * r) and db = sum(dy): a thread of a column takes 8 rows at a time; a column has 1, 8, 16 or 32 threads, from 0, 64, 128
  and 256 rows on, which are halved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma import kernels
from fastmma.functions import libdevice
from fastmma.functions.arithmetic import Floats, apply, fuse, round_to, widen
from fastmma.functions.block import halve_rows, start_sums
from fastmma.functions.moments import find_moments, join_block, take_elements
from fastmma.host.addresses import address_of
from fastmma.host.errors import NotEmulatedError, OperandError
from fastmma.host.float_mode import default_floats

_THREADS, _VECTOR = 128, 4
_THREADS_OF_ELEMENTS = 512
_ROWS = 8  # that a thread of a column takes at a time
_HEIGHTS = ((256, 32), (128, 16), (64, 8), (0, 1))  # rows from which on a column has so many threads
_MOST_ROWS = 65536  # more may be shared by blocks, in an order that was not recorded
_ONE, _NOTHING = np.float32(1), np.float32(-0.0)  # a weight and a bias that change no bit
_EPSILON = float(np.finfo(np.float32).eps)


class _Statistics(NamedTuple):
    mean: Floats
    rstd: Floats


def _rows(x: NDArray[Any], normalized_shape: Sequence[int]) -> Floats:
    if not normalized_shape or tuple(x.shape[-len(normalized_shape) :]) != tuple(normalized_shape):
        raise OperandError(f"an array of the shape {x.shape} does not end in {tuple(normalized_shape)}")
    return np.ascontiguousarray(widen(x)).reshape(-1, math.prod(normalized_shape))


def _flat(vector: NDArray[Any] | None, like: NDArray[Any]) -> Floats | None:
    if vector is not None and vector.dtype != like.dtype:
        raise NotEmulatedError(f"a norm of {like.dtype} with weights of {vector.dtype} was not recorded")
    return None if vector is None else np.ascontiguousarray(widen(vector)).reshape(-1)


def _statistics(values: Floats, eps: float, centred: bool) -> _Statistics:
    """Take means, zero where rows are not centred, and what rows are multiplied by."""
    rows, count = values.shape
    mean = np.zeros(rows, np.float32)
    if count % _VECTOR:
        found = join_block(take_elements(values, _THREADS_OF_ELEMENTS))
        variance = found.squares / found.counts
        if centred:
            mean = found.mean
        else:
            variance = fuse(found.mean, found.mean, variance)
    elif centred:
        mean, squares = find_moments(values)
        variance = squares / np.float32(count)
    else:
        scratch, squares = start_sums(1, _THREADS), np.empty(rows, np.float32)
        kernels.functions.norms.add_squares(address_of(values), rows, count, address_of(scratch), address_of(squares))
        variance = squares / np.float32(count)
    return _Statistics(mean, libdevice.call("rsqrtf", variance + np.float32(eps)))


def _norm(x: NDArray[Any], shape: Sequence[int], weight: Any, bias: Any, eps: float, centred: bool) -> tuple[NDArray[Any], _Statistics]:
    values, w, b = _rows(x, shape), _flat(weight, x), _flat(bias, x)
    if w is None and b is not None:
        raise NotEmulatedError("a norm with a bias and no weight was not recorded")
    with np.errstate(all="ignore"):
        found = _statistics(values, eps, centred)
    factor, added = _ONE if w is None else w, _NOTHING if b is None else b
    result = apply("layer_norm", values, found.mean[:, None], found.rstd[:, None], factor, added, out_dtype=x.dtype)
    return result.reshape(x.shape), found


def _height(rows: int) -> int:
    return next(height for least, height in _HEIGHTS if rows >= least)


def _backward(
    grad: NDArray[Any], x: NDArray[Any], shape: Sequence[int], found: _Statistics, weight: Any, centred: bool
) -> tuple[NDArray[Any], ...]:
    dy, values, w = _rows(grad, shape), _rows(x, shape), _flat(weight, x)
    rows, columns = values.shape
    if w is not None and rows > _MOST_ROWS:
        raise NotEmulatedError(f"gradients of weights of a norm of more than {_MOST_ROWS} rows were not recorded")
    mean, rstd = (np.ascontiguousarray(each).reshape(-1) for each in found)
    factors = np.ones(columns, np.float32) if w is None else w
    scratch, total, products = start_sums(2, _THREADS), np.empty(rows, np.float32), np.empty(rows, np.float32)
    given = map(address_of, (dy, values, factors, mean, rstd))
    kernels.functions.norms.add_along_rows(*given, rows, columns, *map(address_of, (scratch, total, products)))
    if not centred:
        total = np.zeros(rows, np.float32)
    share = np.float32(1) / np.float32(columns) * rstd
    of_rows = (each[:, None] for each in (mean, rstd, total, products, share))
    result = apply("layer_norm_backward", dy, values, np.float32(columns) * factors, *of_rows, out_dtype=x.dtype).reshape(x.shape)
    if w is None:
        return (result,)
    of_weight, of_bias = start_sums(_height(rows), columns), start_sums(_height(rows), columns)
    kernels.functions.norms.add_along_columns(dy, values, mean, rstd, of_weight, of_bias, _ROWS)
    return result, *(round_to(halve_rows(each), x.dtype).reshape(shape) for each in (of_weight, of_bias))


@default_floats
def layer_norm(
    x: NDArray[Any], normalized_shape: Sequence[int], weight: NDArray[Any] | None, bias: NDArray[Any] | None, eps: float
) -> tuple[NDArray[Any], Floats, Floats]:
    """Compute ``aten::native_layer_norm``.

    Parameters
    ----------
    x : float32, float16 or bfloat16 array
        As if contiguous, from an aligned address.
    normalized_shape : sequence of int
        The last dimensions of `x`.
    weight, bias : array of the same dtype, or None
    eps : float

    Returns
    -------
    The result, the mean and the reciprocal standard deviation, the last two float32 with dimensions of size 1.

    Raises
    ------
    NotEmulatedError
        If weights have another dtype, or there is a bias alone.

    Examples
    --------
    >>> layer_norm(np.float32([[1, 2, 3, 6]]), [4], None, None, 1e-5)[1].tolist()  # doctest: +SKIP
    [[3.0]]
    """
    result, found = _norm(x, normalized_shape, weight, bias, eps, True)
    outer = (*x.shape[: x.ndim - len(normalized_shape)], *(1 for _ in normalized_shape))
    return result, found.mean.reshape(outer), found.rstd.reshape(outer)


@default_floats
def layer_norm_backward(
    grad: NDArray[Any], x: NDArray[Any], normalized_shape: Sequence[int], mean: Floats, rstd: Floats, weight: NDArray[Any] | None
) -> tuple[NDArray[Any], ...]:
    """Compute ``aten::native_layer_norm_backward``.

    Parameters
    ----------
    grad, x : array
        The incoming gradient, and the input of `layer_norm`.
    normalized_shape, mean, rstd, weight
        The arguments and the results of `layer_norm`.

    Returns
    -------
    The gradients of `x`, and, if there is a weight, of weight and bias.

    Raises
    ------
    NotEmulatedError
        If weights have another dtype, or gradients of weights have more than 65536 rows.

    Examples
    --------
    >>> x = np.float32([[1, 2, 3, 6]])
    >>> _, mean, rstd = layer_norm(x, [4], None, None, 1e-5)  # doctest: +SKIP
    >>> layer_norm_backward(np.ones_like(x), x, [4], mean, rstd, None)[0].tolist()  # doctest: +SKIP
    [[0.0, 0.0, 0.0, 0.0]]
    """
    return _backward(grad, x, normalized_shape, _Statistics(mean, rstd), weight, True)


@default_floats
def rms_norm(
    x: NDArray[Any], normalized_shape: Sequence[int], weight: NDArray[Any] | None, eps: float | None
) -> tuple[NDArray[Any], Floats]:
    """Compute ``aten::_fused_rms_norm``: the result and the reciprocal root mean square.

    Parameters are those of `layer_norm`; without `eps` it is that of float32.

    Examples
    --------
    >>> rms_norm(np.float32([[4, 4, 4, 4]]), [4], None, 0)[0].tolist()  # doctest: +SKIP
    [[1.0, 1.0, 1.0, 1.0]]
    """
    result, found = _norm(x, normalized_shape, weight, None, _EPSILON if eps is None else eps, False)
    outer = (*x.shape[: x.ndim - len(normalized_shape)], *(1 for _ in normalized_shape))
    return result, found.rstd.reshape(outer)


@default_floats
def rms_norm_backward(
    grad: NDArray[Any], x: NDArray[Any], normalized_shape: Sequence[int], rstd: Floats, weight: NDArray[Any] | None
) -> tuple[NDArray[Any], ...]:
    """Compute ``aten::_fused_rms_norm_backward``: the gradients of `x`, and, if there is one, of the weight.

    Parameters are those of `layer_norm_backward`.

    Examples
    --------
    >>> x = np.float32([[4, 4, 4, 4]])
    >>> rms_norm_backward(x, x, [4], rms_norm(x, [4], None, 0)[1], None)[0].tolist()  # doctest: +SKIP
    [[0.0, 0.0, 0.0, 0.0]]
    """
    mean = start_sums(x.size // max(math.prod(normalized_shape), 1), 1)
    return _backward(grad, x, normalized_shape, _Statistics(mean, rstd), weight, False)[:2]
