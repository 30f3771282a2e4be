"""Truncated and grouped sums on compiled kernels: what is done around products, and promotions and registers."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fastmma.backends import route, runs
from fastmma.backends.arranged import ordered, widened
from fastmma.backends.call import Codes, Operands, Operation
from fastmma.backends.holds import cpu, register_blocks_of
from fastmma.backends.parameters import fused_parameters, plain
from fastmma.backends.parts import parts
from fastmma.backends.problem import Extents, Fallback, Problem, Strides, problem_of
from fastmma.kernels.params import Promotion
from fastmma.numerics.arithmetic import CANONICAL_NAN

if TYPE_CHECKING:
    from fastmma.kernels.fused.batch import RegisterBlocks


def _halve(codes: Codes) -> Codes:
    """Round f32 codes to f16, NaN canonical."""
    with np.errstate(over="ignore", invalid="ignore"):
        half: Codes = codes.view(np.float32).astype(np.float16).view(np.uint16)
    half[(half & 0x7FFF) > 0x7C00] = CANONICAL_NAN["f16"]
    return half


def _in_order(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Multiply operands whose k are put in the order of steps, where that is the only thing in which an arithmetic differs."""
    if operation.arithmetic.interleave:
        operands, operation = ordered(operation, operands), plain(operation)
    route.run(operation, operands, d, threads)


def run(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """`Backend.run`; kernels keep sums in the instruction's `accumulator`, where C or D may have another format."""
    ins = operation.instruction
    if operands.c is not None and ins.ctype != ins.accumulator:  # f16 to f32, which is exact
        with np.errstate(invalid="ignore"):  # AArch64 signals NaNs here
            operands = operands._replace(c=operands.c.view(np.float16).astype(np.float32).view(np.uint32))
    if ins.dtype == ins.accumulator:
        _in_order(operation, operands, d, threads)
        return
    sums = np.empty(d.shape, dtype=np.uint32)
    _in_order(operation, operands, sums, threads)
    d[...] = _halve(sums)


def promoted(operation: Operation, operands: Operands, d: Codes, promotion: Promotion, threads: int) -> bool:
    """Compute `Backend.promoted` by kernels that promote; False if there is none for the operation."""
    from fastmma.kernels.fused import portable
    from fastmma.kernels.sums import promotion as compiled

    problem = problem_of(operation, operands, d)._replace(promoted=promotion.every)
    if route.refusal(route.row_named("panels of sums").row, problem, call="promotions"):
        return False
    parameters = fused_parameters(operation)
    for part in parts(operands, d, promotion.every):
        chunks = slice(part.start // promotion.every, -(-part.stop // promotion.every))
        joining = promotion.of(part.products).part(chunks, part.rows, part.columns)
        whole, out = widened(operation, part.of(operation.instruction, operands, d)), d[part.results]
        if whole.c is not None and np.may_share_memory(whole.c, out):
            whole = whole._replace(c=whole.c.copy())

        def again(place: Fallback, lost: Operands, results: Codes, joining: Promotion = joining) -> None:
            assert isinstance(place.products, slice)

            def multiply(k: int, end: int, partial: Codes) -> None:
                portable.gemm(parameters, lost.a[0, :, k:end], lost.b[0, k:end], None, partial, threads)

            own = joining.of(place.products.start).part(slice(None), place.rows, place.columns)
            compiled.by_chunks(multiply, lost.depth, None if lost.c is None else lost.c[0], results[0], own, threads)

        fallbacks = runs.panels_of(problem_of(operation, whole, out), whole, out, threads, joining)
        route.fall_back(fallbacks, whole, out, again)
    return True


def run_registers(operation: Operation, registers: Operands, d: Codes, threads: int) -> bool:
    """Compute `Backend.run_registers`."""
    found = _register_blocks(operation, cpu().usable())
    if found is None or registers.c is None:
        return False

    fallbacks = np.flatnonzero(found.run(registers.a, registers.b, registers.c, d, threads))
    if fallbacks.size:
        results = np.empty((fallbacks.size, *d.shape[1:]), d.dtype)
        _on_matrices(operation, registers.each(lambda codes: codes[fallbacks]), results)
        d[fallbacks] = results
    return True


@lru_cache(1024)
def _register_blocks(operation: Operation, usable: frozenset[str]) -> RegisterBlocks | None:
    """Find the kernel for registers, where the row of the table is taken."""
    ins = operation.instruction
    scaled, stored = bool(ins.scale_vec_size), bool(ins.sparse)
    problem = Problem(operation, Extents(1, ins.m, ins.n, ins.k), Strides((0, 0, 0), (0, 0, 0)), True, scaled, stored)
    if route.refusal(route.row_named("registers").row, problem, call="registers"):
        return None
    return register_blocks_of(operation, usable)


def _on_matrices(operation: Operation, registers: Operands, d: Codes) -> None:
    """Compute registers by way of matrices, which were tried in blocks."""
    operands = operation.instruction.operands
    matrices = {}
    for name, given in (("a", registers.a), ("b", registers.b), ("c", registers.c)):
        layout = operands[name].layout
        codes = np.ascontiguousarray(given).view(f"u{layout.bits // 8}")
        matrices[name] = codes[:, layout.inverse[0]]
    layout = operands["d"].layout
    sums = np.empty((len(d), *layout.shape), f"u{layout.bits // 8}")
    products = Operands(**matrices)
    route.multiply(problem_of(operation, products, sums), products, sums, 1, route.row_named("macro tiles in blocks").place + 1)
    placed = np.ascontiguousarray(sums.reshape(len(d), -1)[:, layout.offsets.ravel()])
    d[...] = placed.view(d.dtype)
