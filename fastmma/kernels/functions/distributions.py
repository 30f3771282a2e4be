"""What CUDA's kernels make of random words of 32 bits, converted to float32 (``DistributionTemplates.h`` and cuRAND)."""

from __future__ import annotations

import math
from functools import partial

from fastmma.kernels.functions.expression import Formula, Value, call, choose, fma, rounded, square_root

_UNIT = float.fromhex("0x1p-32")
_TURN = float.fromhex("0x1.921fb60000000p-30")  # 2 pi times the unit, in float32
_EPSILON = float.fromhex("0x1p-23")


def _uniform(word: Value) -> Value:
    """Return a number from 2^-33 to 1."""
    return fma(word, _UNIT, _UNIT / 2)


def _between(bits: float, word: Value, low: Value, span: Value, high: Value) -> Value:
    value = rounded(fma(_uniform(word), span, low), bits)
    return choose(value.equals(high), low, value)


def _normal(function: str, word: Value, angle: Value, mean: Value, deviation: Value) -> Value:
    """Turn two uniform numbers into a normal one by the method of Box and Muller."""
    radius = square_root(call("logf", _uniform(word)) * -2.0)
    return fma(call(function, fma(angle, _TURN, _TURN / 2)) * radius, deviation, mean)


def _exponential(word: Value, factor: Value) -> Value:
    x = _uniform(word)
    return choose(x >= 1.0 - _EPSILON / 2, -_EPSILON / 2, call("fast_logf", x)) * factor


def _cauchy(word: Value, median: Value, scale: Value) -> Value:
    x = _uniform(word)
    x = choose(x > 1.0 - _EPSILON, 1.0 - _EPSILON, x)
    x = choose(x < _EPSILON, _EPSILON, x)
    return fma(scale, call("fast_tanf", (x - 0.5) * math.pi), median)


def _geometric(word: Value, divisor: Value) -> Value:
    quotient = call("fast_logf", _uniform(word)) / divisor
    return quotient.code.add(f"call float @llvm.ceil.f32(float {quotient.name})")


DISTRIBUTIONS: dict[str, Formula] = {
    "drawn_uniform": _between,
    "drawn_sine": partial(_normal, "fast_sinf"),
    "drawn_cosine": partial(_normal, "fast_cosf"),
    "drawn_log_sine": lambda *operands: call("fast_expf", _normal("fast_sinf", *operands)),
    "drawn_log_cosine": lambda *operands: call("fast_expf", _normal("fast_cosf", *operands)),
    "drawn_exponential": _exponential,
    "drawn_cauchy": _cauchy,
    "drawn_geometric": _geometric,
}
