"""What PyTorch's CUDA kernels compute of each element: a formula an operator, in float32, with the contractions of nvcc.

Operands of 16 bits are converted to float32 first, and results are rounded to nearest even, as in those kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fastmma.kernels.functions.expression import (
    Value,
    absolute,
    call,
    choose,
    copy_sign,
    floor,
    fma,
    largest,
    least,
    narrow,
    rounded,
    scalar,
    square_root,
)

Formula = Callable[..., Value]
WIDE = 24  # bits of a significand of float32
_ROOT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
_GELU_BETA = float.fromhex("0x1.9884533d43651p-1")  # sqrt(2 / pi)
_GELU_KAPPA = float.fromhex("0x1.6e4e26d4801f7p-5")  # 0.044715
_THREE_KAPPA = float.fromhex("0x1.12ba9c0000000p-3")  # in float32
_PDF = float.fromhex("0x1.9884533d43651p-2")  # 1 / sqrt(2 pi)
_SIXTH = float.fromhex("0x1.5555555555555p-3")


def _exp(x: Value) -> Value:
    return call("expf", x)


def _sigmoid(x: Value) -> Value:
    return 1.0 / (_exp(-x) + 1.0)


def _silu(x: Value) -> Value:
    return x / (_exp(-x) + 1.0)


def _silu_backward(dy: Value, x: Value) -> Value:
    s = _sigmoid(x)
    return dy * s * fma(x, 1.0 - s, 1.0)


def _gelu(x: Value) -> Value:
    return x * 0.5 * (call("erff", x * _ROOT_HALF) + 1.0)


def _gelu_backward(dy: Value, x: Value) -> Value:
    pdf = _exp(x * -0.5 * x) * _PDF
    return dy * fma(call("erff", x * _ROOT_HALF) + 1.0, 0.5, x * pdf)


def _gelu_inner(x: Value) -> Value:
    return call("tanhf", fma(x * x * x, _GELU_KAPPA, x) * _GELU_BETA)


def _gelu_tanh(x: Value) -> Value:
    return x * 0.5 * (_gelu_inner(x) + 1.0)


def _gelu_tanh_backward(dy: Value, x: Value) -> Value:
    square, inner = x * x, _gelu_inner(x)
    left, right = x * 0.5, inner + 1.0
    slope = fma(-inner, inner, 1.0)
    inner_slope = fma(square, _THREE_KAPPA, 1.0) * _GELU_BETA
    return dy * fma(right, 0.5, left * slope * inner_slope)


def _softplus(beta: float, threshold: float, x: Value) -> Value:
    scaled = x * beta
    return choose(scaled > threshold, x, call("log1pf", _exp(scaled)) / beta)


def _softplus_backward(beta: float, threshold: float, dy: Value, x: Value) -> Value:
    scaled = x * beta
    z = _exp(scaled)
    return choose(scaled > threshold, dy, dy * z / (z + 1.0))


def _mish(x: Value) -> Value:
    return x * call("tanhf", call("log1pf", _exp(x)))


def _mish_backward(dy: Value, x: Value) -> Value:
    s, t = _sigmoid(x), call("tanhf", call("log1pf", _exp(x)))
    return dy * fma(x * s, fma(-t, t, 1.0), t)


def _elu(alpha: float, scale: float, slope: float, x: Value) -> Value:
    return choose(x > 0.0, x * scale, call("expm1f", x * slope) * (alpha * scale))


def _hard_gate(x: Value) -> Value:
    return least(largest(x + 3.0, 0.0), 6.0)


def _hard_sigmoid(x: Value) -> Value:
    return choose(x.is_nan, x, _hard_gate(x) * _SIXTH)


def _hardswish_backward(dy: Value, x: Value) -> Value:
    middle = dy * (x / 3.0 + 0.5)
    return choose(x < -3.0, 0.0, choose(x <= 3.0, middle, dy))


def _elu_backward(alpha: float, scale: float, slope: float, of_result: float, dy: Value, x: Value) -> Value:
    """Return the gradient by x, or by the result where `of_result` is 1."""
    factor = x + alpha * scale if of_result else _exp(x * slope)
    below = dy * slope * factor if of_result else dy * slope * (alpha * scale) * factor
    return choose(x <= 0.0, below, dy * scale)


def _log_sigmoid_backward(dy: Value, x: Value) -> Value:
    below, z = x < 0.0, _exp(-absolute(x))
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


def _tanh_backward(bits: float, dy: Value, y: Value) -> Value:
    dy, y = narrow(bits, dy, y)
    return dy * fma(-y, y, 1.0) if bits == WIDE else dy * (1.0 - y * y)


def _sigmoid_backward(bits: float, dy: Value, y: Value) -> Value:
    dy, y = narrow(bits, dy, y)
    return dy * (1.0 - y) * y


def _mse_backward(norm: float, bits: float, x: Value, y: Value, dy: Value) -> Value:
    x, y, dy = narrow(bits, x, y, dy)
    return (x - y) * norm * dy


def _smooth_l1_backward(norm: float, beta: float, bits: float, x: Value, y: Value, dy: Value) -> Value:
    x, y, dy = narrow(bits, x, y, dy)
    d = x - y
    return choose(d < -beta, -(dy * norm), choose(d > beta, dy * norm, d * norm * dy / beta))


def _huber_backward(norm: float, delta: float, bits: float, x: Value, y: Value, dy: Value) -> Value:
    x, y, dy = narrow(bits, x, y, dy)
    d = x - y
    return choose(d < -delta, -(dy * norm) * delta, choose(d > delta, dy * norm * delta, d * norm * dy))


def _xlogy(x: Value, y: Value) -> Value:
    product = x * call("logf", y)
    return choose(y.is_nan, math.nan, choose(x.equals(0.0), 0.0, product))


def _log_add_exp(a: Value, b: Value) -> Value:
    most = choose(a >= b, a, b)
    found = most + call("log1pf", _exp(-absolute(a - b)))
    same = choose(absolute(a).equals(math.inf), choose(a.equals(b), 1.0, 0.0), 0.0).equals(1.0)
    return choose(same, a, found)


def _entropy(x: Value) -> Value:
    return choose(x.is_nan, x, choose(x > 0.0, -x * call("logf", x), choose(x.equals(0.0), 0.0, -math.inf)))


def _bce_with_logits(bits: float, x: Value, target: Value) -> Value:
    x, target = narrow(bits, x, target)
    logarithm = _log_sigmoid(x._replace(bits=WIDE))
    return (1.0 - target) * x - rounded(logarithm, bits)


def _log_sigmoid(x: Value) -> Value:
    return least(x, 0.0) - call("log1pf", _exp(-absolute(x)))


def _sinc(x: Value) -> Value:
    turned = x * math.pi
    return choose(x.equals(0.0), 1.0, call("sinf", turned) / turned)


def _logit(x: Value) -> Value:
    return call("logf", x / (1.0 - x))


def _power(exponent: float, bits: float, x: Value) -> Value:
    """Raise to a power that the kernel is made for; of formats with fewer bits each product is rounded to them."""
    square = rounded(x * x, bits)
    known = {2.0: lambda: square, 3.0: lambda: square * x, -2.0: lambda: 1.0 / square}
    known |= {0.5: lambda: square_root(x), -0.5: lambda: call("rsqrtf", x), -1.0: lambda: 1.0 / x}
    return known[exponent]() if exponent in known else call("powf", x, exponent)


def _floor_quotient(a: Value, b: Value | float, quotient: Callable[[Value], Value]) -> Value:
    rest = call("fmodf", a, b)
    below = b < 0.0 if isinstance(b, Value) else scalar(a, b) < 0.0
    alike = choose(below, 1.0, 0.0).equals(choose(rest < 0.0, 1.0, 0.0))
    exact = quotient(a - rest)
    whole = choose(rest.equals(0.0), exact, choose(alike, exact, exact - 1.0))
    low = floor(whole)
    near = choose((whole - low) > 0.5, low + 1.0, low)
    result = choose(whole.equals(0.0), copy_sign(scalar(a, 0.0), quotient(a)), near)
    return choose(b.equals(0.0), a / b, result) if isinstance(b, Value) else result


def _inverse(divisor: float) -> float:
    """Divide 1 by a scalar, in float64, as kernels do that multiply by what they get."""
    with np.errstate(divide="ignore", over="ignore"):
        return float(np.float64(1) / np.float64(divisor))


def _floor_divide_by(divisor: float, x: Value) -> Value:
    inverse = _inverse(divisor)
    return _floor_quotient(x, divisor, lambda y: y * inverse)


def _remainder(a: Value, b: Value) -> Value:
    rest = call("fmodf", a, b)
    alike = choose(rest < 0.0, 1.0, 0.0).equals(choose(b < 0.0, 1.0, 0.0))
    return choose(rest.equals(0.0), rest, choose(alike, rest, rest + b))


def _lerp(weight: Value | float, a: Value, b: Value) -> Value:
    far = b - a
    if isinstance(weight, Value):
        return choose(absolute(weight) < 0.5, fma(weight, far, a), fma(-far, 1.0 - weight, b))
    return fma(far, weight, a) if abs(weight) < 0.5 else fma(-far, 1.0 - weight, b)


def _smooth_l1(beta: float, bits: float, a: Value, b: Value) -> Value:
    a, b = narrow(bits, a, b)
    z = absolute(a - b)
    return choose(z < beta, z * 0.5 * z / beta, z - 0.5 * beta)


def _huber(delta: float, a: Value, b: Value) -> Value:
    z = absolute(a - b)
    return choose(z < delta, z * 0.5 * z, (z - 0.5 * delta) * delta)


def _difference_squared(bits: float, a: Value, b: Value) -> Value:
    a, b = narrow(bits, a, b)
    difference = a - b
    return difference * difference


# of libdevice, by how many operands they have
LIBDEVICE = {
    1: "acosf acoshf asinf asinhf atanf atanhf cbrtf cosf coshf erff erfcf erfcinvf erfinvf exp10f exp2f expf expm1f j0f j1f lgammaf "
    "log10f log1pf log2f logf normcdff normcdfinvf rsqrtf sinf sinhf tanf tanhf tgammaf",
    2: "atan2f fmodf hypotf powf remainderf",
}


def _of_libdevice(symbol: str) -> Formula:
    return lambda *operands: call(symbol, *operands)


def _of_unit(name: str, flush: str) -> Formula:
    kind = "f32" if name == "ex2" else "f"
    return lambda x: x.code.add(f"call float @nvvm_{name}_approx{flush}_{kind}(float {x.name})")


_UNIT = ("ex2", "lg2", "rcp", "rsqrt", "sqrt")  # of the special function unit
# by name: parameters first, then operands
FORMULAS: dict[str, Formula] = {name: _of_libdevice(name) for names in LIBDEVICE.values() for name in names.split()}
FORMULAS |= {f"{name}.approx.f32": _of_unit(name, "") for name in _UNIT if name != "rcp"}
FORMULAS |= {f"{name}.approx.ftz.f32": _of_unit(name, "_ftz") for name in _UNIT}
FORMULAS |= {
    "sigmoid": _sigmoid,
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "softplus": _softplus,
    "mish": _mish,
    "elu": _elu,
    "hardswish": lambda x: x * _hard_gate(x) * _SIXTH,
    "hardsigmoid": _hard_sigmoid,
    "log_sigmoid": _log_sigmoid,
    "sinc": _sinc,
    "logit": _logit,
    "sqrt": square_root,
    "reciprocal": lambda x: 1.0 / x,
    "power": _power,
    "power_of_each": lambda a, b: call("powf", a, b),
    "divide": lambda a, b: a / b,
    "floor_divide": lambda a, b: _floor_quotient(a, b, lambda y: y / b),
    "floor_divide_by": _floor_divide_by,
    "divide_by": lambda divisor, x: x * _inverse(divisor),
    "remainder": _remainder,
    "lerp": _lerp,
    "lerp_of_each": lambda a, b, weight: _lerp(weight, a, b),
    "addcmul": lambda value, a, b, c: fma(b, c, a) if value == 1 else fma(b * c, value, a),
    "addcdiv": lambda value, a, b, c: fma(b / c, value, a),
    "smooth_l1": _smooth_l1,
    "huber": _huber,
    "squared_difference": _difference_squared,
    "add": lambda alpha, a, b: fma(b, alpha, a),
    "shrink_backward": _shrink_backward,
    "hardtanh_backward": _hardtanh_backward,
    "soft_shrink": _soft_shrink,
    "glu": lambda a, b: a * _sigmoid(b),
    "glu_backward_of_first": lambda dy, a, b: _glu_backward(dy, a, b)[0],
    "glu_backward_of_second": lambda dy, a, b: _glu_backward(dy, a, b)[1],
    "xlogy": _xlogy,
    "log_add_exp": _log_add_exp,
    "entropy": _entropy,
    "bce_with_logits": _bce_with_logits,
    "silu_backward": _silu_backward,
    "gelu_backward": _gelu_backward,
    "gelu_tanh_backward": _gelu_tanh_backward,
    "mish_backward": _mish_backward,
    "softplus_backward": _softplus_backward,
    "tanh_backward": _tanh_backward,
    "sigmoid_backward": _sigmoid_backward,
    "elu_backward": _elu_backward,
    "log_sigmoid_backward": _log_sigmoid_backward,
    "hardswish_backward": _hardswish_backward,
    "hardsigmoid_backward": lambda dy, x: choose(x > -3.0, choose(x < 3.0, dy * _SIXTH, 0.0), 0.0),
    "logit_backward": lambda dy, x: choose(x < 0.0, math.nan, choose(x > 1.0, math.nan, dy / (x * (1.0 - x)))),
    "mse_backward": _mse_backward,
    "smooth_l1_backward": _smooth_l1_backward,
    "huber_backward": _huber_backward,
}
