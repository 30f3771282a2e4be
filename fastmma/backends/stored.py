"""Sparse A on a kernel that multiplies what is stored, where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastmma.backends.batches import each
from fastmma.backends.call import Codes, Operands, Operation, Run, whole_k
from fastmma.backends.fused import portable_only, widened
from fastmma.backends.parameters import fused_parameters, holds, product_order
from fastmma.isa.sparsity import pattern_of
from fastmma.kernels.params import Promotion

if TYPE_CHECKING:
    from fastmma.kernels.pieces import Lines

_LEAST = 1 << 22  # stored multiply-adds of a product ...
_COLUMNS, _ROWS = 64, 16  # ... and its columns and rows, from which on the kernel is faster than one of dense A


def _suits(operation: Operation, operands: Operands, d: Codes) -> bool:
    """Whether products are large enough, and plain truncated sums."""
    ins, arithmetic = operation.instruction, operation.arithmetic
    plain = operands.scale_a is None and not arithmetic.interleave and ins.ctype == ins.dtype == ins.accumulator
    _, rows, columns = d.shape
    if not plain or rows < _ROWS or columns < _COLUMNS or rows * columns * operands.a.shape[2] < _LEAST:
        return False
    if arithmetic.method != "fused" or portable_only() or not holds(operation):
        return False
    from fastmma.kernels.fused import x86

    parameters = fused_parameters(operation)
    multiplied = parameters._replace(restart=0)
    return x86.supports_sparse(multiplied) and (not parameters.restart or x86.promotes(multiplied, ins.k))


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
        ordered = _in_order(operation, operands) if fused_parameters(operation).restart else operands
        wide = widened(operation, ordered)
        for given, product, out in zip(each(operands), each(wide), d, strict=True):
            _multiply(run, operation, given, product, out, threads)

    return stored_run


def _multiply(run: Run, operation: Operation, given: Operands, product: Operands, out: Codes, threads: int) -> None:
    """One product: as it is `given`, and as it is multiplied."""
    from fastmma.kernels.fused import sparse_rows, x86

    rule, parameters = pattern_of(operation.instruction), fused_parameters(operation)
    # sums of an instruction that start from zero and join c are promotions
    promotion = Promotion(operation.instruction.k) if parameters.restart else None
    assert product.metadata is not None
    words = sparse_rows.Words(product.metadata, rule.table(False), rule.chunk)
    missed = x86.multiply(
        parameters._replace(restart=0), product.a, product.b, product.c, out, threads, promotion=promotion, chosen=words.selection
    )

    def again(lines: Lines, panel: Lines, results: Codes) -> None:
        c = None if given.c is None else given.c[lines][:, panel][None]
        assert given.metadata is not None
        part = Operands(given.a[lines][None], given.b[:, panel][None], c, given.metadata[lines][None])
        run(operation, part, results[None], threads)

    missed.redo(out, again)
