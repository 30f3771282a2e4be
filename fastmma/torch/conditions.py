"""Conditions under which an operator is not neutral: operands for which a GPU takes other steps, or leaves a choice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

HALVES = frozenset({torch.float16, torch.bfloat16})
FLOATS = HALVES | {torch.float32, torch.float64}
RECORDED = frozenset({torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64})
REAL = FLOATS | RECORDED | {torch.uint16, torch.uint32, torch.uint64, torch.bool}
Unless = Callable[[tuple[Any, ...], dict[str, Any]], "str | None"]
_COMPLEX = "complex numbers, whose parts a GPU multiplies and adds by fma"
_OTHER = "not compared for this dtype or layout"
_NUMBER = "a GPU takes a number of float32, and rounds a tensor without dimensions to 16 bits; this one has other bits then"
_RECIPROCAL = "a GPU multiplies by the reciprocal of a number"
ZERO = "it depends on the machine which of 0 and -0 is the larger"
_ROUNDED = "MKL's square root is not the nearest number, as a GPU's is"
_RANGE = "the integers do not hold all these numbers: a GPU then gives others than a CPU"
DRAWN = "a GPU draws other numbers"
ORDER = "the order of equal elements is up to the machine"
SCALE = "a GPU multiplies and adds in one fma where the factor is not 1"
_UNDERIVED = "PyTorch 2.11, whose bits are recorded, has no gradient of it"
_NEGATIVE = "torch copies a view of negatives below autograd, where a gradient of it takes other steps than on a GPU"
_E4M3 = "numbers above 464 become NaN in some versions of PyTorch, and 448 in others"


def real(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why an operator of real numbers is not neutral: a tensor is complex, quantised or sparse."""
    for each in args:
        if isinstance(each, Tensor) and not (each.dtype in REAL and each.layout is torch.strided):
            return _COMPLEX if each.dtype.is_complex else _OTHER
    return None


def _alike(x: Tensor, y: Any) -> bool:
    """Are two tensors plain, and of one dtype of floating-point numbers? They mostly are."""
    if not isinstance(y, Tensor):
        return False
    dtype = x.dtype
    return dtype is y.dtype and dtype in FLOATS and x.layout is torch.strided is y.layout


def _holds(dtype: torch.dtype, value: Any) -> bool:
    """Is a number one of a dtype?"""
    number = float(value)
    return number != number or float(torch.tensor(number, dtype=torch.float64).to(dtype)) == number


def _numbers(args: tuple[Any, ...], exact: bool) -> str | None:
    """Say why a number, or a tensor without dimensions, has other bits on a GPU; `exact`: a number counts, too."""
    x, y = args[0], args[1]
    if not isinstance(y, Tensor):
        if isinstance(y, complex):
            return _COMPLEX
        return _NUMBER if exact and x.dtype in HALVES and not _holds(x.dtype, y) else None
    if x.dtype is y.dtype or (x.dim() and y.dim()):
        return None
    common, lone = torch.result_type(x, y), x if x.dim() == 0 else y
    if common not in HALVES or lone.dtype is common or lone.is_meta:
        return None
    return None if _holds(common, lone.item()) else _NUMBER


def summed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a sum or a difference is not neutral."""
    x, y = args[0], args[1]
    if not kwargs and _alike(x, y) and len(args) == 2:
        return None
    alpha = kwargs.get("alpha", 1) if kwargs or len(args) < 3 else args[2]
    if alpha not in (1, -1) and not (is_whole(x) and (is_whole(y) or isinstance(y, int))):
        return SCALE
    return real(args, kwargs) or _numbers(args, True)


def multiplied(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a product of elements is not neutral."""
    if _alike(args[0], args[1]):
        return None
    return real(args, kwargs) or _numbers(args, False)


def divided(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a quotient is not neutral."""
    x, y = args[0], args[1]
    if kwargs.get("rounding_mode") is not None:
        return None if is_whole(x) and (is_whole(y) or isinstance(y, int)) else "the rounding of quotients to integers takes several steps"
    if isinstance(y, complex):
        return _COMPLEX
    if not isinstance(y, Tensor) or (y.dim() == 0 and not y.is_meta and y.dtype in REAL):
        fraction, exponent = math.frexp(abs(float(y)))
        if fraction != 0.5 or abs(exponent) > 100:  # its reciprocal is exact, else
            return _RECIPROCAL
    return real(args, kwargs) or _numbers(args, False)


def powered(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a power is not neutral: it is a product, or a reciprocal, of few."""
    x, power = args[0], args[1]
    if isinstance(power, Tensor) or not isinstance(x, Tensor):
        return "a GPU approximates powers"
    if is_whole(x) and isinstance(power, int) and power >= 0:
        return None
    if power in (0, 1, 2, -1) or (power == 3 and x.dtype in (torch.float32, torch.float64)):
        return real(args, kwargs)
    return "a GPU approximates powers, and rounds between products of 16 bits"


def rooted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a square root is not neutral."""
    return None if args[0].dtype in HALVES or args[0].device.type == "cuda" else _ROUNDED


def _both_zeros(args: tuple[Any, ...]) -> bool:
    """Are there zeros of both signs among floating-point numbers?"""
    numbers = [each for each in args if isinstance(each, Tensor) and each.is_floating_point() and not each.is_meta]
    zeros = [(each, torch.logical_not(each)) for each in numbers if each.numel()]
    # a maximum of bytes takes a small part of the time that `any` takes
    signs = [torch.signbit(each[where]) for each, where in zeros if bool(where.view(torch.uint8).amax())]
    return any(bool(each.any()) for each in signs) and not all(bool(each.all()) for each in signs)


def largest(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a maximum or minimum is not neutral."""
    return real(args, kwargs) or (ZERO if _both_zeros(args) else None)


def underived(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why an operator whose gradient is newer than the recordings is not neutral."""
    return _UNDERIVED if any(isinstance(each, Tensor) and each.requires_grad for each in args) else real(args, kwargs)


def negated(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a view of negatives is not neutral."""
    return _NEGATIVE if args[0].dtype in FLOATS else real(args, kwargs)


def both_ends(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a minimum and a maximum at once are not neutral."""
    return underived(args, kwargs) or largest(args, kwargs)


def clamped(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why numbers within bounds are not neutral."""
    if any(isinstance(each, Tensor) for each in args[1:]):
        return largest(args, kwargs)
    high = args[2] if len(args) > 2 else None
    return ZERO if high == 0 and args[0].dtype in FLOATS else real(args, kwargs)


def cut_above(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why numbers below a bound are not neutral."""
    return clamped((args[0], None, args[1]), kwargs)


def thresholded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a comparison with a threshold is not neutral: a GPU rounds the threshold."""
    bound = next(each for each in args[1:] if not isinstance(each, Tensor))
    return real(args, kwargs) or (None if args[0].dtype not in HALVES or _holds(args[0].dtype, bound) else _NUMBER)


def signed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why signs are not neutral: those of NaNs are lost when a GPU widens them."""
    source = args[-1]
    if isinstance(source, Tensor) and source.is_floating_point() and not source.is_meta and source.isnan().any():
        return "which sign a NaN has is up to the machine"
    return real(args, kwargs)


def without_nan(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a gradient within bounds is not neutral."""
    if not args[1].is_meta and args[1].isnan().any():
        return "where a number is NaN, a GPU passes the gradient on"
    return real(args, kwargs)


def cast(source: Tensor, to: torch.dtype) -> str | None:
    """Say why a conversion is not neutral."""
    if source.dtype is to or source.is_meta or to.is_complex or not source.is_floating_point() or to is torch.bool:
        return None
    if to is torch.float8_e4m3fn:
        return _E4M3 if bool((source.abs().to(torch.float32) > 464).any()) else None
    if to.is_floating_point:
        return None
    if to not in RECORDED:
        return _OTHER
    info, wide = torch.iinfo(to), source.to(torch.float64)
    return None if bool(((wide > info.min - 1.0) & (wide < float(info.max) + (to.itemsize < 8))).all()) else _RANGE


def copied(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a copy into another tensor is not neutral."""
    return cast(args[1], args[0].dtype)


def converted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a copy in another dtype is not neutral."""
    return cast(args[0], kwargs.get("dtype") or args[0].dtype)


def all_copied(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why copies into other tensors are not neutral."""
    return next(filter(None, map(cast, args[1], [each.dtype for each in args[0]])), None)


def topped(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why the largest elements are not neutral: one that is equal to another of them, or to the next, may have any place."""
    x, count = args[:2]
    rest = (*args[2:], *(-1, True, True)[len(args) - 2 :])
    dim, largest, in_order = rest[0], rest[1], rest[2]
    if x.is_meta or not x.dim():
        return None
    if not in_order or (x.is_floating_point() and bool(x.isnan().any())):
        return ORDER
    values = x.sort(dim, descending=largest).values.narrow(dim, 0, min(count + 1, x.shape[dim]))
    return ORDER if bool((values.diff(dim=dim) == 0).any()) else real(args, kwargs)


def ordered(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why sorted elements are not neutral: their places are told, too."""
    return (None if kwargs.get("stable") else ORDER) or real(args, kwargs)


def united(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why distinct elements are not neutral."""
    if len(args) > 1 and not args[1]:
        return ORDER
    if not args[0].is_floating_point():
        return None
    negative = args[0][args[0] == 0].signbit()
    return ZERO if negative.any() and not negative.all() else None


def counted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why a row of numbers is not neutral: a GPU multiplies and adds by fma, which is exact for small integers only."""
    dtype = kwargs.get("dtype") or (torch.get_default_dtype() if any(isinstance(each, float) for each in args) else torch.int64)
    if dtype not in FLOATS:
        return None
    most = 2.0 / torch.finfo(dtype).eps
    return None if all(float(each).is_integer() and abs(each) <= most for each in args) else "a GPU computes each number by an fma"


def unreduced(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why losses are not neutral: they are summed."""
    return real(args, kwargs) if len(args) > 2 and args[2] == 0 else "a GPU sums in another order"


def rounded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Say why numbers rounded to integers are not neutral."""
    return "a GPU rounds to decimals by other steps" if kwargs.get("decimals") else real(args, kwargs)


def is_empty(args: tuple[Any, ...]) -> bool:
    """Has the first tensor no elements, so that nothing is computed?"""
    first = next((each for each in args if isinstance(each, Tensor)), None)
    return first is not None and not first.numel()


def is_whole(*values: Any) -> bool:
    """Are all tensors among values, and in lists of them, of integers?"""
    found = False
    for value in reversed(values):  # a result tells most
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, Tensor):
                if each.is_floating_point() or each.is_complex() or each.dtype not in REAL:
                    return False
                found = True
    return found
