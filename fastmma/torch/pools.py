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


def _is_last(x: Tensor) -> bool:
    """Tell whether channels lie side by side, as torch suggests it for a result."""
    return x.dim() == _IMAGES and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def _like(array: Any, x: Tensor) -> Tensor:
    result = to_torch(array)
    return result.contiguous(memory_format=torch.channels_last) if _is_last(x) else result


def _pair(value: Any) -> tuple[int, ...]:
    found = tuple(value)
    return found * 2 if len(found) == 1 else found


def _slides(given: Arguments) -> list[Sliding]:
    kernel = _pair(given["kernel_size"])
    stride = _pair(given["stride"]) if len(given["stride"]) else kernel
    return [Sliding(*each) for each in zip(kernel, stride, _pair(given["padding"]), strict=True)]


def _count(size: int, how: Sliding, *, ceil: bool) -> int:
    """Count windows, the last of which begins within x or the padding before it."""
    kernel, stride, padding = how
    count = (size + 2 * padding - kernel + (stride - 1 if ceil else 0)) // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= size + padding else count


def _windows(given: Arguments) -> list[Windows]:
    slides = _slides(given)
    sizes = given["self"].shape[-2:]
    if any(2 * how.padding > how.kernel or min(how.kernel, how.stride) < 1 for how in slides):
        raise NotEmulatedError("torch names what is wrong")
    counts = [_count(size, how, ceil=given["ceil_mode"]) for size, how in zip(sizes, slides, strict=True)]
    if min(counts) < 1:
        raise NotEmulatedError("torch names what is wrong")
    return [pooling.slide(size, count, how) for size, count, how in zip(sizes, counts, slides, strict=True)]


def _options(given: Arguments) -> dict[str, Any]:
    return {"divisor": given["divisor_override"], "count_padding": given["count_include_pad"]}


def _average(given: Arguments) -> Tensor:
    x = given["self"]
    _check(x)
    return _like(pooling.average(to_numpy(x), _windows(given), **_options(given)), x)


def _average_backward(given: Arguments) -> Tensor:
    x, grad = given["self"], given["grad_output"]
    _check(grad)
    options = _options(given) | {"channels_last": _is_last(x)}
    return _like(pooling.average_backward(to_numpy(grad), _windows(given), x.shape[-2:], **options), x)


def _adaptive(given: Arguments) -> Tensor:
    x = given["self"]
    _check(x)
    counts = [int(each) for each in given["output_size"]]
    if min(counts) < 1:
        raise NotEmulatedError("pools of nothing are torch's")
    return _like(pooling.adaptive_average(to_numpy(x), counts, channels_last=_is_last(x)), x)


def _adaptive_backward(given: Arguments) -> Tensor:
    x, grad = given["self"], given["grad_output"]
    _check(grad)
    return _like(pooling.adaptive_average_backward(to_numpy(grad), x.shape[-2:], channels_last=_is_last(x)), x)


def _largest_backward(given: Arguments) -> Tensor:
    x, grad = given["self"], given["grad_output"]
    _check(grad)
    return _like(pooling.largest_backward(to_numpy(grad), to_numpy(given["indices"]), x.shape[-2:]), x)


def _nearest_backward(dims: int) -> Callable[[Arguments], Tensor]:
    names = ("scales_d", "scales_h", "scales_w")[3 - dims :] if dims > 1 else ("scales",)

    def row(given: Arguments) -> Tensor:
        grad, shape = given["grad_output"], given["input_size"]
        _check(grad)
        scales: Sequence[float | None] = [given.get(name) for name in names]
        windows = [
            pooling.nearest(size, count, scale) for size, count, scale in zip(shape[-dims:], grad.shape[-dims:], scales, strict=True)
        ]
        return _like(pooling.nearest_backward(to_numpy(grad), windows), grad)

    return row


ROWS: dict[str, Callable[[Arguments], Tensor]] = {
    "avg_pool2d": _average,
    "avg_pool2d_backward": _average_backward,
    "_adaptive_avg_pool2d": _adaptive,
    "_adaptive_avg_pool2d_backward": _adaptive_backward,
    "max_pool2d_with_indices_backward": _largest_backward,
    "adaptive_max_pool2d_backward": _largest_backward,
    **{f"upsample_nearest{dims}d_backward": _nearest_backward(dims) for dims in (1, 2, 3)},
}
