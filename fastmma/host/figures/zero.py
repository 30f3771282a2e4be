"""Logarithmic axes that show zeros, in a band of their own below everything else."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from fastmma.host.figures.style import BAND, EDGE, SMALL

_MARGIN = 1.6  # the factor by which an axis goes beyond its values
_GAP = 6.0  # the factor from the least value to a zero
_MOST_DECADES = 8  # that are all labelled
_STEPS = (1, 2, 5)


class Scale(NamedTuple):
    """A scale: places of values on an axis.

    Attributes
    ----------
    low, high : float
        Its limits.
    zero : float or None
        Where zeros lie; None where there are none.
    """

    low: float
    high: float
    zero: float | None

    def place(self, value: float) -> float:
        """A value's, or that of zeros."""
        return value if value or self.zero is None else self.zero


def scale_of(values: Iterable[float]) -> Scale:
    """The limits of an axis of values that are not negative.

    Examples
    --------
    >>> scale_of([0.0, 0.001, 0.1]).place(0.0) < 0.001 == scale_of([0.001]).place(0.001)
    True
    """
    found = list(values)
    positive = [value for value in found if value > 0] or [1e-7, 1e-6]
    least, most = min(positive), max(positive)
    zero = least / _GAP if len(positive) < len(found) or not any(found) else None
    return Scale((zero or least) / _MARGIN, most * _MARGIN, zero)


def _ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    inside = [10.0**power for power in range(first, last + 1) if low <= 10.0**power <= high]
    if len(inside) < 3:
        return [step * 10.0**power for power in range(first, last + 1) for step in _STEPS if low <= step * 10.0**power <= high]
    return inside[:: math.ceil(len(inside) / _MOST_DECADES)]


def _label(value: float) -> str:
    power = math.floor(math.log10(value) + 1e-9)
    digit = round(value / 10.0**power)
    return f"$10^{{{power}}}$" if digit == 1 else f"${digit} \\times 10^{{{power}}}$"


def set_scale(axis: Any, scale: Scale) -> None:
    """Make an axis of a panel logarithmic, with a band for zeros where there are any.

    Parameters
    ----------
    axis : XAxis or YAxis
    scale : Scale
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    panel, vertical = axis.axes, axis.axis_name == "y"
    (panel.set_yscale if vertical else panel.set_xscale)("log")
    (panel.set_ylim if vertical else panel.set_xlim)(scale.low, scale.high)
    edge = scale.low if scale.zero is None else scale.zero * math.sqrt(_GAP)
    ticks = _ticks(edge, scale.high)
    zeros = [] if scale.zero is None else [scale.zero]
    axis.set_major_locator(FixedLocator([*zeros, *ticks]))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels(["0"] * len(zeros) + [_label(tick) for tick in ticks])
    axis.grid(True, alpha=0.7)
    panel.set_axisbelow(True)
    if zeros:
        (panel.axhspan if vertical else panel.axvspan)(scale.low, edge, color=BAND, zorder=0)
        if vertical:
            panel.text(0.995, edge, "exact", transform=panel.get_yaxis_transform(), fontsize=SMALL, color=EDGE, ha="right", va="bottom")
