"""Lists of tensors that torch's CUDA kernels take at once: ``_foreach_`` operators, steps of optimizers, and the scaling of gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastmma import kernels
from fastmma.functions import libdevice, optimizers
from fastmma.host.errors import NotEmulatedError
from fastmma.torch.arrays import DTYPES, to_numpy, to_torch
from fastmma.torch.operators import IN_PLACE, OUT, form_of

Arguments = Mapping[str, Any]
Row = Callable[[Arguments, int], Tensor]
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_PREFIX = "_foreach_"
_VECTOR = 4  # elements of an aligned load


def _apply(name: str, first: Tensor, *others: Any) -> Tensor:
    """Compute a formula of tensors and numbers; what has no dimension is rounded to the format of what has."""
    tensors = [each for each in (first, *others) if isinstance(each, Tensor)]
    shape = torch.broadcast_shapes(*(each.shape for each in tensors))
    if shape != first.shape:
        raise NotEmulatedError("the tensors of a list must have one shape here")
    counted = [each for each in tensors if each.dim()] or tensors
    dtype = functools.reduce(torch.promote_types, (each.dtype for each in counted))
    if why := libdevice.difference(name, (), 1 + len(others)):
        raise NotEmulatedError(why)
    operands = [_operand(each, dtype) for each in (first, *others)]
    found = kernels.functions.apply.apply(name, *operands, out_dtype=DTYPES[dtype])
    return to_torch(found.reshape(tuple(first.shape)))


def _operand(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return to_numpy(value if value.dim() else value.to(dtype))
    return np.full(1, value, np.float32)


def _of_each(given: Arguments, index: int) -> Any:
    """Return what belongs to a tensor: a tensor, or a number."""
    value = next(given[name] for name in ("other", "scalars", "scalar", "value", "exponent", "weights", "weight") if name in given)
    if isinstance(value, Tensor):
        return float(value[index]) if value.dim() else value
    return value[index] if isinstance(value, list | tuple) else value


def _function(name: str) -> Row:
    return lambda given, index: _apply(name, given["self"][index])


def _exact(function: Callable[..., Tensor]) -> Row:
    """Compute what IEEE 754 fixes."""

    def row(given: Arguments, index: int) -> Tensor:
        if len(given) == 1:
            return function(given["self"][index])
        other = _of_each(given, index)
        x: Tensor = given["self"][index]
        return function(x, other if isinstance(other, Tensor) else torch.tensor(other, dtype=x.dtype))

    return row


def _pair(name: str) -> Row:
    return lambda given, index: _apply(name, given["self"][index], _of_each(given, index))


def _sum(sign: float) -> Row:
    return lambda given, index: _apply("add_scaled", given["self"][index], _of_each(given, index), sign * given.get("alpha", 1))


def _power(given: Arguments, index: int) -> Tensor:
    if not isinstance(given["self"], list | tuple):
        x: Tensor = given["exponent"][index]
        return _apply("powf_of_second", x, given["self"])
    return _apply("powf", given["self"][index], _of_each(given, index))


def _quotient(given: Arguments, index: int) -> Tensor:
    x: Tensor = given["self"][index]
    if "scalar" in given:
        return _apply("multiply", x, 1 / float(given["scalar"]))
    return _apply("divide", x, _of_each(given, index))


def _step(name: str, of_one: str) -> Row:
    def row(given: Arguments, index: int) -> Tensor:
        tensors, value = [given[each][index] for each in ("self", "tensor1", "tensor2")], _of_each(given, index)
        return _apply(of_one, *tensors) if value == 1 else _apply(name, *tensors, value)

    return row


def _lerp(given: Arguments, index: int) -> Tensor:
    return _apply("lerp_of_each", given["self"][index], given["tensors1"][index], _of_each(given, index))


def _norm(given: Arguments, index: int) -> Tensor:
    x: Tensor = given["self"][index]
    if given["dtype"] is not None or not x.is_contiguous() or x.storage_offset() % _VECTOR or float(given["ord"]) not in optimizers.ORDERS:
        raise NotEmulatedError("the order of this norm's sum is not known")
    return to_torch(optimizers.foreach_norm([to_numpy(x)], float(given["ord"]))[0])


_FUNCTIONS = "acos asin atan cos cosh erf erfc exp expm1 lgamma log log10 log1p log2 rsqrt sin sinh tan tanh"
_EXACT = "abs ceil floor frac neg round sign trunc max"
ROWS: dict[str, Row] = {name: _function(f"{name}f") for name in _FUNCTIONS.split()}
ROWS |= {name: _function(name) for name in ("sigmoid", "sqrt", "reciprocal")}
ROWS |= {name: _exact(getattr(torch, name)) for name in _EXACT.split()}
ROWS |= dict.fromkeys(("maximum", "clamp_min"), _exact(torch.maximum))
ROWS |= dict.fromkeys(("minimum", "clamp_max"), _exact(torch.minimum))
ROWS |= {
    "add": _sum(1.0),
    "sub": _sum(-1.0),
    "mul": _pair("multiply"),
    "div": _quotient,
    "pow": _power,
    "addcmul": _step("addcmul_of_each", "addcmul_of_one"),
    "addcdiv": _step("addcdiv_of_each", "addcdiv_of_one"),
    "lerp": _lerp,
    "norm": _norm,
}


def _adam(decoupled: bool) -> Callable[[Arguments], None]:
    def step(given: Arguments) -> None:
        names = ("self", "grads", "exp_avgs", "exp_avg_sqs", *(("max_exp_avg_sqs",) if given["amsgrad"] else ()))
        rates = {"lr": float(given["lr"]), "betas": (given["beta1"], given["beta2"]), "eps": given["eps"]}
        for index, steps in enumerate(given["state_steps"]):
            param, grad, first, second, *largest = (given[name][index] for name in names)
            arrays = (_array(param), _array(_unscaled(given, grad)), _array(first), _array(second))
            options = rates | {"weight_decay": given["weight_decay"], "decoupled": decoupled, "maximize": given["maximize"]}
            found = optimizers.step_adam(*arrays, float(steps), max_exp_avg_sq=to_numpy(largest[0]) if largest else None, **options)
            _put((param, first, second, *largest), found)

    return step


def _sgd(given: Arguments) -> None:
    options = {name: given[name] for name in ("momentum", "dampening", "weight_decay", "nesterov")}
    for index, (param, grad) in enumerate(zip(given["self"], given["grads"], strict=True)):
        buffers = [given["momentum_buffer_list"][index]] if given["momentum"] else []
        arrays = _array(param), _array(-grad if given["maximize"] else grad)
        buffer = _array(buffers[0]) if buffers else None
        found = optimizers.step_sgd(*arrays, buffer, lr=float(given["lr"]), first=given["is_first_step"], **options)
        _put((param, *buffers), found)


def _array(tensor: Tensor) -> Any:
    if not tensor.is_contiguous() or tensor.storage_offset() % _VECTOR:
        raise NotEmulatedError("how a step takes tensors that are not contiguous is not known")
    return to_numpy(tensor)


def _unscaled(given: Arguments, gradient: Tensor) -> Tensor:
    """Return a gradient without its scale, as the kernel leaves it."""
    if given["grad_scale"] is None:
        return gradient
    return gradient.copy_(_apply("divide", gradient, float(given["grad_scale"])))


def _put(places: tuple[Tensor, ...], arrays: tuple[Any, ...]) -> None:
    for place, array in zip(places, arrays, strict=True):
        place.copy_(to_torch(array.reshape(tuple(place.shape))))


def _unscale(given: Arguments) -> None:
    inverse = float(given["inv_scale"])
    for gradient in given["self"]:
        if not torch.isfinite(gradient).all():
            given["found_inf"].fill_(1.0)
        gradient.copy_(_apply("multiply", gradient, inverse))


# which change what they are given
STEPS: dict[str, Callable[[Arguments], None]] = {
    "_fused_adam_": _adam(False),
    "_fused_adamw_": _adam(True),
    "_fused_sgd_": _sgd,
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
}
NAMES = frozenset(f"{_PREFIX}{name}" for name in ROWS) | frozenset(name.removesuffix("_") for name in STEPS)


def _fits(given: Arguments) -> bool:
    """Tell whether all tensors are plain ones of float32 or 16 bits on this machine, and those of a list in one format."""
    lists = [value for value in given.values() if isinstance(value, list | tuple) and value and isinstance(value[0], Tensor)]
    tensors = [each for value in lists for each in value] + [each for each in given.values() if isinstance(each, Tensor)]
    plain = all(each.device.type == "cpu" and each.layout is torch.strided and each.dtype in FLOATS for each in tensors)
    return plain and not any(each.is_neg() or each.is_nested for each in tensors)


def compute(func: Any, given: Arguments) -> tuple[Any, bool]:
    """Compute an operator of lists as a GPU does; None where it is not known.

    Returns
    -------
    The result, and whether there is one: operators in place have none.
    """
    name: str = func._schema.name.partition("::")[2]
    if not _fits(given) or form_of(func) == OUT:
        return None, False
    libdevice.required_release()
    try:
        if name in STEPS:
            if name == "_fused_sgd_" and given["grad_scale"] is not None:
                raise NotEmulatedError("fused SGD with scaled gradients differed")
            _stepped(name, given)
            return None, True
        row = ROWS[name.removeprefix(_PREFIX).removesuffix("_")]
        first = given["self"] if isinstance(given["self"], list | tuple) else given["exponent"]
        found = [row(given, index) for index in range(len(first))]
    except NotEmulatedError:
        return None, False
    if form_of(func) != IN_PLACE:
        return found, True
    for place, result in zip(first, found, strict=True):
        place.copy_(result)
    return None, True


def _stepped(name: str, given: Arguments) -> None:
    if name.startswith("_fused_adam") and (why := libdevice.difference("powf", (), 2)):
        raise NotEmulatedError(why)  # before a gradient loses its scale
    found = given.get("found_inf")
    if name.startswith("_amp") or found is None or not float(found):
        STEPS[name](given)
