"""Sparse A on a kernel that multiplies what is stored, where there is one."""

from __future__ import annotations

import numpy as np

from fastmma.backends import route, runs
from fastmma.backends.arranged import widened
from fastmma.backends.call import Codes, Operands, Operation, Run, whole_k
from fastmma.backends.parameters import fused_parameters, product_order
from fastmma.backends.problem import problem_of
from fastmma.isa.sparsity import pattern_of
from fastmma.kernels.params import Promotion


def _suits(operation: Operation, operands: Operands, d: Codes) -> bool:
    """Say whether the kernel is taken."""
    return not route.refusal(route.row_named("sparse panels").row, problem_of(operation, operands, d), call="stored")


def _in_order(operation: Operation, product: Operands) -> Operands:
    """Whole instructions, and the k of each in the order of its steps, which takes chunks as they are."""
    ins, order = operation.instruction, product_order(operation)
    product = whole_k(ins, product)
    if order is None:
        return product
    chunk = pattern_of(ins).chunk
    chunks = np.arange(product.depth // chunk).reshape(-1, ins.k // chunk)[:, order[::chunk] // chunk].ravel()

    def taken(codes: Codes, axis: int) -> Codes:
        shape = codes.shape
        in_chunks = codes.reshape(*shape[:axis], len(chunks), -1, *shape[axis + 1 :])
        return in_chunks.take(chunks, axis).reshape(shape)

    assert product.metadata is not None
    return product._replace(a=taken(product.a, 2), b=taken(product.b, 1), metadata=taken(product.metadata, 2))


def on_stored_elements(run: Run) -> Run:
    """A kernel that multiplies what is stored, and a `run` for all that is out of its reach."""

    def stored_run(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        if operands.metadata is None or not _suits(operation, operands, d):
            run(operation, operands, d, threads)
            return
        if operands.c is not None and np.may_share_memory(operands.c, d):
            operands = operands._replace(c=operands.c.copy())
        from fastmma.kernels.fused import sparse_rows

        rule, parameters = pattern_of(operation.instruction), fused_parameters(operation)
        # sums of an instruction that start from zero and join c are promotions
        promotion = Promotion(operation.instruction.k) if parameters.split else None
        wide = widened(operation, _in_order(operation, operands) if parameters.split else operands)

        def chosen(product: Operands) -> sparse_rows.Words:
            assert product.metadata is not None
            return sparse_rows.Words(product.metadata, rule.table(False), rule.chunk)

        fallbacks = runs.panels_of(problem_of(operation, wide, d), wide, d, threads, promotion, chosen)
        route.fall_back(fallbacks, operands, d, lambda _, part, results: run(operation, part, results, threads))

    return stored_run
