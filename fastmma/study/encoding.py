"""From float matrices to operands of an instruction, and back to the float64 values that those have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import FastmmaError, InstructionError, OperandError
from fastmma.isa.codes import encode, from_codes
from fastmma.isa.formats import FORMATS, Format
from fastmma.scaling import SCHEMES, ScaledArray, Scheme, quantize
from fastmma.scaling.names import lookup
from fastmma.scaling.rounding import ROUNDINGS
from fastmma.scaling.rules import known_rule
from fastmma.scaling.schemes import scheme_of

Values = NDArray[np.float64]
_CHUNK = 1 << 20  # elements that are rounded at a time
# what a study multiplies without scales: floats but f32 and f64, which no tensor core takes or which lose nothing to speak of
UNSCALED: tuple[str, ...] = tuple(
    name for name, fmt in FORMATS.items() if fmt.kind == "float" and fmt.signed and name not in ("f64", "f32")
)
_ONE = np.float32(1)


@dataclass(frozen=True)
class OperandFormat:
    """The format that an operand is rounded or quantised to.

    Attributes
    ----------
    base : Format or Scheme
    rule : str or None
        How scales follow from magnitudes; the scheme's own if None.
    rounding : str
        Of elements.
    """

    base: Format | Scheme
    rule: str | None = None
    rounding: str = "nearest"

    @property
    def significand_bits(self) -> int:
        """That every value fits into, the tensor's scale aside."""
        if isinstance(self.base, Format):
            return self.base.mantissa_bits + 1
        element, scale = self.base.element_format, self.base.scale_format
        own = element.mantissa_bits + 1 if element.kind == "float" else element.bits
        return own + (scale.mantissa_bits + 1 if scale.mantissa_bits else 0)


@lru_cache(1024)
def operand_format(text: str) -> OperandFormat:
    """An element format, or a scaling scheme followed by a rule and a rounding where they are not the usual ones, with colons between.

    Raises
    ------
    InstructionError
        If there is no such format, or the scheme has no such rule.

    Examples
    --------
    >>> operand_format("mxfp4:even").rule, operand_format("mxfp4:stochastic").rounding, operand_format("e4m3").significand_bits
    ('even', 'stochastic', 4)
    """
    name, *options = text.split(":")
    if name in UNSCALED and not options:
        return OperandFormat(FORMATS[name])
    try:
        scheme = scheme_of(name)
    except FastmmaError:
        known = ", ".join([*UNSCALED, *SCHEMES])
        raise InstructionError(f"there is no format {text!r} for studies; there are {known}") from None
    found = OperandFormat(scheme)
    for option in options:
        rule, rounding = known_rule(option, scheme), lookup(option, ROUNDINGS.values())
        if rule is not None:
            found = replace(found, rule=rule.name)
        elif rounding is not None:
            found = replace(found, rounding=rounding.name)
        else:
            choices = ", ".join([*scheme.rules, *ROUNDINGS])
            raise InstructionError(f"{scheme.name} has neither a rule nor a rounding {option!r}; there are {choices}")
    return found


def formats_of(name: Any) -> tuple[OperandFormat, OperandFormat]:
    """``"e4m3"`` or ``"e4m3,e5m2"`` as the formats of A and B.

    Raises
    ------
    InstructionError
        If it names no format, more than two, or one with scales and one without.
    """
    names = name.split(",") if isinstance(name, str) else []
    if len(names) not in (1, 2):
        raise InstructionError(f"a format is one name, or those of A and B with a comma between them, not {name!r}")
    a, b = operand_format(names[0]), operand_format(names[-1])
    if type(a.base) is not type(b.base):
        raise InstructionError(f"of A and B in {name!r}, one has scales and one has not: no product takes both")
    return a, b


def blank(fmt: OperandFormat) -> ScaledArray:
    """One element of a scheme, for questions that depend on nothing else."""
    scheme = fmt.base
    assert isinstance(scheme, Scheme)
    elements, scales = np.zeros((1, 1), scheme.element_format.dtype), np.ones((1, 1), scheme.scale_format.dtype)
    return ScaledArray(elements, scales, scheme.block((1, 1), 1), 1, _ONE if scheme.two_level else None, scheme.name)


@dataclass(frozen=True)
class Encoded:
    """One operand (rows, K).

    Attributes
    ----------
    stored : array or ScaledArray
        As a product takes it.
    factor : float
        The tensor's scale, which belongs to the values but is left out of `values`: they would need many more bits with it.
    """

    stored: Any
    factor: float = 1.0

    def values(self, rows: NDArray[np.intp]) -> Values:
        """The exact values of some rows, over `factor`."""
        if not isinstance(self.stored, ScaledArray):
            return np.asarray(self.stored[rows].astype(np.float64))
        block_rows, block_columns = self.stored.block
        values = _decode(self.stored.elements[rows])
        scales = self.stored.scales[rows // block_rows].astype(np.float64)
        whole = values.shape[1] // block_columns * block_columns
        with np.errstate(invalid="ignore"):  # a zero of an infinite scale
            values[:, :whole].reshape(len(rows), -1, block_columns)[...] *= scales[:, : whole // block_columns, None]
            values[:, whole:] *= scales[:, whole // block_columns :]
        return values


@lru_cache(64)
def _every_value(dtype: np.dtype[Any]) -> Values:
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)


def _decode(elements: NDArray[Any]) -> Values:
    """Elements of one byte as float64: a look-up, which is many times faster than the conversion of those dtypes."""
    return _every_value(elements.dtype)[np.ascontiguousarray(elements).view(np.uint8)]


def _round(x: NDArray[Any], fmt: Format) -> NDArray[Any]:
    """Elements, rounded to nearest even, finite ones beyond the range to the largest value, infinite ones too where there is no infinity.

    Raises
    ------
    OperandError
        If there is a NaN, and the format has none.
    """
    if fmt.nan is None and np.isnan(x).any():
        raise OperandError(f"the operand holds NaN, and {fmt} has none: choose a format that has, or replace it")
    result = np.empty(x.shape, fmt.dtype)
    step = max(1, _CHUNK // max(x.shape[1], 1))
    for start in range(0, len(x), step):
        rows = x[start : start + step]
        if x.dtype == np.float32 and not fmt.padding:
            # one conversion rounds once; what it makes of values beyond the range is the format's, so they are clamped first
            result[start : start + step] = np.clip(rows, -fmt.max, fmt.max, dtype=np.float32).astype(fmt.dtype)
        else:
            result[start : start + step] = from_codes(encode(rows, fmt, saturate=True), fmt)
    if fmt.infinity is not None and not np.isfinite(x).all():
        infinite = np.isinf(x)
        result[infinite] = x[infinite].astype(fmt.dtype)
    return np.asarray(result)


def encoded(x: NDArray[Any], fmt: OperandFormat, rng: np.random.Generator, threads: int) -> Encoded:
    """Round or quantise a float32 or float64 matrix (rows, K) to a format."""
    if isinstance(fmt.base, Format):
        return Encoded(_round(x, fmt.base))
    seed = int(rng.integers(1 << 63)) if fmt.rounding == "stochastic" else None
    scaled = quantize(x, fmt.base, rule=fmt.rule, rounding=fmt.rounding, seed=seed, threads=threads)
    return Encoded(scaled, 1.0 if scaled.global_scale is None else float(scaled.global_scale))
