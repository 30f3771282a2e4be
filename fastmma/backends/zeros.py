"""Sparse A on dense kernels: its zeros are put back, and must not multiply infinities or NaNs of B."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Codes, Operands, Operation, Run
from fastmma.isa.formats import Format
from fastmma.isa.sparsity import pattern_of
from fastmma.operands import sparse

_CODES_AT_ONCE = 1 << 24  # of B, copied for every row that is done again


def _specials(codes: Codes, fmt: Format) -> NDArray[np.bool_]:
    """Return where codes are infinities or NaNs."""
    return np.asarray(fmt.is_special(codes >> fmt.padding))


def _shared(codes: Codes) -> bool:
    """Tell whether all products have the same operand."""
    return len(codes) > 1 and codes.strides[0] == 0


def on_dense_kernel(run: Run) -> Run:
    """A dense kernel's `run` for sparse A too.

    Columns of B with infinities or NaNs are done again row by row, B cleared where the row selects nothing.
    """

    def sparse_run(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
        if operands.metadata is None:
            run(operation, operands, d, threads)
            return
        rule, fmt = pattern_of(operation.instruction), operation.instruction.formats.b
        if _shared(operands.a) and _shared(operands.metadata):
            a = np.broadcast_to(sparse.expand(operands.a[:1], operands.metadata[:1], rule), (len(d), d.shape[1], operands.depth))
        else:
            a = sparse.expand(operands.a, operands.metadata, rule)
        special = _specials(operands.b[:1] if _shared(operands.b) else operands.b, fmt)
        if not special.any():
            run(operation, operands._replace(a=a, metadata=None), d, threads)
            return
        chosen = np.flatnonzero(np.broadcast_to(special.any(axis=(1, 2)), len(d)))
        columns = np.flatnonzero(special.any(axis=(0, 1)))
        before = None if operands.c is None or not chosen.size else operands.c[:, :, columns].copy()  # d may be c
        run(operation, operands._replace(a=a, metadata=None), d, threads)
        rows = d.shape[1]
        at_once = max(1, _CODES_AT_ONCE // max(1, operands.depth * columns.size))
        for first in range(0, chosen.size * rows, at_once):
            lines = np.arange(first, min(first + at_once, chosen.size * rows))
            product, row = chosen[lines // rows], lines % rows
            words = operands.metadata[product, row]
            selected = sparse.expand(np.ones((len(lines), operands.a.shape[2]), np.uint8), words, rule).astype(bool)
            b = operands.b[product][:, :, columns]
            again = Operands(
                a[product, row][:, None],
                np.where(selected[:, :, None], b, np.zeros((), b.dtype)),
                None if before is None else before[product, row][:, None],
                None,
                None if operands.scale_a is None else operands.scale_a[product, row][:, None],
                None if operands.scale_b is None else operands.scale_b[product][:, :, columns],
            )
            result = np.empty((len(lines), 1, columns.size), d.dtype)
            run(operation, again, result, threads)
            d[product[:, None], row[:, None], columns] = result[:, 0]

    return sparse_run
