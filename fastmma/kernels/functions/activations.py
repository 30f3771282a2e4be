"""Activations and their gradients, as PyTorch's CUDA kernels compute them."""

from __future__ import annotations

from fastmma.kernels.functions.expression import (
    WIDE,
    Formula,
    Value,
    absolute,
    call,
    choose,
    exp,
    fma,
    largest,
    least,
    narrow,
)

_ROOT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
_GELU_BETA = float.fromhex("0x1.9884533d43651p-1")  # sqrt(2 / pi)
_GELU_KAPPA = float.fromhex("0x1.6e4e26d4801f7p-5")  # 0.044715
_GELU_CUBIC = float.fromhex("0x1.2444fc0000000p-5")  # 0.0356774, five units above the product of both in float32
_THREE_KAPPA = float.fromhex("0x1.12ba9c0000000p-3")  # in float32
_PDF = float.fromhex("0x1.9884533d43651p-2")  # 1 / sqrt(2 pi)
_SIXTH = float.fromhex("0x1.5555555555555p-3")


def _sigmoid(x: Value) -> Value:
    return 1.0 / (exp(-x) + 1.0)


def _silu(x: Value) -> Value:
    return x / (exp(-x) + 1.0)


def _silu_backward(dy: Value, x: Value) -> Value:
    s = _sigmoid(x)
    return dy * s * fma(x, 1.0 - s, 1.0)


def _sigmoid_backward(bits: float, dy: Value, y: Value) -> Value:
    dy, y = narrow(bits, dy, y)
    return dy * (1.0 - y) * y


def _tanh_backward(bits: float, dy: Value, y: Value) -> Value:
    dy, y = narrow(bits, dy, y)
    return dy * fma(-y, y, 1.0) if bits == WIDE else dy * (1.0 - y * y)


def _gelu(x: Value) -> Value:
    return x * 0.5 * (call("erff", x * _ROOT_HALF) + 1.0)


def _gelu_backward(dy: Value, x: Value) -> Value:
    pdf = exp(x * -0.5 * x) * _PDF
    return dy * fma(call("erff", x * _ROOT_HALF) + 1.0, 0.5, x * pdf)


def _gelu_inner(x: Value) -> Value:
    return call("tanhf", fma(x * x * x, _GELU_KAPPA, x) * _GELU_BETA)


def _gelu_tanh(x: Value) -> Value:
    return x * 0.5 * (_gelu_inner(x) + 1.0)


def _tanh_approx(x: Value) -> Value:
    return x.code.add(f"call float @nvvm_tanh_approx_f(float {x.name})")


def _gelu_in_product(x: Value) -> Value:
    """CUTLASS's ``GELU_taylor``."""
    return x * 0.5 * (_tanh_approx(x * _GELU_BETA * fma(x * _GELU_KAPPA, x, 1.0)) + 1.0)


def _gelu_in_product_fma(x: Value) -> Value:
    """That of cuBLAS's own kernels."""
    return fma(x, _tanh_approx(x * fma(x * _GELU_CUBIC, x, _GELU_BETA)), x) * 0.5


def _gelu_tanh_backward(dy: Value, x: Value) -> Value:
    square, inner = x * x, _gelu_inner(x)
    left, right = x * 0.5, inner + 1.0
    slope = fma(-inner, inner, 1.0)
    inner_slope = fma(square, _THREE_KAPPA, 1.0) * _GELU_BETA
    return dy * fma(right, 0.5, left * slope * inner_slope)


def _softplus(beta: float, threshold: float, x: Value) -> Value:
    scaled = x * beta
    return choose(scaled > threshold, x, call("log1pf", exp(scaled)) / beta)


def _softplus_backward(beta: float, threshold: float, dy: Value, x: Value) -> Value:
    scaled = x * beta
    z = exp(scaled)
    return choose(scaled > threshold, dy, dy * z / (z + 1.0))


def _mish(x: Value) -> Value:
    return x * call("tanhf", call("log1pf", exp(x)))


def _mish_backward(dy: Value, x: Value) -> Value:
    s, t = _sigmoid(x), call("tanhf", call("log1pf", exp(x)))
    return dy * fma(x * s, fma(-t, t, 1.0), t)


def _elu(alpha: float, scale: float, slope: float, x: Value) -> Value:
    return choose(x > 0.0, x * scale, call("expm1f", x * slope) * (alpha * scale))


def _elu_backward(alpha: float, scale: float, slope: float, of_result: float, dy: Value, x: Value) -> Value:
    """Return the gradient by x, or by the result where `of_result` is 1."""
    factor = x + alpha * scale if of_result else exp(x * slope)
    below = dy * slope * factor if of_result else dy * slope * (alpha * scale) * factor
    return choose(x <= 0.0, below, dy * scale)


def _hard_gate(x: Value) -> Value:
    return least(largest(x + 3.0, 0.0), 6.0)


def _hard_sigmoid(x: Value) -> Value:
    return choose(x.is_nan, x, _hard_gate(x) * _SIXTH)


def _hardswish_backward(dy: Value, x: Value) -> Value:
    middle = dy * (x / 3.0 + 0.5)
    return choose(x <= -3.0, 0.0, choose(x < 3.0, middle, dy))


def log_sigmoid(x: Value) -> Value:
    return least(x, 0.0) - call("log1pf", exp(-absolute(x)))


def _log_sigmoid_backward(dy: Value, x: Value) -> Value:
    below, z = x < 0.0, exp(-absolute(x))
    most, sign = choose(below, 1.0, 0.0), choose(below, 1.0, -1.0)
    return dy * fma(-sign, z / (z + 1.0), most)


def _is_between(x: Value, low: float, high: float) -> Value:
    return choose(x >= low, choose(x <= high, 1.0, 0.0), 0.0).equals(1.0)


def _shrink_backward(limit: float, dy: Value, x: Value) -> Value:
    return choose(_is_between(x, -limit, limit), 0.0, dy)


def _hardtanh_backward(low: float, high: float, dy: Value, x: Value) -> Value:
    return choose(x <= low, 0.0, choose(x >= high, 0.0, dy))


def _soft_shrink(limit: float, x: Value) -> Value:
    return choose(x > limit, x - limit, choose(x < -limit, x + limit, choose(x.is_nan, x, 0.0)))


def _glu_backward(dy: Value, a: Value, b: Value) -> tuple[Value, Value]:
    s = _sigmoid(b)
    return s * dy, (1.0 - s) * s * dy * a


# by name: parameters first, then operands
ACTIVATIONS: dict[str, Formula] = {
    "sigmoid": _sigmoid,
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "softplus": _softplus,
    "mish": _mish,
    "elu": _elu,
    "hardswish": lambda x: x * _hard_gate(x) * _SIXTH,
    "hardsigmoid": _hard_sigmoid,
    "log_sigmoid": log_sigmoid,
    "soft_shrink": _soft_shrink,
    "glu": lambda a, b: a * _sigmoid(b),
    "sigmoid_backward": _sigmoid_backward,
    "tanh_backward": _tanh_backward,
    "silu_backward": _silu_backward,
    "gelu_backward": _gelu_backward,
    "gelu_in_product": _gelu_in_product,
    "gelu_in_product_fma": _gelu_in_product_fma,
    "gelu_tanh_backward": _gelu_tanh_backward,
    "softplus_backward": _softplus_backward,
    "mish_backward": _mish_backward,
    "elu_backward": _elu_backward,
    "hardswish_backward": _hardswish_backward,
    "hardsigmoid_backward": lambda dy, x: choose(x > -3.0, choose(x < 3.0, dy * _SIXTH, 0.0), 0.0),
    "log_sigmoid_backward": _log_sigmoid_backward,
    "shrink_backward": _shrink_backward,
    "hardtanh_backward": _hardtanh_backward,
    "glu_backward_of_first": lambda dy, a, b: _glu_backward(dy, a, b)[0],
    "glu_backward_of_second": lambda dy, a, b: _glu_backward(dy, a, b)[1],
}
