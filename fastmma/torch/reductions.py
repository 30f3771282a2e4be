"""Sums, softmax, norms and losses that torch's CUDA kernels compute: by operator, the function of `fastmma.functions`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastmma.functions import embedding, group_norm, largest, losses, norms, optimizers, reduce, scans, softmax
from fastmma.host.errors import NotEmulatedError
from fastmma.torch import interpolations, pools
from fastmma.torch.arrays import DTYPES, as_numpy, to_numpy, to_torch
from fastmma.torch.batch_norms import normalize, normalize_backward
from fastmma.torch.norms import ALIGNED, norm_of

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_SUMMED = frozenset({0.0, 1.0, 2.0, math.inf, -math.inf})  # orders of norms that take no power
_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}

Arguments = Mapping[str, Any]
Row = Callable[[Arguments], Any]


def _check_memory(tensor: Tensor, what: str) -> None:
    if not tensor.numel() or tensor.is_neg():
        raise NotEmulatedError(f"torch computes {what} of empty tensors and of negated views itself")


def _view(tensor: Tensor) -> NDArray[Any]:
    """View the memory of a tensor that is not negated."""
    plain = tensor.is_cpu and tensor.layout is torch.strided and tensor.dtype in DTYPES
    return as_numpy(tensor) if plain else to_numpy(tensor)


def as_gpu_array(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor as an array, contiguous as kernels make it that copy what is not.

    Raises
    ------
    NotEmulatedError
        If it is contiguous from an address that is not aligned, which decides how a GPU's kernels add.
    """
    _check_memory(tensor, "sums")
    if not tensor.is_contiguous():
        return _view(tensor.contiguous())
    if tensor.storage_offset() * tensor.itemsize % ALIGNED:
        raise NotEmulatedError("the order of additions is known of tensors from an aligned address")
    return _view(tensor)


def as_strided_array(tensor: Tensor) -> tuple[NDArray[Any], dict[str, int]]:
    """Return a tensor as an array of its strides, and where it begins on a GPU, in elements after an aligned address."""
    _check_memory(tensor, "sums")
    return _view(tensor), {"offset": tensor.storage_offset() % ALIGNED}


def _indices(tensor: Tensor) -> NDArray[Any]:
    """Return integers that a kernel reads one by one, wherever they lie."""
    return _view(tensor.contiguous())


def _maybe(tensor: Tensor | None) -> NDArray[Any] | None:
    return None if tensor is None else as_gpu_array(tensor)


def as_tensor(array: NDArray[Any]) -> Tensor:
    return to_torch(np.ascontiguousarray(array).reshape(np.shape(array)))


def as_tensors(arrays: tuple[NDArray[Any], ...]) -> tuple[Tensor, ...]:
    return tuple(as_tensor(array) for array in arrays)


def _check_dtype(dtype: Any) -> torch.dtype:
    if dtype not in FLOATS:
        raise NotEmulatedError(f"sums in {dtype} are not known")
    found: torch.dtype = dtype
    return found


def _dtype(given: Arguments) -> Any:
    return DTYPES[_check_dtype(given["dtype"])]


def axes_of(given: Arguments) -> list[int] | None:
    """List the axes that arguments name; None where all are reduced."""
    axes = given.get("dim")
    return None if axes is None or (isinstance(axes, list | tuple) and not axes) else [axes] if isinstance(axes, int) else list(axes)


def _in_result_dtype(given: Arguments) -> Tensor:
    """Convert to the format that is asked for, as kernels do that have no float32 result of halves."""
    tensor: Tensor = given["self"]
    dtype = given.get("dtype")
    return tensor if dtype in (None, tensor.dtype, torch.float32) else tensor.to(_check_dtype(dtype))


def _sum(function: Callable[..., NDArray[Any]]) -> Row:
    def row(given: Arguments) -> Tensor:
        tensor = _in_result_dtype(given)
        dtype = {} if given.get("dtype") in (None, tensor.dtype) else {"dtype": _dtype(given)}
        x, memory = as_strided_array(tensor)
        return as_tensor(function(x, axes_of(given), keepdims=given.get("keepdim", False), **dtype, **memory))

    return row


def _variance(function: Callable[..., Any], root: bool) -> Row:
    def row(given: Arguments) -> Any:
        correction = given["correction"] if "correction" in given else float(given.get("unbiased", True))
        correction = 1 if correction is None else correction
        keepdims = given.get("keepdim", False)
        x, memory = as_strided_array(given["self"])
        found = function(x, axes_of(given), correction=correction, root=root, keepdims=keepdims, **memory)
        return as_tensors(found) if isinstance(found, tuple) else as_tensor(found)

    return row


def _log_sum_exp(given: Arguments) -> Tensor:
    x: Tensor = given["self"]
    if not x.dim():
        return _log_sum_exp({"self": x.reshape(1), "dim": [0], "keepdim": False})
    axes = axes_of(given) or list(range(x.dim()))
    return as_tensor(reduce.reduce_logsumexp(as_strided_array(x)[0], axes, keepdims=given["keepdim"]))


def _product(given: Arguments) -> Tensor:
    """Multiply, unless autograd computes a gradient, for which within a mode it takes other steps than on a GPU."""
    if given["self"].requires_grad:
        raise NotEmulatedError("the gradient of a product has other steps")
    return _sum(reduce.reduce_product)(given)


def _trace(given: Arguments) -> Tensor:
    rows, columns = given["self"].shape
    if given["self"].requires_grad and rows > columns:
        raise NotEmulatedError("PyTorch 2.11 also gives elements beyond the diagonal a gradient")
    return _sum(reduce.reduce_sum)({"self": given["self"].diagonal(), "dim": None})


def _norm(given: Arguments) -> Tensor:
    if not given["self"].dim() and given["dim"] == [] and float(given["ord"]) not in _SUMMED:
        raise NotEmulatedError("a GPU takes no power of a number without dimensions")
    x, memory = as_strided_array(_in_result_dtype(given))
    dtype = None if given["dtype"] is None else _dtype(given)
    return as_tensor(reduce.reduce_norm(x, float(given["ord"]), axes_of(given), keepdims=given["keepdim"], dtype=dtype, **memory))


def _older_norm(given: Arguments) -> Tensor:
    """Compute ``aten::norm``, which calls `linalg_vector_norm`."""
    order = 2.0 if given["p"] is None else given["p"]
    asked = {"ord": order, "dim": given.get("dim"), "keepdim": given.get("keepdim", False), "dtype": given.get("dtype")}
    return _norm({"self": given["self"], **asked})


def _distance(given: Arguments) -> Tensor:
    return _older_norm({"self": given["self"] - given["other"], "p": given["p"]})


def _softmax(log: bool) -> Row:
    def row(given: Arguments) -> Tensor:
        dtype = np.float32 if given["half_to_float"] else None
        return as_tensor(softmax.softmax(as_gpu_array(given["self"]), given["dim"], log=log, dtype=dtype))

    return row


def _safe_softmax(given: Arguments) -> Tensor:
    """Compute a softmax whose rows of -inf alone are zeros."""
    x = given["self"]
    if given["dtype"] not in (None, x.dtype):
        raise NotEmulatedError("a softmax in another format is not known")
    array = as_gpu_array(x)
    found = softmax.softmax(array, given["dim"])
    if not np.isnan(found.take(0, given["dim"]) if x.dim() else found).any():  # the softmax of such a row is NaN
        return as_tensor(found)
    empty = np.isneginf(array.astype(np.float32)).all(given["dim"], keepdims=True)
    return as_tensor(np.where(empty, np.zeros((), found.dtype), found))


def _softmax_backward(log: bool) -> Row:
    def row(given: Arguments) -> Tensor:
        arrays = as_gpu_array(given["grad_output"]), as_gpu_array(given["output"])
        return as_tensor(softmax.softmax_backward(*arrays, given["dim"], log=log, dtype=DTYPES[given["input_dtype"]]))

    return row


def _masked(given: Arguments, gradients: tuple[Tensor, ...], count: int) -> tuple[Tensor | None, ...]:
    """Return those gradients that are asked for."""
    whole = (*gradients, *[None] * (count - len(gradients)))
    return tuple(each if wanted else None for each, wanted in zip(whole, given["output_mask"], strict=True))


def _layer_norm(given: Arguments) -> tuple[Tensor, ...]:
    found = norm_of(given, True)
    if found is not None:
        return found.compute(given["eps"], (given["input"], given["weight"], given["bias"]))
    arrays = as_gpu_array(given["input"]), given["normalized_shape"], _maybe(given["weight"]), _maybe(given["bias"])
    return as_tensors(norms.layer_norm(*arrays, given["eps"]))


def _check_statistics(given: Arguments) -> None:
    if any(given[name].dtype is not torch.float32 for name in ("mean", "rstd")):
        raise NotEmulatedError("statistics in 16 bits are a CPU's")


def _layer_norm_backward(given: Arguments) -> tuple[Tensor | None, ...]:
    _check_statistics(given)
    arrays = (
        as_gpu_array(given["grad_out"]),
        as_gpu_array(given["input"]),
        given["normalized_shape"],
        as_gpu_array(given["mean"]),
        as_gpu_array(given["rstd"]),
    )
    weight = given["weight"]
    results = [torch.empty(each.shape, dtype=each.dtype) for each in (given["input"], weight, weight) if each is not None]
    norms.layer_norm_backward(*arrays, _maybe(weight), out=[as_numpy(each) for each in results])
    return _masked(given, tuple(results), 3)


def _rms_norm(given: Arguments) -> tuple[Tensor, ...]:
    found = norm_of(given, False)
    if found is not None:
        eps = norms.EPSILON if given["eps"] is None else given["eps"]
        return found.compute(eps, (given["input"], given["weight"], None))[::2]
    return as_tensors(norms.rms_norm(as_gpu_array(given["input"]), given["normalized_shape"], _maybe(given["weight"]), given["eps"]))


def _rms_norm_backward(given: Arguments) -> tuple[Tensor | None, ...]:
    arrays = as_gpu_array(given["grad_out"]), as_gpu_array(given["input"]), given["normalized_shape"], as_gpu_array(given["rstd"])
    return _masked(given, as_tensors(norms.rms_norm_backward(*arrays, _maybe(given["weight"]))), 2)


def _group_norm(given: Arguments) -> tuple[Tensor, ...]:
    arrays = as_gpu_array(given["input"]), _maybe(given["weight"]), _maybe(given["bias"])
    return as_tensors(group_norm.group_norm(*arrays, given["group"], given["eps"]))


def _group_norm_backward(given: Arguments) -> tuple[Tensor | None, ...]:
    _check_statistics(given)
    arrays = as_gpu_array(given["grad_out"]), as_gpu_array(given["input"]), as_gpu_array(given["mean"]), as_gpu_array(given["rstd"])
    return _masked(given, as_tensors(group_norm.group_norm_backward(*arrays, _maybe(given["weight"]))), 3)


def _nll_loss(given: Arguments) -> tuple[Tensor, ...]:
    arrays = as_gpu_array(given["self"]), _indices(given["target"])
    return as_tensors(losses.nll_loss(*arrays, _REDUCTIONS[given["reduction"]], given["ignore_index"], weight=_maybe(given["weight"])))


def _nll_loss_backward(given: Arguments) -> Tensor:
    arrays = as_gpu_array(given["grad_output"]), as_gpu_array(given["self"]), _indices(given["target"])
    total, how = as_gpu_array(given["total_weight"]), _REDUCTIONS[given["reduction"]]
    return as_tensor(losses.nll_loss_backward(*arrays, how, total, given["ignore_index"], weight=_maybe(given["weight"])))


def _bce_with_logits(given: Arguments) -> Tensor:
    arrays, how = (as_gpu_array(given["self"]), as_gpu_array(given["target"])), _REDUCTIONS[given["reduction"]]
    weight, pos_weight = _maybe(given["weight"]), _maybe(given["pos_weight"])
    return as_tensor(losses.binary_cross_entropy_with_logits(*arrays, how, weight=weight, pos_weight=pos_weight))


def _scan(function: Callable[..., NDArray[Any]]) -> Row:
    def row(given: Arguments) -> Tensor:
        x = given["self"] if given.get("dtype") is None else given["self"].to(_check_dtype(given["dtype"]))
        return as_tensor(function(as_gpu_array(x), given["dim"]))

    return row


def _embedding_backward(given: Arguments) -> Tensor:
    if given["scale_grad_by_freq"]:
        raise NotEmulatedError("gradients that are scaled by frequency are not known")
    arrays = as_gpu_array(given["grad_output"]), _indices(given["indices"])
    return as_tensor(embedding.embedding_backward(*arrays, given["num_weights"], given["padding_idx"]))


def _top(given: Arguments) -> tuple[Tensor, ...]:
    """Compute the largest elements, some of which are equal."""
    x = given["self"]
    if not (given["largest"] and given["sorted"]) or given["dim"] not in (-1, x.dim() - 1) or not x.dim():
        raise NotEmulatedError("the smallest elements, or those along other axes, were not recorded")
    return as_tensors(largest.take_largest(to_numpy(x.contiguous()), given["k"]))


def _foreach_norm(given: Arguments) -> list[Tensor]:
    if given["ord"] != 2 or given["dtype"] is not None:
        raise NotEmulatedError("norms of lists are known of order 2")
    return [as_tensor(each) for each in optimizers.foreach_norm([as_gpu_array(each) for each in given["self"]])]


ROWS: dict[str, Row] = {
    "sum": _sum(reduce.reduce_sum),
    "mean": _sum(reduce.reduce_mean),
    "amax": _sum(reduce.reduce_max),
    "trace": _trace,
    "nansum": _sum(reduce.reduce_present),
    "prod": _product,
    "var": _variance(reduce.reduce_variance, False),
    "std": _variance(reduce.reduce_variance, True),
    "var_mean": _variance(reduce.reduce_moments, False),
    "std_mean": _variance(reduce.reduce_moments, True),
    "linalg_vector_norm": _norm,
    "norm": _older_norm,
    "dist": _distance,
    "_softmax": _softmax(False),
    "_safe_softmax": _safe_softmax,
    "_log_softmax": _softmax(True),
    "_softmax_backward_data": _softmax_backward(False),
    "_log_softmax_backward_data": _softmax_backward(True),
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "_fused_rms_norm": _rms_norm,
    "_fused_rms_norm_backward": _rms_norm_backward,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    "native_batch_norm": normalize,
    "native_batch_norm_backward": normalize_backward,
    "nll_loss_forward": _nll_loss,
    "nll_loss_backward": _nll_loss_backward,
    "binary_cross_entropy_with_logits": _bce_with_logits,
    "cumsum": _scan(scans.cumulate_sum),
    "cumprod": _scan(scans.cumulate_product),
    "logcumsumexp": _scan(scans.cumulate_logsumexp),
    "embedding_dense_backward": _embedding_backward,
    "_foreach_norm": _foreach_norm,
    "logsumexp": _log_sum_exp,
    "topk": _top,
    **pools.ROWS,
    **interpolations.ROWS,
}
