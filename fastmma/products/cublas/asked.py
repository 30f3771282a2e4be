"""Describe what a library is asked for by the operands of a call: the layouts of matrices, their format, and the format of sums."""

from __future__ import annotations

from typing import Any

from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.formats import format_of
from fastmma.products.bound import Strided
from fastmma.products.choice import multiplicand, named
from fastmma.products.cublas.rows import HALF_SUMS, Product


def layout_of(operand: Any, what: str) -> str:
    """Name the layout of a matrix, or of those of a stack: n where its rows are contiguous, t where its columns are."""
    if getattr(operand, "ndim", 0) not in (2, 3) or not hasattr(operand, "strides"):
        raise OperandTypeError(f"plan: {what} must be an array of two or three dimensions, not {type(operand).__name__}")
    if 0 in operand.shape:
        raise OperandError(f"plan: {what} has no elements, and cuBLASLt chooses no kernel for it")
    rows, columns = operand.shape[-2:]
    down, along = operand.strides[-2:]
    if along == operand.itemsize or down == operand.itemsize:
        return "n" if along == operand.itemsize else "t"
    if 1 not in (rows, columns):
        raise OperandError(f"plan: the rows or the columns of {what} must be contiguous")
    return "n" if columns == 1 else "t"


def common_format(a: Any, b: Any) -> str:
    """Name the format of both operands; f32 for float32 arrays."""
    names = [
        format_of(each.dtype).name if str(each.dtype) == "float32" else multiplicand(each.dtype, f"plan: {what}").name
        for each, what in ((a, "a"), (b, "b"))
    ]
    if names[0] != names[1]:
        raise OperandTypeError(f"plan: a and b must have the same dtype, not {a.dtype} and {b.dtype}")
    return names[0]


def summed(product: Product, accumulator: Any) -> Product:
    """Return the product with the format in which it is summed."""
    sums = named(accumulator, "accumulator") if accumulator is not None else ""
    if sums == "f16" and product.fmt == product.out == "f16":
        return product._replace(fmt=HALF_SUMS)
    if sums not in ("", "s32" if product.fmt == "s8" else "f32"):
        raise OperandError(f"plan: cuBLAS sums f16 with f16 results in f16, not {product.fmt} with {product.out} results in {sums}")
    return product


def is_dense(array: Any) -> bool:
    """Tell whether matrices have no gaps, nor those of a stack between them: a GPU was asked about no others."""
    rows, columns = array.shape[-2:]
    matrix = Strided(array.dtype, (rows, columns), array.strides[-2:])
    dense = matrix.is_c_contiguous or matrix.is_f_contiguous
    return dense and (array.ndim == 2 or array.strides[0] == rows * columns * array.itemsize)
