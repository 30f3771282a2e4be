"""Batch norms by torch's own CUDA kernels: which calls take them, and not cuDNN's, and in which order tensors lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fastmma.functions import batch_norm
from fastmma.functions.arithmetic import round_to
from fastmma.host.errors import NotEmulatedError
from fastmma.torch.arrays import DTYPES, to_numpy, to_torch

_IMAGE = 4  # dimensions of a stack of images
_SPATIAL = 3  # dimensions from which on cuDNN has kernels


def _is_last(x: Tensor) -> bool:
    """Tell whether channels lie side by side, as torch's kernels ask."""
    return bool(x.stride(1) == 1) if x.is_contiguous() else x.dim() == _IMAGE and x.is_contiguous(memory_format=torch.channels_last)


def _by_cudnn(given: Mapping[str, Any], training: bool) -> bool:
    """Tell whether torch asks cuDNN, as its `_select_batch_norm_backend` does."""
    x, weight = given["input"], given["weight"]
    statistics = [given["running_mean"] is not None, given["running_var"] is not None]
    if not torch.backends.cudnn.enabled or weight is None or given.get("bias", weight) is None or x.dim() < _SPATIAL:
        return False
    if not (all(statistics) or (training and not any(statistics))):
        return False
    return x.dtype is torch.float32 or (x.dtype is torch.float16 and weight.dtype is torch.float32)


def _like(array: Any, x: Tensor) -> Tensor:
    """Return a result that lies in memory as x does."""
    result = to_torch(array)
    return result if x.is_contiguous() else result.contiguous(memory_format=torch.channels_last)


def _array(tensor: Tensor | None) -> Any:
    return None if tensor is None else to_numpy(tensor)


def _check(*tensors: Tensor | None) -> None:
    if any(each is not None and (not each.numel() or each.is_neg() or each.dim() == 0) for each in tensors):
        raise NotEmulatedError("torch computes batch norms of empty tensors and of negated views itself")


def normalize(given: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``native_batch_norm``, and write running statistics as it does.

    Raises
    ------
    NotEmulatedError
        If cuDNN computes it, in an order that is not known, or tensors lie otherwise.
    """
    x, training = given["input"], given["training"]
    _check(x)
    last = _is_last(x)
    if not last and not x.is_contiguous():
        raise NotEmulatedError("a batch norm of a view was not recorded")
    if _by_cudnn(given, training) and (training or last):
        raise NotEmulatedError("the order of cuDNN's batch norm is not known")
    names = ("weight", "bias", "running_mean", "running_var")
    arrays = (_array(given[name]) for name in names)
    options = {"momentum": given["momentum"], "eps": given["eps"], "channels_last": last}
    found = batch_norm.batch_norm(to_numpy(x), *arrays, training=training, **options)
    if training and found.running_mean is not None and found.running_var is not None:
        given["running_mean"].copy_(to_torch(found.running_mean))
        given["running_var"].copy_(to_torch(found.running_var))
    return _like(found.result, x), to_torch(found.mean), to_torch(found.rstd)


def normalize_backward(given: Mapping[str, Any]) -> tuple[Tensor | None, ...]:
    """Compute ``native_batch_norm_backward``.

    Raises
    ------
    NotEmulatedError
        As of `normalize`.
    """
    grad, x, weight, training, mask = (given[name] for name in ("grad_out", "input", "weight", "train", "output_mask"))
    _check(grad, x)
    reduced = training or mask[1] or mask[2]
    if training and _by_cudnn(given, training):
        raise NotEmulatedError("the order of cuDNN's batch norm is not known")
    statistics = [given[name] for name in (("save_mean", "save_invstd") if training else ("running_mean", "running_var"))]
    if any(each is None or not each.numel() for each in statistics):
        raise NotEmulatedError("a batch norm without statistics")
    options = {"training": training, "eps": given["eps"], "channels_last": _is_last(x), "grad_channels_last": _is_last(grad)}
    arrays = to_numpy(grad), to_numpy(x), _array(weight), *map(to_numpy, statistics)
    of_x, of_weight, of_bias = batch_norm.batch_norm_backward(*arrays, **options, reduced=reduced, whole=mask[0])
    dtype = DTYPES[x.dtype if weight is None else weight.dtype]
    found = _like(of_x, x), *(to_torch(round_to(each, dtype)) for each in (of_weight, of_bias))
    return tuple(each if wanted else None for each, wanted in zip(found, mask, strict=True))
