"""Distances of a product from exact ones: gathered block by block, so that a block is all that is held in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.calls import public_call
from fastmma.isa.formats import Format

Values = NDArray[np.float64]
Metric = float | int | list[int] | None
# bins of the ULP histogram: up to 0.5, 1, 2, 4, ... and the last without end
ULP_EDGES: tuple[float, ...] = (0.5, *(float(1 << power) for power in range(24)))
_MOST = 1 << 63
_DIGITS = 10  # beyond them the order shows in which float64 sums were taken


def ulp(values: Values, fmt: Format) -> Values:
    """The distance of neighbouring numbers of a format at each value: that of the value's binade, and never below the subnormals'.

    Examples
    --------
    >>> from fastmma.isa.formats import FORMATS
    >>> ulp(np.array([1.0, -3.0, 0.0]), FORMATS["f16"]).tolist()
    [0.0009765625, 0.001953125, 5.960464477539063e-08]
    """
    _, exponent = np.frexp(values)
    exponent = np.where(values == 0, fmt.emin, np.clip(exponent - 1, fmt.emin, fmt.emax))
    return np.asarray(np.ldexp(1.0, exponent - fmt.mantissa_bits))


def ratio(part: float, whole: float) -> float | None:
    """``part / whole``; 0 when both are zero, None when only the whole is."""
    if whole == 0:
        return 0.0 if part == 0 else None
    return part / whole


def decibels(relative: float | None) -> float | None:
    """A relative error as a signal-to-noise ratio in dB; None where it is infinite or there is none.

    Examples
    --------
    >>> decibels(0.01)
    40.0
    """
    return None if not relative else -20 * math.log10(relative)


def _round(value: Metric) -> Metric:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


@dataclass
class Metrics:
    """The errors of one case, over all results given to `add`.

    With d the result, q the exact product of the operands as the instruction receives them (dequantised) and x the exact product of the
    operands before they were quantised:

    =======================  ==========================================================================================================
    ``relative_error``       ‖d - x‖ / ‖x‖ in the Frobenius norm: everything together
    ``quantisation_error``   ‖q - x‖ / ‖x‖: what the formats cost
    ``accumulation_error``   ‖d - q‖ / ‖x‖: what the tensor core's sums cost
    ``sqnr_db``              -20 log₁₀ of ``relative_error``
    ``cosine``               ⟨d, x⟩ / (‖d‖ ‖x‖)
    ``max_ulp, mean_ulp``    of |d - q| in units of the output format's last place at q, over q ≠ 0: one sum that cancels would decide both
    ``ulp_histogram``        how many results lie up to 0.5, 1, 2, 4, ... 2**23 ULP, and beyond, those with q = 0 too
    ``max_relative``         the largest |d - q| / |q| over q ≠ 0; where sums cancel it is large whatever the arithmetic
    ``max_error``            the largest |d - q| over the root mean square of q
    ``bias``                 mean of d - q over the mean of |q|
    ``shrinkage``            mean of (q - d) sign(q) over the mean of |q|: above zero when magnitudes shrink, as truncation makes them
    =======================  ==========================================================================================================

    Results of which d, q or x is infinite or NaN are left out of all of these and counted in ``left_out``; those of them in which d and q
    are not the same infinity, or not both NaN, are counted in ``special_mismatches``. A metric is None when nothing was compared or when it
    would be infinite (a nonzero error over a product of zeros; the SQNR of no error); 0 / 0 counts as 0.

    Products q are exact up to one rounding to float64 (two where tensors have scales) if the record says ``exact``; products x are float64
    products, within ``K * 2**-53`` times the product of magnitudes.
    """

    output: Format
    compared: int = 0
    left_out: int = 0
    special_mismatches: int = 0
    _total: float = 0.0
    _quantisation: float = 0.0
    _accumulation: float = 0.0
    _x2: float = 0.0
    _q2: float = 0.0
    _d2: float = 0.0
    _dx: float = 0.0
    _ulps: float = 0.0
    _max_ulp: float = 0.0
    _max_relative: float = 0.0
    _max_error: float = 0.0
    _signed: float = 0.0
    _shrunk: float = 0.0
    _magnitude: float = 0.0
    _nonzero: int = 0
    _histogram: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(ULP_EDGES) + 1, dtype=np.int64))

    @public_call
    def add(self, result: Values, dequantised: Values, original: Values) -> None:
        """Take in the results of one block, with the exact product of the dequantised and of the original operands."""
        use = np.isfinite(result) & np.isfinite(dequantised) & np.isfinite(original)
        special = ~(np.isfinite(result) & np.isfinite(dequantised))
        same = (result == dequantised) | (np.isnan(result) & np.isnan(dequantised))
        self.special_mismatches += int(np.count_nonzero(special & ~same))
        self.left_out += int(np.count_nonzero(~use))
        d, q, x = result[use], dequantised[use], original[use]
        self.compared += d.size
        error, magnitude = d - q, np.abs(q)
        self._total += float(np.square(d - x).sum())
        self._quantisation += float(np.square(q - x).sum())
        self._accumulation += float(np.square(error).sum())
        self._x2 += float(np.square(x).sum())
        self._q2 += float(np.square(q).sum())
        self._d2 += float(np.square(d).sum())
        self._dx += float((d * x).sum())
        self._signed += float(error.sum())
        self._shrunk -= float((error * np.sign(q)).sum())
        self._magnitude += float(magnitude.sum())
        absolute = np.abs(error)
        ulps = absolute / ulp(q, self.output)
        nonzero = magnitude > 0
        self._nonzero += int(np.count_nonzero(nonzero))
        self._ulps += float(ulps[nonzero].sum())
        self._max_ulp = max(self._max_ulp, float(ulps[nonzero].max(initial=0.0)))
        self._max_error = max(self._max_error, float(absolute.max(initial=0.0)))
        self._max_relative = max(self._max_relative, float((absolute[nonzero] / magnitude[nonzero]).max(initial=0.0)))
        self._histogram += np.bincount(np.searchsorted(ULP_EDGES, ulps), minlength=len(self._histogram))

    @public_call
    def summary(self) -> dict[str, Metric]:
        """Every metric by name, with ten significant digits."""
        found: dict[str, Metric] = dict.fromkeys(METRICS)
        found |= {"compared": self.compared, "left_out": self.left_out, "special_mismatches": self.special_mismatches}
        if not self.compared:
            return found
        norm = math.sqrt(self._x2)
        relative = ratio(math.sqrt(self._total), norm)
        found |= {
            "relative_error": relative,
            "quantisation_error": ratio(math.sqrt(self._quantisation), norm),
            "accumulation_error": ratio(math.sqrt(self._accumulation), norm),
            "sqnr_db": decibels(relative),
            "cosine": self._dx / math.sqrt(self._d2 * self._x2) if self._d2 and self._x2 else None,
            "max_ulp": self._max_ulp if self._nonzero else ratio(self._max_error, 0.0),
            "mean_ulp": ratio(self._ulps if self._nonzero else self._max_error, self._nonzero),
            "ulp_histogram": self._histogram.tolist(),
            "max_relative": self._max_relative,
            "max_error": ratio(self._max_error, math.sqrt(self._q2 / self.compared)),
            "bias": ratio(self._signed, self._magnitude),
            "shrinkage": ratio(self._shrunk, self._magnitude),
        }
        return {name: _round(value) for name, value in found.items()}


METRICS: tuple[str, ...] = (
    "relative_error",
    "quantisation_error",
    "accumulation_error",
    "sqnr_db",
    "cosine",
    "max_ulp",
    "mean_ulp",
    "max_relative",
    "max_error",
    "bias",
    "shrinkage",
    "compared",
    "left_out",
    "special_mismatches",
    "ulp_histogram",
)
_COUNTS = ("compared", "left_out", "special_mismatches")


def are_metrics(found: Mapping[str, Any]) -> bool:
    """Tell whether all metrics are there, of the types and lengths that `Metrics.summary` gives them."""
    counts = found.get("ulp_histogram")
    bins = [0] * (len(ULP_EDGES) + 1) if counts is None else counts
    measured = [found.get(name) for name in METRICS if name not in (*_COUNTS, "ulp_histogram")]
    return (
        isinstance(bins, list)
        and len(bins) == len(ULP_EDGES) + 1
        and all(type(count) is int and 0 <= count < _MOST for count in (*bins, *(found.get(name) for name in _COUNTS)))
        and all(value is None or type(value) is float for value in measured)
    )
