"""Plan books: the order of k that a library takes for a product of given shape, type and layout, as it was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from fastmma.host.environment import variable
from fastmma.host.errors import OperandError
from fastmma.products.book_file import NOT_RECORDED, PLACES, contents

VARIABLE = "FASTMMA_PLAN_BOOK"
FOLDER = Path(__file__).parent / "books"
BOOKS = {"cublas": FOLDER / "cublas.npz"}


class Request(NamedTuple):
    """A product that a library is asked for."""

    kind: str  # "product", or "biased" for one with a bias
    fmt: str  # of the multiplicands
    layout: str  # of a and b: n where rows are contiguous, t where columns are
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        kind = "" if self.kind == "product" else f"{self.kind} "
        return f"{kind}{self.fmt} {self.layout} of M = {self.m}, N = {self.n}, K = {self.k}"


@dataclass(frozen=True)
class Entry:
    """The order in which a library's kernel adds up a product.

    Attributes
    ----------
    instruction : str
        ``"wgmma"``, or the shape of an ``mma``.
    first_tile, split_k, split_unit, join
        As in `fastmma.GemmPlan`; the parts are joined in the format of the result where `join` rounds.
    ends : str
        The kernel's order of the epilogue: a row of `fastmma.products.presets.ENDS`.
    """

    instruction: str
    first_tile: int
    split_k: int
    split_unit: int
    join: str
    ends: str


class Book:
    """The entries of one library, by GPU and product, read from a file.

    Raises
    ------
    OperandError
        If the file is no plan book.
    """

    def __init__(self, path: Path) -> None:
        held = contents(path)
        self.library, self.through, self.gpus = held.library, held.through, held.gpus
        self._columns, self._found = held.places, held.found
        self._kinds = {kind: index for index, kind in enumerate(held.kinds)}
        self.entries = (None, *(Entry(*fields) for fields in held.entries))

    def __len__(self) -> int:
        return len(self._columns["m"])

    @cached_property
    def _places(self) -> dict[tuple[int, ...], int]:
        columns = (self._columns[name].tolist() for name in PLACES)
        return {place: index for index, place in enumerate(zip(*columns, strict=True))}

    def requests(self) -> list[Request]:
        """All products in the book."""
        kinds = list(self._kinds)
        columns = (self._columns[name].tolist() for name in PLACES)
        return [Request(kinds[kind][0], kinds[kind][1], kinds[kind][2], m, n, k) for kind, m, n, k in zip(*columns, strict=True)]

    def recorded(self, gpu: str, request: Request) -> bool:
        """Tell whether the GPU was asked for this product."""
        return self._index(gpu, request) != NOT_RECORDED

    def find(self, gpu: str, request: Request) -> Entry | None:
        """Return how the library adds up this product on a GPU; None where it is not recorded, or the order is one that no plan has.

        Examples
        --------
        >>> book("cublas").find("H200", Request("product", "bf16", "nn", 512, 512, 4096)).split_k
        2
        >>> book("cublas").find("H200", Request("product", "bf16", "nt", 512, 512, 4096)).split_k
        1
        """
        index = self._index(gpu, request)
        return None if index == NOT_RECORDED else self.entries[index]

    def _index(self, gpu: str, request: Request) -> int:
        kind = self._kinds.get(request[:3])
        place = None if kind is None else self._places.get((kind, *request[3:]))
        return NOT_RECORDED if place is None else int(self._found[gpu][place])


def book(library: str) -> Book:
    """The book of a library, which `BOOKS` names, or the one in its place that the variable ``FASTMMA_PLAN_BOOK`` names.

    Raises
    ------
    OperandError
        If the variable names no plan book.
    """
    return _read(variable(VARIABLE) or BOOKS[library])


@lru_cache(16)
def _read(path: str | Path) -> Book:
    try:
        return Book(Path(path))
    except OperandError as error:
        raise OperandError(f"{VARIABLE}: {path} is no plan book: {error}") from None
