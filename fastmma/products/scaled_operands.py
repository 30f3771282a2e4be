"""Operands of scaled products as a backend multiplies them: codes, and scales where a plan multiplies them in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.arranged import widening
from fastmma.backends.call import Codes, Operands
from fastmma.backends.engine import Backend
from fastmma.isa.codes import decode, to_codes
from fastmma.isa.formats import FORMATS
from fastmma.kernels.params import Promotion
from fastmma.operands.check import flatten
from fastmma.products.plan import AccumulationPlan
from fastmma.scaling import ScaledArray, Scheme


class ScaledOperand(NamedTuple):
    """A or B of all products, in main memory or in a backend's.

    Attributes
    ----------
    codes : array (..., rows, columns)
        Of the elements.
    scales : array (..., blocks of rows, blocks of columns)
        float32, or codes of one byte.
    block : (int, int)
        The rows and the columns of a block.
    scheme : Scheme
        What the codes mean.
    """

    codes: Codes
    scales: Codes
    block: tuple[int, int]
    scheme: Scheme

    def widened(self, wide: str, backend: Backend) -> ScaledOperand:
        """Elements of a wider format with the same values, where there is one."""
        return self._replace(codes=backend.look_up(widening(self.scheme.element_format, FORMATS[wide]), self.codes)) if wide else self

    def floats(self, backend: Backend) -> NDArray[np.float32]:
        """The scales as float32, which has all values of the others."""
        if self.scales.dtype == np.float32:
            return self.scales
        return backend.look_up(decode(np.arange(256), self.scheme.scale_format).astype(np.float32), self.scales)


def scaled_operand(array: ScaledArray) -> ScaledOperand:
    """The operand that a block-scaled array is; blocks of leading dimensions are spread."""
    row, scales = array.row, array.scales
    if scales.dtype != np.float32:
        scales = to_codes(scales, row.scale_format)
    for axis, block in enumerate(array.block[:-2]):
        scales = _spread(scales, block, array.shape[axis], axis)
    return ScaledOperand(to_codes(array.elements, row.element_format), scales, (array.block[-2], array.block[-1]), row)


def of_lines(operand: ScaledOperand, axis: int, backend: Backend) -> NDArray[np.float32]:
    """The scales of whole rows, columns or tensors, whose k run along an axis; ones where there is no k."""
    if operand.scales.shape[axis]:
        return operand.floats(backend)
    shape = list(operand.scales.shape)
    shape[axis] = 1
    return np.ones(shape, np.float32)


def bound(plan: AccumulationPlan, a: ScaledOperand, b: ScaledOperand, lead: tuple[int, ...]) -> Operands:
    """The operands of all products, as codes; with scales where the instruction takes them."""
    operands = Operands(flatten(a.codes, lead), flatten(b.codes, lead), None)
    if plan.scales != "instruction":
        return operands
    ins = plan.operation.instruction
    own = ins.k // ins.scale_vec_size
    count = -(-a.codes.shape[-1] // own)  # the instruction's blocks of k, whose scales an operand's blocks may share
    left = _spread(_spread(a.scales, a.block[0], a.codes.shape[-2], a.scales.ndim - 2), a.block[1] // own, count, a.scales.ndim - 1)
    right = _spread(_spread(b.scales, b.block[1], b.codes.shape[-1], b.scales.ndim - 1), b.block[0] // own, count, b.scales.ndim - 2)
    return operands._replace(scale_a=flatten(left, lead), scale_b=flatten(right, lead))


def promotion_of(plan: AccumulationPlan, a: ScaledOperand, b: ScaledOperand, lead: tuple[int, ...], backend: Backend) -> Promotion | None:
    """Return what happens at promotion, with the scales of every chunk."""
    every = plan.promote_every
    if every is None or plan.promotion == "add":
        return None if every is None else Promotion(every)
    count = -(-a.codes.shape[-1] // every)  # chunks, of which each has one scale, as a block has whole chunks or all k
    left, right = a.floats(backend), b.floats(backend)
    left = _spread(left, -(-a.block[1] // every), count, left.ndim - 1).swapaxes(-1, -2)
    right = _spread(right, -(-b.block[0] // every), count, right.ndim - 2)
    left = _spread(left, a.block[0], a.codes.shape[-2], left.ndim - 1)
    right = _spread(right, b.block[1], b.codes.shape[-1], right.ndim - 1)
    return Promotion(every, plan.promotion, *(flatten(_contiguous(scales), lead) for scales in (left, right)))


def _contiguous(scales: Codes) -> Codes:
    return scales if scales.flags.c_contiguous else scales.copy()


def _spread(scales: Codes, block: int, extent: int, axis: int) -> Codes:
    """Scales of blocks along an axis as one for each place; there may be none where k is 0."""
    if scales.shape[axis] == extent:
        return scales
    before, after = scales.shape[: axis + 1], scales.shape[axis + 1 :]
    wide = np.broadcast_to(scales.reshape(*before, 1, *after), (*before, block, *after))
    return wide.reshape(*before[:-1], before[-1] * block, *after)[(slice(None),) * axis + (slice(extent),)]
