"""The configuration of a kernel for few rows of A."""

from __future__ import annotations

from dataclasses import dataclass

from fastmma.kernels.params import Element

WORD = 16  # signs of a step's products in a word


@dataclass(frozen=True)
class ThinConfig:
    """The configuration of the kernel.

    Sums are held as they are. Exponents of products are words: those of float64's fields.
    """

    element: Element  # of B
    along: bool  # whether adjacent k of B are adjacent in memory, and not adjacent columns
    bounded: bool  # whether to keep the lowest emax, where small products may have bits below those of f32
    terms: int  # of a step
    align_bits: int
    keep_bits: int
    half: bool
    floor: int  # the word below which emax does not fall
    vector_bytes: int
    rows: int  # of a block
    groups: int  # of columns in a tile

    @property
    def single(self) -> bool:
        """True if lanes are f32."""
        return False

    @property
    def lanes(self) -> int:
        """Columns in a group."""
        return self.vector_bytes // 4

    @property
    def tile(self) -> int:
        """Columns whose sums are in registers at a time."""
        return self.groups * self.lanes

    @property
    def excess(self) -> int:
        """What a word holds above the exponent."""
        return 1023

    @property
    def lift(self) -> int:
        """What an exponent field of a sum holds above the word."""
        return 0

    @property
    def scale(self) -> int:
        """Sums are held times 2**scale."""
        return 0

    @property
    def growth(self) -> float:
        """Zero: the last bits of sums are set."""
        return 0.0

    @property
    def watched(self) -> bool:
        """True if starts note the largest exponents of sums."""
        return self.half

    @property
    def dropped(self) -> int:
        """Low bits that a magnitude loses in a word, where its largest is kept."""
        return self.element.mantissa_bits if self.element.width > 15 else 0

    @property
    def words(self) -> int:
        """Words of signs of a step."""
        return -(-self.terms // WORD)
