"""Integers and single bits by compiled kernels."""

from __future__ import annotations

import numpy as np

from fastmma.backends.batches import batches, each
from fastmma.backends.call import Codes, Operands, Operation
from fastmma.isa.formats import Format


def _integers(codes: Codes, fmt: Format) -> Codes:
    """Codes of a multiplicand as int8 or uint8 values."""
    if fmt.kind == "unsigned":
        return codes
    return codes.view(np.int8) if fmt.bits == 8 else ((codes ^ 8) - 8).view(np.int8)


def _with_sums(operands: Operands) -> Operands:
    """Dense operands, whose c is int32."""
    return Operands(operands.a, operands.b, None if operands.c is None else operands.c.view(np.int32))


def _values(operation: Operation, operands: Operands) -> Operands:
    """Dense operands as numbers."""
    formats = operation.instruction.formats
    return _with_sums(operands._replace(a=_integers(operands.a, formats.a), b=_integers(operands.b, formats.b)))


def integer(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "integer", product by product."""
    from fastmma.kernels.integer import int8

    ins = operation.instruction
    for one, out in each(_values(operation, operands), d.view(np.int32)):
        int8.gemm(one.a, one.b, one.c, out, ins.satfinite, ins.k, threads)


def integer_on_amx(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "integer" of sums that wrap, product by product; codes of four bits become numbers where they are packed."""
    from fastmma.kernels.integer import amx, amx_lines

    formats = operation.instruction.formats.a, operation.instruction.formats.b
    halves = amx_lines.HALVES
    a, b = (halves if fmt.kind != "unsigned" and fmt.bits == 4 else amx_lines.BYTES for fmt in formats)
    codes = [given if how is halves else _integers(given, fmt) for given, fmt, how in zip(operands[:2], formats, (a, b), strict=True)]
    for one, out in each(_with_sums(operands._replace(a=codes[0], b=codes[1])), d.view(np.int32)):
        amx.gemm(one.a, one.b, one.c, out, threads, how=(a, b))


def integer_tiles(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "integer" of single instructions."""
    from fastmma.kernels.integer import int8

    for _, many, out in batches(_values(operation, operands), d.view(np.int32)):
        int8.tiles(many.a, many.b, many.c, out, operation.instruction.satfinite, threads)


def bit(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "bit", product by product."""
    from fastmma.kernels.integer import b1

    for one, out in each(_with_sums(operands), d.view(np.int32)):
        b1.gemm(one.a, one.b, one.c, out, operation.instruction.bit_op, threads)


def bit_on_amx(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "bit" by products of bytes, product by product."""
    from fastmma.kernels.integer import b1

    for one, out in each(_with_sums(operands), d.view(np.int32)):
        b1.gemm_on_amx(one.a, one.b, one.c, out, operation.instruction.bit_op, threads)


def bit_tiles(operation: Operation, operands: Operands, d: Codes, threads: int) -> None:
    """Compute "bit" of single instructions."""
    from fastmma.kernels.integer import b1

    for _, many, out in batches(_with_sums(operands), d.view(np.int32)):
        b1.tiles(many.a, many.b, many.c, out, operation.instruction.bit_op, threads)
