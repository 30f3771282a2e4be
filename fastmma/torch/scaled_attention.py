"""``scaled_dot_product_attention`` as a GPU computes it: by the kernel that it takes there, whose operators and gradients are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fastmma.functions import autocast
from fastmma.functions.attention import cudnn_adds_in_order
from fastmma.torch import composites, cudnn_operators, efficient_operators, flash_operators, generators
from fastmma.torch.attention import taken_apart
from fastmma.torch.attention_choice import CUDNN, EFFICIENT, FLASH, MATH, Call, choose
from fastmma.torch.emulation import Emulation
from fastmma.torch.unfixed import MATH_ATTENTION

_MATH = getattr(torch.ops.aten, MATH_ATTENTION).default
_ALIGNED = 8  # elements to which flash attention fills up head dimensions, and memory-efficient attention rows of a bias


class Options(NamedTuple):
    """Arguments of operators that are no tensors."""

    dropout: float
    causal: bool
    scale: float | None


Found = tuple[Any, ...]
Arguments = tuple[Any, ...]


class Operators(NamedTuple):
    """The operators of a kernel, and the arguments that they take."""

    forward: Any
    given: Callable[[Found, Options, bool], Arguments]  # from operands, a bias the last
    backward: Any
    kept: Callable[[Found, Found, Options], Arguments]  # from operands and results; the gradient of the output is first
    results: tuple[int, ...]  # those among the results that are tensors, and kept


def _of_flash(operands: Found, options: Options, differs: bool) -> Arguments:
    return *operands[:3], options.dropout, options.causal, False


def _flash_kept(operands: Found, results: Found, options: Options) -> Arguments:
    out, logs, _, _, queries, keys, seed, offset, _ = results
    return *operands[:3], out, logs, None, None, queries, keys, options.dropout, options.causal, seed, offset


def _of_efficient(operands: Found, options: Options, differs: bool) -> Arguments:
    return *operands, differs, options.dropout, options.causal


def _efficient_kept(operands: Found, results: Found, options: Options) -> Arguments:
    wanted = [each is not None and each.requires_grad for each in operands]
    return *operands, *results, options.dropout, wanted, options.causal


def _of_cudnn(operands: Found, options: Options, differs: bool) -> Arguments:
    return *operands, differs, options.dropout, options.causal, False


def _cudnn_kept(operands: Found, results: Found, options: Options) -> Arguments:
    out, logs, _, _, queries, keys, seed, offset, _ = results
    return *operands[:3], out, logs, seed, offset, operands[3], None, None, queries, keys, options.dropout, options.causal


OPERATORS: dict[str, Operators] = {
    FLASH: Operators(flash_operators.FORWARD, _of_flash, flash_operators.BACKWARD, _flash_kept, (0, 1, 6, 7)),
    EFFICIENT: Operators(efficient_operators.FORWARD, _of_efficient, efficient_operators.BACKWARD, _efficient_kept, (0, 1, 2, 3)),
    CUDNN: Operators(cudnn_operators.FORWARD, _of_cudnn, cudnn_operators.BACKWARD, _cudnn_kept, (0, 1, 6, 7)),
}


def _asked(run: Emulation, func: Any, args: Arguments, scale: float | None) -> Found:
    """Call an operator; outside of an emulation, as the one that its forward pass was in computes it."""
    dispatched = autocast.is_inside() and not run.guess
    found: Found = func(*args, scale=scale) if dispatched else taken_apart(run, func, args, {"scale": scale})
    return found


class _Attention(torch.autograd.Function):
    """A fused kernel with its gradients."""

    @staticmethod
    def forward(ctx: Any, run: Emulation, kernel: str, options: Options, *operands: Tensor | None) -> Tensor:
        row = OPERATORS[kernel]
        results = _asked(run, row.forward, row.given(operands, options, True), options.scale)
        ctx.given = run, row, options, [None if index in row.results else each for index, each in enumerate(results)]
        ctx.save_for_backward(*operands, *(results[index] for index in row.results))
        out: Tensor = results[0]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        run, row, options, results = ctx.given
        saved = ctx.saved_tensors  # once: checkpoints compute them anew
        operands, kept = saved[:4], saved[4:]
        whole = list(results)
        for index, tensor in zip(row.results, kept, strict=True):
            whole[index] = tensor
        found = _asked(run, row.backward, (grad_out, *row.kept(operands, tuple(whole), options)), options.scale)
        return None, None, None, *found, *[None] * (4 - len(found))


def _bias(mask: Tensor | None, call: Call) -> Tensor | None:
    """What is added to scores: minus infinity where a mask is false."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=call.query.dtype).masked_fill_(mask.logical_not(), float("-inf"))


def _laid_out(bias: Tensor | None, call: Call) -> Tensor | None:
    """A bias for all heads, whose rows memory-efficient attention wants aligned."""
    if bias is None:
        return None
    whole = bias.expand(*call.query.shape[:3], call.key.shape[2])
    missing = -whole.shape[-1] % _ALIGNED
    return functional.pad(whole, (0, missing))[..., : whole.shape[-1]] if missing else whole


def _is_plain(call: Call) -> bool:
    """Tell whether tensors are torch's own, alike, and such that torch finds nothing wrong with them."""
    tensors = [each for each in (*call.operands, call.mask) if each is not None]
    if any(type(each) not in (Tensor, torch.nn.Parameter) or each.is_nested or each.device.type != "cpu" for each in tensors):
        return False
    if any(torch._C._functorch.is_functorch_wrapped_tensor(each) for each in tensors):
        return False
    alike = len({each.dtype for each in call.operands}) == 1
    masked = call.mask is None or (call.mask.dtype in (torch.bool, call.query.dtype) and not call.causal)
    return alike and masked and (call.grouped or call.query.shape[-3:-2] == call.key.shape[-3:-2] == call.value.shape[-3:-2])


def _guess_cudnn(call: Call, bias: Tensor | None, options: Options) -> Tensor:
    """Compute math attention with dropout, which is assumed, where cuDNN's sums have no fixed order; as many numbers are drawn."""
    state = generators.default()
    start = state.offset
    given = (*call.operands, bias, options.dropout, options.causal, None)
    found: Tensor = _MATH(*given, scale=options.scale, enable_gqa=call.grouped)[0]
    state.offset = start
    state.take(found.shape[0] * found.shape[1] * found.shape[2] * call.key.shape[2])
    return torch.empty_like(call.query).copy_(found)


def attend(
    run: Emulation,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """Compute scaled dot product attention as a GPU does; None where no kernel of its is known to.

    Raises
    ------
    RuntimeError
        If torch finds no kernel on a GPU.
    """
    call = Call(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    if not run.settings.computes_attention or not _is_plain(call):
        return None
    kernel = choose(call)
    if kernel is None:
        raise RuntimeError("No available kernel. Aborting execution.")
    bias = _bias(attn_mask, call)
    options = Options(dropout_p, is_causal, scale)
    if kernel == MATH:
        found = composites.decompose(
            _MATH, (query, key, value, bias, dropout_p, is_causal, None), {"scale": scale, "enable_gqa": enable_gqa}
        )
        return found[0]
    if kernel == CUDNN and dropout_p > 0 and not cudnn_adds_in_order(query.shape[0] * query.shape[1], query.shape[2], key.shape[2]):
        return _guess_cudnn(call, bias, options)
    if kernel == EFFICIENT:
        bias = _laid_out(bias, call)
    size = query.shape[-1]
    missing = -size % _ALIGNED if kernel == FLASH else 0
    if missing:
        query, key, value = (functional.pad(each, (0, missing)) for each in call.operands)
        options = options._replace(scale=size**-0.5 if scale is None else scale)
    operands = query, key, value, bias
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in operands):
        out = _Attention.apply(run, kernel, options, *operands)
    else:
        row = OPERATORS[kernel]
        out = _asked(run, row.forward, row.given(operands, options, any(each.requires_grad for each in call.operands)), options.scale)[0]
    return out[..., :size] if missing else out
