"""Parameters of the compiled kernels, derived from an instruction and the row of the numerics table."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Operation
from fastmma.isa.formats import FORMATS, Format
from fastmma.kernels.envelopes import holds_fused, holds_scaled
from fastmma.kernels.params import ROUNDINGS, Element, ElementSpecs, Fused, General, Scaled, Specials
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.methods import METHODS

_SPECIALS = {
    "none": Specials.NONE,
    "ieee": Specials.IEEE,
    "nan": Specials.NAN,
    "nan-only-ff": Specials.POWERS_OF_TWO,
    "nan-only-80": Specials.NEGATIVE_ZERO,
}


def element_of(fmt: Format) -> Element:
    """The kernels' form of a float format."""
    return Element(fmt.exponent_bits, fmt.mantissa_bits, fmt.bias, fmt.padding, _SPECIALS[fmt.specials].value)


def _dense_terms(operation: Operation) -> int:
    """Products a step, counted along the dense k: the kernels see sparse A with its zeros."""
    return operation.arithmetic.terms * (2 if operation.instruction.sparse else 1)


@lru_cache(1024)
def fused_parameters(operation: Operation) -> Fused:
    """The kernel's parameters for a fused arithmetic."""
    ins, row = operation.instruction, operation.arithmetic
    a, b = operation.multiplied
    return Fused(
        a=element_of(a),
        b=element_of(b),
        terms=_dense_terms(operation),
        align_bits=row.align_bits,
        emax_floor=row.emax_floor,
        keep_bits=row.keep_bits,
        half=int(ins.accumulator == "f16"),
        split=ins.k // _dense_terms(operation) if row.split else 0,
    )


@lru_cache(1024)
def plain(operation: Operation) -> Operation:
    """The operation on operands that lie in the order of its steps already."""
    return replace(operation, arithmetic=replace(operation.arithmetic, interleave=0))


def in_kernels(row: Arithmetic) -> bool:
    """Tell whether kernels of all GPUs know all that an arithmetic says: in them c is a term, and nothing is flushed or rounded down."""
    more = row.flush_inputs or row.flush_results or row.negative_zero
    return {row.align_rounding, row.rounding} <= set(ROUNDINGS) and row.c_joins == "terms" and not more


_WIDEST_JOIN = 44  # bits below emax at which sums of many steps are exact in float64
_MOST_EXACT_TERMS = 4


def _of_matrix_cores(operation: Operation) -> bool:
    """Tell whether single products make f32 sums, rounded to nearest with the sign of what they round, in order of k."""
    ins, row = operation.instruction, operation.arithmetic
    f32 = {ins.ctype, ins.dtype, ins.accumulator} == {"f32"}
    plain = row.method == "fused" and row.group == 1 and not (row.split or row.interleave or row.widened or row.native_c or ins.sparse)
    nearest = row.rounding == "rn" and row.negative_zero and row.keep_bits == ins.formats.sums.mantissa_bits
    return f32 and plain and nearest and not (row.flush_inputs or row.flush_results)


@lru_cache(1024)
def in_windows(operation: Operation) -> bool:
    """Tell whether c joins sums as on CDNA3."""
    row = operation.arithmetic
    bits = row.align_bits < row.join_bits <= _WIDEST_JOIN
    unbounded = row.emax_floor <= 2 * min(operation.instruction.formats.sums.emin, 0) and row.align_rounding == "rz"
    return row.c_joins != "terms" and bits and unbounded and _of_matrix_cores(operation)


@lru_cache(1024)
def in_exact_sums(operation: Operation) -> bool:
    """Tell whether exact sums are rounded to nearest, as on CDNA1."""
    row = operation.arithmetic
    exact = row.align_rounding == "exact" and row.c_joins == "terms" and row.terms <= _MOST_EXACT_TERMS
    return exact and _of_matrix_cores(operation)


@lru_cache(1024)
def holds(operation: Operation) -> bool:
    """Tell whether the kernels for the arithmetics of GPUs compute this one, too; operands in the order of its steps."""
    ins, row = operation.instruction, operation.arithmetic
    products = ins.stored_k // 2 if row.split else ins.stored_k
    usual = row.align_rounding == "rz" and row.rounding == ("rn" if ins.accumulator == "f16" else "rz")
    if not usual or not in_kernels(row) or products % (row.terms * row.group):
        return False
    if not ins.scale_vec_size:
        return row.group == 1 and holds_fused(fused_parameters(operation))
    return row.group == (16 if METHODS[row.method].by_scales else 1) and holds_scaled(scaled_parameters(operation), row.keep_bits)


@lru_cache(1024)
def general_parameters(operation: Operation) -> General:
    """The general kernel's parameters; operands in the order of the steps."""
    ins, row = operation.instruction, operation.arithmetic
    sums = ins.formats.sums
    dense = ins.k // ins.stored_k
    return General(
        terms=row.terms * (dense if row.group == 1 else 1),
        group=row.group * (dense if row.group > 1 else 1),
        unit=ins.k // 2 if row.split else ins.k,
        split=2 if row.split else 0,
        by_scales=int(METHODS[row.method].by_scales),
        align_bits=row.align_bits,
        align_rounding=ROUNDINGS.index(row.align_rounding),
        emax_floor=row.emax_floor,
        keep_bits=row.keep_bits,
        rounding=ROUNDINGS.index(row.rounding),
        limbs=0,
        fraction=sums.mantissa_bits,
        bias=sums.bias,
    )


@lru_cache(1024)
def element_specs(operation: Operation) -> ElementSpecs:
    """Return how the kernel for batches reads the codes of a fused arithmetic: they may be narrower than what is multiplied."""
    ins, order = operation.instruction, product_order(operation)
    a, b = element_of(ins.formats.a), element_of(ins.formats.b)
    return ElementSpecs(a, b, () if order is None else tuple(order.tolist()))


@lru_cache(1024)
def scaled_parameters(operation: Operation) -> Scaled:
    """The kernel's parameters for block scaling."""
    ins, row = operation.instruction, operation.arithmetic
    sparsity = 2 if ins.sparse else 1
    return Scaled(
        a=element_of(ins.formats.a),
        b=element_of(ins.formats.b),
        scale=element_of(FORMATS[ins.stype]),
        block=ins.k // ins.scale_vec_size,
        group=row.group * sparsity if row.group > 1 else 1,
        step=row.terms * row.group * sparsity,
        align_bits=row.align_bits,
        emax_floor=row.emax_floor,
    )


@lru_cache(1024)
def product_order(operation: Operation) -> NDArray[np.int32] | None:
    """Positions of one instruction's products in the order of its steps, where that is not ascending."""
    row = operation.arithmetic
    turns = row.split or row.interleave
    if not turns:
        return None
    k = np.arange(operation.instruction.k, dtype=np.int32)
    parts = 2 if row.split else len(k) // (_dense_terms(operation) * row.group)
    return np.concatenate([k[k // turns % parts == part] for part in range(parts)])
