"""Each family of kernels as one call: ``run(problem, operands, out, threads)`` writes products, and returns what it missed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fastmma.backends import fma, integer
from fastmma.backends.arranged import in_order, ordered, widened
from fastmma.backends.batches import each, in_turn
from fastmma.backends.call import Codes, Operands, Run
from fastmma.backends.parameters import element_of, fused_parameters, general_parameters, product_order, scaled_parameters
from fastmma.backends.problem import ALL, Missed, Place, Problem
from fastmma.backends.routes import ROUTES, Route, blocks_of, cpu, is_turned
from fastmma.host.threads import parallel_for
from fastmma.kernels.params import Promotion

Kernel = Callable[[Problem, Operands, Codes, int], Missed]
Chosen = Callable[[Operands], Any]  # the words of a product of sparse A, whose memory a selection points into

_PIECES = next(row.piece for row in ROUTES if row.piece)
_HEIGHT = 256  # rows of a piece


def thin(problem: Problem, operands: Operands, out: Codes, threads: int) -> Missed:
    """Pack the operand of few lines, and read the other one where it is."""
    from fastmma.kernels.fused import thin

    missed: list[Place] = []
    turned, p = is_turned(problem), fused_parameters(problem.operation)
    for index, (product, results) in enumerate(zip(each(widened(problem.operation, operands)), out, strict=True)):
        a, b, c, d = product.a, product.b, product.c, results
        if turned:  # factors commute
            a, b, c, d = b.T, a.T, None if c is None else c.T, d.T
        left = thin.multiply(p._replace(a=p.b, b=p.a) if turned else p, a, b, c, d, threads)
        missed += [Place(slice(index, index + 1), *(lines[::-1] if turned else lines)) for lines in left.places()]
    return missed


def panels(problem: Problem, operands: Operands, out: Codes, threads: int) -> Missed:
    """Pack both operands."""
    return panels_of(problem, widened(problem.operation, operands), out, threads)


def halves(problem: Problem, operands: Operands, out: Codes, threads: int) -> Missed:
    """Pack both operands; sums of an instruction that start at zero and join c are promotions."""
    operation = problem.operation
    products = widened(operation, ordered(operation, operands))
    return panels_of(problem, products, out, threads, Promotion(operation.instruction.k))


def panels_of(
    problem: Problem, operands: Operands, out: Codes, threads: int, promotion: Promotion | None = None, chosen: Chosen | None = None
) -> Missed:
    """Pack both operands, which are as they are multiplied; of sparse A of each product what is `chosen` is stored."""
    from fastmma.kernels.fused import x86

    missed: list[Place] = []
    p = fused_parameters(problem.operation)._replace(restart=0)
    turned = chosen is None and is_turned(problem) and (promotion is None or promotion.scale_a is None)
    for index, (product, results) in enumerate(zip(each(operands), out, strict=True)):
        a, b, c, d = product.a, product.b, product.c, results
        if turned:  # factors commute, and rows take longer to pack than columns
            a, b, c, d = b.T, a.T, None if c is None else c.T, d.T
        joining = None if promotion is None else promotion.of(index)
        words = None if chosen is None else chosen(product)
        left = x86.multiply(
            p._replace(a=p.b, b=p.a) if turned else p, a, b, c, d, threads, joining, chosen=None if words is None else words.selection
        )
        missed += [Place(slice(index, index + 1), *(lines[::-1] if turned else lines)) for lines in left.places()]
    return missed


def blocks(problem: Problem, operands: Operands, out: Codes, threads: int) -> Missed:
    """Compute whole products in blocks."""
    _, rows, columns, depth = problem.extents
    found = blocks_of(problem.operation, rows, columns, depth, cpu().usable())
    assert found is not None
    bad = found.run(operands.a, operands.b, operands.c, out, threads)
    if not (bad[0] if len(bad) == 1 else bad.any()):
        return ALL
    return [Place(np.flatnonzero(bad), slice(None), slice(None))]


def pieces(problem: Problem, operands: Operands, out: Codes, threads: int) -> Missed:
    """Cut products into rows and columns that are computed in blocks apart."""
    products, rows, columns, depth = problem.extents
    found = blocks_of(problem.operation, rows, columns, depth, cpu().usable())
    assert found is not None
    high = min(rows, _HEIGHT)
    wide = max(_PIECES // (high * depth) // 8, 16) * 8
    down, across = -(-rows // high), -(-columns // wide)
    missed: list[Place] = []

    def work(index: int, _stop: int, _worker: int) -> None:
        product, place = divmod(index, down * across)
        top, left = place // across * high, place % across * wide
        lines = slice(top, top + high), slice(left, left + wide)
        part, results = operands.products(product, product + 1).lines(*lines), out[product : product + 1, lines[0], lines[1]]
        if found.run(part.a, part.b, part.c, results, 1)[0]:
            missed.append(Place(slice(product, product + 1), *lines))

    parallel_for(work, products * down * across, threads)
    return missed


def portable(problem: Problem, operands: Operands, out: Codes, threads: int) -> Missed:
    """Compute anything that the envelope holds."""
    from fastmma.kernels.fused import portable

    operation = problem.operation
    p, order = fused_parameters(operation), product_order(operation)

    def multiply(kernel: Callable[..., None], product: Operands, results: Codes) -> None:
        wide = widened(operation, product)
        kernel(p, wide.a, wide.b, wide.c, results, threads, order)

    in_turn(operation.instruction.k, operands, out, partial(multiply, portable.gemm), partial(multiply, portable.tiles))
    return ALL


def scaled(problem: Problem, operands: Operands, out: Codes, threads: int, small: bool = False) -> Missed:
    """Compute products with block scaling, which redo what they miss themselves; `small` ones are tried in one go."""
    from fastmma.kernels.scaled import dispatch

    p = scaled_parameters(problem.operation)

    def gemm(one: Operands, results: Codes) -> None:
        assert one.scale_a is not None
        assert one.scale_b is not None
        dispatch.gemm(p, one.a, one.b, one.c, results, one.scale_a, one.scale_b, threads, small)

    def tiles(many: Operands, results: Codes) -> None:
        assert many.scale_a is not None
        assert many.scale_b is not None
        dispatch.tiles(p, many.a, many.b, many.c, results, many.scale_a, many.scale_b, threads)

    in_turn(problem.operation.instruction.k, operands, out, gemm, tiles)
    return ALL


def general(problem: Problem, operands: Operands, out: Codes, threads: int) -> Missed:
    """Compute products by an arithmetic that no other kernel holds; operands are of whole instructions."""
    from fastmma.kernels.general import products

    operation = problem.operation
    if operation.arithmetic.split:
        operands = operands._replace(a=in_order(operation, operands.a, 2), b=in_order(operation, operands.b, 1))
    ins, scales = operation.instruction, None
    if operands.scale_a is not None and operands.scale_b is not None:
        own = ins.k // ins.scale_vec_size
        scale = scaled_parameters(operation).scale
        scales = scale, np.repeat(operands.scale_a, own, axis=2), np.repeat(operands.scale_b, own, axis=1)
    wide = widened(operation, operands)
    a, b = (element_of(fmt) for fmt in operation.multiplied)
    products.multiply(general_parameters(operation), a, b, wide.a, wide.b, wide.c, out, threads, scales)
    return ALL


def _whole(run: Run) -> Kernel:
    """Make a kernel of one that misses nothing."""

    def kernel(problem: Problem, operands: Operands, out: Codes, threads: int) -> Missed:
        run(problem.operation, operands, out, threads)
        return ALL

    return kernel


# by the names of rows
RUNS: dict[str, Kernel] = {
    "thin": thin,
    "blocks": blocks,
    "pieces in blocks": pieces,
    "thin, widened": thin,
    "panels": panels,
    "panels of halves": halves,
    "scaled tiles": scaled,
    "tiles of groups": scaled,
    "small groups": partial(scaled, small=True),
    "groups": scaled,
    "scaled panels": scaled,
    "scaled portable": scaled,
    "portable": portable,
    "general": general,
    "f64 panels": _whole(fma.f64_panels),
    "f64 chains": _whole(fma.f64),
    "f32 panels": _whole(fma.f32_panels),
    "f32 chains": _whole(fma.f32),
    "f32 panels from c": _whole(fma.f32_from_c_panels),
    "f32 chains from c": _whole(fma.f32_from_c),
    "bytes": _whole(integer.integer),
    "bits": _whole(integer.bit),
}


def kernel_of(row: Route) -> Kernel:
    """Find what computes the products of a row."""
    return RUNS[row.name]
