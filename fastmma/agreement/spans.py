"""The spans of values: which exponents and bits products and sums can have, so that some losses cannot happen."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from fastmma.agreement.form import StepRule
from fastmma.isa.formats import FORMATS, Format
from fastmma.numerics.arithmetic import NO_FLOOR

_HELD = 128  # a product of that power of two is an infinity where c joins a sum


class Span(NamedTuple):
    """The values that there can be, beside zero, infinities and NaNs.

    Attributes
    ----------
    low, high : int
        The exponents by which they are aligned.
    fraction : int
        How many bits one has below its exponent, at most.
    unit : int
        All are multiples of ``2**unit``.
    most : int or None
        The largest magnitude, in units; None where it is that of the format.
    """

    low: int
    high: int
    fraction: int
    unit: int
    most: int | None

    def times(self, other: Span) -> Span:
        """Return the span of products."""
        most = None if self.most is None or other.most is None else self.most * other.most
        return Span(self.low + other.low, self.high + other.high, self.fraction + other.fraction, self.unit + other.unit, most)


@lru_cache(256)
def span_of(fmt: Format, wide: Format | None = None) -> Span:
    """Return the span of a format's values, as another one that has them all holds them.

    Examples
    --------
    >>> span_of(FORMATS["e2m1"])
    Span(low=0, high=2, fraction=1, unit=-1, most=12)
    >>> span_of(FORMATS["e4m3"], FORMATS["f16"]).low
    -9
    """
    unit, fraction = fmt.emin - fmt.mantissa_bits, fmt.mantissa_bits
    largest = fmt.first_special - 1
    hidden = (1 << fraction) if fmt.has_zero or fraction else 1
    most = (largest % hidden + hidden) << (fmt.emax - fmt.emin) if fraction else 1 << (fmt.emax - fmt.emin)
    low = fmt.emin if wide is None else max(unit, wide.emin)
    return Span(low, fmt.emax, fraction, unit, most)


def sum_span(fmt: Format, unit: int, most: int | None) -> Span:
    """Return the span of sums in a format that are multiples of a unit, and no larger than so many."""
    least = fmt.emin - fmt.mantissa_bits
    if unit < least:
        unit, most = least, None if most is None else (most >> (least - unit)) + 1
    high = fmt.emax if most is None else min(fmt.emax, max(most.bit_length() - 1 + unit, fmt.emin))
    return Span(min(max(fmt.emin, unit), high), high, fmt.mantissa_bits, unit, most)


def holds(fmt: Format, span: Span, bits: int | None = None) -> bool:
    """Tell whether a format has every multiple of a span's unit up to its largest; of so many bits at most, where that is known.

    Examples
    --------
    >>> products = span_of(FORMATS["e2m1"]).times(span_of(FORMATS["e2m1"]))
    >>> holds(FORMATS["f32"], products), holds(FORMATS["bf16"], products), holds(FORMATS["bf16"], products, 4)
    (True, True, True)
    """
    if span.most is None:
        return False
    needed = span.most.bit_length() if bits is None else bits
    fits = needed <= fmt.mantissa_bits + 1 or (bits is None and span.most == 1 << (fmt.mantissa_bits + 1))
    return fits and span.unit >= fmt.emin - fmt.mantissa_bits and span.most.bit_length() + span.unit <= fmt.emax + 1


def keeps(rule: StepRule, before: Span) -> bool:
    """Tell whether a step without terms leaves any value of a span as it is."""
    if rule.flush_before and before.unit < FORMATS[rule.sums].emin:
        return False
    last = max(before.unit, FORMATS[rule.sums].emin - before.fraction)
    aligned = rule.align_rounding == "exact" or (rule.align_bits >= before.fraction and rule.emax_floor - rule.align_bits <= last)
    joins = rule.c_joins == "terms" or (rule.join_bits >= before.fraction and rule.align_bits >= before.fraction)
    joins &= rule.c_joins == "terms" or rule.emax_floor - min(rule.align_bits, rule.join_bits) <= last
    return aligned and joins and rule.keep_bits >= before.fraction


class Reached(NamedTuple):
    """A step's rule without what cannot show, and the span of its results."""

    rule: StepRule
    span: Span


@lru_cache(1 << 14)
def reach(rule: StepRule, count: int, term: Span, before: Span | None) -> Reached:
    """Return what of a rule can show in a step of so many products, where the value before it has a span, or is zero.

    Only a fused step whose exponents are those of its products, and whose c is a term, is looked into.
    """
    fmt, keep = FORMATS[rule.sums], rule.keep_bits
    spans = [term] if before is None else [term, before]
    unit, low, high = min(each.unit for each in spans), min(each.low for each in spans), max(each.high for each in spans)
    most: int | None = 0
    for each, times in zip(spans, (count, 1), strict=False):
        most = None if most is None or each.most is None else most + (times * each.most << (each.unit - unit))
    if rule.method == "fused":
        rule = _c_as_term(rule, fmt, count, spans, unit, high, most)
    floor, align_bits, as_term = rule.emax_floor, rule.align_bits, rule.method == "fused" and rule.c_joins == "terms"
    as_term &= rule.align_rounding != "exact"
    if rule.method == "fused" and rule.c_joins == "terms":
        rule = _aligned(rule, fmt, count, spans, unit, low, high)
        rule = _rounded(rule, fmt, count, spans, unit, low, most)
    lifted = max(low, floor) - align_bits - unit  # aligned terms, and their sums, are multiples of that
    if as_term and lifted > 0:
        unit, most = unit + lifted, None if most is None else (most >> lifted) + 1
    if most is not None and not rule.is_exact:
        if rule.align_rounding not in ("rz", "exact"):  # a term may grow to a unit, which is 2**emax at most
            most = 2 * most + ((count + 1) << max(max(high, rule.emax_floor) - unit, 0))
        most = 1 << most.bit_length()  # to which a rounding may take it
    return Reached(rule, sum_span(fmt, unit, most)._replace(fraction=keep))


def _c_as_term(rule: StepRule, fmt: Format, count: int, spans: list[Span], unit: int, high: int, most: int | None) -> StepRule:
    """Let c be a term where it joins a sum without any loss, or there is none."""
    held = spans[0].most is not None and spans[0].most.bit_length() + spans[0].unit <= _HELD
    if rule.c_joins != "sum" or not held or fmt.emin - rule.join_bits - 1 > unit:
        return rule
    if spans[0].high + 1 >= FORMATS["f32"].emax:  # a product that f32 cannot hold is an infinity where c joins a sum
        return rule
    lonely = len(spans) == 1 and rule.c_joins == "sum"
    exact = rule.align_rounding == "exact" or max(high, rule.emax_floor, fmt.emin) - rule.align_bits <= unit
    wide = (
        max(high, rule.emax_floor, fmt.emin) - rule.join_bits - 1 <= unit and most is not None and most.bit_length() <= rule.join_bits + 1
    )
    alone = lonely and 4 * count << rule.align_bits <= 1 << rule.join_bits and rule.align_rounding != "exact"
    alone |= lonely and count == 1 and exact and spans[0].fraction + 1 <= rule.join_bits
    joins = (exact and wide and high - rule.align_bits <= unit) or alone
    return replace(rule, c_joins="terms", join_bits=0) if joins else rule


def _aligned(rule: StepRule, fmt: Format, count: int, spans: list[Span], unit: int, low: int, high: int) -> StepRule:
    """Leave out a floor of exponents, or an alignment, that takes no bits."""
    least: float = unit
    alone = count == len(spans) == 1 and rule.align_bits >= spans[0].fraction
    if alone and not rule.negative_zero:
        least = max(unit, fmt.emin - rule.keep_bits - _bits_below(rule, spans[0].fraction))
    above = rule.emax_floor - rule.align_bits <= least
    if rule.align_rounding == "exact" or (above and (alone or high - rule.align_bits <= unit)):
        # exponents do not count where nothing is lost
        return replace(rule, align_rounding="exact", align_bits=0, emax_floor=NO_FLOOR, group=1, widened="", native_c=False)
    return replace(rule, emax_floor=NO_FLOOR) if above or rule.emax_floor <= low else rule


def _bits_below(rule: StepRule, fraction: int) -> float:
    """Return how many bits below the smallest result an alignment must leave of one product, so that what it takes cannot show."""
    if rule.rounding == "rz" and rule.align_rounding in ("rz", "ro"):  # it is truncated twice
        return int(rule.align_rounding == "ro")
    if rule.rounding in ("rz", "rn") and rule.align_rounding != "rm":  # what loses bits is below half the smallest result, and becomes zero
        return 1 + fraction + 1
    return math.inf


def _rounded(rule: StepRule, fmt: Format, count: int, spans: list[Span], unit: int, low: int, most: int | None) -> StepRule:
    """Leave out a rounding that takes no bits, as the sums of aligned terms have few."""
    keep = rule.keep_bits
    if rule.align_rounding == "exact":
        fits = most is not None and most <= 1 << (keep + 1)
        fits |= count == len(spans) == 1 and spans[0].fraction + 2 <= keep + 1
    else:
        # a product is less than 4 times two to its exponent, and c less than 2 times
        fits = (4 * count + 2 * (len(spans) - 1)) << rule.align_bits <= 1 << (keep + 1)
        unit = max(unit, max(low, rule.emax_floor) - rule.align_bits)
    flushes = rule.flush_results and unit < fmt.emin
    if not fits or unit < fmt.emin - keep:
        return replace(rule, flush_results=flushes)
    return replace(rule, rounding="exact", keep_bits=0, flush_results=flushes, negative_zero=False)
