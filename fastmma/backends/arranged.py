"""Operands as kernels multiply them: in wider formats, and with k in the order of an instruction's steps."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fastmma.backends.call import Codes, Operands, Operation
from fastmma.backends.parameters import product_order
from fastmma.isa.codes import decode, encode
from fastmma.isa.formats import Format


@lru_cache(256)
def widening(fmt: Format, wide: Format) -> Codes:
    """Make the table from every code of a format to the wider format's code of the same value."""
    return encode(decode(np.arange(1 << fmt.bits), fmt), wide)


def widened(operation: Operation, operands: Operands) -> Operands:
    """Turn codes into those of the formats in which they are multiplied."""
    if not operation.arithmetic.widened:
        return operands
    formats, (a, b) = operation.instruction.formats, operation.multiplied
    return operands._replace(a=widening(formats.a, a).take(operands.a), b=widening(formats.b, b).take(operands.b))


def in_order(operation: Operation, codes: Codes, axis: int) -> Codes:
    """Put the k of matrices in the order of the instruction's steps, filled up to whole instructions."""
    order = product_order(operation)
    period, depth = operation.instruction.k, codes.shape[axis]
    whole = np.arange(-(-depth // period) * period).reshape(-1, period)
    places = (whole if order is None else whole[:, order]).ravel()
    taken: Codes = np.take(codes, places, axis, mode="clip")
    if depth % period:
        np.moveaxis(taken, axis, 0)[places >= depth] = 0
    return taken


def ordered(operation: Operation, operands: Operands) -> Operands:
    """Put the k of a and b in the order of the instruction's steps."""
    return operands._replace(a=in_order(operation, operands.a, 2), b=in_order(operation, operands.b, 1))
