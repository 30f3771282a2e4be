"""Triton's element types by the names that fastmma and NumPy have for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from fastmma.isa.formats import format_of


@dataclass(frozen=True)
class Element:
    """One element type.

    Attributes
    ----------
    triton : str
        Its name in Triton.
    mlir : str
        Its name in Triton's compiler.
    format : str
        The format that holds it.
    multiplied : str
        The format as which tensor cores read it, empty where they do not.
    """

    triton: str
    mlir: str
    format: str
    multiplied: str


ELEMENTS = (
    Element("fp16", "f16", "f16", "f16"),
    Element("bf16", "bf16", "bf16", "bf16"),
    Element("fp32", "f32", "f32", "tf32"),
    Element("fp64", "f64", "f64", "f64"),
    Element("fp8e4nv", "f8E4M3FN", "e4m3", "e4m3"),
    Element("fp8e5", "f8E5M2", "e5m2", "e5m2"),
    Element("fp8e4b8", "f8E4M3FNUZ", "e4m3fnuz", "e4m3fnuz"),
    Element("fp8e5b16", "f8E5M2FNUZ", "e5m2fnuz", "e5m2fnuz"),
    Element("int8", "i8", "s8", "s8"),
)
BY_TRITON = {element.triton: element for element in ELEMENTS}
BY_MLIR = {element.mlir: element for element in ELEMENTS}
FLOATS = {element.triton: element.format for element in ELEMENTS if element.format != "s8"}
SUMS: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "s32": np.dtype(np.int32),
    "f64": np.dtype(np.float64),
}
ACCUMULATORS = {dtype: name for name, dtype in SUMS.items()}
BF16 = np.dtype(ml_dtypes.bfloat16)


def elements(handle: Any) -> NDArray[Any]:
    """The data of a handle in the dtype of its format: the interpreter holds 8-bit floats as bytes."""
    element = BY_TRITON.get(handle.dtype.scalar.name)
    dtype = handle.data.dtype if element is None else format_of(element.format).dtype
    return np.ascontiguousarray(handle.data).view(dtype)


def is_bf16(dtype: Any) -> bool:
    """Tell whether a Triton type has bf16 elements."""
    return isinstance(dtype, tl.dtype) and not isinstance(dtype, tl.pointer_type) and dtype.scalar == tl.bfloat16


_NAN: dict[np.dtype[Any], tuple[type[np.unsignedinteger[Any]], int, int]] = {
    np.dtype(np.float32): (np.uint32, 0x7FFFFFFF, 0x7F800000),
    np.dtype(np.float16): (np.uint16, 0x7FFF, 0x7C00),
    BF16: (np.uint16, 0x7FFF, 0x7F80),
}


def canonicalise_nan(data: NDArray[Any]) -> NDArray[Any]:
    """Give every NaN all bits but the sign, as the PTX ISA says of 32- and 16-bit floats."""
    if data.dtype not in _NAN or not data.size:
        return data
    if data.dtype == np.float32 and not np.isnan(np.vdot(data, data)):  # squares have no sum that is none, but of NaN
        return data
    kind, nan, infinity = _NAN[data.dtype]
    codes = np.ascontiguousarray(data).view(kind)
    magnitudes = codes & kind(nan)
    return np.where(magnitudes > infinity, kind(nan), codes).view(data.dtype) if magnitudes.max() > infinity else data
