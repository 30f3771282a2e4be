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
from fastmma.functions.arithmetic import BITS, Floats, apply, fuse, widen
from fastmma.functions.block import halve_rows, start_sums
from fastmma.functions.fixed_norms import NormForm, fixed_norm
from fastmma.functions.moments import join_block, take_elements
from fastmma.host.addresses import address_of, aligned_empty
from fastmma.host.errors import NotEmulatedError, OperandError
from fastmma.host.float_mode import default_floats

_THREADS, VECTOR = 128, 4
_THREADS_OF_ELEMENTS = 512
_ROWS = 8  # that a thread of a column takes at a time
_HEIGHTS = ((256, 32), (128, 16), (64, 8), (0, 1))  # rows from which on a column has so many threads
_MOST_ROWS = 65536  # more may be shared by blocks, in an order that was not recorded
_ONE, _NOTHING = np.float32(1), np.float32(-0.0)  # a weight and a bias that change no bit
EPSILON = float(np.finfo(np.float32).eps)


class _Statistics(NamedTuple):
    mean: Floats
    rstd: Floats


def _check(x: NDArray[Any], normalized_shape: Sequence[int], *vectors: NDArray[Any] | None) -> None:
    """Check that an array ends in a shape, and that a weight and a bias are of its dtype."""
    if not normalized_shape or tuple(x.shape[-len(normalized_shape) :]) != tuple(normalized_shape):
        raise OperandError(f"an array of the shape {x.shape} does not end in {tuple(normalized_shape)}")
    for each in vectors:
        if each is not None and each.dtype != x.dtype:
            raise NotEmulatedError(f"a norm of {x.dtype} with weights of {each.dtype} was not recorded")
    if len(vectors) > 1 and vectors[0] is None and vectors[1] is not None:
        raise NotEmulatedError("a norm with a bias and no weight was not recorded")


def _rows(x: NDArray[Any], normalized_shape: Sequence[int]) -> Floats:
    return np.ascontiguousarray(widen(x)).reshape(-1, math.prod(normalized_shape))


def _flat(vector: NDArray[Any] | None) -> Floats | None:
    return None if vector is None else np.ascontiguousarray(widen(vector)).reshape(-1)


def _statistics(values: Floats, eps: float, centred: bool) -> _Statistics:
    """Take means, zero where rows are not centred, and what rows are multiplied by, where threads take single elements."""
    found = join_block(take_elements(values, _THREADS_OF_ELEMENTS))
    variance, mean = found.squares / found.counts, found.mean
    if not centred:
        variance, mean = fuse(mean, mean, variance), np.zeros(len(values), np.float32)
    return _Statistics(mean, libdevice.call("rsqrtf", variance + np.float32(eps)))


def _norm(x: NDArray[Any], shape: Sequence[int], weight: Any, bias: Any, eps: float, centred: bool) -> tuple[NDArray[Any], _Statistics]:
    _check(x, shape, weight, bias)
    columns = math.prod(shape)
    if x.size and x.dtype in BITS and columns % VECTOR == 0:
        rows = x.size // columns
        given = [None if each is None else np.ascontiguousarray(each) for each in (x, weight, bias)]
        result, mean, rstd = aligned_empty(x.shape, x.dtype), np.zeros(rows, np.float32), np.empty(rows, np.float32)
        norm = fixed_norm(NormForm(rows, columns, x.dtype, weight is not None, bias is not None, centred))
        norm(eps, *(0 if each is None else address_of(each) for each in given), *map(address_of, (result, mean, rstd)))
        return result, _Statistics(mean, rstd)
    values, w, b = _rows(x, shape), _flat(weight), _flat(bias)
    with np.errstate(all="ignore"):
        found = _statistics(values, eps, centred)
    factor, added = _ONE if w is None else w, _NOTHING if b is None else b
    result = apply("layer_norm", values, found.mean[:, None], found.rstd[:, None], factor, added, out_dtype=x.dtype)
    return result.reshape(x.shape), found


def _height(rows: int) -> int:
    return next(height for least, height in _HEIGHTS if rows >= least)


def _backward(
    grad: NDArray[Any],
    x: NDArray[Any],
    shape: Sequence[int],
    means: Floats | None,
    factors_of_rows: Floats,
    weight: Any,
    out: Sequence[NDArray[Any]] | None = None,
) -> tuple[NDArray[Any], ...]:
    """Compute the gradients of the input, and, if there is a weight, of weight and bias; without means rows are not centred."""
    _check(grad, shape)
    _check(x, shape, weight)
    dy, values, w = _rows(grad, shape), _rows(x, shape), _flat(weight)
    rows, columns = values.shape
    if w is not None and rows > _MOST_ROWS:
        raise NotEmulatedError(f"gradients of weights of a norm of more than {_MOST_ROWS} rows were not recorded")
    rstd = np.ascontiguousarray(factors_of_rows).reshape(-1)
    mean = np.zeros(rows, np.float32) if means is None else np.ascontiguousarray(means).reshape(-1)
    factors = np.ones(columns, np.float32) if w is None else w
    scratch = aligned_empty((2, _THREADS), np.float32)
    total, products = np.empty(rows, np.float32), np.empty(rows, np.float32)
    given = map(address_of, (dy, values, factors, mean, rstd))
    kernels.functions.norms.add_along_rows(*given, rows, columns, *map(address_of, (scratch, total, products)))
    if means is None:
        total[:] = 0
    share = np.float32(1) / np.float32(columns) * rstd
    of_rows = (each[:, None] for each in (mean, rstd, total, products, share))
    results = [np.empty(each, x.dtype) for each in (x.shape, shape, shape)] if out is None else out
    apply("layer_norm_backward", dy, values, np.float32(columns) * factors, *of_rows, out=results[0].reshape(rows, columns))
    if w is None:
        return (results[0],)
    of_weight, of_bias = start_sums(_height(rows), columns), start_sums(_height(rows), columns)
    kernels.functions.norms.add_along_columns(dy, values, mean, rstd, of_weight, of_bias, _ROWS)
    for each, sums in zip(results[1:], (of_weight, of_bias), strict=False):
        apply("rounded", halve_rows(sums), out=each.reshape(columns))
    return tuple(results)


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
    grad: NDArray[Any],
    x: NDArray[Any],
    normalized_shape: Sequence[int],
    mean: Floats,
    rstd: Floats,
    weight: NDArray[Any] | None,
    *,
    out: Sequence[NDArray[Any]] | None = None,
) -> tuple[NDArray[Any], ...]:
    """Compute ``aten::native_layer_norm_backward``.

    Parameters
    ----------
    grad, x : array
        The incoming gradient, and the input of `layer_norm`.
    normalized_shape, mean, rstd, weight
        The arguments and the results of `layer_norm`.
    out : sequence of array, optional
        Where the results go: C-contiguous, of their shapes and the dtype of `x`.

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
    return _backward(grad, x, normalized_shape, mean, rstd, weight, out)


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
    result, found = _norm(x, normalized_shape, weight, None, EPSILON if eps is None else eps, False)
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
    return _backward(grad, x, normalized_shape, None, rstd, weight)[:2]
