"""The rows of a table of cuBLASLt's kernels: what is known of those that add alike, on one GPU, in one version of the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fastmma.products.lanes import Lanes
from fastmma.products.order import split

NARROW = ("f16", "bf16")  # formats of results to which parts may be rounded
HALF_SUMS = "f16acc"  # names products of f16 that are summed in f16, CUBLAS_COMPUTE_16F
BYTES = {"f32": 4, "tf32": 4, "f16": 2, HALF_SUMS: 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "s8": 1}  # of an element
_SAID = {HALF_SUMS: "f16 in f16"}
_LINE = 128  # bytes of a line of a cache


class Product(NamedTuple):
    """A product that a library is asked for."""

    fmt: str  # of a and b, and how they are multiplied: f32 or tf32, f16 or `HALF_SUMS`
    layout: str  # of a and b: n where rows are contiguous, t where columns are
    m: int
    n: int
    k: int
    out: str  # the format of the result
    stacked: bool = False  # whether it is one of several, which are computed at once

    @property
    def is_by_vector(self) -> bool:
        """Tell whether one of the operands has one row or column."""
        return self.m == 1 or self.n == 1

    @property
    def is_contiguous(self) -> bool:
        """Tell whether k is contiguous in the matrix that a vector is multiplied by."""
        return (self.m == 1 and (self.n == 1 or self.layout[1] == "t")) or (self.n == 1 and self.layout[0] == "n")

    @property
    def is_aligned(self) -> bool:
        """Tell whether N, K, and M where the columns of a are contiguous, are multiples of 8."""
        return not (self.n % 8 or self.k % 8 or (self.layout[0] == "t" and self.m % 8))

    @property
    def is_lined(self) -> bool:
        """Tell whether the lines that lie in whole, of a, b and the result, are multiples of 8 long, or of one element."""
        lengths = self.k if self.layout[0] == "n" else self.m, self.n if self.layout[1] == "n" else self.k, self.n
        return all(length % 8 == 0 or length == 1 for length in lengths)

    def __str__(self) -> str:
        return f"{_SAID.get(self.fmt, self.fmt)} {self.layout} of M = {self.m}, N = {self.n}, K = {self.k}"


class Segments(NamedTuple):
    """What decides how kernels cut the k of their last tiles into parts that choices do not say, so that all multiprocessors work.

    A kernel takes as many parts as take the least time, in tiles of k: those of a part, and a cost each time that the sums of two
    are joined.
    """

    filled: dict[int, int]  # how many multiprocessors clusters fill, by their size
    costs: dict[
        tuple[int, int], tuple[int, int]
    ]  # at least and at most, in tenths of a tile of k, by the sides of a tile, the shorter first
    other_costs: tuple[int, int]
    costs_after_waves: tuple[int, int]  # where other tiles are whole, and parts are counted in whole tiles of k
    unlike: frozenset[tuple[int, tuple[int, int]]] = frozenset()  # sizes of clusters and sides of tiles that are cut otherwise
    usual_cost: int = 0  # that foretells most products; 0 where none is known
    usual: tuple[int, int] = (0, 1)  # of fresh products whose parts are not sure: how many took those of the usual cost
    depth: int = 32  # k of a tile
    as_is: tuple[str, ...] = ()  # layouts of products that kernels compute as they are, and not transposed


@dataclass(frozen=True)
class TileRow:
    """Kernels that take k in tiles, by an instruction of a tensor core or in chains of fma.

    Attributes
    ----------
    algo : int
    stages : tuple of int
        Empty for any.
    formats : tuple of str
        Of both operands; tf32 and f32 are float32 arrays.
    instruction : str
        ``"wgmma"`` or ``"tcgen05"``, which stand for the target's own, the shape of an mma, or ``"fma"``.
    tile : int
        k of a tile, where what is left over of one comes first; 0: last.
    align : int
        How many bytes of k the parts' length is rounded up to a multiple of; 0: there are no parts.
    lined : bool
        Whether that is 128 bytes where K is a multiple of those, and k is contiguous in an operand, as CUTLASS has it.
    floors : bool
        Whether the length is rounded up from K // parts.
    leaves_out : bool
        Whether k beyond as many parts are left out; if not, they are a part more.
    dealt : int
        Tiles of so many k are dealt to the parts in turn; 0: parts lie side by side.
    joins : tuple of (int, str)
        How parts are joined, by the reduction scheme. ``"workspace"`` and ``"in-place"`` round to the result's format.
    promote_every : int
        k between promotions, where fast accumulation is not asked for; 0: none.
    ends, split_ends, in_place_ends : str
        The rows of `fastmma.products.presets.KERNEL_EPILOGUES` for one part of k, for several, and for several in place.
    biased_ends : str
        The row for several parts in place that are given a bias, if it joins after all of them; empty: it is of `in_place_ends` too.
    customs : tuple of int
        The custom options; empty for all.
    most_k : int
        The largest K of which it is known; 0: all.
    most_workspace : int
        In bytes: where the choice does not say its parts, it has one if it needs no more than this.
    most_k_unsaid : int
        The largest K of which a choice that does not say its parts is known to have one; 0: all.
    segments : Segments, optional
        What decides the parts where the choice does not say them.
    layouts, outs : tuple of str
        The layouts of single products, and the formats of results, of which it is known; empty for all, and for stacks.
    most_left_out : int, optional
        How many k parts are known to leave out at most; None for any number.
    """

    algo: int
    stages: tuple[int, ...]
    formats: tuple[str, ...]
    instruction: str
    tile: int = 0
    align: int = 0
    lined: bool = False
    floors: bool = False
    leaves_out: bool = False
    dealt: int = 0
    joins: tuple[tuple[int, str], ...] = ()
    promote_every: int = 0
    ends: str = "fma16"
    split_ends: str = "add-rounded"
    in_place_ends: str = "in-place fma"
    biased_ends: str = ""
    customs: tuple[int, ...] = ()
    most_k: int = 0
    most_workspace: int = 1023
    most_k_unsaid: int = 0
    segments: Segments | None = None
    layouts: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()
    most_left_out: int | None = None

    def unit(self, product: Product, itemsize: int) -> int:
        """Find how many k the length of a part is a multiple of."""
        line = _LINE // itemsize
        if self.lined and product.k % line == 0 and product.layout != "tn":
            return line
        return self.align // itemsize

    def left_out(self, product: Product, parts: int) -> int:
        """Count the k that are in none of so many parts."""
        unit = self.unit(product, BYTES[product.fmt])
        return product.k - split(product.k, parts, unit, leaves_out=True)[-1][1] if self.leaves_out and parts > 1 else 0


@dataclass(frozen=True)
class LaneRow:
    """Kernels off the tensor cores, whose threads share k.

    Attributes
    ----------
    algo, custom : int
    lanes : Lanes
        For one part of k.
    formats : tuple of str
    layouts : tuple of str
        Of matrices; empty for any.
    contiguous : bool, optional
        For vectors: whether k is contiguous in the matrix; None for either.
    by_vector : bool
        Whether the kernels multiply by a vector, and only by one.
    counts : {"", "parts", "blocks"}
        What the choice's split of k counts.
    most_k, most_results : int
        The largest K, and most elements of a result, of which it is known; 0: all.
    ends, split_ends : str
        The rows of `fastmma.products.presets.KERNEL_EPILOGUES` for one part of k, and for several.
    scaled : {"", "a", "vector"}
        The operand that alpha multiplies first, in f32, if it does not multiply the sums.
    """

    algo: int
    custom: int
    lanes: Lanes
    formats: tuple[str, ...]
    layouts: tuple[str, ...] = ()
    contiguous: bool | None = None
    by_vector: bool = False
    counts: str = ""
    most_k: int = 0
    most_results: int = 0
    ends: str = "lanes"
    split_ends: str = "lanes"
    scaled: str = ""


class Seen(NamedTuple):
    """The values that a GPU's answers have for the attributes of an algorithm that do not decide its order.

    Attributes
    ----------
    tiles, clusters : frozenset of int
        0, which says none, is among them.
    least_parts, most_parts : int
        The smallest and the largest split of k.
    unsaid : tuple of int
        The values of a split of k that do not say the parts.
    """

    tiles: frozenset[int] = frozenset((0,))
    clusters: frozenset[int] = frozenset((0,))
    most_parts: int = 1
    unsaid: tuple[int, ...] = ()
    least_parts: int = 1


class Table(NamedTuple):
    """What is known of the kernels of one version of the library on one GPU."""

    gpu: str
    version: str
    source: str  # why products without a rate are assumed
    rows: tuple[TileRow | LaneRow, ...]
    rates: dict[tuple[int, str], tuple[int, int]]  # by algo and format, of fresh products: how many had every bit, of how many
    seen: dict[int, Seen]  # by algo
    segments: dict[int, tuple[int, int]]  # by algo, the rates of kernels whose parts follow from `Segments`
    parts: str  # the file of the map of parts: in how many the library takes k for layers of usual models
    answers: str  # the file of what the library chose for such layers where its algorithm is another
    trees: str  # the file of trees that predict what it chooses for others
    cache: int = 0  # bytes of the GPU's second-level cache
    other_trees: str = ""  # of those for f16 that is summed in f16, and for parts that are joined in f32 alone; empty where there are none


def ranges(spelled: str) -> frozenset[int]:
    """Return the numbers of a list, and 0.

    Examples
    --------
    >>> sorted(ranges("7 10-12"))
    [0, 7, 10, 11, 12]
    """
    bounds = [part.partition("-") for part in spelled.split()]
    return frozenset((0,)).union(*(range(int(first), int(last or first) + 1) for first, _, last in bounds))
