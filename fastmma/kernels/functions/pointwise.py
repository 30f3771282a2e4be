"""What PyTorch's CUDA kernels compute of each element: a formula an operator, in float32, with the contractions of nvcc.

Operands of 16 bits are converted to float32 first, and results are rounded to nearest even, as in those kernels.
"""

from __future__ import annotations

import math

from fastmma.kernels.functions.activations import ACTIVATIONS
from fastmma.kernels.functions.distributions import DISTRIBUTIONS
from fastmma.kernels.functions.expression import (
    Formula,
    Value,
    absolute,
    call,
    choose,
    exp,
    fma,
    rounded,
    square_root,
)
from fastmma.kernels.functions.losses import LOSSES
from fastmma.kernels.functions.normalizers import NORMALIZERS
from fastmma.kernels.functions.quotients import QUOTIENTS

_INVERSE_LOG_TWO = float.fromhex("0x1.71547652b82fep+0")


def _xlogy(x: Value, y: Value) -> Value:
    product = x * call("logf", y)
    return choose(y.is_nan, math.nan, choose(x.equals(0.0), 0.0, product))


def _log_add_exp(a: Value, b: Value) -> Value:
    most = choose(a >= b, a, b)
    found = most + call("log1pf", exp(-absolute(a - b)))
    same = choose(absolute(a).equals(math.inf), choose(a.equals(b), 1.0, 0.0), 0.0).equals(1.0)
    return choose(same, a, found)


def _entropy(x: Value) -> Value:
    return choose(x.is_nan, x, choose(x > 0.0, -x * call("logf", x), choose(x.equals(0.0), 0.0, -math.inf)))


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


def _log_add_exp2(a: Value, b: Value) -> Value:
    most = choose(a >= b, a, b)
    found = fma(call("log1pf", call("exp2f", -absolute(a - b))), _INVERSE_LOG_TWO, most)
    same = choose(absolute(a).equals(math.inf), choose(a.equals(b), 1.0, 0.0), 0.0).equals(1.0)
    return choose(same, a, found)


def _xlog1py(x: Value, y: Value) -> Value:
    return choose(y.is_nan, math.nan, choose(x.equals(0.0), 0.0, x * call("log1pf", y)))


def _logit_within(limit: float, x: Value) -> Value:
    """Compute the logit of a number that is moved into [limit, 1 - limit]."""
    z = choose(x < limit, limit, choose(x > 1.0 - limit, 1.0 - limit, x))
    return call("logf", z / (1.0 - z))


def _logit_within_backward(limit: float, dy: Value, x: Value) -> Value:
    return choose(x < limit, 0.0, choose(x > 1.0 - limit, 0.0, dy / (x * (1.0 - x))))


def _lerp(weight: Value | float, a: Value, b: Value) -> Value:
    far = b - a
    if isinstance(weight, Value):
        return choose(absolute(weight) < 0.5, fma(weight, far, a), fma(-far, 1.0 - weight, b))
    return fma(far, weight, a) if abs(weight) < 0.5 else fma(-far, 1.0 - weight, b)


# of libdevice, by how many operands they have
LIBDEVICE = {
    1: "acosf acoshf asinf asinhf atanf atanhf cbrtf cosf coshf erff erfcf erfcinvf erfinvf exp10f exp2f expf expm1f j0f j1f lgammaf "
    "fast_cosf fast_expf fast_logf fast_sinf fast_tanf log10f log1pf log2f logf normcdff normcdfinvf rsqrtf sinf sinhf tanf tanhf tgammaf",
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
FORMULAS |= {f"{name}.approx.f32": _of_unit(name, "") for name in ("sin", "cos", "tanh", *_UNIT) if name != "rcp"}
FORMULAS |= {f"{name}.approx.ftz.f32": _of_unit(name, "_ftz") for name in _UNIT}
FORMULAS |= {
    "sinc": _sinc,
    "logit": _logit,
    "sqrt": square_root,
    "reciprocal": lambda x: 1.0 / x,
    "power": _power,
    "power_of_each": lambda a, b: call("powf", a, b),
    "lerp": _lerp,
    "lerp_of_each": lambda a, b, weight: _lerp(weight, a, b),
    "addcmul": lambda value, a, b, c: fma(b, c, a) if value == 1 else fma(b * c, value, a),
    "addcdiv": lambda value, a, b, c: fma(b / c, value, a),
    "add": lambda alpha, a, b: fma(b, alpha, a),
    "add_scaled": lambda a, b, alpha: fma(b, alpha, a),
    "multiply": lambda a, b: a * b,
    "addcmul_of_each": lambda a, b, c, value: fma(b * c, value, a),
    "addcmul_of_one": lambda a, b, c: fma(b, c, a),
    "addcdiv_of_one": lambda a, b, c: a + b / c,
    "addcdiv_of_each": lambda a, b, c, value: fma(b / c, value, a),
    "powf_of_second": lambda x, base: call("powf", base, x),
    "xlogy": _xlogy,
    "log_add_exp": _log_add_exp,
    "log_add_exp2": _log_add_exp2,
    "xlog1py": _xlog1py,
    "logit_within": _logit_within,
    "logit_within_backward": _logit_within_backward,
    "entropy": _entropy,
    "logit_backward": lambda dy, x: choose(x < 0.0, math.nan, choose(x > 1.0, math.nan, dy / (x * (1.0 - x)))),
}
FORMULAS |= ACTIVATIONS | DISTRIBUTIONS | LOSSES | NORMALIZERS | QUOTIENTS
