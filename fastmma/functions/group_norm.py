"""Group norm as torch's CUDA kernels compute it (``group_norm_kernel.cu``, PyTorch 2.11), with its gradients.

Of a group, mean and r = rsqrt(variance + eps) are rounded to the format of x. With a = r * w and b = bias - a * mean, y = fma(a, x, b).
Of a channel, ds = sum(dy * x) and db = sum(dy); of a group, s1 = sum(ds * w), s2 = sum(db * w), c2 = fma(s2, mean, -s1) * r^3 / n and
c3 = fma(-c2, mean, -(s2 * r) / n). Then dx = fma(a, dy, c2 * x) + c3, dw = sum(fma(-db, mean, ds) * r) and dbias = sum(db).
A sum has one warp, of 512 terms or more 512 threads, which take every 32nd or 512th term; gradients of weights are added in turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import kernels
from fastmma.functions import libdevice
from fastmma.functions.arithmetic import Floats, fuse, round_to, widen
from fastmma.functions.block import WARP, add_block, add_strided, start_sums
from fastmma.functions.moments import join_block, take_elements
from fastmma.host.errors import NotEmulatedError
from fastmma.host.float_mode import default_floats

_THREADS = 512
_MOST = 128  # examples whose gradients one thread adds


def _threads(count: int) -> int:
    return WARP if count < _THREADS else _THREADS


def _sum(rows: Floats, factors: Floats | None = None) -> Floats:
    """Sum rows, or their products with factors."""
    threads = _threads(rows.shape[1])
    if factors is None:
        return add_block(add_strided(rows, threads))
    sums = start_sums(len(rows), threads)
    kernels.functions.sums.add_products(rows, factors, sums, 0, rows.shape[1])
    return add_block(sums)


def _flat(vector: NDArray[Any] | None, like: NDArray[Any]) -> Floats:
    if vector is None or vector.dtype != like.dtype:
        raise NotEmulatedError("a group norm without weight and bias of its own dtype was not recorded")
    return np.ascontiguousarray(widen(vector)).reshape(-1)


def _check(inner: int, examples: int) -> None:
    if inner == 1 or examples > _MOST:
        raise NotEmulatedError(f"a group norm of single elements, or of more than {_MOST} examples, was not recorded")


@default_floats
def group_norm(
    x: NDArray[Any], weight: NDArray[Any] | None, bias: NDArray[Any] | None, groups: int, eps: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Compute ``aten::native_group_norm``.

    Parameters
    ----------
    x : float32, float16 or bfloat16 array (examples, channels, ...)
        As if contiguous.
    weight, bias : array (channels,) of the same dtype
    groups : int
    eps : float

    Returns
    -------
    The result, the mean and the reciprocal standard deviation, the last two (examples, groups).

    Raises
    ------
    NotEmulatedError
        Without weight and bias, of channels of one element, or of more than 128 examples.

    Examples
    --------
    >>> one = np.ones(2, np.float32)
    >>> group_norm(np.float32([[[1, 3], [5, 7]]]), one, one, 1, 1e-5)[1].tolist()  # doctest: +SKIP
    [[4.0]]
    """
    examples, channels = x.shape[:2]
    _check(x.size // (examples * channels), examples)
    w, added = _flat(weight, x), _flat(bias, x)
    values = np.ascontiguousarray(widen(x)).reshape(examples * groups, -1)
    found = join_block(take_elements(values, _threads(values.shape[1])))
    with np.errstate(all="ignore"):
        variance = found.squares / found.counts + widen(round_to(eps, x.dtype))
        mean, rstd = (round_to(each, x.dtype) for each in (found.mean, libdevice.call("rsqrtf", variance)))
        of_group = (examples, groups, 1)
        a: Floats = widen(rstd).reshape(of_group) * w.reshape(1, groups, -1)
        b = -a * widen(mean).reshape(of_group) + added.reshape(1, groups, -1)
        rows = values.reshape(examples * channels, -1)
        result = round_to(fuse(a.reshape(-1, 1), rows, b.reshape(-1, 1)), x.dtype)
    return result.reshape(x.shape), mean.reshape(examples, groups), rstd.reshape(examples, groups)


@default_floats
def group_norm_backward(
    grad: NDArray[Any], x: NDArray[Any], mean: NDArray[Any], rstd: NDArray[Any], weight: NDArray[Any] | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Compute ``aten::native_group_norm_backward``: the gradients of `x`, of the weight and of the bias.

    Parameters
    ----------
    grad, x : array
        The incoming gradient, and the input of `group_norm`.
    mean, rstd : array (examples, groups)
        The results of `group_norm`.
    weight : array
        The weight that `group_norm` was given.

    Raises
    ------
    NotEmulatedError
        As in `group_norm`.

    Examples
    --------
    >>> x, one = np.float32([[[1, 3], [5, 7]]]), np.ones(2, np.float32)
    >>> _, mean, rstd = group_norm(x, one, one, 1, 1e-5)  # doctest: +SKIP
    >>> group_norm_backward(np.ones_like(x), x, mean, rstd, one)[2].tolist()  # doctest: +SKIP
    [2.0, 2.0]
    """
    (examples, channels), groups = x.shape[:2], mean.shape[-1]
    inner, of_group = x.size // (examples * channels), channels // groups
    _check(inner, examples)
    w = _flat(weight, x)
    dy, values = (np.ascontiguousarray(widen(each)).reshape(examples * channels, -1) for each in (grad, x))
    m, r = (widen(each).reshape(-1) for each in (mean, rstd))
    with np.errstate(all="ignore"):
        ds, db = _sum(dy, values), _sum(dy)
        factors = np.tile(w.reshape(groups, of_group), (examples, 1))
        s1, s2 = (_sum(each.reshape(-1, of_group), factors) for each in (ds, db))
        share = np.float32(1) / np.float32(of_group * inner)
        c2 = fuse(s2, m, -s1) * r * r * r * share
        c3 = fuse(-c2, m, -(s2 * r * share))
        scale = (r[:, None] * factors).reshape(-1, 1)
        c2, c3, m, r = (np.repeat(each, of_group) for each in (c2, c3, m, r))
        result = fuse(scale, dy, c2[:, None] * values) + c3[:, None]
        centred, rates, added = (each.reshape(examples, channels) for each in (fuse(-db, m, ds), r, db))
        of_weight, of_bias = np.zeros(channels, np.float32), np.zeros(channels, np.float32)
        for example in range(examples):
            of_weight = fuse(centred[example], rates[example], of_weight)
            of_bias = of_bias + added[example]
        dtype = x.dtype
        return round_to(result, dtype).reshape(x.shape), round_to(of_weight, dtype), round_to(of_bias, dtype)
