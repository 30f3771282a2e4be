"""What softmax and norms compute of each element of a row, given numbers of the row, as PyTorch's CUDA kernels do; NaN has a GPU's bits."""

from __future__ import annotations

from fastmma.kernels.functions.expression import Formula, Value, call, canonical, exp, fma, narrow


def _exponential(x: Value, largest: Value) -> Value:
    return exp(x - largest)


def _log_softmax(x: Value, largest: Value, logarithm: Value) -> Value:
    return canonical(x - largest - logarithm)


def _product(bits: float, a: Value, b: Value) -> Value:
    a, b = narrow(bits, a, b)
    return a * b


def _layer_norm(x: Value, mean: Value, rstd: Value, weight: Value, bias: Value) -> Value:
    return canonical(fma((x - mean) * rstd, weight, bias))


def _layer_norm_backward(dy: Value, x: Value, factor: Value, mean: Value, rstd: Value, total: Value, product: Value, share: Value) -> Value:
    joined = fma(factor, dy, -((x - mean) * rstd * product))
    return canonical((joined - total) * share)


# by name: parameters first, then operands
NORMALIZERS: dict[str, Formula] = {
    "exponential_of_difference": _exponential,
    "quotient": lambda a, b: canonical(a / b),
    "log_softmax": _log_softmax,
    "product": _product,
    "softmax_backward": lambda y, total, g: canonical(fma(y, -total, g)),
    "log_softmax_backward": lambda y, total, g: canonical(fma(exp(y), -total, g)),
    "fused": lambda a, b, c: canonical(fma(a, b, c)),
    "rounded": canonical,
    "norm_factor": lambda squares, count, eps: call("rsqrtf", squares / count + eps),
    "layer_norm": _layer_norm,
    "layer_norm_backward": _layer_norm_backward,
}
