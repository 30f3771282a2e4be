"""What losses compute of each element, and their gradients, as PyTorch's CUDA kernels do."""

from __future__ import annotations

from fastmma.kernels.functions.activations import log_sigmoid
from fastmma.kernels.functions.expression import (
    WIDE,
    Formula,
    Value,
    absolute,
    choose,
    narrow,
    rounded,
)


def _difference_squared(bits: float, a: Value, b: Value) -> Value:
    a, b = narrow(bits, a, b)
    difference = a - b
    return difference * difference


def _mse_backward(norm: float, bits: float, x: Value, y: Value, dy: Value) -> Value:
    x, y, dy = narrow(bits, x, y, dy)
    return (x - y) * norm * dy


def _smooth_l1(beta: float, bits: float, a: Value, b: Value) -> Value:
    a, b = narrow(bits, a, b)
    z = absolute(a - b)
    return choose(z < beta, z * 0.5 * z / beta, z - 0.5 * beta)


def _smooth_l1_backward(norm: float, beta: float, bits: float, x: Value, y: Value, dy: Value) -> Value:
    x, y, dy = narrow(bits, x, y, dy)
    d = x - y
    return choose(d < -beta, -(dy * norm), choose(d > beta, dy * norm, d * norm * dy / beta))


def _huber(delta: float, a: Value, b: Value) -> Value:
    z = absolute(a - b)
    return choose(z < delta, z * 0.5 * z, (z - 0.5 * delta) * delta)


def _huber_backward(norm: float, delta: float, bits: float, x: Value, y: Value, dy: Value) -> Value:
    x, y, dy = narrow(bits, x, y, dy)
    d = x - y
    return choose(d < -delta, -(dy * norm) * delta, choose(d > delta, dy * norm * delta, d * norm * dy))


def _bce_with_logits(bits: float, x: Value, target: Value) -> Value:
    x, target = narrow(bits, x, target)
    logarithm = log_sigmoid(x._replace(bits=WIDE))
    return (1.0 - target) * x - rounded(logarithm, bits)


# by name: parameters first, then operands
LOSSES: dict[str, Formula] = {
    "squared_difference": _difference_squared,
    "smooth_l1": _smooth_l1,
    "huber": _huber,
    "bce_with_logits": _bce_with_logits,
    "mse_backward": _mse_backward,
    "smooth_l1_backward": _smooth_l1_backward,
    "huber_backward": _huber_backward,
}
