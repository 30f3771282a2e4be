"""Comparisons of a result with the exact product in float64, and with IEEE f32 accumulation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.isa.codes import decode, to_codes
from fastmma.isa.formats import format_of
from fastmma.isa.instruction import Instruction

Values = NDArray[np.float64]
BYTES = 12  # that a comparison takes for each element of B, which it has in float64 and in float32
IEEE_RULE = "f32, ascending k, each product and each sum rounded to nearest even"


def values_of(elements: NDArray[Any], name: str) -> Values:
    """Elements of a format as float64."""
    return np.asarray(decode(to_codes(elements, name), name), dtype=np.float64)


def _norm(values: Values) -> float:
    """The root of the sum of squares, none of which overflows."""
    largest = float(np.abs(values).max(initial=0.0))
    return largest * float(np.linalg.norm(values / largest)) if largest else 0.0


@dataclass
class Errors:
    """Errors against the exact values, gathered block by block over the results that are finite and whose exact value is finite.

    Those of single elements, relative to their own value, leave out exact values of zero.
    """

    total: float = 0.0
    largest: float = 0.0
    count: int = 0
    error: float = 0.0
    exact: float = 0.0

    def add(self, result: Values, exact: Values) -> None:
        """Take in one block."""
        finite = np.isfinite(result) & np.isfinite(exact)
        self.error = math.hypot(self.error, _norm(result[finite] - exact[finite]))
        self.exact = math.hypot(self.exact, _norm(exact[finite]))
        use = finite & (exact != 0)
        relative = np.abs(result[use] - exact[use]) / np.abs(exact[use])
        self.count += relative.size
        self.total += float(relative.sum())
        self.largest = max(self.largest, float(relative.max(initial=0.0)))

    def summary(self) -> dict[str, Any]:
        """Return what was gathered; the mean, and the error of the whole, are None where there is nothing to divide by."""
        return {
            "relative_error": self.error / self.exact if self.exact else None,
            "max_relative": self.largest,
            "mean_relative": self.total / self.count if self.count else None,
            "compared": self.count,
        }


@dataclass
class Comparison:
    """The comparison of one GEMM, fed with blocks of rows."""

    instruction: Instruction
    dtype: np.dtype[Any]  # of the results
    b: NDArray[Any]
    threads: int
    errors: Errors = field(default_factory=Errors)
    ieee_errors: Errors = field(default_factory=Errors)
    different: int = 0
    not_finite: int = 0
    results: int = 0

    def __post_init__(self) -> None:
        self._exact_b = values_of(self.b, self.instruction.btype)
        # products of f64 do not fit into f32; integers are exact, so that there is no rounding to compare
        self.has_ieee = self.instruction.dtype in ("f32", "f16")
        self._f32_b = self._exact_b.astype(np.float32) if self.has_ieee else None

    def _exact(self, a: Values, c: Values | None) -> Values:
        with np.errstate(all="ignore"):
            product = a @ self._exact_b
            if self.instruction.bit_op == "xor":
                product = a.sum(axis=1)[:, None] + self._exact_b.sum(axis=0)[None, :] - 2 * product
            return product if c is None else product + c

    def _ieee(self, a: Values, c: Values | None) -> Values:
        from fastmma.kernels.fma import ieee_f32

        assert self._f32_b is not None
        start = None if c is None else c.astype(np.float32)
        total = ieee_f32.gemm(a.astype(np.float32), self._f32_b, start, self.threads)
        with np.errstate(over="ignore"):
            return total.astype(self.dtype).astype(np.float64)

    def add(self, a: NDArray[Any], c: NDArray[Any] | None, d: NDArray[Any]) -> None:
        """Take in the rows of A, C and D of one block."""
        ins = self.instruction
        left, start = values_of(a, ins.atype), None if c is None else values_of(c, ins.ctype)
        result = values_of(d, format_of(self.dtype).name)
        exact = self._exact(left, start)
        self.results += result.size
        self.not_finite += int(np.count_nonzero(~np.isfinite(result)))
        self.errors.add(result, exact)
        if self.has_ieee:
            ieee = self._ieee(left, start)
            self.different += int(np.count_nonzero(~((result == ieee) | (np.isnan(result) & np.isnan(ieee)))))
            self.ieee_errors.add(ieee, exact)

    def summary(self) -> dict[str, Any]:
        """Everything that was found, for the report."""
        found: dict[str, Any] = {"results": self.results, "not_finite": self.not_finite}
        found["error"] = {"reference": "the product in float64", **self.errors.summary()}
        if self.has_ieee:
            found["ieee_f32"] = {"rule": IEEE_RULE, "different": self.different, **self.ieee_errors.summary()}
        return found
