"""The loop over k: chunks between promotions, and the parts of split-k, joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from fastmma.backends.call import Codes, Operands, Operation, cut
from fastmma.backends.engine import Backend
from fastmma.kernels.params import Promotion
from fastmma.products.by_tile import Cuts
from fastmma.products.order import IN_PLACE, SECOND_HALF, WORKSPACE, Order

T = TypeVar("T")


def accumulate(
    backend: Backend, operation: Operation, operands: Operands, d: Codes, promotion: Promotion | None, order: Order, threads: int
) -> None:
    """Write products to `d`: each part of k from zero (the first from c), the parts joined by IEEE adds.

    Where promotions have scales, `order.unit` is a multiple of the chunks between them.

    Raises
    ------
    OperandError
        If the parts are not those of the operands' k.
    """
    if order.parts == 1:
        _part(backend, operation, operands, d, promotion, threads, order.first_tile)
        return
    places = order.places(operands.depth)
    if places is not None:
        operands = operands._replace(a=operands.a[:, :, places], b=operands.b[:, places])
    for rows, columns, cuts in order.blocks(d.shape[1], d.shape[2], operands.depth):
        whole = rows == slice(0, d.shape[1]) and columns == slice(0, d.shape[2])
        given = operands if whole else operands.lines(rows, columns)
        scaled = promotion if promotion is None else promotion.part(slice(None), rows, columns)
        _join(backend, operation, given, d[:, rows, columns], scaled, cuts, order, threads)


def _join(
    backend: Backend,
    operation: Operation,
    operands: Operands,
    d: Codes,
    promotion: Promotion | None,
    cuts: Cuts,
    order: Order,
    threads: int,
) -> None:
    """A block of the results from its parts of k."""
    if len(cuts) == 1:
        _part(backend, operation, operands, d, promotion, threads, order.first_tile)
        if order.join == WORKSPACE and isinstance(order.parts, int):  # of several parts only one has any k
            d[...] = _round(backend, d, order.join_dtype, threads)
        return
    ins = operation.instruction

    def parts() -> Iterable[Codes]:
        for start, stop in cuts:
            part_operands = cut(ins, operands, start, stop)._replace(c=operands.c if start == 0 else None)
            chunks = None
            if promotion is not None:
                inside = slice(start // promotion.every, -(-stop // promotion.every))
                chunks = promotion.part(inside, slice(None), slice(None))
            part = backend.empty(d.shape, d.dtype)
            _part(backend, operation, part_operands, part, chunks, threads, order.first_tile)
            first = order.join == IN_PLACE and start == 0
            yield _round(backend, part, order.join_dtype if first or order.join != IN_PLACE else "", threads)

    def add(total: Codes, part: Codes) -> Codes:
        narrow = "" if order.join == WORKSPACE else order.join_dtype
        return _round(backend, backend.join(total, part, ins.formats.d), narrow, threads)

    d[...] = join_parts(parts(), order, add)


def join_parts(parts: Iterable[T], order: Order, add: Callable[[T, T], T]) -> T:
    """Join parts of k, which are given in ascending order, as `order` says, by a sum of two."""
    if order.join == SECOND_HALF and isinstance(order.parts, int):
        return _folded(parts, order.parts, add)
    if order.join == "pairwise":
        return _pairwise(parts, add)
    return _pairwise(reversed(list(parts)), add) if order.join == "pairwise from the end" else _ascending(parts, add)


def _folded(parts: Iterable[T], count: int, add: Callable[[T, T], T]) -> T:
    """Add the second half of so many parts to the first ones in turn, the last of them to the first one, and then these up."""
    half, turn = -(-count // 2), max(count // 2 - 1, 1)
    sums: list[T] = []
    for number, part in enumerate(parts):
        if number < half:
            sums.append(part)
        else:
            at = (number - half) % turn
            sums[at] = add(sums[at], part)
    return _ascending(sums, add)


def _ascending(parts: Iterable[T], add: Callable[[T, T], T]) -> T:
    """((first + second) + third) + ..."""
    total: T | None = None
    for part in parts:
        total = part if total is None else add(total, part)
    assert total is not None
    return total


def _pairwise(parts: Iterable[T], add: Callable[[T, T], T]) -> T:
    """Neighbours are added, then the neighbours of these sums, until one is left; what has no neighbour waits for the next round."""
    sums: list[tuple[int, T]] = []  # how many parts each is the sum of: falling powers of two
    for part in parts:
        count, total = 1, part
        while sums and sums[-1][0] == count:
            count, total = 2 * count, add(sums.pop()[1], total)
        sums.append((count, total))
    total = sums.pop()[1]
    while sums:
        total = add(sums.pop()[1], total)
    return total


def _round(backend: Backend, sums: Codes, fmt: str, threads: int) -> Codes:
    """f32 sums (T, M, N) rounded to a format, or as they are where there is none."""
    return backend.rounded(sums, fmt, threads) if fmt else sums


def _part(
    backend: Backend, operation: Operation, operands: Operands, d: Codes, promotion: Promotion | None, threads: int, first_tile: int
) -> None:
    """One part of k."""
    ins = operation.instruction
    left_over = operands.depth % first_tile if first_tile else 0
    if left_over % ins.k and left_over < operands.depth:
        started = backend.empty(d.shape, d.dtype)
        backend.run(operation, cut(ins, operands, 0, left_over)._replace(c=operands.c), started, threads)
        backend.run(operation, cut(ins, operands, left_over, operands.depth)._replace(c=started), d, threads)
    elif promotion is None:
        backend.run(operation, operands, d, threads)
    elif ins.dtype == "f32":
        backend.promoted(operation, operands, d, promotion, threads)
    else:
        total = operands.c
        for start in range(0, operands.depth, promotion.every):
            partial = backend.empty(d.shape, d.dtype)
            backend.run(operation, cut(ins, operands, start, min(start + promotion.every, operands.depth)), partial, threads)
            total = partial if total is None else backend.join(total, partial, ins.formats.d, stage="promotion")
        d[...] = 0 if total is None else total
