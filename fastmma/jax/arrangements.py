"""The matrices that the operands of dot_general are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Dimensions = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


@dataclass(frozen=True)
class Arrangement:
    """The arrangement by which the dimensions of two operands become those of matrices.

    Attributes
    ----------
    lhs, rhs : tuple of int
        The dimensions of either operand in the order (batch, M, K) and (batch, K, N).
    batch : tuple of int
        Extents.
    m, n, k : int
    shape : tuple of int
        Of the result.
    """

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    shape: tuple[int, ...]


def arrangement(lhs: tuple[int, ...], rhs: tuple[int, ...], dimensions: Dimensions) -> Arrangement:
    """The arrangement of operands of some shapes."""
    contracted, (lhs_batch, rhs_batch) = (tuple(map(tuple, pair)) for pair in dimensions)
    lhs_k, rhs_k = sort_contracted(*contracted)
    lhs_free = tuple(each for each in range(len(lhs)) if each not in (*lhs_k, *lhs_batch))
    rhs_free = tuple(each for each in range(len(rhs)) if each not in (*rhs_k, *rhs_batch))
    batch, rows, columns = (tuple(lhs[each] for each in lhs_batch), [lhs[each] for each in lhs_free], [rhs[each] for each in rhs_free])
    m, n, k = math.prod(rows), math.prod(columns), math.prod(lhs[each] for each in lhs_k)
    shape = (*batch, *rows, *columns)
    return Arrangement((*lhs_batch, *lhs_free, *lhs_k), (*rhs_batch, *rhs_k, *rhs_free), batch, m, n, k, shape)


def sort_contracted(lhs: Sequence[int], rhs: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return contracted dimensions in the order in which XLA makes one k of them, the first slowest.

    XLA sorts them if those of an operand lie side by side and are not sorted, unless the other operand's, side by side too, are sorted.

    Examples
    --------
    >>> sort_contracted((2, 0), (1, 0))
    ((0, 2), (0, 1))
    >>> sort_contracted((1, 0), (0, 1))
    ((1, 0), (0, 1))
    """
    sides = tuple(lhs), tuple(rhs)
    together = [len(side) > 1 and max(side) - min(side) == len(side) - 1 for side in sides]
    is_sorted = [list(side) == sorted(side) for side in sides]
    if not any(together) or any(beside and ordered for beside, ordered in zip(together, is_sorted, strict=True)):
        return sides
    order = sorted(range(len(lhs)), key=sides[0 if together[0] else 1].__getitem__)
    return tuple(lhs[each] for each in order), tuple(rhs[each] for each in order)
