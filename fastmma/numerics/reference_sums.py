"""Promotion and epilogue in exact integers: what joins and follows the products of `numerics.reference`, one rounding an operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.isa.formats import FORMATS, Format
from fastmma.kernels.params import FORMULAS, Step
from fastmma.numerics import reference_steps
from fastmma.numerics.arithmetic import CANONICAL_NAN
from fastmma.numerics.reference_steps import Number, fma, ieee_add, number, product, round_to

Codes = NDArray[Any]
_NAN = {**CANONICAL_NAN, "bf16": 0x7FFF}


def _special(value: Number, fmt: Format) -> int:
    """The code of an infinity, or the canonical NaN."""
    if value.special == "nan":
        return _NAN[fmt.name]
    return fmt.first_special | int(value.negative) << (fmt.bits - 1)


def rounded(value: Number, fmt: Format) -> int:
    """The nearest code of a format, ties to even; a zero keeps its sign, NaN is canonical."""
    return reference_steps.record(reference_steps.Step("convert", (value,), _nearest(value, fmt), fmt, "rn"))


def _nearest(value: Number, fmt: Format) -> int:
    if value.special:
        return _special(value, fmt)
    code = round_to(value.significand, value.last, fmt, "rn")
    return code | int(value.negative) << (fmt.bits - 1) if code == 0 else code


def multiply(x: Number, y: Number, fmt: Format) -> int:
    """IEEE multiplication to nearest."""
    return reference_steps.record(reference_steps.Step("multiply", (x, y), _nearest(product(x, y), fmt), fmt, "rn"))


def _promoted(rule: str, partial: Number, total: Number, a: Number, b: Number) -> int:
    """A partial sum joins a total, by f32 operations."""
    f32 = FORMATS["f32"]
    match rule:
        case "add":
            return ieee_add(total, partial, f32)
        case "fma":
            return fma(number(multiply(a, b, f32), f32), partial, total, f32)
        case "multiply-add":
            scaled = multiply(number(multiply(a, b, f32), f32), partial, f32)
        case "fma-each":
            return fma(number(multiply(partial, a, f32), f32), b, total, f32)
        case _:
            scaled = multiply(number(multiply(partial, a, f32), f32), b, f32)
    return ieee_add(total, number(scaled, f32), f32)


def promote(rule: str, partial: Codes, total: Codes, scale_a: Codes | None, scale_b: Codes | None) -> Codes:
    """Partial sums of a chunk of k join the totals: all are f32 codes, (m, n), (m, n), (m,) and (n,); `rule` as in `PROMOTIONS`."""
    f32 = FORMATS["f32"]
    result = np.empty_like(total)
    for i, j in np.ndindex(*total.shape):
        scales = (number(0 if scale is None else int(scale[at]), f32) for scale, at in ((scale_a, i), (scale_b, j)))
        result[i, j] = _promoted(rule, number(int(partial[i, j]), f32), number(int(total[i, j]), f32), *scales)
    return result


def _relu(x: Number, fmt: Format) -> int:
    """The number, or +0 if it is none above zero; NaN is canonical."""
    code = _special(x, fmt) if x.special == "nan" else 0 if x.negative or (not x.special and x.significand == 0) else x.code
    return reference_steps.record(reference_steps.Step("relu", (x,), code, fmt, "rn"))


def _by_formula(operation: str, x: Number, fmt: Format) -> int:
    """A function of one number, by the loop that computes it for many: its table was compared with all results of a GPU."""
    from fastmma.kernels.sums import epilogue

    codes = np.array([[x.code]], np.uint32)
    epilogue.apply_formula(operation, codes, 1)
    return reference_steps.record(reference_steps.Step(operation, (x,), int(codes[0, 0]), fmt, "rn"))


def _apply(operation: str, code: int, first: int, second: int) -> int:
    """One step of an epilogue on f32 codes."""
    f32 = FORMATS["f32"]
    x, y, z = (number(each, f32) for each in (code, first, second))
    if operation in FORMULAS:
        return _by_formula(operation, x, f32)
    match operation:
        case "multiply":
            return multiply(x, y, f32)
        case "add":
            return ieee_add(x, y, f32)
        case "fma":
            return fma(x, y, z, f32)
        case "accumulate":
            return fma(y, z, x, f32)
        case "relu":
            return _relu(x, f32)
        case "convert from s32":
            return rounded(Number((code ^ 1 << 31) - (1 << 31), code=code), f32)
    narrow = FORMATS[operation.removeprefix("round to ")]
    return _nearest(number(rounded(x, narrow), narrow), f32)


def apply(sums: Codes, steps: Sequence[Step]) -> Codes:
    """The steps of an epilogue, one after the other, on f32 codes (M, N)."""
    result = sums.copy()
    for i, j in np.ndindex(*sums.shape):
        for step in steps:
            first, second = (0 if each is None else int(each[i, j].view(np.uint32)) for each in (step.first, step.second))
            result[i, j] = _apply(step.operation, int(result[i, j]), first, second)
    return result


def narrow(sums: Codes, fmt: str) -> Codes:
    """f32 codes as codes of a narrower float format."""
    f32, narrower = FORMATS["f32"], FORMATS[fmt]
    return np.array([rounded(number(int(code), f32), narrower) for code in sums.flat], narrower.code_dtype).reshape(sums.shape)
