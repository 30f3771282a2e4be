"""By operator of torch, the formula that its CUDA kernel computes of each element, with its parameters and operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

BITS = {torch.float32: 24.0, torch.float16: 11.0, torch.bfloat16: 8.0}  # of a significand

Arguments = Mapping[str, Any]


class Formula(NamedTuple):
    """A call of `fastmma.kernels.functions.apply`.

    Attributes
    ----------
    name : str
    operands : tuple of Tensor
    parameters : tuple of float
    """

    name: str
    operands: tuple[Tensor, ...]
    parameters: tuple[float, ...] = ()


Row = Callable[[Arguments], Formula | None]


def _unary(name: str) -> Row:
    return lambda given: Formula(name, (given["self"],))


def _gradient(name: str, second: str = "self", parameters: tuple[str, ...] = ()) -> Row:
    def row(given: Arguments) -> Formula:
        return Formula(name, (given["grad_output"], given[second]), tuple(float(given[each]) for each in parameters))

    return row


def _narrow_gradient(name: str) -> Row:
    """Compute a gradient by the result in the format of the tensors."""
    return lambda given: Formula(name, (given["grad_output"], given["output"]), (BITS[given["output"].dtype],))


def _gelu(given: Arguments) -> Formula:
    return Formula("gelu" if given["approximate"] == "none" else "gelu_tanh", (given["self"],))


def _gelu_backward(given: Arguments) -> Formula:
    name = "gelu_backward" if given["approximate"] == "none" else "gelu_tanh_backward"
    return Formula(name, (given["grad_output"], given["self"]))


def rounded_to(number: float, dtype: torch.dtype) -> float:
    """Round a scalar to the format of the tensor, as kernels do that take it in the tensor's type."""
    return float(torch.tensor(number, dtype=dtype))


def _power(given: Arguments) -> Formula | None:
    base, exponent = given["self"], given["exponent"]
    if isinstance(exponent, Tensor) and isinstance(base, Tensor):
        return Formula("powf", (base, exponent))
    if isinstance(exponent, Tensor):
        return Formula("powf", (torch.full((), rounded_to(base, exponent.dtype), dtype=torch.float32), exponent))
    return Formula("power", (base,), (rounded_to(exponent, base.dtype), BITS[base.dtype]))


def as_operand(value: Any, like: Any) -> Tensor:
    """Return a tensor, or a number in the format of the other operand."""
    return value if isinstance(value, Tensor) else torch.full((), rounded_to(value, like.dtype), dtype=torch.float32)


def pair(name: str) -> Row:
    """Take two operands, of which one may be a number."""

    def row(given: Arguments) -> Formula:
        first, second = given["self"], given["other"]
        return Formula(name, (as_operand(first, second), as_operand(second, first)))

    return row


def _lerp(given: Arguments) -> Formula:
    weight = given["weight"]
    if isinstance(weight, Tensor):
        return Formula("lerp_of_each", (given["self"], given["end"], weight))
    return Formula("lerp", (given["self"], given["end"]), (float(weight),))


def _step(name: str) -> Row:
    return lambda given: Formula(name, (given["self"], given["tensor1"], given["tensor2"]), (float(given["value"]),))


def _shrink_backward(gradient: str) -> Row:
    return lambda given: Formula("shrink_backward", (given[gradient], given["self"]), (float(given["lambd"]),))


def _hardtanh_backward(given: Arguments) -> Formula:
    limits = float(given["min_val"]), float(given["max_val"])
    return Formula("hardtanh_backward", (given["grad_output"], given["self"]), limits)


def _glu(given: Arguments) -> Formula | None:
    x, dim = given["self"], given["dim"]
    if not x.dim() or x.shape[dim] % 2:  # torch names what is wrong
        return None
    first, second = x.chunk(2, dim)
    return Formula("glu", (first, second))


def _elu(given: Arguments) -> Formula:
    return Formula("elu", (given["self"],), (float(given["alpha"]), float(given["scale"]), float(given["input_scale"])))


def _elu_backward(given: Arguments) -> Formula:
    parameters = (float(given["alpha"]), float(given["scale"]), float(given["input_scale"]), float(given["is_result"]))
    return Formula("elu_backward", (given["grad_output"], given["self_or_result"]), parameters)


def _celu(given: Arguments) -> Formula:
    alpha = float(given["alpha"])
    return Formula("elu", (given["self"],), (alpha, 1.0, 1.0 / alpha))


def _softplus(given: Arguments) -> Formula:
    return Formula("softplus", (given["self"],), (float(given["beta"]), float(given["threshold"])))


def _logit(given: Arguments) -> Formula:
    x = given["self"]
    return Formula("logit", (x,)) if given["eps"] is None else Formula("logit_within", (x,), (float(given["eps"]),))


def _logit_backward(given: Arguments) -> Formula:
    operands = given["grad_output"], given["self"]
    if given["eps"] is None or given["eps"] < 0:
        return Formula("logit_backward", operands)
    return Formula("logit_within_backward", operands, (float(given["eps"]),))


def _log_sigmoid_backward(given: Arguments) -> Formula:
    return Formula("log_sigmoid_backward", (given["grad_output"], given["self"]))


def _number(value: Any) -> Tensor:
    """Return a tensor, or one of no dimension that holds a number."""
    return value if isinstance(value, Tensor) else torch.full((), float(value), dtype=torch.float32)


def _scaled(factor: float) -> Row:
    return lambda given: Formula("multiply", (given["self"], _number(factor)))


def _sum(given: Arguments) -> Formula | None:
    return Formula("add", (given["self"], _number(given["other"])), (float(given["alpha"]),))


def _difference(given: Arguments) -> Formula | None:
    found = _sum(given)
    return None if found is None else found._replace(parameters=(-found.parameters[0],))


def _difference_from(given: Arguments) -> Formula:
    return Formula("add", (_number(given["other"]), given["self"]), (-float(given["alpha"]),))


_SYMBOLS = "acos acosh asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2 rsqrt sin sinh tan tanh"
ROWS: dict[str, Row] = {name: _unary(f"{name}f") for name in _SYMBOLS.split()}
ROWS |= {name: _unary(name) for name in ["sigmoid", "silu", "mish", "hardswish", "hardsigmoid", "sinc", "reciprocal", "sqrt"]}
ROWS |= {
    "gelu": _gelu,
    "gelu_backward": _gelu_backward,
    "silu_backward": _gradient("silu_backward"),
    "mish_backward": _gradient("mish_backward"),
    "sigmoid_backward": _narrow_gradient("sigmoid_backward"),
    "tanh_backward": _narrow_gradient("tanh_backward"),
    "softplus": _softplus,
    "softplus_backward": _gradient("softplus_backward", "self", ("beta", "threshold")),
    "elu": _elu,
    "celu": _celu,
    "elu_backward": _elu_backward,
    "hardswish_backward": _gradient("hardswish_backward"),
    "hardsigmoid_backward": _gradient("hardsigmoid_backward"),
    "logit": _logit,
    "log_sigmoid_backward": _log_sigmoid_backward,
    "pow": _power,
    "atan2": pair("atan2f"),
    "hypot": pair("hypotf"),
    "log_sigmoid_forward": _unary("log_sigmoid"),
    "lerp": _lerp,
    "addcmul": _step("addcmul"),
    "addcdiv": _step("addcdiv"),
    "add": _sum,
    "sub": _difference,
    "rsub": _difference_from,
    "xlogy": pair("xlogy"),
    "logaddexp": pair("log_add_exp"),
    "logaddexp2": pair("log_add_exp2"),
    "special_xlog1py": pair("xlog1py"),
    "special_entr": _unary("entropy"),
    "logit_backward": _logit_backward,
    "hardshrink_backward": _shrink_backward("grad_out"),
    "softshrink_backward": _shrink_backward("grad_output"),
    "deg2rad": _scaled(math.pi / 180),
    "rad2deg": _scaled(180 / math.pi),
    "softshrink": lambda given: Formula("soft_shrink", (given["self"],), (float(given["lambd"]),)),
    "hardtanh_backward": _hardtanh_backward,
    "glu": _glu,
}
