"""Pools and nearest neighbours by torch's CUDA kernels: their windows by their arguments, and in which order results lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fastmma.functions import pooling
from fastmma.functions.pooling import Sliding, Windows
from fastmma.host.errors import NotEmulatedError
from fastmma.torch.arrays import to_numpy, to_torch

Arguments = Mapping[str, Any]
_IMAGES = 4  # dimensions of a stack of images


def _check(x: Tensor) -> None:
    if not x.numel() or x.is_neg():
        raise NotEmulatedError("pools of nothing, or of a view of negatives, are torch's")


def is_last(x: Tensor) -> bool:
    """Tell whether channels lie side by side, as torch suggests it for a result."""
    return x.dim() == _IMAGES and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def lie_like(array: Any, x: Tensor) -> Tensor:
    """Return a tensor that lies in memory as a pool or an interpolation of x does."""
    result = to_torch(array)
    return result.contiguous(memory_format=torch.channels_last) if is_last(x) else result


def _each(value: Any, dims: int) -> tuple[int, ...]:
    found = tuple(value)
    return found * dims if len(found) == 1 else found


def _slides(given: Arguments, dims: int) -> list[Sliding]:
    kernel = _each(given["kernel_size"], dims)
    stride = _each(given["stride"], dims) if len(given["stride"]) else kernel
    return [Sliding(*each) for each in zip(kernel, stride, _each(given["padding"], dims), strict=True)]


def _count(size: int, how: Sliding, *, ceil: bool) -> int:
    """Count windows, the last of which begins within x or the padding before it."""
    kernel, stride, padding = how
    count = (size + 2 * padding - kernel + (stride - 1 if ceil else 0)) // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= size + padding else count


def _windows(given: Arguments, dims: int = 2) -> list[Windows]:
    slides = _slides(given, dims)
    sizes = given["self"].shape[-dims:]
    if any(2 * how.padding > how.kernel or min(how.kernel, how.stride) < 1 for how in slides):
        raise NotEmulatedError("torch names what is wrong")
    counts = [_count(size, how, ceil=given["ceil_mode"]) for size, how in zip(sizes, slides, strict=True)]
    if min(counts) < 1:
        raise NotEmulatedError("torch names what is wrong")
    return [pooling.slide(size, count, how) for size, count, how in zip(sizes, counts, slides, strict=True)]


def _options(given: Arguments) -> dict[str, Any]:
    return {"divisor": given["divisor_override"], "count_padding": given["count_include_pad"]}


def _average(dims: int) -> Callable[[Arguments], Tensor]:
    def row(given: Arguments) -> Tensor:
        x = given["self"]
        _check(x)
        return lie_like(pooling.average(to_numpy(x), _windows(given, dims), **_options(given)), x)

    return row


def _average_backward(given: Arguments) -> Tensor:
    x, grad = given["self"], given["grad_output"]
    _check(grad)
    options = _options(given) | {"channels_last": is_last(x)}
    return lie_like(pooling.average_backward(to_numpy(grad), _windows(given), x.shape[-2:], **options), x)


def _adaptive(given: Arguments) -> Tensor:
    x = given["self"]
    _check(x)
    counts = [int(each) for each in given["output_size"]]
    if min(counts) < 1:
        raise NotEmulatedError("pools of nothing are torch's")
    return lie_like(pooling.adaptive_average(to_numpy(x), counts, channels_last=is_last(x)), x)


def _adaptive_backward(given: Arguments) -> Tensor:
    x, grad = given["self"], given["grad_output"]
    _check(grad)
    return lie_like(pooling.adaptive_average_backward(to_numpy(grad), x.shape[-2:], channels_last=is_last(x)), x)


def _largest_backward(given: Arguments) -> Tensor:
    x, grad = given["self"], given["grad_output"]
    _check(grad)
    return lie_like(pooling.largest_backward(to_numpy(grad), to_numpy(given["indices"]), x.shape[-2:]), x)


def _nearest_backward(dims: int) -> Callable[[Arguments], Tensor]:
    names = ("scales_d", "scales_h", "scales_w")[3 - dims :] if dims > 1 else ("scales",)

    def row(given: Arguments) -> Tensor:
        grad, shape = given["grad_output"], given["input_size"]
        _check(grad)
        scales: Sequence[float | None] = [given.get(name) for name in names]
        windows = [
            pooling.nearest(size, count, scale) for size, count, scale in zip(shape[-dims:], grad.shape[-dims:], scales, strict=True)
        ]
        return lie_like(pooling.nearest_backward(to_numpy(grad), windows), grad)

    return row


ROWS: dict[str, Callable[[Arguments], Tensor]] = {
    "avg_pool2d": _average(2),
    "avg_pool3d": _average(3),
    "avg_pool2d_backward": _average_backward,
    "_adaptive_avg_pool2d": _adaptive,
    "_adaptive_avg_pool3d": _adaptive,
    "_adaptive_avg_pool2d_backward": _adaptive_backward,
    "max_pool2d_with_indices_backward": _largest_backward,
    "adaptive_max_pool2d_backward": _largest_backward,
    **{f"upsample_nearest{dims}d_backward": _nearest_backward(dims) for dims in (1, 2, 3)},
}
