"""Batch norm as torch's own CUDA kernels compute it (``Normalization.cuh``, PyTorch 2.11), with its gradients.

With r = rsqrt(variance + eps), w and b weight and bias: y = fma(w * (x - mean), r, b). Statistics of a channel are Welford's:

- channels first: threads along the places of an image (32 to 512), and along images (512 in all); they are joined pair by pair, by warps,
  and then the warps.
- channels last: up to 32 channels a block, and threads along the rows, each with 4 chains, which are joined in turn; then the threads are
  halved. From 8 blocks of 16 rows a thread on, blocks share a channel, and threads of the last one take a block each.

Of a channel, db = sum(dy), dp = sum(dy * (x - mean)) and dw = dp * r; threads of channels first take elements as those do that take
statistics, and are added by shuffles, of which what comes from another thread is rounded to the format of x. In training
dx = (fma(-(x - mean), dp / n * r * r, dy) - db / n) * (r * w); of channels last fma(-(x - mean), r * r * dp / n, fma(-db, 1 / n, dy)) *
(r * w).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.functions import libdevice
from fastmma.functions.arithmetic import Floats, fuse, round_to, widen
from fastmma.functions.block import WARP
from fastmma.functions.moments import Moments
from fastmma.host.errors import NotEmulatedError
from fastmma.host.float_mode import default_floats

_THREADS = 512  # of a block
_ALONG = (32, 64, 128, 256)  # threads along an image that has no more places
_CHAINS = 4  # of a thread
_ROWS = 16  # of a thread, before blocks share a channel
_COLUMNS = 32  # channels of a block, where there are enough rows
_LEAST, _MOST = 8, 128  # blocks that share a channel, else one
_ONE = np.float32(1)
_MINUS_ZERO = np.float32(-0.0)  # an addend that changes no bit

Sums = tuple[Floats, ...]


class Normalized(NamedTuple):
    """Sizes, operands and options of a batch norm.

    Attributes
    ----------
    result : array
    mean, rstd : float32 array (channels,)
        Of each channel, and the reciprocal of its standard deviation.
    running_mean, running_var : array (channels,) or None
        Their values after a step of training.
    """

    result: NDArray[Any]
    mean: Floats
    rstd: Floats
    running_mean: NDArray[Any] | None
    running_var: NDArray[Any] | None


class _Rows(NamedTuple):
    """Rows of channels that lie last, as threads share them."""

    threads: int
    blocks: int

    @classmethod
    def of(cls, rows: int, channels: int) -> _Rows:
        columns = min(_power(channels), _COLUMNS)
        threads = min(_power(-(-rows // _ROWS)), _THREADS // columns)
        blocks = min(-(-rows // (threads * _ROWS)), _MOST)
        return cls(threads, blocks if blocks >= _LEAST else 1)


def _power(count: int) -> int:
    return 1 << (max(count, 1).bit_length() - 1)


def _images(x: NDArray[Any]) -> Floats:
    """Return channels first: (images, channels, places)."""
    return np.ascontiguousarray(widen(x)).reshape(*x.shape[:2], -1)


def _rows(x: NDArray[Any]) -> Floats:
    """Return channels last: (rows, channels)."""
    return np.ascontiguousarray(np.moveaxis(widen(x), 1, -1)).reshape(-1, x.shape[1])


def _shape(places: int) -> tuple[int, int]:
    """Return how many threads a block has along places and along images."""
    along = next((threads for threads in _ALONG if places <= threads), _THREADS)
    return along, _THREADS // along


def _shape_of_sums(images: int, places: int) -> tuple[int, int]:
    """Return the same of the kernel that sums gradients where those lie in another order than x."""
    down = min(_power(images), _THREADS // WARP)
    return min(_shape(places)[0], _THREADS // down), down


def _dealt(images: Floats, threads: tuple[int, int]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Deal elements to threads along places and images: (step, channel, thread), and which of them there are."""
    count, channels, places = images.shape
    along, down = threads
    shape = -(-count // down) * down, channels, -(-places // along) * along
    held, there = np.zeros(shape, np.float32), np.zeros((shape[0], 1, shape[2]), np.bool_)
    held[:count, :, :places], there[:count, :, :places] = images, True

    def steps(array: NDArray[Any]) -> NDArray[Any]:
        parts = array.reshape(-1, down, array.shape[1], shape[2] // along, along).transpose(0, 3, 2, 1, 4)
        return parts.reshape(-1, array.shape[1], along * down)

    return steps(held), steps(there)


def _join_pairs(found: Moments) -> Moments:
    """Join threads (last axis) pair by pair, until one is left."""
    while found.mean.shape[-1] > 1:
        first, second = (found.take((..., slice(start, None, 2))) for start in (0, 1))
        count = first.counts + second.counts
        factor = _ONE / np.maximum(_ONE, count)
        difference = first.mean - second.mean
        product = difference * difference * first.counts * second.counts
        squares = fuse(product, factor, second.squares) + first.squares
        found = Moments(fuse(first.counts, first.mean, second.counts * second.mean) * factor, squares, count)
    return found.take((..., 0))


def _join(first: Moments, second: Moments, other_first: bool) -> Moments:
    """Join moments as ``welford_merge_element`` does: the compiler contracts the product of the one mean or of the other."""
    count = first.counts + second.counts
    factor = _ONE / np.maximum(_ONE, count)
    difference = first.mean - second.mean
    squares = fuse(difference * difference * second.counts * first.counts, factor, second.squares) + first.squares
    one, other = (second, first) if other_first else (first, second)
    return Moments(fuse(one.mean, one.counts, other.mean * other.counts) * factor, squares, count)


def _moments_of_images(images: Floats) -> Moments:
    values, there = _dealt(images, _shape(images.shape[2]))
    found = Moments(*(np.zeros(values.shape[1:], np.float32) for _ in range(3)))
    for value, valid in zip(values, there, strict=True):
        difference, count = value - found.mean, found.counts + _ONE
        mean = found.mean + difference / count
        taken = Moments(mean, fuse(difference, value - mean, found.squares), count)
        found = Moments(*(np.where(valid, new, old) for new, old in zip(taken, found, strict=True)))
    warps = _join_pairs(Moments(*(part.reshape(len(part), -1, WARP) for part in found)))
    missing = WARP - warps.mean.shape[-1]
    return _join_pairs(Moments(*(np.pad(part, ((0, 0), (0, missing))) for part in warps)))


def _chains(rows: Floats, shared: _Rows) -> tuple[Floats, NDArray[np.bool_]]:
    """Deal rows to chains of threads, (step, chain, thread, channel), and say which of them there are."""
    threads = shared.threads * shared.blocks
    steps = 1 + (len(rows) - 1) // (threads * _CHAINS)
    held = np.zeros((steps * _CHAINS * threads, rows.shape[1]), np.float32)
    held[: len(rows)] = rows
    there = np.arange(len(held)) < len(rows)
    return held.reshape(steps, _CHAINS, threads, -1), there.reshape(steps, _CHAINS, threads, 1)


def _halve(state: Sums, join: Callable[[Sums, Sums], Sums]) -> Sums:
    """Join the lower half of the first axis to the upper one until one is left."""
    while len(state[0]) > 1:
        half = len(state[0]) // 2
        state = join(tuple(each[:half] for each in state), tuple(each[half:] for each in state))
    return tuple(each[0] for each in state)


def _join_threads(state: Sums, shared: _Rows, join: Callable[[Sums, Sums], Sums]) -> Sums:
    """Join threads of blocks, (blocks * threads, channels), and then the blocks, one of whose threads takes one of them each."""
    if shared.blocks > shared.threads:
        raise NotEmulatedError("a batch norm of so many rows was not recorded")
    blocks = tuple(each.reshape(shared.blocks, shared.threads, -1).swapaxes(0, 1) for each in state)
    found = _halve(blocks, join)
    if shared.blocks == 1:
        return tuple(each[0] for each in found)
    held = tuple(np.pad(each, ((0, shared.threads - shared.blocks), (0, 0))) for each in found)
    return _halve(join(tuple(map(np.zeros_like, held)), held), join)


def _moments_of_rows(rows: Floats) -> Moments:
    shared = _Rows.of(*rows.shape)
    values, there = _chains(rows, shared)
    found = Moments(*(np.zeros(values.shape[1:], np.float32) for _ in range(3)))
    for value, valid in zip(values, there, strict=True):
        count = found.counts + valid
        share = np.where(valid, _ONE / np.maximum(count, _ONE), np.float32(0))
        difference = value - found.mean
        mean = fuse(difference, share, found.mean)
        squares = np.where(valid, found.squares + difference * (value - mean), found.squares)
        found = Moments(mean, squares, count)
    joined = found.take(0)
    for chain in range(1, _CHAINS):
        joined = _join(joined, found.take(chain), True)
    return Moments(*_join_threads(joined, shared, lambda first, second: _join(Moments(*first), Moments(*second), False)))


def _flat(vector: NDArray[Any] | None, otherwise: np.float32, channels: int) -> Floats:
    return np.full(channels, otherwise, np.float32) if vector is None else np.ascontiguousarray(widen(vector)).reshape(-1)


def _rstd(variance: Floats, eps: float) -> Floats:
    return libdevice.call("rsqrtf", np.ascontiguousarray(variance + np.float32(eps)))


def _per_channel(vector: Floats, like: NDArray[Any]) -> Floats:
    return vector.reshape(1, -1, *(1,) * (like.ndim - 2))


@default_floats
def batch_norm(
    x: NDArray[Any],
    weight: NDArray[Any] | None,
    bias: NDArray[Any] | None,
    running_mean: NDArray[Any] | None,
    running_var: NDArray[Any] | None,
    *,
    training: bool,
    momentum: float,
    eps: float,
    channels_last: bool,
) -> Normalized:
    """Compute ``aten::native_batch_norm``.

    Parameters
    ----------
    x : float32, float16 or bfloat16 array (images, channels, ...)
    weight, bias, running_mean, running_var : array (channels,), optional
        In the dtype of x, or float32.
    training : bool
        True uses the statistics of x and updates the running ones; False uses the running ones.
    momentum, eps : float
    channels_last : bool
        Whether the channels of x lie side by side on the GPU; those of arrays (images, channels) do.

    Raises
    ------
    NotEmulatedError
        If channels lie last, and so many rows share them that the order was not recorded.

    Examples
    --------
    >>> x = np.float32([[1, 10], [3, 30]])
    >>> batch_norm(x, None, None, None, None, training=True, momentum=0.1, eps=0.0, channels_last=True).mean.tolist()  # doctest: +SKIP
    [2.0, 20.0]
    """
    channels, values = x.shape[1], widen(x)
    means, variances = running_mean, running_var
    with np.errstate(all="ignore"):
        if training:
            found = _moments_of_rows(_rows(x)) if channels_last else _moments_of_images(_images(x))
            count = x.size // channels
            mean, variance = np.ascontiguousarray(found.mean), found.squares / np.float32(count)
            if running_mean is not None and running_var is not None:
                unbiased = variance * np.float32(count / (count - 1))
                means, variances = _follow(running_mean, mean, momentum), _follow(running_var, unbiased, momentum)
        elif running_mean is None or running_var is None:
            raise NotEmulatedError("a batch norm without statistics")
        else:
            mean, variance = _flat(running_mean, _ONE, channels), _flat(running_var, _ONE, channels)
        rstd = _rstd(variance, eps)
        w, b = _flat(weight, _ONE, channels), _flat(bias, np.float32(0), channels)
        factors = _per_channel(w, x) * (values - _per_channel(mean, x))
        result = round_to(fuse(factors, *(np.broadcast_to(_per_channel(each, x), x.shape) for each in (rstd, b))), x.dtype)
    return Normalized(result, mean, rstd, means, variances)


def _follow(running: NDArray[Any], found: Floats, momentum: float) -> NDArray[Any]:
    """Move a running statistic towards what a step found."""
    share = np.float32(momentum)
    return round_to(fuse(found, np.full_like(found, share), (_ONE - share) * _flat(running, _ONE, len(found))), running.dtype)


def _add_rounded(sums: Floats, dtype: Any) -> Floats:
    """Add the threads of a block as `add_block` does, but what a shuffle brings is rounded to the format of x, as ``Float2`` is."""

    def halve(held: Floats) -> Floats:
        while held.shape[-1] > 1:
            half = held.shape[-1] // 2
            held = held[..., :half] + widen(round_to(held[..., half:], dtype))
        return held[..., 0]

    warps = halve(sums.reshape(len(sums), -1, WARP))
    return halve(np.pad(warps, ((0, 0), (0, WARP - warps.shape[1]))))


def _gradient_sums_of_images(dy: NDArray[Any], x: NDArray[Any], mean: Floats, shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """Sum gradients, and products with differences from the mean, by (threads along places, along images)."""
    grads, _ = _dealt(_images(dy), shape)
    centred, _ = _dealt(_images(x) - mean[:, None], shape)
    narrow = x.dtype != np.float32
    total, products = np.zeros(grads.shape[1:], np.float32), np.zeros(grads.shape[1:], np.float32)
    for grad, value in zip(grads, centred, strict=True):
        total = total + grad
        products = products + widen(round_to(grad * value, x.dtype)) if narrow else fuse(grad, value, products)
    return _add_rounded(total, x.dtype), _add_rounded(products, x.dtype)


def _gradient_sums_of_rows(dy: NDArray[Any], x: NDArray[Any], mean: Floats) -> tuple[Floats, Floats]:
    rows = _rows(dy)
    shared = _Rows.of(*rows.shape)
    grads, _ = _chains(rows, shared)
    centred, _ = _chains(_rows(x) - mean, shared)
    total, products = np.zeros(grads.shape[1:], np.float32), np.zeros(grads.shape[1:], np.float32)
    for grad, value in zip(grads, centred, strict=True):
        total, products = total + grad, fuse(grad, value, products)
    for chain in range(1, _CHAINS):
        total[0], products[0] = total[0] + total[chain], products[0] + products[chain]
    found = _join_threads((total[0], products[0]), shared, lambda first, second: (first[0] + second[0], first[1] + second[1]))
    return found[0], found[1]


@default_floats
def batch_norm_backward(
    grad: NDArray[Any],
    x: NDArray[Any],
    weight: NDArray[Any] | None,
    mean: NDArray[Any],
    scale: NDArray[Any],
    *,
    training: bool,
    eps: float,
    channels_last: bool,
    grad_channels_last: bool,
    reduced: bool = True,
    whole: bool = True,
) -> tuple[NDArray[Any], Floats, Floats]:
    """Compute ``aten::native_batch_norm_backward``: the gradients of `x`, and, in float32, of the weight and of the bias.

    Parameters
    ----------
    grad, x, weight, training, eps, channels_last
        The incoming gradient, and the arguments of `batch_norm`.
    mean, scale : array (channels,)
        In training, the mean and the reciprocal standard deviation that `batch_norm` returned; otherwise the running mean and variance.
    grad_channels_last : bool
        Whether the channels of the gradient lie side by side.
    reduced : bool
        Whether to compute the gradients of weight and bias. If so and not in training, another kernel computes the gradient of `x`.
    whole : bool
        Whether to compute the gradient of `x`. If so, other threads add.

    Raises
    ------
    NotEmulatedError
        As in `batch_norm`.

    Examples
    --------
    >>> x, one, zero = np.float32([[1, 10], [3, 30]]), np.ones(2, np.float32), np.zeros(2, np.float32)
    >>> options = {"training": False, "eps": 0.0, "channels_last": True, "grad_channels_last": True}
    >>> batch_norm_backward(x, x, None, zero, one, **options)[2].tolist()  # doctest: +SKIP
    [4.0, 40.0]
    """
    channels, fused = x.shape[1], reduced and whole and not channels_last
    centre, w, rstd = (_flat(each, _ONE, channels) for each in (mean, weight, scale))
    dy, values = widen(grad), widen(x)
    with np.errstate(all="ignore"):
        if not training:
            rstd = _ONE / np.sqrt(rstd + np.float32(eps)) if fused else _rstd(rstd, eps)
        of_bias = products = np.zeros(channels, np.float32)
        if reduced and channels_last and grad_channels_last:
            of_bias, products = _gradient_sums_of_rows(grad, x, centre)
        elif reduced:
            images, places = x.shape[0], x.size // (x.shape[0] * channels)
            shape = _shape(places) if fused else _shape_of_sums(images, places)
            of_bias, products = _gradient_sums_of_images(grad, x, centre, shape)
        share = _ONE / np.float32(x.size // channels)
        factor, less = _per_channel(rstd * w, x), values - _per_channel(centre, x)
        if training and fused:
            slope = _per_channel(products * share * rstd * rstd, x)
            result = (fuse(-less, np.broadcast_to(slope, x.shape), dy) - _per_channel(of_bias * share, x)) * factor
        elif training:
            slope = _per_channel(rstd * rstd * products * share, x)
            moved = fuse(np.broadcast_to(_per_channel(-of_bias, x), x.shape), np.full_like(dy, share), dy)
            result = fuse(-less, np.broadcast_to(slope, x.shape), moved) * factor
        else:
            result = dy * factor if fused else dy * _per_channel(w, x) * _per_channel(rstd, x)
        return round_to(result, x.dtype), products * rstd, of_bias
