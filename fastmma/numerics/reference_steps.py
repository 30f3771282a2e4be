"""Single operations in exact Python integers: numbers, a fused step, an IEEE sum and an fma, each rounded once.

A finite number is an integer significand and the power of two of its last bit. An element of a fused sum also has the *exponent* by
which the silicon aligns it, which is its exponent field and not that of its leading bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from fastmma.isa.formats import Format
from fastmma.numerics.arithmetic import CANONICAL_NAN, Arithmetic

_F32_BOUND = 128  # f32 holds what is below that power of two


class Number(NamedTuple):  # a tuple, which is made in a third of a dataclass' time: a sum makes one a product
    """A decoded element: ``significand * 2**last`` (the significand carries the sign), or a special.

    `exponent` is the unbiased exponent field, a subnormal's being that of the smallest normal number; `negative` also tells -0 from +0.
    """

    significand: int = 0
    last: int = 0
    exponent: int = 0
    negative: bool = False
    special: str = ""  # "inf" or "nan"
    code: int = 0
    cancelled: bool = False  # a zero that is a sum of others: its exponent counts
    ks: tuple[int, ...] = ()  # the k of its products, where steps are watched


@lru_cache(1 << 16)
def number(code: int, fmt: Format) -> Number:
    """Decode one float code."""
    bits = code & ((1 << fmt.bits) - 1)
    code = bits >> fmt.padding
    mantissa = code & ((1 << fmt.mantissa_bits) - 1)
    field = (code >> fmt.mantissa_bits) & ((1 << fmt.exponent_bits) - 1)
    negative = bool(fmt.signed and code >> (fmt.mantissa_bits + fmt.exponent_bits) & 1)
    magnitude = code & ((1 << fmt.magnitude_bits) - 1)
    if fmt.is_special(code):
        infinite = fmt.infinity is not None and magnitude == fmt.first_special
        return Number(negative=negative, special="inf" if infinite else "nan", code=bits)
    hidden = field > 0 or not fmt.has_zero
    significand = mantissa + (1 << fmt.mantissa_bits if hidden else 0)
    exponent = (field if hidden else 1) - fmt.bias
    return Number(-significand if negative else significand, exponent - fmt.mantissa_bits, exponent, negative, code=bits)


def shifted(magnitude: int, shift: int, mode: str) -> int:
    """Round ``magnitude * 2**-shift`` to an integer as `mode` says: toward zero, to nearest even, to odd, or away from zero."""
    if shift <= 0:
        return magnitude << -shift
    whole = magnitude >> shift
    rest = magnitude - (whole << shift)
    match mode:
        case "rn":
            half = 1 << (shift - 1)
            return whole + int(rest > half or (rest == half and whole & 1))
        case "ro":
            return whole | int(rest > 0)
        case "away":
            return whole + int(rest > 0)
    return whole


def _signed_shifted(value: int, shift: int, mode: str) -> int:
    """Round ``value * 2**-shift`` to an integer as `mode` says, ``"rm"`` down."""
    if mode == "rm":
        return value >> shift if shift > 0 else value << -shift
    magnitude = shifted(abs(value), shift, mode)
    return -magnitude if value < 0 else magnitude


def flushed(code: int, fmt: Format) -> int:
    """The code of a float, that of a zero of its sign in place of a subnormal."""
    value = number(code, fmt)
    if value.special or not 0 < abs(value.significand) < 1 << fmt.mantissa_bits:
        return code
    zero = code & 1 << (fmt.magnitude_bits + fmt.padding)
    return 0 if number(zero, fmt).special else zero  # a format may have something else in the place of -0


def round_to(value: int, last: int, fmt: Format, mode: str, keep: int | None = None) -> int:
    """Code of ``value * 2**last`` rounded to a format, subnormals and infinities included; zero is +0.

    `mode` is ``"rn"``, ``"rz"``, ``"ro"``, ``"rm"`` or ``"rp"``. `keep` is how many fraction bits there are to round to, if not the
    format's; with it, whatever the mode, what exceeds the format becomes an infinity, as in tensor cores. Without, IEEE says what does.
    """
    if value == 0:
        return 0
    sign = 1 << (fmt.bits - 1) if value < 0 else 0
    magnitude = abs(value)
    fraction = fmt.mantissa_bits if keep is None else keep
    exponent = max(magnitude.bit_length() - 1 + last, fmt.emin)
    away = (mode == "rm" and sign != 0) or (mode == "rp" and sign == 0)
    whole = shifted(magnitude, exponent - fraction - last, "away" if away else mode)
    if whole >> (fraction + 1):
        whole, exponent = whole >> 1, exponent + 1
    if exponent > fmt.emax:
        stops = keep is None and (mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and sign != 0))
        return sign | (fmt.first_special - 1 if stops else fmt.first_special)
    if whole == 0:
        return 0
    whole <<= fmt.mantissa_bits - fraction
    field = exponent + fmt.bias if whole >> fmt.mantissa_bits else 0
    return sign | field << fmt.mantissa_bits | (whole & ((1 << fmt.mantissa_bits) - 1))


class Step(NamedTuple):
    """One operation that rounds at most once.

    Attributes
    ----------
    operation : str
        ``"fused"``: a fused dot-product-add, whose last term is the accumulator; ``"fma"``, ``"add"``, ``"multiply"`` and ``"convert"``:
        IEEE operations on `terms`; ``"sum"``: an exact sum of integers, the last being the accumulator.
    terms : tuple of Number
    code : int
        The result, in the format `fmt`.
    mode : str
        How it was rounded: ``"rn"``, ``"rz"``, ``"ro"``, ``"rm"`` or ``"rp"``; of integers ``"wrap"`` or ``"saturate"``.
    aligned : tuple of int
        The terms of a fused step after alignment, in units of ``2**last``; empty where a special decides.
    last, emax : int
    """

    operation: str
    terms: tuple[Number, ...]
    code: int
    fmt: Format
    mode: str
    aligned: tuple[int, ...] = ()
    last: int = 0
    emax: int = 0


_SEEN: ContextVar[list[Step] | None] = ContextVar("steps that were watched", default=None)


@contextmanager
def watching() -> Iterator[list[Step]]:
    """Every step that is taken inside, in order, with the k of every product."""
    steps: list[Step] = []
    token = _SEEN.set(steps)
    try:
        yield steps
    finally:
        _SEEN.reset(token)


def watched() -> bool:
    """Tell whether somebody watches."""
    return _SEEN.get() is not None


def record(step: Step) -> int:
    """Show a step to whoever watches, and return its code."""
    steps = _SEEN.get()
    if steps is not None:
        steps.append(step)
    return step.code


def special_sum(specials: Sequence[Number], nan: int, fmt: Format) -> int:
    """The result when a sum has infinite or NaN terms."""
    signs = {each.negative for each in specials}
    if any(each.special == "nan" for each in specials) or len(signs) == 2:
        return nan
    return fmt.first_special | (1 << (fmt.bits - 1) if True in signs else 0)


def product(a: Number, b: Number) -> Number:
    """The exact product; its exponent is the sum of the exponents and is not renormalised."""
    negative = a.negative != b.negative
    if a.special or b.special:
        finite_zero = any(not each.special and each.significand == 0 for each in (a, b))
        nan = "nan" in (a.special, b.special) or finite_zero
        return Number(negative=negative, special="nan" if nan else "inf", ks=a.ks)
    significand, last, exponent = a.significand * b.significand, a.last + b.last, a.exponent + b.exponent
    cancelled = a.cancelled and b.significand != 0
    return Number(significand, last, exponent, negative, "", 0, cancelled, a.ks)


def fused_step(terms: Sequence[Number], arithmetic: Arithmetic, fmt: Format) -> int:
    """One fused dot-product-add: align, sum exactly, round once. Returns the code of the result."""
    return record(_fused_step(tuple(terms), arithmetic, fmt))


def _fused_step(terms: tuple[Number, ...], arithmetic: Arithmetic, fmt: Format) -> Step:
    mode = arithmetic.rounding
    if arithmetic.c_joins != "terms":
        terms = (*(_held(term) for term in terms[:-1]), terms[-1])
    specials = [term for term in terms if term.special]
    if specials:
        return Step("fused", terms, special_sum(specials, CANONICAL_NAN[fmt.name], fmt), fmt, mode)
    if arithmetic.c_joins == "terms":
        emax, last, aligned = _aligned(terms, arithmetic)
        total, end = sum(aligned), last
    else:
        *products, c = terms
        ways = 2 if arithmetic.c_joins == "halves" else 1
        emax, last, aligned, total, end = _joined([_aligned(products[way::ways], arithmetic) for way in range(ways)], c, arithmetic, fmt)
    code = round_to(total, end, fmt, mode, keep=arithmetic.keep_bits)
    code |= 1 << (fmt.bits - 1) if arithmetic.negative_zero and total < 0 and code == 0 else 0
    code = flushed(code, fmt) if arithmetic.flush_results else code
    return Step("fused", terms, code, fmt, mode, tuple(aligned), last, emax)


def _aligned(terms: Sequence[Number], arithmetic: Arithmetic) -> tuple[int, int, list[int]]:
    """Return emax, the power of two of the unit, and terms in units."""
    emax = max([term.exponent for term in terms if term.significand or term.cancelled], default=arithmetic.emax_floor)
    emax = max(emax, arithmetic.emax_floor)
    last = emax - arithmetic.align_bits
    if arithmetic.align_rounding == "exact":
        last = min((term.last for term in terms if term.significand), default=0)
    return emax, last, [_signed_shifted(term.significand, last - term.last, arithmetic.align_rounding) for term in terms]


def _held(term: Number) -> Number:
    """A product, which is an infinity where f32 cannot hold it."""
    return term._replace(special="inf") if not term.special and abs(term.significand).bit_length() + term.last > _F32_BOUND else term


_Aligned = tuple[int, int, list[int]]


def _both(halves: Sequence[_Aligned], arithmetic: Arithmetic) -> tuple[int, int, int]:
    """Return emax of sums that join, the power of two of a unit, and the sum in units; of one alone, as it is."""
    emax = max(half[0] for half in halves)
    if len(halves) == 1:
        return emax, halves[0][1], sum(halves[0][2])
    last = emax - arithmetic.align_bits
    return emax, last, sum(_signed_shifted(sum(terms), last - unit, "rm") for _, unit, terms in halves)


def _joined(halves: Sequence[_Aligned], c: Number, arithmetic: Arithmetic, fmt: Format) -> tuple[int, int, list[int], int, int]:
    """Let c join the sum of products.

    Return emax, the power of two of a unit of all terms, the terms in it, and what they add up to, with the power of two of its last bit.
    """
    emax, last, products = _both(halves, arithmetic)
    emax = max(emax, c.exponent)
    sum_last, c_last = emax - arithmetic.join_bits - 1, emax - arithmetic.align_bits
    counts = arithmetic.c_joins == "sum" or c.exponent >= c_last - 1
    kept = _signed_shifted(products, sum_last - last, "rm"), _signed_shifted(c.significand, c_last - c.last, "rm") if counts else 0
    end = min(sum_last, c_last)
    total = (kept[0] << (sum_last - end)) + (kept[1] << (c_last - end))
    cut = max(max(abs(total).bit_length() - 1 + end, fmt.emin) - arithmetic.join_bits, end)
    unit = min(c_last, *(half[1] for half in halves))
    columns = [[each << (half[1] - unit) for each in half[2]] for half in halves]
    terms = [each for together in zip_longest(*columns) for each in together if each is not None]
    return emax, unit, [*terms, kept[1] << (c_last - unit)], total >> (cut - end), cut


def ieee_add(x: Number, y: Number, fmt: Format, mode: str = "rn") -> int:
    """IEEE addition; NaN is canonical."""
    return record(Step("add", (x, y), _ieee_sum(x, y, fmt, mode), fmt, mode))


def _ieee_sum(x: Number, y: Number, fmt: Format, mode: str) -> int:
    specials = [each for each in (x, y) if each.special]
    if specials:
        return special_sum(specials, CANONICAL_NAN[fmt.name], fmt)
    last = min(x.last, y.last)
    total = (x.significand << (x.last - last)) + (y.significand << (y.last - last))
    if total == 0:
        both_negative = x.negative and y.negative
        one_negative = x.negative or y.negative
        return 1 << (fmt.bits - 1) if both_negative or (mode == "rm" and one_negative) else 0
    code = round_to(total, last, fmt, mode)
    return code | 1 << (fmt.bits - 1) if code == 0 and total < 0 else code


def fma(a: Number, b: Number, c: Number, fmt: Format, mode: str = "rn") -> int:
    """IEEE fused multiply-add. NaN is canonical in f32; in f64 the first NaN of b, c and a comes through, made quiet."""
    if fmt.name == "f64":
        for each in (b, c, a):
            if each.special == "nan":
                return record(Step("fma", (a, b, c), each.code | 1 << (fmt.mantissa_bits - 1), fmt, mode))
    return record(Step("fma", (a, b, c), _ieee_sum(product(a, b), c, fmt, mode), fmt, mode))
