"""Scale rules, one row each: from the largest magnitude of every block to its scale, and to the factor that its elements are scaled with.

Magnitudes come in float32 (of float16, bfloat16 and float32 arrays) or float64; operations are IEEE, in that precision, as written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.isa.codes import all_codes, decode
from fastmma.isa.formats import FORMATS, Format
from fastmma.scaling.names import lookup
from fastmma.scaling.rounding import round_to
from fastmma.scaling.schemes import Scheme

_E8M0 = FORMATS["ue8m0"]
_E4M3 = FORMATS["e4m3"]
_F32_MAX, _F32_MIN = np.array([0x7F7FFFFF, 1], np.uint32).view(np.float32)  # by their bits: the mode may be any while this is imported


class Scaling(NamedTuple):
    """The scales that a rule makes of the largest magnitudes of blocks."""

    scales: NDArray[Any]  # in the dtype of the scale format
    factors: NDArray[Any]  # in the precision of the magnitudes
    divide: bool = False  # elements are x / factor, rounded; else x * factor, rounded
    global_scale: np.float32 | None = None


@dataclass(frozen=True)
class Rule:
    """The rule by which a scale follows from the largest magnitude `amax` of a block.

    Attributes
    ----------
    name : str
    scale : str
        The scale format that it serves; a name may have a row for each.
    meaning : str
        The rule in one line; `max` is the largest element, 2**emax the largest power of two among elements.
    compute : callable
        ``compute(amax, element, threads)``.
    aliases : tuple of str
        Names that it has elsewhere.
    """

    name: str
    scale: str
    meaning: str
    compute: Callable[[NDArray[Any], Format, int], Scaling]
    aliases: tuple[str, ...] = ()


def _powers(threshold: Callable[[Format], float], *, strictly: bool = False, infinite: int | None = None) -> Callable[..., Scaling]:
    """A rule of e8m0: 2**(floor(log2(amax)) - emax), one more where amax / 2**floor(log2(amax)) is at (or strictly above) a threshold.

    Exponents are held in [-127, 127]. A block with a NaN has the scale NaN; so has one with an infinity, unless its exponent is given.
    """

    def compute(amax: NDArray[Any], element: Format, threads: int) -> Scaling:
        del threads
        fraction, exponent = np.frexp(amax)
        limit = threshold(element) / 2
        exponent += (fraction > limit if strictly else fraction >= limit) - np.int32(1 + element.emax)
        exponent = np.clip(np.where(amax == 0, -_E8M0.bias, exponent), _E8M0.emin, _E8M0.emax)
        bad = np.isnan(amax) if infinite is not None else ~np.isfinite(amax)
        if infinite is not None:
            exponent = np.where(np.isinf(amax), infinite, exponent)
        codes = np.where(bad, 0xFF, exponent + _E8M0.bias).astype(np.uint8)
        factors = np.ldexp(amax.dtype.type(1), -exponent).astype(amax.dtype)
        return Scaling(codes.view(_E8M0.dtype), np.where(bad, np.nan, factors).astype(amax.dtype))

    return compute


def _to_f32(scale: NDArray[Any], amax: NDArray[Any]) -> NDArray[np.float32]:
    """A scale rounded to float32: never 0 nor infinite of an amax that is neither, and 1 of zeros."""
    rounded = scale.astype(np.float32)
    rounded = np.where(np.isfinite(amax), np.clip(rounded, _F32_MIN, _F32_MAX), rounded)
    return np.where(amax == 0, np.float32(1), rounded).astype(np.float32)


def _reciprocal(value: NDArray[Any]) -> NDArray[Any]:
    """1 / value, at most the largest float32."""
    return np.asarray(np.minimum(value.dtype.type(1) / value, value.dtype.type(_F32_MAX)))


def _amax(amax: NDArray[Any], element: Format, threads: int) -> Scaling:
    del threads
    scale = _to_f32(amax / amax.dtype.type(element.max), amax)
    return Scaling(scale, scale.astype(amax.dtype), divide=True)


def _deepgemm(amax: NDArray[Any], element: Format, threads: int) -> Scaling:
    del threads
    amax = np.maximum(amax, amax.dtype.type(np.float32(1e-4)))
    scale = _to_f32(amax / amax.dtype.type(element.max), amax)
    return Scaling(scale, _reciprocal(scale.astype(amax.dtype)))


def _transformer_engine(amax: NDArray[Any], element: Format, threads: int) -> Scaling:
    del threads
    one = amax.dtype.type(1)
    usable = np.isfinite(amax) & (amax != 0)
    factors = np.where(usable, np.minimum(amax.dtype.type(element.max) / amax, amax.dtype.type(_F32_MAX)), one)
    return Scaling(_to_f32(one / factors, one), factors)


def _levels(amax: NDArray[Any], element: Format, floor: float, threads: int) -> tuple[np.float32, NDArray[np.uint8], NDArray[Any]]:
    """The global scale of NVFP4 and the scales of blocks, those at least `floor`, as codes and as numbers."""
    number = amax.dtype.type
    whole = np.asarray(amax.max())
    overall = np.float32(_to_f32(whole / number(element.max * _E4M3.max), whole))
    wanted = amax / number(element.max) / number(overall)
    return overall, *_block_scales(np.maximum(wanted, number(floor)), threads)


def _two_level(amax: NDArray[Any], element: Format, threads: int) -> Scaling:
    overall, codes, scales = _levels(amax, element, 0.0, threads)
    factors = np.maximum(scales * amax.dtype.type(overall), amax.dtype.type(_F32_MIN))
    # where the scale is zero, so are the elements
    return Scaling(codes.view(_E4M3.dtype), np.where(scales == 0, amax.dtype.type(np.inf), factors), divide=True, global_scale=overall)


def _two_level_torchao(amax: NDArray[Any], element: Format, threads: int) -> Scaling:
    overall, codes, scales = _levels(amax, element, 2.0**-6, threads)
    return Scaling(codes.view(_E4M3.dtype), amax.dtype.type(1) / amax.dtype.type(overall) / scales, global_scale=overall)


def _two_level_te(amax: NDArray[Any], element: Format, threads: int) -> Scaling:
    number = amax.dtype.type
    one, top = number(1), number(_F32_MAX)
    whole = amax.max()
    encode = np.minimum(number(element.max * _E4M3.max) / whole, top)
    encode = one if whole == 0 or encode == 0 else encode
    wanted = np.minimum(amax * (encode * (one / number(element.max))), top)
    codes, scales = _block_scales(wanted, threads)
    inverse = one / encode
    return Scaling(codes.view(_E4M3.dtype), np.minimum(one / (scales * inverse), top), global_scale=np.float32(inverse))


def _block_scales(wanted: NDArray[Any], threads: int) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Scales rounded to e4m3, as codes and as numbers."""
    codes = round_to(wanted, _E4M3, threads)
    return codes, decode(all_codes("e4m3"), _E4M3).astype(wanted.dtype)[codes]


def _significand(value: float) -> float:
    return float(2 * np.frexp(value)[0])


_TE = ("transformer_engine",)
_ROWS = (
    Rule("floor", "ue8m0", "2**(floor(log2(amax)) - emax)  (OCP MX 1.0)", _powers(lambda _: 2.0), ("ocp",)),
    Rule("ceil", "ue8m0", "2**(ceil(log2(amax)) - emax)", _powers(lambda _: 1.0, strictly=True)),
    Rule(
        "rceil",
        "ue8m0",
        "2**ceil(log2(amax / max))  (cuBLAS, TransformerEngine)",
        _powers(lambda element: _significand(element.max), strictly=True, infinite=_E8M0.emax),
    ),
    Rule(
        "even",
        "ue8m0",
        "2**(floor(log2(amax rounded to the element's mantissa bits)) - emax)",
        _powers(lambda element: 2.0 - 2.0 ** -(element.mantissa_bits + 1)),
    ),
    Rule("amax", "f32", "scale = amax / max; elements x / scale", _amax),
    Rule("deepgemm", "f32", "scale = at least 1e-4 of amax / max; elements x * (1 / scale)", _deepgemm, ("deepseek",)),
    Rule("te", "f32", "elements x * (max / amax); scale = 1 / (max / amax)  (TransformerEngine)", _transformer_engine, _TE),
    Rule(
        "amax",
        "ue4m3",
        "global = amax of all / (max * 448); scale = (amax / max) / global; elements x / (scale * global)",
        _two_level,
    ),
    Rule("torchao", "ue4m3", "scales as amax, but at least 2**-6; elements x * ((1 / global) / scale)", _two_level_torchao),
    Rule(
        "te",
        "ue4m3",
        "encode = max * 448 / amax of all; scale = amax * (encode * (1 / max)); elements x * (1 / (scale * (1 / encode)))",
        _two_level_te,
        _TE,
    ),
)

RULES: dict[tuple[str, str], Rule] = {(row.scale, row.name): row for row in _ROWS}


def known_rule(name: object, scheme: Scheme) -> Rule | None:
    """The rule of a scheme that goes by a name, if there is one."""
    return lookup(name, (RULES[scheme.scale, each] for each in scheme.rules))


def rule_of(name: object, scheme: Scheme) -> Rule:
    """The row of a rule for a scheme; the scheme's own for None.

    Raises
    ------
    OperandError
        If the scheme has no such rule.
    """
    row = known_rule(scheme.rule if name is None else name, scheme)
    if row is None:
        raise OperandError(f"rule of {scheme.name} must be one of {', '.join(scheme.rules)}, not {name!r}")
    return row
