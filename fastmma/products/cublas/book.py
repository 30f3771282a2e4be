"""Plan books: what cuBLASLt chooses for products of given shape, types and layout on a GPU, as it was recorded."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fastmma.host.environment import variable
from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName
from fastmma.products.cublas.book_file import ADDENDS, ATTRIBUTES, LARGEST_SIZE, PLACES, SAMPLES, WORKSPACE, Kind, read_contents
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.rows import Product
from fastmma.products.library_gpu import library_gpu

VARIABLE = "FASTMMA_PLAN_BOOK"
_FOLDER = Path(__file__).parents[1] / "books"
SHIPPED = {gpu: _FOLDER / f"cublas_recorded_{gpu.lower()}_13_1.npz" for gpu in ("H100", "H200")}


class Recorded(NamedTuple):
    """What a library chooses for a product.

    Attributes
    ----------
    choice : Choice
        As far as it is known; without an algorithm where it is not.
    samples : int
        How many samples had the bits of its order; 0 where the order is not known.
    adds_bias_as_c : bool
    """

    choice: Choice
    samples: int
    adds_bias_as_c: bool = False


class Book:
    """The products of one GPU and version of the library, read from a file.

    Raises
    ------
    OperandError
        If the file is no plan book.
    """

    def __init__(self, path: Path) -> None:
        held = read_contents(path)
        self.name, self.library, self.version, self.how = held.gpu, held.library, held.version, held.how
        self.gpu = library_gpu(held.gpu)
        self.kinds = {kind: index for index, kind in enumerate(held.kinds)}
        self._rows, self._columns = held.choices, [held.columns[name] for name in PLACES]
        self._found = held.columns["choice"]

    def __len__(self) -> int:
        return len(self._found)

    def __str__(self) -> str:
        return f"{self.library} {self.version} {self.how} on {self.gpu}"

    def products(self) -> list[tuple[Kind, int, int, int]]:
        """List the products: their kind, M, N and K."""
        kinds = list(self.kinds)
        return [(kinds[kind], m, n, k) for kind, n, k, m in zip(*(column.tolist() for column in self._columns), strict=True)]

    def find(self, kind: str, product: Product, *, stack: int = 1, biased: bool = False) -> Recorded | None:
        """Find what the library chooses for a product; None where it is not recorded.

        Parameters
        ----------
        kind : str
            The type of the product: a row of `fastmma.products.cublas.book_file.TYPES`.
        product : Product
        stack : int
            How many such products are computed at once.
        biased : bool
            Whether a bias is added.

        Examples
        --------
        >>> print(shipped_book("H200").find("f16", Product("f16", "nt", 64, 51865, 1280, "f16")).choice)
        algo 24
        """
        if max(product[2:5]) > LARGEST_SIZE:
            return None
        for addend in ADDENDS[1:] if biased else ADDENDS[:1]:
            for out in (product.out, ""):
                number = self.kinds.get(Kind(kind, product.layout, out, addend, stack))
                place = None if number is None else self._place((number, product.n, product.k, product.m))
                if place is not None:
                    row = self._rows[self._found[place]].tolist()
                    choice = Choice.of_row(tuple(row[:ATTRIBUTES]))
                    choice = choice if row[WORKSPACE] < 0 else replace(choice, workspace=row[WORKSPACE])
                    return Recorded(choice, row[SAMPLES], addend == ADDENDS[-1])
        return None

    def _place(self, wanted: tuple[int, ...]) -> int | None:
        """Find the row of a product, column by column."""
        start, stop = 0, len(self)
        for column, value in zip(self._columns, wanted, strict=True):
            rows, wanted_here = column[start:stop], column.dtype.type(value)  # of another type, NumPy would convert all rows
            start, stop = (start + int(rows.searchsorted(wanted_here, side)) for side in ("left", "right"))
        return start if start < stop else None


@lru_cache(16)
def _read(path: Path) -> Book:
    return Book(path)


def read_book(path: str | Path, says: str) -> Book:
    """Read a book of the caller's.

    Parameters
    ----------
    path : str or Path
    says : str
        What names the file, for errors.

    Raises
    ------
    OperandError
        If it is no plan book.
    """
    try:
        return _read(Path(path))
    except OperandError as error:
        raise OperandError(f"{says}: {path} is no plan book: {error}") from None


def check_book(path: str | Path, target: TargetName) -> None:
    """Read a file of plans that an option names.

    Raises
    ------
    OperandError
        If it is no plan book, or is another GPU's.
    """
    found = read_book(path, "plans")
    if found.gpu != library_gpu(target):
        raise OperandError(f"plans: {path} has plans of {found.gpu}, not of {target}")


def own_book() -> Book | None:
    """Return the book that the variable ``FASTMMA_PLAN_BOOK`` names; None where it names none.

    Raises
    ------
    OperandError
        If it names a file that is no plan book.
    """
    path = variable(VARIABLE)
    return read_book(path, VARIABLE) if path else None


def shipped_book(gpu: str) -> Book | None:
    """Return the book of a GPU that ships with fastmma; None where there is none."""
    path = SHIPPED.get(gpu)
    return _read(path) if path else None


def book_of(gpu: str) -> Book | None:
    """Return the book that is asked about a GPU: the caller's own in place of the one that ships."""
    own = own_book()
    if own is None:
        return shipped_book(gpu)
    return own if own.gpu == gpu else None
