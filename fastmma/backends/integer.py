"""Integers and single bits by compiled kernels."""

from __future__ import annotations

import numpy as np

from fastmma.backends.batches import in_turn
from fastmma.backends.call import Codes, Operands, Operation
from fastmma.isa.formats import Format


def _integers(codes: Codes, fmt: Format) -> Codes:
    """Codes of a multiplicand as int8 or uint8 values."""
    if fmt.kind == "unsigned":
        return codes
    return codes.view(np.int8) if fmt.bits == 8 else ((codes ^ 8) - 8).view(np.int8)


def _sums(codes: Codes | None) -> Codes | None:
    return None if codes is None else codes.view(np.int32)


def integer(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """`Backend.run` of "integer", for dense A."""
    from fastmma.kernels.integer import int8

    ins = operation.instruction
    a, b = _integers(operands.a, ins.formats.a), _integers(operands.b, ins.formats.b)
    in_turn(
        ins.k,
        Operands(a, b, _sums(operands.c)),
        d.view(np.int32),
        lambda one, out: int8.gemm(one.a, one.b, one.c, out, ins.satfinite, ins.k, threads),
        lambda many, out: int8.tiles(many.a, many.b, many.c, out, ins.satfinite, threads),
    )


def bit(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """`Backend.run` of "bit"."""
    from fastmma.kernels.integer import b1

    ins = operation.instruction
    in_turn(
        ins.k,
        operands._replace(c=_sums(operands.c)),
        d.view(np.int32),
        lambda one, out: b1.gemm(one.a, one.b, one.c, out, ins.bit_op, threads),
        lambda many, out: b1.tiles(many.a, many.b, many.c, out, ins.bit_op, threads),
    )
