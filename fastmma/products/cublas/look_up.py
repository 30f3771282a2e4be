"""What is known of the choice of cuBLASLt for a product: the sources in the order in which they are asked, and how well each one knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from fastmma.products.choice_map import choice_map
from fastmma.products.cublas.answers import answers
from fastmma.products.cublas.book import Book
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.layers import FILES, layers
from fastmma.products.cublas.raster import takes_bands
from fastmma.products.cublas.rows import HALF_SUMS, NARROW, Product, Table, TileRow
from fastmma.products.cublas.segments import expect_workspace
from fastmma.products.cublas.tables import VERSION, nearest_table
from fastmma.products.cublas.trees import ALIKE, trees
from fastmma.products.evidence import OrderEvidence
from fastmma.products.presets import OnePart

_STAGES = {"f16": 35, "bf16": 35, "e4m3": 36, "e5m2": 36}  # of the algorithm that the map and the rules are about, by format
_OF_MAP = 66
_IN_BANDS = 43  # takes tiles in bands
_JOINING = (21, 23, 24)  # join parts of 16-bit products in several ways, of which a mask of reductions leaves some


class Question(NamedTuple):
    """A product whose choice is looked up.

    Attributes
    ----------
    gpu : str
    kind : str
        The type of the product, as books and the map name it.
    product : Product
    stack : int
        How many are computed at once.
    biased, added, scaled : bool
        Whether a bias is added, or c, and whether alpha or beta is not 1.
    row : bool
        Whether c is one row that is added as it is.
    wide : bool
        Whether parts of 16-bit products are joined in float32 alone.
    book : Book, optional
    is_own : bool
        Whether the book is the caller's: then nothing else is asked.
    rules : tuple of OnePart
    """

    gpu: str
    kind: str
    product: Product
    stack: int = 1
    biased: bool = False
    added: bool = False
    scaled: bool = False
    row: bool = False
    wide: bool = False
    book: Book | None = None
    is_own: bool = False
    rules: tuple[OnePart, ...] = ()

    @property
    def by_lt(self) -> bool:
        """Tell whether PyTorch calls cuBLASLt itself, with the workspace of a bias: also for c of one row, which is no bias there."""
        return self.biased or (self.row and 1 not in (self.product.n, self.product.k) and not self.product.stacked)

    def __str__(self) -> str:
        return f"{'a stack of ' if self.product.stacked else ''}{'biased ' if self.biased else ''}{self.product}"


class Known(NamedTuple):
    """A choice, by which table it is followed, and the evidence for it.

    Attributes
    ----------
    choice : Choice
    table : Table
    evidence : OrderEvidence, optional
        None where the order is as well known as the table's row.
    says : str
        How the library's choice is known, for evidence that is the table's.
    adds_bias_as_c : bool
    """

    choice: Choice
    table: Table
    evidence: OrderEvidence | None
    says: str = ":"
    adds_bias_as_c: bool = False


def _is_another_call(asked: Question) -> bool:
    """Tell whether PyTorch asks its library for something else: it adds a bias of one column as c, and one result is a dot product."""
    product = asked.product
    dot = product.m == product.n == 1 and product.fmt in ("f32", "tf32")
    return dot or (asked.biased and 1 in (product.n, product.k))


def find_recorded(asked: Question) -> Known | None:
    """Look a product up in the book: `unknown` where samples did not confirm the order of its choice."""
    found = None if asked.book is None else asked.book.find(asked.kind, asked.product, stack=asked.stack, biased=asked.by_lt)
    if found is None or asked.book is None or (not found.adds_bias_as_c and _is_another_call(asked)):
        return None
    table = nearest_table(asked.book.gpu, asked.book.version)
    if found.samples:
        evidence = OrderEvidence("recorded", f"{asked} as {asked.book}; confirmed by {found.samples:,} samples")
    else:
        said = f": {found.choice}" if found.choice.algo else ""
        evidence = OrderEvidence("unknown", f"the kernel of {asked} adds in an order that no plan has ({asked.book}{said})")
    return Known(found.choice, table, evidence, adds_bias_as_c=found.adds_bias_as_c)


def _find_in_map(asked: Question) -> Known | None:
    """Look up in how many parts the library takes k, where a GPU was asked for its choice."""
    table, product = nearest_table(asked.gpu, VERSION), asked.product
    if asked.stack > 1 or asked.gpu != table.gpu or product.fmt not in _STAGES:
        return None
    parts = choice_map(table.parts).find(asked.kind, product.layout, product.m, product.n, product.k, biased=asked.by_lt)
    if parts is None:
        return None
    return _of_parts(asked, parts, OrderEvidence("recorded", f"{asked} as cuBLASLt {table.version}.0 chooses on {table.gpu}"))


def _find_rule(asked: Question) -> Known | None:
    """Find the rule that says how the library takes a product which is not recorded."""
    product = asked.product
    for rule in asked.rules:
        about = rule.gpu == asked.gpu and product.fmt in rule.atypes and rule.stack == product.stacked
        if about and rule.holds(product.layout, product.m, product.n, product.k):
            return _of_parts(asked, 1, OrderEvidence("fitted", str(rule), rule.rate))
    return None


def _of_parts(asked: Question, parts: int, evidence: OrderEvidence) -> Known:
    """Return the choice of the algorithm that the map and the rules are about."""
    choice = Choice(_OF_MAP, stages=_STAGES[asked.product.fmt], split_k=parts, reduction=2 * (parts > 1))
    return Known(choice, nearest_table(asked.gpu, VERSION), evidence)


def _is_vector_with_c(asked: Question) -> bool:
    """Tell whether c is added to a vector in 16 bits, of sizes that are not aligned: PyTorch's library takes other kernels for some."""
    return asked.added and not asked.by_lt and asked.product.is_by_vector and asked.product.fmt in NARROW and not asked.product.is_aligned


def _find_layer(asked: Question) -> Known | None:
    """Look up what the library answered for this number of rows of a layer."""
    table = nearest_table(asked.gpu, VERSION)
    file = FILES.get((table.gpu, table.version))
    if asked.stack > 1 or table.gpu != asked.gpu or file is None or _is_vector_with_c(asked):
        return None
    choice = layers(file).find(asked.kind, asked.product, biased=asked.by_lt)
    if choice is None:
        return None
    evidence = (
        OrderEvidence("recorded", f"{asked} as cuBLASLt {table.version}.0 chooses on {table.gpu}") if choice.algo == _OF_MAP else None
    )
    return Known(choice, table, evidence, " chooses")


def _find_layer_in_parts(asked: Question) -> Known | None:
    """Find the same where it is the algorithm that the map is about."""
    found = _find_layer(asked)
    return found if found is not None and found.choice.algo == _OF_MAP else None


def _find_answer(asked: Question) -> Known | None:
    """Look up what the library answered for the layers of usual models."""
    table = nearest_table(asked.gpu, VERSION)
    known = asked.stack == 1 and not asked.by_lt and table.gpu == asked.gpu and not _is_vector_with_c(asked)
    choice = answers(table.answers).find(asked.product) if known else None
    if choice is None:
        return None
    expected, rate = _expected(asked, choice, (1, 1))
    source = f"cuBLASLt {table.version} on {table.gpu} chooses, and is predicted to add as by {expected}, for {asked.product}"
    return Known(expected, table, None if expected == choice else OrderEvidence("fitted", source, rate), " chooses")


def _predict(asked: Question) -> Known | None:
    """Ask the trees."""
    if asked.wide and (alike := _predict_alike(asked)) is not None:
        return alike
    table = nearest_table(asked.gpu, VERSION)
    file = table.other_trees if asked.wide or asked.product.fmt == HALF_SUMS else table.trees
    known = file and table.gpu == asked.gpu
    found = trees(file).predict(asked.product, asked.stack, biased=asked.by_lt, wide=asked.wide) if known else None
    if found is None or _is_vector_with_c(asked):
        return None
    if _ends_are_unclear(asked, found.choice):
        return None
    # trees do not tell whether bands are wide
    choice = replace(found.choice, swizzle=int(takes_bands(asked.product, table.cache))) if found.choice.algo == _IN_BANDS else found.choice
    choice, rate = _expected(asked, choice, found.rate)
    source = f"cuBLASLt {table.version} on {table.gpu} is predicted to add as by {choice}, for {asked.product}"
    return Known(choice, table, OrderEvidence("fitted", source, rate))


def _predict_alike(asked: Question) -> Known | None:
    """Ask the trees of products with all joins; None where others are to be asked."""
    found = _predict(asked._replace(wide=False))
    one_family = found is not None and (found.choice.algo != _OF_MAP or asked.product.is_aligned)
    return found if found is not None and one_family and found.choice.algo not in _JOINING else None


def _ends_are_unclear(asked: Question, choice: Choice) -> bool:
    """Tell whether algorithms that trees do not tell apart end differently: CUTLASS's do by factors alone, and cuBLAS's own by c."""
    product = asked.product
    if product.is_aligned or choice.algo not in ALIKE.get(product.fmt, ()):
        return False
    return (asked.added and (asked.scaled or (product.fmt in NARROW and product.is_lined))) or (asked.biased and asked.scaled)


def _expected(asked: Question, choice: Choice, rate: tuple[int, int]) -> tuple[Choice, tuple[int, int]]:
    """Give a choice that does not say its parts those of most products, and the lower rate then."""
    rows = (row for row in nearest_table(asked.gpu, VERSION).rows if isinstance(row, TileRow) and row.algo == choice.algo)
    segments = next((row.segments for row in rows if row.segments is not None and row.segments.usual_cost), None)
    expected = choice if segments is None else expect_workspace(segments, choice, asked.product)
    return expected, rate if segments is None or expected == choice else min(rate, segments.usual, key=lambda each: each[0] / each[1])


Source = Callable[[Question], Known | None]
SHIPPED_SOURCES: tuple[Source, ...] = (find_recorded, _find_in_map, _find_layer_in_parts, _find_rule)
PREDICTING_SOURCES: tuple[Source, ...] = (find_recorded, _find_layer, _find_answer, _predict)
ALL_SOURCES = (*SHIPPED_SOURCES, *PREDICTING_SOURCES[1:])


def look_up(asked: Question, sources: tuple[Source, ...]) -> Iterator[Known]:
    """Yield what is known of a product, the best known first; the caller takes the first that a plan follows.

    What is asked of joins in float32 alone is what is known of all joins, where the algorithm has no others, and else predicted.
    """
    if asked.wide and not nearest_table(asked.gpu, VERSION).other_trees:
        return
    for source in (find_recorded,) if asked.is_own else sources:
        if (found := source(asked)) is not None and not (asked.wide and source is not _predict and found.choice.algo in _JOINING):
            yield found
