"""The row of a table that a choice names, or which of its fields the table does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastmma.host.errors import OperandError
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.rows import LaneRow, Product, Table, TileRow
from fastmma.products.cublas.segments import cut_segments

Row = TileRow | LaneRow
_FLOATS = {"f32": "tf32", "tf32": "f32"}
# what must fit, in this order: the first that no row has is named
_CHECKS: tuple[tuple[str, Callable[[Row, Choice, Product], bool]], ...] = (
    ("algo", lambda row, choice, _: row.algo == choice.algo),
    ("format", lambda row, _, product: product.fmt in row.formats),
    ("stages", lambda row, choice, _: _fits_stages(row, choice)),
    ("custom", lambda row, choice, _: _fits_custom(row, choice)),
    ("inner", lambda _row, choice, _: choice.inner == 0),
    ("swizzle", lambda _row, choice, _: choice.swizzle in (0, 1)),
    ("layout", lambda row, _, product: _fits_layout(row, product)),
    ("result", lambda row, _, product: isinstance(row, LaneRow) or not row.outs or product.out in row.outs),
    ("split_k", lambda row, choice, product: _fits_parts(row, choice, product)),
    ("reduction", lambda row, choice, _: _fits_reduction(row, choice)),
    ("K", lambda row, _, product: not row.most_k or product.k <= row.most_k),
    ("results", lambda row, _, product: not isinstance(row, LaneRow) or not row.most_results or product.m * product.n <= row.most_results),
)


def _fits_stages(row: Row, choice: Choice) -> bool:
    if isinstance(row, LaneRow):
        return choice.stages in (0, 31)
    return not row.stages or choice.stages in row.stages


def _fits_custom(row: Row, choice: Choice) -> bool:
    if isinstance(row, LaneRow):
        return row.custom == choice.custom
    return not row.customs or choice.custom in row.customs


def _fits_layout(row: Row, product: Product) -> bool:
    if isinstance(row, TileRow):
        return not row.layouts or (product.layout in row.layouts and not product.stacked)
    if row.by_vector != product.is_by_vector and row.by_vector:
        return False
    if row.contiguous is not None and row.contiguous != product.is_contiguous:
        return False
    return not row.layouts or product.layout in row.layouts


def _fits_parts(row: Row, choice: Choice, product: Product) -> bool:
    if isinstance(row, LaneRow):
        return choice.split_k <= 1 or bool(row.counts)
    if row.segments is not None:
        return choice.split_k < 1 and cut_segments(row.segments, choice, product) is not None
    if choice.split_k < 1:  # the choice does not say
        if row.most_k_unsaid and product.k > row.most_k_unsaid:
            return False
        return choice.reduction == 0 or choice.parts_unsaid_are_one(row.most_workspace)
    if row.most_left_out is not None and row.left_out(product, choice.parts) > row.most_left_out:
        return False
    return choice.split_k == 1 or bool(row.joins)


def _fits_reduction(row: Row, choice: Choice) -> bool:
    if isinstance(row, LaneRow) or choice.split_k <= 1:
        return True
    return choice.reduction in dict(row.joins)


def find_row(table: Table, choice: Choice, product: Product) -> Row:
    """Find the row of a choice.

    Raises
    ------
    OperandError
        If there is none; it names the field, and its value.
    """
    left: tuple[Row, ...] = table.rows
    for name, known in _seen(table, choice, product):
        if not known:
            raise _unknown(table, choice, product, name)
    for name, check in _CHECKS:
        fitting = tuple(row for row in left if check(row, choice, product))
        if not fitting:
            raise _unknown(table, choice, product, name)
        left = fitting
    return left[0]


def find_row_as_computed(table: Table, choice: Choice, product: Product) -> tuple[Row, Product]:
    """Find the row of a choice for float32 that is multiplied as the algorithm multiplies it, in TF32 or not; return the product so.

    Raises
    ------
    OperandError
        If there is none; it names the field, and its value.
    """
    formats = {fmt for row in table.rows if row.algo == choice.algo for fmt in row.formats}
    if product.fmt in _FLOATS and product.fmt not in formats:
        product = product._replace(fmt=_FLOATS[product.fmt])
    return find_row(table, choice, product), product


def _seen(table: Table, choice: Choice, product: Product) -> Iterator[tuple[str, bool]]:
    """Yield attributes that do not choose a row, and whether a GPU's answers have their values."""
    seen = table.seen.get(choice.algo)
    if seen is None or product.fmt == "s8":
        return
    yield "tile", choice.tile in seen.tiles
    yield "cluster", choice.cluster in seen.clusters
    yield "split_k", choice.split_k in seen.unsaid or seen.least_parts <= choice.split_k <= seen.most_parts


def _unknown(table: Table, choice: Choice, product: Product, name: str) -> OperandError:
    layout = f"{product.layout} in stacks" if product.stacked else product.layout
    values = {"format": product.fmt, "layout": layout, "result": product.out, "K": product.k, "results": product.m * product.n}
    value = values.get(name, getattr(choice, name, None))
    where = f"cuBLASLt {table.version} on {table.gpu}"
    return OperandError(f"{where}: nothing is known of {name} {value} in the choice {choice} for {product}")
