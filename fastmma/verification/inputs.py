"""Operands that are hard for an emulator: distributions of codes that reach every rule of the arithmetic, reproducible from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.isa.formats import Format, format_of
from fastmma.verification.stream import Stream


@dataclass(frozen=True)
class Exponents:
    """A range of exponent fields, each end relative to 0 ("low"), to the bias ("middle") or to the largest finite field ("high")."""

    first: tuple[str, int]
    last: tuple[str, int]
    edges: bool = False  # only mantissas at the edges: zero, one, all ones, the half

    def range(self, fmt: Format) -> tuple[int, int]:
        """First and last exponent field."""
        origin = {"low": 0, "middle": fmt.bias, "high": fmt.emax + fmt.bias}
        top = fmt.emax + fmt.bias
        first, last = (min(max(origin[where] + offset, 0), top) for where, offset in (self.first, self.last))
        return first, max(first, last)


# float distributions that are ranges of exponents; wide formats have exponents that no product of narrow ones reaches
_RANGES = {
    "wide": Exponents(("low", 0), ("high", 0)),
    "mid": Exponents(("middle", -8), ("middle", 8)),
    "align": Exponents(("middle", -14), ("middle", 14), edges=True),
    "cancel": Exponents(("middle", 0), ("middle", 1), edges=True),
    "tiny": Exponents(("low", 0), ("low", 4)),
    "small": Exponents(("low", 0), ("low", 3), edges=True),
    "low half": Exponents(("low", 0), ("middle", -62)),
    "big": Exponents(("high", -3), ("high", 0)),
    "high half": Exponents(("middle", 60), ("high", 0)),
}
# what multiplicands and accumulators are drawn from together
PAIRS: tuple[tuple[str, str], ...] = (
    ("bits", "bits"),
    ("special", "special"),
    ("finite edges", "special"),
    ("special", "mid"),
    ("zero", "zero"),
    ("zero", "special"),
    ("wide", "wide"),
    ("mid", "mid"),
    ("align", "align"),
    ("align", "zero"),
    ("cancel", "cancel"),
    ("cancel", "align"),
    ("tiny", "tiny"),
    ("tiny", "small"),
    ("low half", "small"),
    ("small", "zero"),
    ("big", "big"),
    ("high half", "special"),
    ("finite edges", "finite edges"),
    ("wide", "tiny"),
)
INTEGER_PAIRS: tuple[tuple[str, str], ...] = (("bits", "bits"), ("edges", "edges"), ("bits", "edges"))


def _edge_codes(fmt: Format, finite: bool) -> NDArray[np.uint64]:
    """Zeros, subnormals, the ends of the normal range, ones, and infinities and NaNs, of both signs."""
    one, first_normal, special = fmt.bias << fmt.mantissa_bits, 1 << fmt.mantissa_bits, fmt.first_special
    magnitudes = [0, 1, 2, first_normal - 1, first_normal, first_normal + 1, one, one + 1, one + first_normal, special - 1, special - 2]
    if not finite and fmt.infinity is not None:
        magnitudes += [special, special + 1, special | first_normal // 2, special | first_normal - 1]
    elif not finite and fmt.nan is not None:
        magnitudes.append(special)
    codes = np.unique(np.array(magnitudes, dtype=np.uint64))
    return np.concatenate([codes, codes | np.uint64(1 << fmt.magnitude_bits)])


def codes(fmt: str | Format, distribution: str, count: int, generator: np.random.Generator | Stream) -> NDArray[Any]:
    """Draw codes of a format.

    Parameters
    ----------
    fmt : str or Format
    distribution : str
        One of those in `PAIRS` for floats, `INTEGER_PAIRS` for integers and bits.
    count : int
    generator : numpy.random.Generator or Stream

    Raises
    ------
    OperandError
        If there is no such distribution.

    Examples
    --------
    >>> sorted(set(codes("e2m1", "zero", 100, np.random.default_rng(0)).tolist()))
    [0, 8]
    """
    fmt = format_of(fmt)
    if distribution == "bits" or fmt.kind == "bit":
        drawn = generator.integers(0, 1 << 63, count, dtype=np.uint64)
        if fmt.bits == 64:
            return np.asarray(drawn << np.uint64(1) | generator.integers(0, 2, count, dtype=np.uint64))
        if isinstance(generator, Stream):
            generator.skip(count)
        return (drawn >> np.uint64(63 - fmt.bits)).astype(fmt.code_dtype)
    if isinstance(generator, Stream):
        generator.skip(2 * count)  # every distribution begins after as many numbers as the bits take
    if fmt.kind != "float":
        half = 1 << (fmt.bits - 1)
        choice = np.array([0, 1, half - 1, half, 2 * half - 1], dtype=fmt.code_dtype)
    elif distribution == "zero":
        choice = np.array([0, 1 << (fmt.exponent_bits + fmt.mantissa_bits)], dtype=fmt.code_dtype)
    elif distribution in ("special", "finite edges"):
        choice = _edge_codes(fmt, finite=distribution == "finite edges").astype(fmt.code_dtype)
    elif distribution in _RANGES:
        return _in_range(fmt, _RANGES[distribution], count, generator)
    else:
        raise OperandError(f"there is no distribution {distribution!r} of {fmt}")
    return np.asarray(generator.choice(choice << fmt.code_dtype.type(fmt.padding), count))


def _in_range(fmt: Format, exponents: Exponents, count: int, generator: np.random.Generator | Stream) -> NDArray[Any]:
    first, last = exponents.range(fmt)
    dtype = fmt.code_dtype.type
    found = generator.integers(first, last + 1, count, dtype=dtype)
    found <<= dtype(fmt.mantissa_bits)
    if exponents.edges:
        ones = (1 << fmt.mantissa_bits) - 1
        found |= generator.choice(np.array([0, 1, ones, ones + 1 >> 1], dtype=dtype) & dtype(ones), count)
    else:
        found |= generator.integers(0, 1 << fmt.mantissa_bits, count, dtype=dtype)
    found |= generator.integers(0, 2, count, dtype=dtype) << dtype(fmt.exponent_bits + fmt.mantissa_bits)
    found <<= dtype(fmt.padding)
    return np.asarray(found)
