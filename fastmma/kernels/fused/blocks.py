"""The configuration of a kernel of blocks: tiles and small products, in blocks of 16 rows by 8 columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fastmma.kernels.llvm.kinds import constant
from fastmma.kernels.params import Element

ROWS, COLUMNS = 16, 8


@dataclass(frozen=True)
class BlockElementSpec:
    """The reading of the codes of one operand.

    Attributes
    ----------
    element : Element
    normal : bool
        Whether the exponent of a subnormal is that of its leading bit: it was converted to a wider format, where it is normal.
    first_bad : int
        Magnitudes from here on are special, or out of the kernel's reach.
    byte_offset : int
        An exponent byte is the exponent field plus this.
    """

    element: Element
    normal: bool
    first_bad: int
    byte_offset: int

    @property
    def itemsize(self) -> int:
        """Bytes of a code."""
        return self.element.itemsize

    @property
    def bad_byte(self) -> int | None:
        """The first exponent byte that is bad, if the exponent tells all."""
        field, rest = divmod(self.first_bad, 1 << self.element.mantissa_bits)
        return None if rest or self.normal else field + self.byte_offset


@constant
@dataclass(frozen=True)
class Arrangement:
    """The numbers that the loop over matrices around a kernel of blocks is compiled for."""

    a_itemsize: int  # bytes of a code of A
    b_itemsize: int
    sum_bytes: int  # of a code of c and of a result


@constant
@dataclass(frozen=True)
class BlockConfig:
    """The numbers that a kernel of blocks is compiled for; `steps` names the k of a unit step by step.

    Sums are held as they are (no scale); exponent bytes are `excess` above exponents, and exponent fields of sums `lift` above those.
    """

    a: BlockElementSpec
    b: BlockElementSpec
    steps: tuple[tuple[int, ...], ...]
    align_bits: int
    keep_bits: int
    half: bool
    floor: int  # exponent byte below which emax does not fall
    single: bool  # f32 lanes, else f64
    vector_bytes: int  # of sums
    byte_vector: int  # bytes in a vector of exponents
    tiles: bool  # whether all products are of a single block and unit
    strip: int  # rows whose sums are in registers at a time
    smallest_c: int  # c's exponent field in the lanes is zero or from here ...
    largest_c: int  # ... to below here
    mask_c: int  # the fraction bits of float32 that c keeps
    lowest_byte: int  # the smallest emax byte at which no bit below 2**-149 can matter, unless ...
    lowest_sum: int  # ... the smallest exponent bytes of A and B add up to at least this; 0 if they always do
    least_sum: int  # exponent bytes are added, those of zeros give less than this; 0: B's are complements, a saturating difference is taken

    @cached_property
    def key(self) -> str:
        """All numbers, for caches."""
        return str(self)

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def unit(self) -> int:
        """The k of a unit."""
        return sum(len(step) for step in self.steps)

    @property
    def sum_bytes(self) -> int:
        """Bytes of a code of c and of a result."""
        return 2 if self.half else 4

    @property
    def lanes(self) -> int:
        """Results in a group."""
        return self.vector_bytes // 4

    @property
    def excess(self) -> int:
        """What an exponent byte holds above the exponent."""
        return 127 if self.single else 150

    @property
    def lift(self) -> int:
        """What an exponent field of a sum holds above the exponent byte."""
        return 0 if self.single else 1023 - self.excess

    @property
    def watched(self) -> bool:
        """True if starts note the largest exponents of sums; where they do not, only those of c can be too large."""
        return self.half

    @property
    def scale(self) -> int:
        """Sums are held times 2**scale."""
        return 0

    @property
    def extra_bits(self) -> int:
        """B is held times 1 + 2**-extra_bits."""
        return 16 if self.single else 30

    @property
    def growth(self) -> float:
        """Return what steps multiply sums by; 0 where the last bits of sums are set instead."""
        return 0.0 if self.single or self.half else 1 + 2.0**-self.extra_bits

    @property
    def notes_singles(self) -> bool:
        """True if the exponents of c are noted as f32 has them, in which all but zeros and subnormals have their own."""
        return not self.half and (self.single or not self.smallest_c)

    @property
    def raw(self) -> bool:
        """True if values of A are their codes' bits in the lowest exponents of f64, which takes no conversion."""
        element = self.a.element
        return not self.single and self.byte_vector == 64 and element.itemsize == 2 and element.width == 15

    @property
    def decoded_scale(self) -> int:
        """log2 of a true product over that of the values that are decoded."""
        element = self.a.element
        return (1023 - element.bias if self.raw else element.decoded_scale) + self.b.element.decoded_scale

    @property
    def paired(self) -> bool:
        """True if a vector of f32 lanes has the sums of two rows, column by column: A's values are pairs of rows, B's are there twice."""
        return self.single and self.lanes == 2 * COLUMNS

    @property
    def in_bytes(self) -> bool:
        """True if exponents and signs of f16 are decoded as bytes: lines have two rows of which one is two after the other."""
        both = (self.a, self.b)
        return self.raw and self.unit == 16 and all(spec.element.exponent_bits == 5 and not spec.normal for spec in both)

    def line(self, number: int) -> tuple[int, ...]:
        """Return the rows whose results a group has."""
        if self.in_bytes:
            first = number // 2 * 4 + number % 2
            return first, first + 2
        rows = self.lanes // COLUMNS
        return tuple(range(number * rows, (number + 1) * rows))

    def place(self, number: int) -> int:
        """Return where in a decoded unit the value of an element of A lies; 16 change places where they are `paired`, 32 where `raw`."""
        if self.paired:
            row, k = divmod(number, self.unit)
            quad, inside = divmod(k % 16, 4)
            return 2 * (row // 2 * self.unit + k - k % 16 + inside // 2 * 8 + quad * 2 + inside % 2) + row % 2
        if not self.raw:
            return number
        lane, inside = divmod(number % 32, 8)
        return number - number % 32 + inside // 2 * 8 + lane * 2 + inside % 2

    @property
    def value_bytes(self) -> int:
        """Size of a decoded value."""
        return 4 if self.single else 8

    @property
    def words(self) -> int:
        """32-bit words of signs of a unit of a row or column."""
        return max(2 * self.unit // 32, 1)

    @property
    def word_of_step(self) -> bool:
        """True if each word has the signs of one step: 16 negative ones, then 16 positive ones (B's the other way round).

        Else there are words of negative ones, then words of positive ones.
        """
        return self.words > 1 and all(step == tuple(range(16 * number, 16 * number + 16)) for number, step in enumerate(self.steps))

    @property
    def values_size(self) -> int:
        """Bytes of the decoded values of a unit of A's block."""
        return ROWS * self.unit * self.value_bytes

    @property
    def left_words(self) -> int:
        """Where in a decoded unit of A's block its words of signs lie, after values and exponent bytes."""
        return self.values_size + ROWS * self.unit

    @property
    def left_masks(self) -> int:
        """Where bits wait to become words."""
        return self.left_words + 128 * self.words

    @property
    def left_size(self) -> int:
        """Bytes of a decoded unit of A's block."""
        return self.left_masks + max(2 * ROWS * self.unit // 8, 64)

    @property
    def right_exponents(self) -> int:
        """Where in a decoded unit of B's panel the exponent bytes lie, twice each, after the values."""
        return COLUMNS * self.unit * self.value_bytes * (2 if self.paired else 1)

    @property
    def right_words(self) -> int:
        """Where its words of signs lie."""
        return self.right_exponents + 2 * COLUMNS * self.unit

    @property
    def right_masks(self) -> int:
        """Where bits wait to be put together by columns."""
        return self.right_words + 64 * (len(self.steps) if self.in_bytes else self.words)

    @property
    def right_bits(self) -> int:
        """Where they wait to become words."""
        return self.right_masks + max(2 * self.unit, 64)

    @property
    def right_size(self) -> int:
        """Bytes of a decoded unit of B's panel."""
        return self.right_bits + max(2 * self.unit, 64)

    @property
    def places(self) -> list[tuple[int, int]]:
        """The row (of two) and the column of each result of a line, in the order of the lanes of groups."""
        found = []
        for position in range(2 * COLUMNS):
            lane = position % self.lanes
            quad, part, low = lane // 4, lane // 2 % 2, lane % 2
            if self.paired:
                found.append((lane % 2, lane // 2))
            elif self.single:
                found.append((position // COLUMNS, lane))
            elif self.lanes == 2 * COLUMNS:
                found.append((part, 2 * quad + low))
            else:
                found.append((position // COLUMNS, 4 * part + 2 * quad + low))
        return found

    @property
    def block_size(self) -> int:
        """Bytes of a block's own memory: emax of every step."""
        return ROWS * COLUMNS * len(self.steps)
