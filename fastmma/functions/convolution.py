"""Convolutions as cuDNN's kernels sum them (9.19, an H200): each result has one accumulator, and kernels differ in the order of its
products.

A kernel takes the products of a result by channel, row and column (``crs``), as NCHW lies, or by row, column and channel (``rsc``), as NHWC
does. It adds them by fused multiply-adds, or by tensor cores, several at a time, where some kernels fill the channels up with zeros to
whole instructions (``padded``). Many take a ``chunk`` of channels through all places of a filter before the next chunk; the gradient of an
input is such a convolution of the gradient, and takes the places of the filter from the first or from the last (``turned``). Gradients of
weights are sums over images and places, in this order; some kernels sum images ``apart``, or
``parts`` of so many products, and add these sums in turn.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.products.gemm import gemm

FMA = "fma.rn.f32"
_MMA = {
    "float16": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16),
    "bfloat16": ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16),
    "float32": ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 8),
}
_AT_ONCE = 1 << 25  # elements of patches that are laid out at once, unless an image has more


class Order(NamedTuple):
    """The order in which a kernel sums the products of a result.

    Attributes
    ----------
    by : {"crs", "rsc"}
        Channels first, or last.
    tensor_cores : bool
        True: by mma. False: by fma.
    padded : bool
        Channels are filled up to whole instructions.
    nearest : bool
        float32 is rounded to the nearest TF32 before a tensor core takes it; otherwise the tensor core truncates it.
    apart : bool
        For the gradient of a weight, each image is summed on its own, and these sums are added.
    parts : int
        For the gradient of a weight, how many products are summed on their own before these sums are added; 0 if all are.
    chunk : int
        How many channels go through all places of the filter before the next ones do; 0 if all do.
    turned : bool
        For the gradient of an input, places of the filter are taken from the last to the first.
    """

    by: str
    tensor_cores: bool
    padded: bool = False
    nearest: bool = False
    apart: bool = False
    parts: int = 0
    chunk: int = 0
    turned: bool = False

    def __str__(self) -> str:
        how = ["mma" if self.tensor_cores else FMA, "channels first" if self.by == "crs" else "channels last"]
        more = {"channels filled up": self.padded, "nearest TF32": self.nearest, "images apart": self.apart}
        more |= {f"{self.parts} products apart": bool(self.parts), f"{self.chunk} channels at a time": bool(self.chunk)}
        more["filters turned"] = self.turned
        return ", ".join(how + [name for name, holds in more.items() if holds])


def convolve(
    x: NDArray[Any], weight: NDArray[Any], order: Order, *, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> NDArray[Any]:
    """Compute a convolution of two dimensions without groups and without a bias, rounded once.

    Parameters
    ----------
    x : float32, float16 or bfloat16 array (images, channels, height, width)
    weight : array (results, channels, rows, columns)
        Of the dtype of `x`.
    order : Order
    stride, padding, dilation : two integers

    Returns
    -------
    array (images, results, height, width)

    Raises
    ------
    OperandError
        If the weight does not fit.

    Examples
    --------
    >>> x, weight = np.ones((1, 2, 4, 4), np.float32), np.ones((3, 2, 2, 2), np.float32)
    >>> result = convolve(x, weight, Order("crs", False), stride=(2, 2), padding=(0, 0), dilation=(1, 1))
    >>> result.shape, float(result[0, 0, 0, 0])
    ((1, 3, 2, 2), 8.0)
    """
    return _multiplied(_patches(x, weight.shape, stride, padding, dilation), weight, order)


def convolve_backward_input(
    grad: NDArray[Any],
    weight: NDArray[Any],
    size: Sequence[int],
    order: Order,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> NDArray[Any]:
    """Compute the gradient of the input of a convolution: what each number of the input was multiplied by, times the gradient there.

    Parameters
    ----------
    grad : array (images, results, height, width)
    weight : array (results, channels, rows, columns)
    size : two integers
        Height and width of the input.
    order : Order
        Its channels are those of the gradient.
    stride, padding, dilation : two integers
        Of the convolution.

    Returns
    -------
    array (images, channels, height, width)

    Raises
    ------
    OperandError
        If the weight does not fit.

    Examples
    --------
    >>> grad, weight = np.ones((1, 3, 2, 2), np.float32), np.ones((3, 2, 2, 2), np.float32)
    >>> steps = {"stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
    >>> found = convolve_backward_input(grad, weight, (4, 4), Order("crs", False), **steps)
    >>> found.shape, float(found[0, 0, 0, 0])
    ((1, 2, 4, 4), 3.0)
    """
    images, results = grad.shape[:2]
    spans = [gap * (side - 1) for gap, side in zip(dilation, weight.shape[2:], strict=True)]
    sides = [length + 2 * fill + span for length, fill, span in zip(size, padding, spans, strict=True)]
    spread = np.zeros((images, results, *sides), grad.dtype)  # with zeros between and around
    rows, columns = (slice(span, span + step * count, step) for span, step, count in zip(spans, stride, grad.shape[2:], strict=True))
    spread[:, :, rows, columns] = grad
    spread = spread[:, :, padding[0] : sides[0] - padding[0], padding[1] : sides[1] - padding[1]]
    turned = weight.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    patches = _patches(spread, turned.shape, (1, 1), (0, 0), dilation)
    if not order.turned:
        turned, patches = turned[:, :, ::-1, ::-1], patches[..., ::-1, ::-1]
    return _multiplied(patches, turned, order)


def convolve_backward_weight(
    grad: NDArray[Any],
    x: NDArray[Any],
    shape: Sequence[int],
    order: Order,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> NDArray[Any]:
    """Compute the gradient of the weight of a convolution, summed over images, rows and columns in turn.

    Parameters
    ----------
    grad : array (images, results, height, width)
    x : array (images, channels, height, width)
    shape : four integers
        Of the weight.
    order : Order
        Only its `tensor_cores`, `nearest`, `apart` and `parts` count.
    stride, padding, dilation : two integers

    Raises
    ------
    OperandError
        If the shape does not fit.

    Examples
    --------
    >>> grad, x = np.ones((1, 3, 2, 2), np.float32), np.ones((1, 2, 4, 4), np.float32)
    >>> found = convolve_backward_weight(grad, x, (3, 2, 2, 2), Order("crs", False), stride=(2, 2), padding=(0, 0), dilation=(1, 1))
    >>> found.shape, float(found[0, 0, 0, 0])
    ((3, 2, 2, 2), 4.0)
    """
    patches = _patches(x, shape, stride, padding, dilation)
    columns = patches.reshape(-1, int(np.prod(patches.shape[3:]))).T
    rows = grad.reshape(*grad.shape[:2], -1).transpose(1, 0, 2).reshape(grad.shape[1], -1)
    step = rows.shape[1] // len(x) if order.apart else order.parts or rows.shape[1]
    parts = [slice(start, start + step) for start in range(0, rows.shape[1], step)]
    sums = [multiply(np.ascontiguousarray(rows[:, part]), np.ascontiguousarray(columns[:, part]), order) for part in parts]
    found = functools.reduce(np.add, sums)
    return found.astype(x.dtype).reshape(tuple(shape))


def _patches(x: NDArray[Any], shape: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> NDArray[Any]:
    """View what each result is a sum over: (images, height, width, channels, rows, columns)."""
    if len(shape) != 4 or shape[1] != x.shape[1]:
        raise OperandError(f"a weight of {tuple(shape)} does not fit images of {x.shape}")
    filled = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    spans = [step * (size - 1) + 1 for step, size in zip(dilation, shape[2:], strict=True)]
    if any(span > size for span, size in zip(spans, filled.shape[2:], strict=True)):
        raise OperandError(f"a weight of {tuple(shape)} is larger than images of {x.shape}")
    windows = np.lib.stride_tricks.sliding_window_view(filled, spans, (2, 3))
    return windows[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]].transpose(0, 2, 3, 1, 4, 5)


def _multiplied(patches: NDArray[Any], weight: NDArray[Any], order: Order) -> NDArray[Any]:
    """Multiply patches by the weight, some images at a time, and round: (images, results, height, width)."""
    images, height, width = patches.shape[:3]
    columns = _lined(weight, order)
    found = np.empty((images, len(weight), height, width), patches.dtype)
    step = max(1, _AT_ONCE // max(1, patches[:1].size))
    for first in range(0, images, step):
        part = patches[first : first + step]
        sums = multiply(_lined(part.reshape(-1, *part.shape[3:]), order), columns, order).astype(patches.dtype)
        found[first : first + step] = sums.reshape(*part.shape[:3], -1).transpose(0, 3, 1, 2)
    return found


def _lined(parts: NDArray[Any], order: Order) -> NDArray[Any]:
    """Lay (..., channels, rows, columns) out in the order of sums."""
    if order.by == "crs":
        return np.ascontiguousarray(parts).reshape(len(parts), -1)
    missing = -parts.shape[1] % _MMA[parts.dtype.name][1] if order.padded else 0
    parts = np.pad(parts, ((0, 0), (0, missing), (0, 0), (0, 0)))
    channels = parts.shape[1]
    step = order.chunk or max(1, channels)
    chunks = [parts[:, first : first + step].transpose(0, 2, 3, 1).reshape(len(parts), -1) for first in range(0, channels, step)]
    return np.ascontiguousarray(np.concatenate(chunks, 1) if chunks else parts.reshape(len(parts), 0))


def multiply(rows: NDArray[Any], columns: NDArray[Any], order: Order) -> NDArray[Any]:
    """Multiply rows by columns, each of them contiguous, into float32 sums.

    Parameters
    ----------
    rows : float32, float16 or bfloat16 array (M, K)
    columns : array (N, K)
    order : Order
        Only its `tensor_cores` and `nearest` count.

    Returns
    -------
    float32 array (M, N)

    Examples
    --------
    >>> multiply(np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]]), Order("crs", False)).tolist()
    [[11.0, 17.0]]
    """
    if not order.tensor_cores:
        return np.asarray(gemm(rows.astype(np.float32), columns.astype(np.float32).T, instruction=FMA))
    if rows.dtype == np.float32:
        rows, columns = (_nearest_tf32(each) for each in (rows, columns)) if order.nearest else (rows, columns)
        return np.asarray(gemm(rows, columns.T, instruction=_MMA["float32"][0], cast=True))
    return np.asarray(gemm(rows, columns.T, instruction=_MMA[rows.dtype.name][0], out_dtype="f32"))


def _nearest_tf32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to the nearest TF32, ties away from zero, as ``cvt.rna.tf32.f32`` does."""
    codes = np.ascontiguousarray(x).view(np.uint32)
    finite = (codes & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    return np.where(finite, (codes + np.uint32(0x1000)) & np.uint32(0xFFFFE000), codes).view(np.float32)
