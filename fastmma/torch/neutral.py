"""Neutral operators, which have the same bits on any machine: moves, comparisons, integers, and what IEEE 754 fixes.

Which of several NaNs a result is, no standard says, and nothing here says it. An H200's recordings of all that computes show the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fastmma.torch import conditions, scatter_conditions
from fastmma.torch.conditions import FLOATS, Unless


def names(text: str) -> frozenset[str]:
    """Read the names of operators."""
    return frozenset(text.split())


# nothing is computed: numbers of dimensions, checks, memory that holds nothing yet
METADATA = names(
    """
    _assert_async _assert_scalar _assert_tensor_metadata _efficientzerotensor _functional_assert_async _functional_assert_scalar
    _fused_sdp_choice _has_same_storage_numel _linalg_check_errors _pin_memory _print _resize_output detach_ dim empty empty_like
    empty_permuted empty_strided from_file is_contiguous is_pinned is_same_size is_set_to new_empty new_empty_strided numel
    record_stream resize_ resize_as_ set_ size storage_offset stride sym_constrain_range sym_constrain_range_for_size sym_numel sym_size
    sym_storage_offset sym_stride
    """
)
# data is moved, chosen or made, and not computed; views are known by their schemas
MOVES = names(
    """
    _chunk_cat _foreach_zero_ _is_all_true _is_any_true _local_scalar_dense _unsafe_index _unsafe_view as_strided_
    as_strided_scatter block_diag cat channel_shuffle clone complex constant_pad_nd diag_embed diagonal_backward diagonal_scatter
    embedding eye fill fill_ flip full full_like gather im2col index index_fill index_select lift lift_fresh_copy masked_fill
    masked_scatter masked_scatter_backward masked_select narrow_copy native_channel_shuffle new_full new_ones new_zeros nonzero
    nonzero_static ones ones_like pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d repeat
    repeat_interleave replication_pad1d replication_pad2d replication_pad3d roll rot90 scalar_tensor select_backward select_scatter
    slice_backward slice_scatter split_copy split_with_sizes_copy squeeze_ stack t_ take transpose_ tril tril_indices triu
    triu_indices unsafe_split unsafe_split_with_sizes unsqueeze_ where zero zero_ zeros zeros_like
    """
)
# of real numbers, each result is one that IEEE 754 fixes, or a comparison
FIXED = names(
    """
    __ilshift__ __irshift__ __lshift__ __rshift__ _cummax_helper _cummin_helper _prelu_kernel _prelu_kernel_backward abs
    adaptive_max_pool2d adaptive_max_pool3d all any argmax argmin bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor bucketize ceil count_nonzero cummax cummin eq equal floor frac frexp ge gt hardshrink heaviside isin
    isinf isnan isneginf isposinf le leaky_relu leaky_relu_backward logical_and logical_not logical_or logical_xor lt
    max_pool2d_with_indices max_pool3d_with_indices nan_to_num ne neg reciprocal searchsorted sgn sign trunc
    unfold_backward unique_consecutive unique_dim upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    """
)

# neutral unless the function says why not
UNLESS: dict[str, Unless] = {
    **dict.fromkeys(FIXED, conditions.real),
    **dict.fromkeys(("add", "sub", "rsub"), conditions.summed),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin", "amax", "amin", "max", "min"), conditions.largest),
    **dict.fromkeys(("clamp", "clamp_min", "hardtanh"), conditions.clamped),
    **dict.fromkeys(("signbit", "copysign"), conditions.signed),
    **dict.fromkeys(("threshold", "threshold_backward"), conditions.thresholded),
    **dict.fromkeys(("hardtanh_backward", "hardshrink_backward"), conditions.without_nan),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), scatter_conditions.put),
    **dict.fromkeys(("copy", "copy_"), conditions.copied),
    "aminmax": conditions.both_ends,
    "nextafter": conditions.underived,
    "_neg_view": conditions.negated,
    "relu": conditions.real,
    "_amp_update_scale_": conditions.real,
    "clamp_max": conditions.cut_above,
    "mul": conditions.multiplied,
    "div": conditions.divided,
    "pow": conditions.powered,
    "sqrt": conditions.rooted,
    "round": conditions.rounded,
    "_to_copy": conditions.converted,
    "_foreach_copy_": conditions.all_copied,
    "index_add": scatter_conditions.added,
    "index_copy": scatter_conditions.placed,
    "scatter": scatter_conditions.scattered,
    "scatter_add": scatter_conditions.scatter_added,
    "put": scatter_conditions.put_by_number,
    "sort": conditions.ordered,
    "topk": conditions.topped,
    "_unique2": conditions.united,
    "arange": conditions.counted,
    "mse_loss": conditions.unreduced,
}
# which a GPU takes for larger than -0, where torch's CPU kernels keep it
LEAST: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "relu": lambda args: 0,
    "clamp": lambda args: args[1],
    "clamp_min": lambda args: args[1],
    "hardtanh": lambda args: args[1],
}


def _positive(x: Tensor) -> Tensor:
    """Cut off what is below 0, with 0 for -0, in one operator."""
    return torch.threshold(x, 0.0, 0.0) if x.dtype in FLOATS else torch.relu(x)


WITH_ZEROS: dict[Any, Callable[..., Any]] = {torch.ops.aten.relu.default: _positive}


def mended(name: str, args: tuple[Any, ...], result: Any) -> Any:
    """The result with 0 for -0, where numbers below 0 are cut off, as a GPU has it."""
    least = LEAST[name](args) if len(args) > 1 or name == "relu" else None
    if least is not None and not isinstance(least, Tensor) and least == 0 and result.dtype in FLOATS and result.layout is torch.strided:
        return result.add_(0.0)
    return result
