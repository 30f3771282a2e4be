"""Each family of kernels as one call: ``run(problem, operands, out, threads)`` writes products, and returns what it leaves out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends import cdna, fma, integer
from fastmma.backends.arranged import in_order, ordered, widened
from fastmma.backends.batches import batches, each
from fastmma.backends.call import Codes, Operands, Run
from fastmma.backends.holds import blocks_of, cpu
from fastmma.backends.parameters import element_of, fused_parameters, general_parameters, product_order, scaled_parameters
from fastmma.backends.problem import ALL, Fallback, Fallbacks, Problem
from fastmma.backends.quantities import is_turned
from fastmma.backends.routes import ROUTES, Route
from fastmma.host.threads import parallel_for
from fastmma.kernels.params import Fused, Promotion, Scaled

if TYPE_CHECKING:
    from fastmma.kernels.macro_tiles import FallbackMask
    from fastmma.kernels.scaled.lines import ScaledOperands

Kernel = Callable[[Problem, Operands, Codes, int], Fallbacks]
Chosen = Callable[[Operands], Any]  # the words of a product of sparse A, whose memory a selection points into

_MACRO_TILE = next(row.macro_tile for row in ROUTES if row.macro_tile)
_HEIGHT = 256  # rows of a macro tile


def thin(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Pack the operand of few lines, and read the other one where it is."""
    from fastmma.kernels.fused import thin

    fallbacks: list[Fallback] = []
    turned, p = is_turned(problem), fused_parameters(problem.operation)
    for index, (product, results) in enumerate(each(widened(problem.operation, operands), out)):
        a, b, c, d = product.a, product.b, product.c, results
        if turned:  # factors commute
            a, b, c, d = b.T, a.T, None if c is None else c.T, d.T
        left = thin.multiply(p._replace(a=p.b, b=p.a) if turned else p, a, b, c, d, threads)
        fallbacks += [Fallback(slice(index, index + 1), *(lines[::-1] if turned else lines)) for lines in left.places()]
    return fallbacks


def panels(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Pack both operands."""
    return panels_of(problem, widened(problem.operation, operands), out, threads)


def halves(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Pack both operands; sums of an instruction that start at zero and join c are promotions."""
    operation = problem.operation
    products = widened(operation, ordered(operation, operands))
    return panels_of(problem, products, out, threads, Promotion(operation.instruction.k))


def panels_of(
    problem: Problem, operands: Operands, out: Codes, threads: int, promotion: Promotion | None = None, chosen: Chosen | None = None
) -> Fallbacks:
    """Pack both operands, which are as they are multiplied; of sparse A of each product what is `chosen` is stored."""
    from fastmma.kernels.fused import packed

    fallbacks: list[Fallback] = []
    p = fused_parameters(problem.operation)._replace(split=0)
    turned = chosen is None and is_turned(problem) and (promotion is None or promotion.scale_a is None)
    for index, (product, results) in enumerate(each(operands, out)):
        a, b, c, d = product.a, product.b, product.c, results
        if turned:  # factors commute, and rows take longer to pack than columns
            a, b, c, d = b.T, a.T, None if c is None else c.T, d.T
        joining = None if promotion is None else promotion.of(index)
        words = None if chosen is None else chosen(product)
        left = packed.multiply(
            p._replace(a=p.b, b=p.a) if turned else p, a, b, c, d, threads, joining, chosen=None if words is None else words.selection
        )
        fallbacks += [Fallback(slice(index, index + 1), *(lines[::-1] if turned else lines)) for lines in left.places()]
    return fallbacks


def blocks(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Compute whole products in blocks."""
    _, rows, columns, depth = problem.extents
    found = blocks_of(problem.operation, rows, columns, depth, cpu().usable())
    assert found is not None
    return _bad_products(found.run(operands.a, operands.b, operands.c, out, threads))


def _bad_products(bad: NDArray[np.uint8]) -> Fallbacks:
    """Name the products that are marked."""
    if not (bad[0] if len(bad) == 1 else bad.any()):
        return ALL
    return [Fallback(np.flatnonzero(bad), slice(None), slice(None))]


def macro_tiles(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Cut products into rows and columns that are computed in blocks apart."""
    products, rows, columns, depth = problem.extents
    found = blocks_of(problem.operation, rows, columns, depth, cpu().usable())
    assert found is not None
    high = min(rows, _HEIGHT)
    wide = max(_MACRO_TILE // (high * depth) // 8, 16) * 8
    down, across = -(-rows // high), -(-columns // wide)
    fallbacks: list[Fallback] = []

    def work(index: int, _stop: int, _worker: int) -> None:
        product, place = divmod(index, down * across)
        top, left = place // across * high, place % across * wide
        lines = slice(top, top + high), slice(left, left + wide)
        part, results = operands.products(product, product + 1).lines(*lines), out[product : product + 1, lines[0], lines[1]]
        if found.run(part.a, part.b, part.c, results, 1)[0]:
            fallbacks.append(Fallback(slice(product, product + 1), *lines))

    parallel_for(work, products * down * across, threads)
    return fallbacks


def scaled_panels(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Pack both operands with their scales, which are powers of two."""
    from fastmma.kernels.scaled import products

    return _lines_of_each(products.multiply, problem, operands, out, threads)


def groups(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Pack both operands, whose terms are sums of groups."""
    from fastmma.kernels.scaled import groups

    return _lines_of_each(groups.multiply, problem, operands, out, threads)


def groups_on_amx(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Multiply elements times scales, as bf16 numbers."""
    from fastmma.kernels.scaled import amx_groups

    p = scaled_parameters(problem.operation)
    return _left([amx_groups.multiply(p, _scaled_operands(one, results), threads) for one, results in each(operands, out)])


def small_groups(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:  # noqa: ARG001 - one does them
    """Multiply sums of groups in one go."""
    from fastmma.kernels.scaled import small_groups

    p = scaled_parameters(problem.operation)
    return _left([small_groups.multiply(p, _scaled_operands(one, results)) for one, results in each(operands, out)])


def _left(reached: list[bool]) -> Fallbacks:
    """Leave the products that were not within reach."""
    return [Fallback(slice(index, index + 1), slice(None), slice(None)) for index, done in enumerate(reached) if not done]


def _scaled_operands(one: Operands, out: Codes) -> ScaledOperands:
    """Operands of one product as kernels take them."""
    from fastmma.kernels.scaled import lines

    assert one.scale_a is not None
    assert one.scale_b is not None
    return lines.ScaledOperands(one.a, one.b, one.c, out, one.scale_a, one.scale_b)


def _lines_of_each(
    multiply: Callable[[Scaled, ScaledOperands, int], FallbackMask], problem: Problem, operands: Operands, out: Codes, threads: int
) -> Fallbacks:
    """Multiply one product after another by what marks the lines that it has not computed."""
    p, fallbacks = scaled_parameters(problem.operation), []
    for index, (one, results) in enumerate(each(operands, out)):
        left = multiply(p, _scaled_operands(one, results), threads)
        fallbacks += [Fallback(slice(index, index + 1), *lines) for lines in left.places()]
    return fallbacks


def scaled_tiles(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Compute single instructions whose lines have one scale each."""
    from fastmma.kernels.scaled import tiles

    return _tiles(tiles.scaled_tiles, problem, operands, out, threads)


def tiles_of_groups(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Compute single instructions whose terms are sums of groups."""
    from fastmma.kernels.scaled import group_tiles

    return _tiles(group_tiles.group_tiles, problem, operands, out, threads)


def _tiles(found_of: Callable[..., Any], problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Compute batches by what returns a byte a product, which says whether it is out of reach."""
    found, bad = found_of(scaled_parameters(problem.operation), *problem.extents[1:]), np.empty(len(out), np.uint8)
    for first, many, results in batches(operands, out):
        bad[first : first + len(results)] = found.run(many.a, many.b, many.c, results, many.scale_a, many.scale_b, threads)
    return _bad_products(bad)


def _portable(problem: Problem, operands: Operands) -> tuple[Fused, Operands, dict[str, Any]]:
    """Parameters and operands of portable kernels, and the order of k or the scales."""
    from fastmma.kernels.fused import portable
    from fastmma.kernels.scaled import products

    operation = problem.operation
    if operands.scale_a is None or operands.scale_b is None:
        return fused_parameters(operation), widened(operation, operands), {"order": product_order(operation)}
    p = scaled_parameters(operation)
    return products.fused(p), operands, {"scaling": portable.Scaling(p.scale, p.block, p.group, operands.scale_a, operands.scale_b)}


def portable(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Compute anything that the envelope holds, product by product."""
    from fastmma.kernels.fused import portable

    for one, results in each(operands, out):
        p, wide, more = _portable(problem, one)
        portable.gemm(p, wide.a, wide.b, wide.c, results, threads, **more)
    return ALL


def portable_tiles(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
    """Compute single instructions that the envelope holds."""
    from fastmma.kernels.fused import portable

    for _, many, results in batches(operands, out):
        p, wide, more = _portable(problem, many)
        portable.tiles(p, wide.a, wide.b, wide.c, results, threads, **more)
    return ALL


def general(problem: Problem, operands: Operands, out: Codes, threads: int, window: bool = False) -> Fallbacks:
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
    products.multiply(general_parameters(operation), a, b, wide.a, wide.b, wide.c, out, threads, window, scales)
    return ALL


def _whole(run: Run) -> Kernel:
    """Make a kernel of one that leaves nothing out."""

    def kernel(problem: Problem, operands: Operands, out: Codes, threads: int) -> Fallbacks:
        run(problem.operation, operands, out, threads)
        return ALL

    return kernel


# by the names of rows
RUNS: dict[str, Kernel] = {
    "thin": thin,
    "blocks": blocks,
    "macro tiles in blocks": macro_tiles,
    "thin, widened": thin,
    "panels": panels,
    "panels of halves": halves,
    "scaled tiles": scaled_tiles,
    "tiles of groups": tiles_of_groups,
    "groups on AMX": groups_on_amx,
    "small groups": small_groups,
    "groups": groups,
    "scaled panels": scaled_panels,
    "scaled portable tiles": portable_tiles,
    "scaled portable": portable,
    "portable tiles": portable_tiles,
    "portable": portable,
    "general in a window": partial(general, window=True),
    "general": general,
    "short steps in lanes": partial(cdna.steps_in_lanes, steps=partial(cdna.window_steps, narrow=True)),
    "steps in lanes": partial(cdna.steps_in_lanes, steps=partial(cdna.window_steps, narrow=False)),
    "exact steps in lanes": partial(cdna.steps_in_lanes, steps=cdna.exact_steps),
    "windows": _whole(cdna.windows),
    "exact sums": _whole(cdna.exact),
    "tree panels": cdna.tree_panels,
    "trees": _whole(cdna.trees),
    "f64 panels": _whole(fma.f64_panels),
    "f64 tiles": _whole(fma.f64_tiles),
    "f64 chains": _whole(fma.f64),
    "f32 panels": _whole(fma.f32_panels),
    "f32 tiles": _whole(fma.f32_tiles),
    "f32 chains": _whole(fma.f32),
    "f32 panels from c": _whole(fma.f32_from_c_panels),
    "f32 tiles from c": _whole(fma.f32_from_c_tiles),
    "f32 chains from c": _whole(fma.f32_from_c),
    "tiles of bytes": _whole(integer.integer_tiles),
    "bytes on AMX": _whole(integer.integer_on_amx),
    "bytes": _whole(integer.integer),
    "tiles of bits": _whole(integer.bit_tiles),
    "bits on AMX": _whole(integer.bit_on_amx),
    "bits": _whole(integer.bit),
}


def kernel_of(row: Route) -> Kernel:
    """Find what computes the products of a row."""
    return RUNS[row.name]
