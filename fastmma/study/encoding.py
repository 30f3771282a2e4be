"""From float matrices to operands of an instruction, and back to the float64 values that those have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.errors import InstructionError
from fastmma.formats import FORMATS, Format, encode, format_of, from_codes

Values = NDArray[np.float64]
_CHUNK = 1 << 20  # elements that are rounded at a time, where that takes float64 intermediates
# what a study multiplies without scales: floats, of which f32 and f64 have no instruction that loses anything to speak of
UNSCALED: tuple[str, ...] = tuple(
    name for name, fmt in FORMATS.items() if fmt.kind == "float" and fmt.signed and name not in ("f64", "f32")
)


@dataclass(frozen=True)
class Encoded:
    """One operand (rows, K).

    Attributes
    ----------
    stored : array or ScaledArray
        As a product takes it.
    significand_bits : int
        That its values fit into, the tensor's scale aside.
    factor : float
        The tensor's scale, which belongs to the values but is left out of `values`; they would need many more bits with it.
    """

    stored: Any
    significand_bits: int
    factor: float = 1.0

    def values(self, rows: NDArray[np.intp] | slice = slice(None)) -> Values:
        """The exact values of some rows over `factor`."""
        return np.asarray(self.stored[rows].astype(np.float64))


def formats_of(name: str) -> tuple[str, str]:
    """``"e4m3"`` or ``"e4m3,e5m2"`` as the formats of A and B.

    Raises
    ------
    InstructionError
        If it names no format, or more than two.
    """
    names = tuple(name.split(",")) if isinstance(name, str) else ()
    if len(names) not in (1, 2):
        raise InstructionError(f"a format is one name, or those of A and B with a comma between them, not {name!r}")
    for each in names:
        if each not in UNSCALED:
            raise InstructionError(f"there is no format {each!r} for studies; there are {', '.join(UNSCALED)}")
    return names[0], names[-1]


def _rounded(x: NDArray[Any], fmt: Format) -> NDArray[Any]:
    """Elements, rounded to nearest even and beyond the range to the largest value."""
    if x.dtype == np.float32 and not fmt.padding:
        # one conversion rounds once; what it makes of values beyond the range is the format's, so they are clamped first
        return np.asarray(np.clip(x, -fmt.max, fmt.max, dtype=np.float32).astype(fmt.dtype))
    result = np.empty(x.shape, fmt.dtype)
    step = max(1, _CHUNK // max(x.shape[1], 1))
    for start in range(0, len(x), step):
        result[start : start + step] = from_codes(encode(x[start : start + step], fmt, saturate=True), fmt)
    return result


def encoded(x: NDArray[Any], name: str) -> Encoded:
    """Round or quantise a float32 or float64 matrix (rows, K) to a format."""
    fmt = format_of(name)
    return Encoded(_rounded(x, fmt), fmt.mantissa_bits + 1)
