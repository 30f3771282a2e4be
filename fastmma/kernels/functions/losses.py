"""What losses compute of each element, and their gradients, as PyTorch's CUDA kernels do."""

from __future__ import annotations

from fastmma.kernels.functions.activations import log_sigmoid
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
    narrow,
    rounded,
)

_TINY = float.fromhex("0x1.19799812dea11p-40")  # 1e-12
_EPSILON = {24.0: _TINY, 11.0: 0.0, 8.0: _TINY}  # by bits of a significand; float16 has no such number


def _difference_squared(bits: float, a: Value, b: Value) -> Value:
    a, b = narrow(bits, a, b)
    difference = a - b
    return difference * difference


def _mse_backward(norm: float, bits: float, x: Value, y: Value, dy: Value) -> Value:
    x, y, dy = narrow(bits, x, y, dy)
    return (x - y) * norm * dy


def _distance(bits: float, a: Value, b: Value) -> Value:
    """Return the magnitude of a difference in the format of the operands, with which kernels go on in float32."""
    a, b = narrow(bits, a, b)
    return absolute(a - b)._replace(bits=WIDE)


def _smooth_l1(beta: float, bits: float, a: Value, b: Value) -> Value:
    z = _distance(bits, a, b)
    return choose(z < beta, z * 0.5 * z / beta, z - 0.5 * beta)


def _smooth_l1_backward(norm: float, beta: float, bits: float, x: Value, y: Value, dy: Value) -> Value:
    x, y, dy = narrow(bits, x, y, dy)
    d = x - y
    return choose(d < -beta, -(dy * norm), choose(d > beta, dy * norm, d * norm * dy / beta))


def _huber(delta: float, bits: float, a: Value, b: Value) -> Value:
    z = _distance(bits, a, b)
    return choose(z < delta, z * 0.5 * z, (z - 0.5 * delta) * delta)


def _huber_backward(norm: float, delta: float, bits: float, x: Value, y: Value, dy: Value) -> Value:
    x, y, dy = narrow(bits, x, y, dy)
    d = x - y
    return choose(d < -delta, -(dy * norm) * delta, choose(d > delta, dy * norm * delta, d * norm * dy))


def _bce_with_logits(bits: float, x: Value, target: Value) -> Value:
    x, target = narrow(bits, x, target)
    logarithm = log_sigmoid(x._replace(bits=WIDE))
    return (1.0 - target) * x - rounded(logarithm, bits)


def _bce(bits: float, x: Value, target: Value) -> Value:
    """Compute the loss of a probability, whose logarithms are no less than -100."""
    x, target = narrow(bits, x, target)
    of_one, of_zero = (largest(rounded(call(name, of), bits), -100.0) for name, of in (("logf", x), ("log1pf", -x)))
    less = target - 1.0
    if bits == WIDE:
        return fma(less, of_zero, -(target * of_one))
    return less * of_zero - target * of_one


def _bce_backward(bits: float, dy: Value, x: Value, target: Value) -> Value:
    dy, x, target = narrow(bits, dy, x, target)
    return dy * (x - target) / largest((1.0 - x) * x, _EPSILON[bits])._replace(bits=bits)


def _soft_margin(bits: float, x: Value, target: Value) -> Value:
    x, target = narrow(bits, x, target)
    return call("log1pf", rounded(exp(-x * target), bits))


def _soft_margin_backward(norm: float, bits: float, dy: Value, x: Value, target: Value) -> Value:
    dy, x, target = narrow(bits, dy, x, target)
    (z,) = narrow(bits, rounded(exp(-target * x), bits))
    return target * z * -norm / (z + 1.0) * dy


# by name: parameters first, then operands
LOSSES: dict[str, Formula] = {
    "squared_difference": _difference_squared,
    "smooth_l1": _smooth_l1,
    "huber": _huber,
    "bce_with_logits": _bce_with_logits,
    "bce": _bce,
    "bce_backward": _bce_backward,
    "soft_margin": _soft_margin,
    "soft_margin_backward": _soft_margin_backward,
    "mse_backward": _mse_backward,
    "smooth_l1_backward": _smooth_l1_backward,
    "huber_backward": _huber_backward,
}
