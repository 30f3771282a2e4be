"""A multiplication as the kernels of chains see it: where its matrices lie, and its place in a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.kernels.llvm.compilation import inner
from fastmma.kernels.macro_tiles import MacroTile, MacroTiles, OfWorkers
from fastmma.kernels.matrices.addresses import LINES, NOWHERE, Matrix, batch_matrix, matrix, rows_from

STEPS = 1 << 25  # of a macro tile, which takes some hundredths of a second
_TILES_AT_ONCE = 256


class ChainArguments(NamedTuple):
    """A multiplication: where its matrices lie and how large they are."""

    a: Matrix
    b: Matrix
    c: Matrix
    out: Matrix
    rows: int
    columns: int
    depth: int


@inner
def tile(batch: ChainArguments, index: int) -> ChainArguments:
    """Product `index` of a contiguous batch."""
    return ChainArguments(
        batch_matrix(batch.a, index, batch.rows * batch.depth),
        batch_matrix(batch.b, index, batch.depth * batch.columns),
        batch_matrix(batch.c, index, batch.rows * batch.columns),
        batch_matrix(batch.out, index, batch.rows * batch.columns),
        batch.rows,
        batch.columns,
        batch.depth,
    )


def product_of(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, out: NDArray[Any]) -> ChainArguments:
    """A product of matrices, or the first of a batch."""
    rows, columns = out.shape[-2:]
    return ChainArguments(matrix(a), matrix(b), NOWHERE if c is None else matrix(c), matrix(out), rows, columns, a.shape[-1])


def each_tile(count: int, threads: int, run: Callable[[int, int], None]) -> None:
    """Call ``run(first, last)`` over the products of a batch."""
    parallel_for(lambda start, stop, _worker: run(start, stop), count, threads, grain=_TILES_AT_ONCE)


def each_block(product: ChainArguments, steps: int, threads: int, run: Callable[[ChainArguments, int, int], None]) -> None:
    """Call ``run(rows, first_column, last_column)`` over some rows of a product and `LINES` of its columns, about `steps` a macro tile."""
    high = max(steps // (LINES * max(product.depth, 1)) // LINES, 1) * LINES

    def compute(macro_tile: MacroTile, _memory: None) -> None:
        a, c, out = (rows_from(whole, macro_tile.row) for whole in (product.a, product.c, product.out))
        run(product._replace(a=a, c=c, out=out, rows=macro_tile.last_row - macro_tile.row), macro_tile.column, macro_tile.last_column)

    MacroTiles(product.rows, product.columns, high, LINES).run(threads, OfWorkers(lambda: None), compute)
