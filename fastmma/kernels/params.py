"""Parameters of kernels as NamedTuples: they are derived from the tables, and one compiled kernel serves every value."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from numpy.typing import NDArray

# how a partial sum joins the running f32 total, by IEEE operations in round to nearest; a kernel knows them by position
PROMOTIONS = (
    "add",  # total + partial
    "fma",  # fma(scale_a * scale_b, partial, total)
    "multiply-add",  # total + (scale_a * scale_b) * partial
    "fma-each",  # fma(partial * scale_a, scale_b, total)
    "multiply-add-each",  # total + (partial * scale_a) * scale_b
)


# what an epilogue does to the f32 sums, one IEEE operation each; a kernel knows them by position
OPERATIONS = ("multiply", "add", "fma", "accumulate", "relu", "round to bf16", "round to f16", "convert from s32")
# and what by a formula of `fastmma.kernels.functions`
FORMULAS = {"gelu": "gelu_in_product", "gelu-fma": "gelu_in_product_fma"}
ADDENDS = ("f32", "bf16", "f16")  # formats in which a kernel reads the operands of an epilogue; it knows them by position


class Specials(IntEnum):
    """The codes of an element that are special."""

    NONE = 0  # all codes are finite
    IEEE = 1  # infinities and NaNs fill the highest binade
    NAN = 2  # only the all-ones magnitude is NaN
    POWERS_OF_TWO = 3  # no sign, no mantissa, no zero; the highest code is NaN
    NEGATIVE_ZERO = 4  # only what would be -0 is NaN


class Element(NamedTuple):
    """The bits of a multiplicand: a row of `fastmma.isa.formats` in kernel form.

    The code of an element sits in an unsigned integer of 8, 16 or 32 bits, its lowest significant bit at `shift`
    (13 for tf32, whose low 13 bits are ignored; else 0): sign, exponent field, mantissa field, from the top down.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    shift: int
    specials: int  # one of `Specials`

    @property
    def width(self) -> int:
        """Bits of a magnitude: exponent field and mantissa field."""
        return self.exponent_bits + self.mantissa_bits

    @property
    def itemsize(self) -> int:
        """Bytes of a code."""
        bits = 1 + self.width + self.shift
        return 1 if bits <= 8 else 2 if bits <= 16 else 4

    @property
    def through_half(self) -> bool:
        """True if f16 holds all values, up to a power of two."""
        return self.exponent_bits <= 5 and self.mantissa_bits <= 10

    @property
    def decoded_scale(self) -> int:
        """log2 of a value over that which is decoded by way of f16, where it is."""
        return 15 - self.bias if self.through_half else 0

    @property
    def first_special(self) -> int:
        """The lowest magnitude that is an infinity or a NaN; one past the last if there is none."""
        end = 1 << self.width
        return end - {Specials.IEEE: 1 << self.mantissa_bits, Specials.NAN: 1, Specials.POWERS_OF_TWO: 1}.get(Specials(self.specials), 0)

    @property
    def in_magnitudes(self) -> bool:
        """True if magnitudes tell what is special: kernels that look at these alone take no other formats."""
        return self.specials != Specials.NEGATIVE_ZERO

    @property
    def highest_exponent(self) -> int:
        """Exponent of the largest finite element."""
        return (self.first_special - 1 >> self.mantissa_bits) - self.bias


class Fused(NamedTuple):
    """A fused dot-product-add: `terms` products and an accumulator, aligned, truncated, summed exactly, rounded once.

    Products are taken in steps of `terms`, in the order in which the operands were packed; the result of one step is the
    accumulator of the next.
    """

    a: Element
    b: Element
    terms: int  # products per step
    align_bits: int  # every term is truncated toward zero to a multiple of 2**(emax - align_bits)
    emax_floor: int  # emax is never lower than this
    keep_bits: int  # fraction bits of the f32 result (23 or 13); 10 for f16
    half: int  # 0: f32 result, rounded toward zero; 1: f16 result, rounded to nearest even
    split: int  # 0: the accumulator runs through all steps; s: it starts at zero every s steps, then one IEEE add of c


class ElementSpecs(NamedTuple):
    """Codes of A and B that are narrower than the elements that are multiplied, and the order of a unit's k."""

    a: Element
    b: Element
    order: tuple[int, ...]


class Scaled(NamedTuple):
    """A fused dot-product-add with block scaling; f32 accumulator, rounded toward zero.

    With ``group == 1`` a term is one product, and its exponent is the sum of its factors' exponents and of their scales'. Else a term is
    the exact sum of `group` consecutive products times the significands of their scales, and its exponent is that of the scales' product,
    also where products cancel to zero; only without a product that is not zero it has none.
    """

    a: Element
    b: Element
    scale: Element  # ue8m0 or ue4m3
    block: int  # consecutive k that share one scale
    group: int  # consecutive products a term sums exactly
    step: int  # consecutive k whose terms are fused with the accumulator in one step
    align_bits: int
    emax_floor: int


# how a term is rounded to units, and a sum to its fraction bits; a kernel knows them by position
ROUNDINGS = ("rz", "rn", "ro", "exact")


class General(NamedTuple):
    """A fused dot-product-add of any numbers and roundings, with or without scales."""

    terms: int  # a step, c not counted
    group: int  # consecutive products a term sums exactly
    unit: int  # consecutive k whose steps follow each other; the last one may have fewer terms
    split: int  # 0: the accumulator runs through; u: it starts at zero every u units, then one IEEE add of c
    by_scales: int  # 1: a term's exponent is that of its scales alone
    align_bits: int
    align_rounding: int  # one of `ROUNDINGS`
    emax_floor: int
    keep_bits: int
    rounding: int
    limbs: int  # 1: exact sums of groups have two words
    fraction: int  # 23 fraction bits of an f32 accumulator, or 10 of f16
    bias: int


class Promotion(NamedTuple):
    """Sums of `every` k are taken from zero by the tensor core, then join a running f32 total by the operation `rule` of `PROMOTIONS`.

    `scale_a` (chunks, M) and `scale_b` (chunks, N) are float32, C-contiguous; a plain "add" has none. Where there are many products, each
    may have its own: (T, chunks, M) and (T, chunks, N).
    """

    every: int
    rule: str = "add"
    scale_a: NDArray[Any] | None = None
    scale_b: NDArray[Any] | None = None

    def of(self, products: int | slice) -> Promotion:
        """That of one product, or of some."""
        if self.scale_a is None or self.scale_b is None or self.scale_a.ndim == 2:
            return self
        return self._replace(scale_a=self.scale_a[products], scale_b=self.scale_b[products])

    def part(self, chunks: slice, rows: slice | NDArray[Any], columns: slice | NDArray[Any]) -> Promotion:
        """That of a part of each product."""
        if self.scale_a is None or self.scale_b is None:
            return self
        return self._replace(scale_a=self.scale_a[..., chunks, rows], scale_b=self.scale_b[..., chunks, columns])


class PartsOfK(NamedTuple):
    """The k of parts that start from zero, and how their sums are joined."""

    k: tuple[int, ...]  # of all parts, one after another
    stops: tuple[int, ...]  # of the parts in `k`
    joins: tuple[tuple[int, int], ...]  # pairs of parts: to the sum of the first that of the second is added; the last has all


class Step(NamedTuple):
    """An operation of `OPERATIONS`, or of `FORMULAS`, on sums (M, N), whose operands are f32 and as large (strides may be 0).

    "fma" is fma(sums, first, second), "accumulate" fma(first, second, sums); "relu" turns what is below zero, and -0, into +0. `names` are
    those of the operands, for who explains the operation; with that of the sums, if they are no sums but an operand.
    """

    operation: str
    first: NDArray[Any] | None = None
    second: NDArray[Any] | None = None
    names: tuple[str, ...] = ()

    def of_rows(self, rows: slice) -> Step:
        """The operation on some of the rows."""
        first, second = (None if each is None else each[rows] for each in (self.first, self.second))
        return self._replace(first=first, second=second)
