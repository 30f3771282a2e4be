"""Element formats, one row each.

A *code* is the unsigned integer that holds an element's bits. Codes of tf32 are 32-bit registers whose low 13 bits are padding, because
that is how PTX and NumPy hold them; all other codes are as wide as the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fastmma.host.errors import InstructionError
from fastmma.host.float_mode import default_floats

if TYPE_CHECKING:
    import numpy as np

Specials = Literal["ieee", "nan", "none", "nan-only-ff", "nan-only-80"]


@dataclass(frozen=True)
class Format:
    """One element format.

    Attributes
    ----------
    name : str
        PTX's name, for example ``"e4m3"``.
    kind : {"float", "signed", "unsigned", "bit"}
        How the bits are read.
    bits : int
        Width of a code.
    dtype_name : str
        The NumPy or ml_dtypes dtype whose arrays hold one element each.
    exponent_bits, mantissa_bits, bias : int
        The float fields; all zero for integers.
    padding : int
        Ignored low bits of a code (13 for tf32).
    signed : bool
        Whether a float code has a sign bit.
    specials : {"ieee", "nan", "none", "nan-only-ff", "nan-only-80"}
        ``"ieee"``: the highest exponent holds infinities and NaNs; ``"nan"``: only the all-ones magnitude is NaN;
        ``"nan-only-ff"``: ue8m0, no zero, no subnormals, 0xff is NaN; ``"nan-only-80"``: what would be -0 is NaN.
    """

    name: str
    kind: Literal["float", "signed", "unsigned", "bit"]
    bits: int
    dtype_name: str
    exponent_bits: int = 0
    mantissa_bits: int = 0
    bias: int = 0
    padding: int = 0
    signed: bool = True
    specials: Specials = "none"

    def __hash__(self) -> int:
        return hash(self.name)  # not of all fields, which takes long where numbers are looked up by their format

    def __post_init__(self) -> None:
        if self.kind == "float":
            width = int(self.signed) + self.exponent_bits + self.mantissa_bits + self.padding
            if width > self.bits:
                raise ValueError(f"{self.name}: the fields need {width} bits, not {self.bits}")

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """dtype of an array of elements (tf32 is float32, b1 is bool)."""
        import numpy as np

        found: np.dtype[Any] = np.dtype(getattr(np, self.dtype_name, None) or getattr(import_module("ml_dtypes"), self.dtype_name))
        return found

    @cached_property
    def code_dtype(self) -> np.dtype[Any]:
        """Unsigned dtype that holds one code an item."""
        import numpy as np

        return np.dtype(f"u{max(8, self.bits) // 8}")

    @cached_property
    def magnitude_bits(self) -> int:
        """Bits of a code below its sign, without padding."""
        return self.exponent_bits + self.mantissa_bits if self.kind == "float" else self.bits

    @cached_property
    def first_special(self) -> int:
        """The lowest magnitude (a code without sign and padding) that is an infinity or a NaN; one past the last if there is none.

        `is_special` tells of a code.
        """
        end = 1 << self.magnitude_bits
        return end - {"ieee": 1 << self.mantissa_bits, "nan": 1, "nan-only-ff": 1}.get(self.specials, 0)

    @cached_property
    def infinity(self) -> int | None:
        """The code of positive infinity, if the format has one."""
        return self.first_special << self.padding if self.specials == "ieee" else None

    @cached_property
    def nan(self) -> int | None:
        """The code of the positive quiet NaN without payload, if the format has one."""
        if self.specials == "none":
            return None
        if self.specials == "nan-only-80":
            return 1 << self.magnitude_bits
        quiet = 1 << (self.mantissa_bits - 1) if self.infinity is not None else 0
        return (self.first_special | quiet) << self.padding

    @cached_property
    def has_zero(self) -> bool:
        """True if the lowest exponent field holds zero and subnormals."""
        return self.specials != "nan-only-ff"

    @cached_property
    def has_negative_zero(self) -> bool:
        """True if zero has a sign."""
        return self.signed and self.specials != "nan-only-80"

    def is_special(self, codes: Any) -> Any:
        """Tell whether codes without padding, an integer or an array, are infinities or NaNs."""
        if self.specials == "nan-only-80":
            return codes == self.nan
        # the first special code itself may not fit in the dtype of the codes, and NumPy before 2.2.6 crashes on such a comparison
        return codes & ((1 << self.magnitude_bits) - 1) > self.first_special - 1

    @cached_property
    def emin(self) -> int:
        """Exponent of the smallest normal number, which subnormals share."""
        return int(self.has_zero) - self.bias

    @cached_property
    def emax(self) -> int:
        """Exponent of the largest finite number."""
        return (self.first_special - 1 >> self.mantissa_bits) - self.bias

    @cached_property
    @default_floats
    def max(self) -> float:
        """The largest finite value."""
        if self.kind != "float":
            return float((1 << (self.bits - (self.kind == "signed"))) - 1)
        hidden = 1 << self.mantissa_bits
        return float((self.first_special - 1) % hidden + hidden) * 2.0 ** (self.emax - self.mantissa_bits)

    @cached_property
    @default_floats
    def min(self) -> float:
        """The lowest finite value."""
        if self.kind == "float":
            return -self.max if self.signed else 0.0 if self.has_zero else self.min_subnormal
        return -self.max - 1 if self.kind == "signed" else 0.0

    @cached_property
    @default_floats
    def min_subnormal(self) -> float:
        """The smallest positive value."""
        return 2.0 ** (self.emin - self.mantissa_bits) if self.kind == "float" else 1.0

    def holds(self, other: Format) -> bool:
        """Tell whether every value of another format is one of this format, infinities and NaN included.

        >>> format_of("e4m3").holds(format_of("e2m1")), format_of("e4m3").holds(format_of("e5m2"))
        (True, False)
        """
        digits, needed = (each.mantissa_bits + 1 if each.kind == "float" else each.bits - (each.kind == "signed") for each in (self, other))
        return (
            self.min <= other.min
            and self.max >= other.max
            and self.min_subnormal <= other.min_subnormal
            and (digits >= needed or self.kind != "float")
            and (self.nan is not None or other.nan is None)
            and (self.infinity is not None or other.infinity is None)
        )

    def __str__(self) -> str:
        return self.name


class Formats(NamedTuple):
    """The element formats of an instruction; `sums` is what sums are kept in, `scale` that of block scales, if there are any."""

    a: Format
    b: Format
    c: Format
    d: Format
    sums: Format
    scale: Format | None


_ROWS = (
    Format("f64", "float", 64, "float64", 11, 52, 1023, specials="ieee"),
    Format("f32", "float", 32, "float32", 8, 23, 127, specials="ieee"),
    Format("tf32", "float", 32, "float32", 8, 10, 127, padding=13, specials="ieee"),
    Format("f16", "float", 16, "float16", 5, 10, 15, specials="ieee"),
    Format("bf16", "float", 16, "bfloat16", 8, 7, 127, specials="ieee"),
    Format("e4m3", "float", 8, "float8_e4m3fn", 4, 3, 7, specials="nan"),
    Format("e5m2", "float", 8, "float8_e5m2", 5, 2, 15, specials="ieee"),
    Format("e4m3fnuz", "float", 8, "float8_e4m3fnuz", 4, 3, 8, specials="nan-only-80"),
    Format("e5m2fnuz", "float", 8, "float8_e5m2fnuz", 5, 2, 16, specials="nan-only-80"),
    Format("e3m2", "float", 6, "float6_e3m2fn", 3, 2, 3),
    Format("e2m3", "float", 6, "float6_e2m3fn", 2, 3, 1),
    Format("e2m1", "float", 4, "float4_e2m1fn", 2, 1, 1),
    Format("ue8m0", "float", 8, "float8_e8m0fnu", 8, 0, 127, signed=False, specials="nan-only-ff"),
    Format("ue4m3", "float", 8, "float8_e4m3fn", 4, 3, 7, signed=False, specials="nan"),
    Format("s32", "signed", 32, "int32"),
    Format("s8", "signed", 8, "int8"),
    Format("u8", "unsigned", 8, "uint8"),
    Format("s4", "signed", 4, "int4"),
    Format("u4", "unsigned", 4, "uint4"),
    Format("b1", "bit", 1, "bool"),
)

FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}
# multiplicands that opcodes take together
FP8 = ("e4m3", "e5m2")
FNUZ = ("e4m3fnuz", "e5m2fnuz")
NARROW = (*FP8, "e3m2", "e2m3", "e2m1")


def format_of(name: str | Format | np.dtype[Any] | type) -> Format:
    """The row for a PTX name or for a NumPy / ml_dtypes dtype.

    A dtype that serves two formats means the first of them: float32 is f32 (not tf32), float8_e4m3fn is e4m3 (not ue4m3).

    Raises
    ------
    InstructionError
        If there is no such format.

    Examples
    --------
    >>> format_of("e4m3").max
    448.0
    >>> import ml_dtypes
    >>> format_of(ml_dtypes.bfloat16).name
    'bf16'
    """
    import numpy as np

    if isinstance(name, Format):
        return name
    if isinstance(name, str) and name.removeprefix(".") in FORMATS:
        return FORMATS[name.removeprefix(".")]
    try:
        # NumPy takes None for float64
        # and warns of a, its old letter for bytes
        known = name is not None and not (isinstance(name, str | bytes) and name[:1] in ("a", b"a"))
        dtype = np.dtype(getattr(import_module("ml_dtypes"), name, name) if isinstance(name, str) else name) if known else None
    except (TypeError, ValueError, SyntaxError):  # NumPy reads text in several ways
        dtype = None
    for row in _ROWS:
        if dtype is not None and row.dtype_name == dtype.name and row.dtype == (dtype if dtype.isnative else dtype.newbyteorder("=")):
            return row
    raise InstructionError(f"{name!r} is no element format; there are {', '.join(FORMATS)}")
