"""A register tile of word-wise dot products, as a value and as the Numba type that tells the emission."""

# Numba calls these with arguments that some of them do not need

from __future__ import annotations

from dataclasses import dataclass

from fastmma.kernels.llvm.kinds import constant

# what a word of A and a word of B can do, the elements of k in a word, and the `biases`
_OPERATIONS = {
    "bytes": (("signed by unsigned", "unsigned by signed"), 4, (-128, 128)),
    "bytes_alike": (("signed by signed", "unsigned by unsigned"), 4, (128, -128)),
    "pairs": (("int16 by int16",), 2, ()),
    "bits": (("xor", "and"), 32, ()),
    "bits_by_bytes": (("xor", "and"), 32, ()),
}


@constant
@dataclass(frozen=True)
class WordsConfig:
    """A register tile: a kind of words and a shape, for which code is compiled."""

    # "bytes" (needs VNNI), "bytes_alike" (needs sdot and udot), "pairs", "bits" or "bits_by_bytes" (counts ones in bytes first, where
    # lanes have no popcount)
    words: str
    lanes: int  # int32 lanes of one vector
    rows: int  # rows of A, at most `lanes`
    vectors: int  # vectors of columns of B

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the operations; which one runs is chosen at run time, by index."""
        return _OPERATIONS[self.words][0]

    @property
    def columns(self) -> int:
        """Columns of B that the tile covers."""
        return self.lanes * self.vectors

    @property
    def elements(self) -> int:
        """Elements of k in one word."""
        return _OPERATIONS[self.words][1]

    @property
    def biases(self) -> tuple[int, ...]:
        """Of each operation: what a byte of B was before it was flipped, less what it is then; none if bytes are never flipped."""
        return _OPERATIONS[self.words][2]

    @property
    def reads_anew(self) -> bool:
        """True if every row reads B, as operands of its products: a tile of few rows has no registers left that could hold it."""
        return 1 < self.rows < self.vectors and self.elements == 2

    @property
    def lines(self) -> int:
        """Neighbouring lines that are packed at once: a vector of bytes if panels have room for it, else as many as there are lanes."""
        return 4 * self.lanes if self.elements == 32 and self.columns % (4 * self.lanes) == 0 else self.lanes
