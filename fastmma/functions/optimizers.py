"""Steps of optimizers in one kernel, and norms of lists, as torch's CUDA kernels compute them (PyTorch 2.11).

``fused_adam_utils.cuh``, ``FusedSgdKernel.cu`` and ``ForeachReduceOp.cu``; all in f32, whatever the format of the parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import kernels
from fastmma.functions import libdevice
from fastmma.functions.arithmetic import Floats, fuse, round_to, widen
from fastmma.functions.block import add_block, add_strided, start_sums
from fastmma.host.float_mode import default_floats

ORDERS = (1.0, 2.0, float("inf"))  # of norms
_CHUNK, _THREADS, _VECTOR = 65536, 512, 4

Arrays = NDArray[Any]


def _correction(beta: np.float32, step: float) -> Floats:
    return np.asarray(np.float32(1) - libdevice.call("powf", beta, np.float32(step)))


def _decayed(p: Floats, g: Floats, decay: np.float32, maximize: bool, amsgrad: bool) -> Floats:
    """Add to gradients what decays.

    The compiler fuses product and sum for all four elements of a thread with `amsgrad`, for none with `maximize` alone, and else for
    the last three.
    """
    if amsgrad:
        return fuse(p, decay, g)
    apart = np.asarray(p * decay, np.float32) + g
    if maximize:
        return apart
    place = np.arange(p.size)
    aligned = (p.size - place // _CHUNK * _CHUNK) % _VECTOR == 0
    first = np.where(aligned, place % _VECTOR, place % _CHUNK // _THREADS % _VECTOR) == 0
    return np.where(first.reshape(p.shape), apart, fuse(p, decay, g))


@default_floats
def step_adam(
    param: Arrays,
    grad: Arrays,
    exp_avg: Arrays,
    exp_avg_sq: Arrays,
    step: float,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool = False,
    max_exp_avg_sq: Arrays | None = None,
) -> tuple[Arrays, ...]:
    """Compute ``aten::_fused_adam_``, or ``aten::_fused_adamw_`` where decay is `decoupled`, of one parameter.

    Parameters
    ----------
    param, grad, exp_avg, exp_avg_sq : float32, float16 or bfloat16 array
    step : float
        From 1.
    lr, betas, eps, weight_decay
        As torch has them.
    decoupled, maximize : bool
    max_exp_avg_sq : array, optional
        Of ``amsgrad``.

    Returns
    -------
    New arrays in place of `param`, `exp_avg`, `exp_avg_sq` and, if there was one, `max_exp_avg_sq`.

    Examples
    --------
    >>> zero = np.zeros(1, np.float32)
    >>> found = step_adam(zero, zero + 1, zero, zero, 1, lr=1, betas=(0.5, 0.5), eps=0, weight_decay=0, decoupled=True)  # doctest: +SKIP
    >>> [each.tolist() for each in found]  # doctest: +SKIP
    [[-1.0], [0.5], [0.5]]
    """
    rate, beta1, beta2, decay, small = map(np.float32, (lr, *betas, weight_decay, eps))
    p, g, m, v = map(widen, (param, grad, exp_avg, exp_avg_sq))
    g = -g if maximize else g
    with np.errstate(all="ignore"):
        if weight_decay:
            p, g = (fuse(-(rate * decay), p, p), g) if decoupled else (p, _decayed(p, g, decay, maximize, max_exp_avg_sq is not None))
        m = fuse(beta1, m, fuse(-beta1, g, g))
        v = fuse(beta2, v, fuse(-beta2, g * g, g * g))
        largest = v if max_exp_avg_sq is None else np.fmax(widen(max_exp_avg_sq), v)
        spread = np.sqrt(largest) / np.sqrt(_correction(beta2, step)) + small
        p = np.asarray(p - rate / _correction(beta1, step) * m / spread, np.float32)
    found = (p, m, v) if max_exp_avg_sq is None else (p, m, v, largest)
    return tuple(round_to(each, param.dtype) for each in found)


@default_floats
def step_sgd(
    param: Arrays,
    grad: Arrays,
    momentum_buffer: Arrays | None,
    *,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    first: bool,
) -> tuple[Arrays, ...]:
    """Compute ``aten::_fused_sgd_`` of one parameter.

    Parameters
    ----------
    param, grad : float32 or bfloat16 array
    momentum_buffer : array, optional
        None without momentum.
    lr, momentum, dampening, weight_decay, nesterov
        As torch has them.
    first : bool
        Whether the buffer is still empty.

    Returns
    -------
    New arrays in place of `param` and, if there was one, `momentum_buffer`.

    Examples
    --------
    >>> one = np.ones(1, np.float32)
    >>> step_sgd(one, one, None, lr=0.5, momentum=0, dampening=0, weight_decay=0, nesterov=False, first=True)[0].tolist()
    [0.5]
    """
    rate, kept, damped, decay = map(np.float32, (lr, momentum, dampening, weight_decay))
    p, g = widen(param), widen(grad)
    with np.errstate(all="ignore"):
        if weight_decay:
            g = fuse(decay, p, g)
        buffer = None
        if momentum_buffer is not None:
            buffer = g if first else fuse(np.float32(1) - damped, g, kept * widen(momentum_buffer))
            g = fuse(kept, buffer, g) if nesterov else buffer
        p = fuse(-rate, g, p)
    return tuple(round_to(each, param.dtype) for each in ((p,) if buffer is None else (p, buffer)))


def _add_chunk(values: Floats, aligned: bool, order: float) -> np.float32:
    """Sum squares or magnitudes of a chunk: threads keep 4 sums, of vectors, or of elements that lie 512 apart."""
    sums, row = start_sums(1, _THREADS * _VECTOR), values[None]
    if order == 2:
        kernels.functions.sums.add_products(row, row, sums, 0, values.size)
    else:
        kernels.functions.sums.add_vectors(np.abs(row), sums, 0, values.size, 1)
    places = sums.reshape(_THREADS, _VECTOR) if aligned else sums.reshape(_VECTOR, _THREADS).T
    total = places[:, 0]
    for index in range(1, _VECTOR):
        total = total + places[:, index]
    return np.float32(add_block(total[None])[0])


@default_floats
def foreach_norm(arrays: list[Arrays], order: float = 2) -> list[Arrays]:
    """Compute ``aten::_foreach_norm.Scalar``: chunks of 65536 elements are summed by 512 threads each, then the chunks.

    Parameters
    ----------
    arrays : list of float32, float16 or bfloat16 array
        Each as if contiguous, from an aligned address.
    order : float
        1, 2 or infinity.

    Examples
    --------
    >>> [float(each) for each in foreach_norm([np.float32([3, 4])])]
    [5.0]
    """
    found = []
    for array in arrays:
        values = np.ascontiguousarray(widen(array)).reshape(-1)
        if order == np.inf:
            found.append(round_to(np.abs(values).max(initial=0), array.dtype))
            continue
        firsts = range(0, values.size, _CHUNK)
        chunks = [_add_chunk(values[first : first + _CHUNK], (values.size - first) % _VECTOR == 0, order) for first in firsts]
        total = add_block(add_strided(np.array([chunks], np.float32), _THREADS))[0]
        found.append(round_to(np.sqrt(total) if order == 2 else total, array.dtype))
    return found
