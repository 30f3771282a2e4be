"""Losses as torch's CUDA kernels compute them (``Loss.cu`` and what ``Loss.cpp`` composes, PyTorch 2.11), with their gradients.

`nll_loss` adds in one block: 32 threads, or from 16 rows a thread on the nearest power of two up to 1024, take every row that falls to
them, and are halved. A loss of each element (`mse_loss`, `smooth_l1_loss`, `huber_loss` and so on) is rounded to its format, and then
goes through `fastmma.functions.reduce`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import kernels
from fastmma.functions import libdevice
from fastmma.functions.arithmetic import F32, Floats, round_to, widen
from fastmma.functions.block import add_strided, halve, start_sums
from fastmma.functions.reduce import reduce_mean, reduce_sum
from fastmma.host.errors import NotEmulatedError
from fastmma.host.float_mode import default_floats

_ROWS = 16  # of a thread
_FEWEST, _MOST = 32, 1024  # threads
_WHOLE = {"mean": reduce_mean, "sum": reduce_sum}


def _threads(rows: int) -> int:
    each = rows // _ROWS
    return min(max(1 << math.floor(math.log2(each) + 0.5), _FEWEST), _MOST) if each else _FEWEST


def _check_matrix(x: NDArray[Any]) -> None:
    if x.ndim != 2:
        raise NotEmulatedError("an nll_loss of other than two dimensions was not recorded")


@default_floats
def nll_loss(
    x: NDArray[Any], target: NDArray[Any], reduction: str, ignore_index: int = -100, *, weight: NDArray[Any] | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Compute ``aten::nll_loss_forward``.

    Parameters
    ----------
    x : float32, float16 or bfloat16 array (rows, classes)
        Logarithms of probabilities.
    target : integer array (rows,)
    reduction : str
        ``"none"``, ``"mean"`` or ``"sum"``.
    ignore_index : int
        A target that does not count.
    weight : array (classes,), optional
        Of the dtype of `x`.

    Returns
    -------
    The loss, and the total weight of the rows that count, as the kernel leaves it: in the dtype of `x`, and 0 without reduction.

    Raises
    ------
    NotEmulatedError
        If `x` is not a matrix.

    Examples
    --------
    >>> [float(each) for each in nll_loss(np.float32([[-1, -2], [-4, -3]]), np.array([0, 0]), "mean")]
    [2.5, 2.0]
    """
    _check_matrix(x)
    counts = target != ignore_index
    classes = np.where(counts, target, 0)
    picked = widen(x[np.arange(len(x)), classes])
    weights = np.ones_like(picked) if weight is None else widen(weight)[classes]
    each, shares = (np.where(counts, part, np.float32(0)) for part in (-picked, weights))
    if reduction == "none":
        return round_to(each * shares, x.dtype), round_to(0, x.dtype)
    threads = _threads(len(x))
    if x.dtype == F32:
        sums = start_sums(1, threads)
        kernels.functions.sums.add_products(each[None], shares[None], sums, 0, len(each))
    else:
        sums = add_strided(widen(round_to(each * shares, x.dtype))[None], threads)
    total, count = halve(sums)[0], halve(add_strided(shares[None], threads))[0]
    with np.errstate(all="ignore"):
        return round_to(total / count if reduction == "mean" else total, x.dtype), round_to(count, x.dtype)


@default_floats
def nll_loss_backward(
    grad: NDArray[Any],
    x: NDArray[Any],
    target: NDArray[Any],
    reduction: str,
    total_weight: NDArray[Any],
    ignore_index: int = -100,
    *,
    weight: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Compute ``aten::nll_loss_backward``.

    Parameters
    ----------
    grad : array
        The incoming gradient, one number or (rows,).
    x, target, reduction, ignore_index, weight
        As in `nll_loss`.
    total_weight : array
        The second result of `nll_loss`.

    Raises
    ------
    NotEmulatedError
        If `x` is not a matrix.

    Examples
    --------
    >>> x = np.float32([[-1, -2], [-4, -3]])
    >>> nll_loss_backward(np.float32(1), x, np.array([0, 0]), "mean", np.float32(2)).tolist()
    [[-0.5, 0.0], [-0.5, 0.0]]
    """
    _check_matrix(x)
    with np.errstate(all="ignore"):
        share = round_to(widen(grad) / widen(total_weight), x.dtype) if reduction == "mean" else np.asarray(grad)
    rows = np.flatnonzero(target != ignore_index)
    result = np.zeros(x.shape, x.dtype)
    found = np.broadcast_to(-widen(share), target.shape)[rows]
    result[rows, target[rows]] = round_to(found if weight is None else found * widen(weight)[target[rows]], x.dtype)
    return result


def _sigmoid(x: NDArray[Any]) -> Floats:
    with np.errstate(all="ignore"):
        return np.asarray(np.float32(1) / (np.float32(1) + libdevice.call("expf", -widen(x))), np.float32)


@default_floats
def binary_cross_entropy_with_logits(
    x: NDArray[Any],
    target: NDArray[Any],
    reduction: str,
    *,
    weight: NDArray[Any] | None = None,
    pos_weight: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Compute ``aten::binary_cross_entropy_with_logits``, (1 - target) * x - log(sigmoid(x)), rounded after each step.

    Parameters
    ----------
    x, target : float32, float16 or bfloat16 array
        Of the same shape and dtype.
    reduction : str
        ``"none"``, ``"mean"`` or ``"sum"``.
    weight, pos_weight : array, optional
        Weights in the dtype of `x`, broadcast to its shape: of all losses, and of those whose target is 1.

    Examples
    --------
    >>> float(binary_cross_entropy_with_logits(np.float32([0]), np.float32([1]), "mean"))  # doctest: +SKIP
    0.6931471824645996
    """
    dtype, logits = x.dtype, widen(x)
    with np.errstate(all="ignore"):
        softened = libdevice.call("log1pf", libdevice.call("expf", -np.abs(logits)))
        logarithm = round_to(np.minimum(np.float32(0), logits) - softened, dtype)
        if pos_weight is not None:
            scaled = round_to(widen(round_to(widen(pos_weight) - np.float32(1), dtype)) * widen(target), dtype)
            logarithm = round_to(widen(logarithm) * widen(round_to(widen(scaled) + np.float32(1), dtype)), dtype)
        product = round_to(widen(round_to(np.float32(1) - widen(target), dtype)) * logits, dtype)
        each = round_to(widen(product) - widen(logarithm), dtype)
        if weight is not None:
            each = round_to(widen(each) * widen(weight), dtype)
    return each if reduction == "none" else _WHOLE[reduction](each)


@default_floats
def binary_cross_entropy_with_logits_backward(grad: NDArray[Any], x: NDArray[Any], target: NDArray[Any], reduction: str) -> NDArray[Any]:
    """Compute the gradient of `binary_cross_entropy_with_logits`, (sigmoid(x) - target) * grad, of a mean times 1 / n, rounded each time.

    Parameters
    ----------
    grad : array
        The incoming gradient.
    x, target, reduction
        The arguments of `binary_cross_entropy_with_logits`.

    Examples
    --------
    >>> binary_cross_entropy_with_logits_backward(np.float32(1), np.float32([0, 0]), np.float32([1, 0]), "mean").tolist()  # doctest: +SKIP
    [-0.25, 0.25]
    """
    dtype = x.dtype
    with np.errstate(all="ignore"):
        difference = round_to(widen(round_to(_sigmoid(x), dtype)) - widen(target), dtype)
        result = round_to(widen(difference) * widen(grad), dtype)
        return round_to(widen(result) * np.float32(1 / x.size), dtype) if reduction == "mean" else result
