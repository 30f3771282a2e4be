"""Tensors as arrays and back: the same memory, whatever the dtype."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

from fastmma.host.calls import named_keywords
from fastmma.host.errors import OperandTypeError
from fastmma.products.bound import Strided
from fastmma.scaling import pack_e2m1, unpack_e2m1

E2M1_PAIRS = torch.float4_e2m1fn_x2
_ORDER = "<" if sys.byteorder == "little" else ">"
CODES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_TYPES = {1: "|u1", 2: f"{_ORDER}u2", 4: f"{_ORDER}u4", 8: f"{_ORDER}u8"}
_NUMPYS = (torch.float16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool)
DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.float8_e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
    torch.float8_e4m3fnuz: np.dtype(ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2fnuz: np.dtype(ml_dtypes.float8_e5m2fnuz),
    torch.float8_e8m0fnu: np.dtype(ml_dtypes.float8_e8m0fnu),
    torch.int8: np.dtype(np.int8),
    torch.uint8: np.dtype(np.uint8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.bool: np.dtype(np.bool_),
}
_TORCH = {dtype: kind for kind, dtype in DTYPES.items()}


@named_keywords
def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """View the memory of a CPU tensor as an array of any strides, in NumPy's or ml_dtypes' dtype.

    Only float4 elements are copied: their pairs are unpacked along the dimension of stride 1. The storage stays resizable; with
    ``Tensor.numpy()`` it would not.

    Parameters
    ----------
    tensor : Tensor
        On the CPU and strided. If it requires gradients, the view has none.

    Raises
    ------
    OperandTypeError
        If it is on another device, sparse, quantised, or of a dtype that NumPy and ml_dtypes do not have.

    Examples
    --------
    >>> weights = torch.ones(2, 3, dtype=torch.bfloat16)
    >>> array = to_numpy(weights.T)
    >>> array[0, 1] = 7
    >>> array.dtype, weights[1, 0].item()
    (dtype(bfloat16), 7.0)
    """
    dtype = tensor.dtype
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise OperandTypeError(f"a tensor must be strided and on the CPU to be an array, not {tensor.layout} on {tensor.device}")
    plain = tensor.detach()
    if plain.is_neg():
        plain = plain.resolve_neg()
    if dtype in _NUMPYS:
        return np.from_dlpack(plain)
    if dtype is E2M1_PAIRS:
        packed = np.from_dlpack(plain.view(torch.uint8))
        return unpack_e2m1(packed, axis=int(np.argmin(packed.strides)) if packed.ndim > 1 else -1)
    found = DTYPES.get(dtype)
    if found is None:
        raise OperandTypeError(f"a tensor of {dtype} has no dtype in NumPy or ml_dtypes")
    return np.from_dlpack(plain.view(CODES[dtype.itemsize])).view(found)


@named_keywords
def to_torch(array: NDArray[Any]) -> torch.Tensor:
    """View the memory of an array as a tensor; float4_e2m1fn elements are packed two to a byte along the last dimension.

    Arrays that torch cannot share are copied: those that are read-only, have negative strides, or another byte order than the machine's.

    Raises
    ------
    OperandTypeError
        If torch has no such dtype.

    Examples
    --------
    >>> import ml_dtypes
    >>> to_torch(np.ones((2, 2), ml_dtypes.float8_e4m3fn)).dtype
    torch.float8_e4m3fn
    """
    if array.dtype == ml_dtypes.float4_e2m1fn:
        return torch.from_dlpack(pack_e2m1(array)).view(E2M1_PAIRS)
    dtype = array.dtype.newbyteorder("=")
    found = _TORCH.get(dtype)
    if found is None:
        raise OperandTypeError(f"torch has no dtype for {array.dtype}")
    native = np.asarray(array, dtype)
    if (
        not native.flags.writeable
        or any(stride < 0 for stride in native.strides)
        or any(stride % dtype.itemsize for stride in native.strides)
    ):
        native = native.copy()
    if found in _NUMPYS:
        return torch.from_dlpack(native)
    return torch.from_dlpack(native.view(np.uint8 if dtype.itemsize == 1 else np.int16)).view(found)


def strided(tensor: torch.Tensor) -> Strided:
    """Describe how a tensor of a dtype of the table lies, wherever it is."""
    dtype = DTYPES[tensor.dtype]
    return Strided(dtype, tuple(tensor.shape), tuple(step * dtype.itemsize for step in tensor.stride()))


class _Memory:
    """A view that NumPy reads to see the memory of a tensor, which it keeps."""

    __slots__ = ("__array_interface__", "tensor")
    __array_interface__: dict[str, Any]
    tensor: torch.Tensor


def as_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """`to_numpy` of a tensor that is known to be strided, on the CPU and of a dtype of the table, in a third of the time."""
    dtype = DTYPES[tensor.dtype]
    shape, size = tuple(tensor.shape), dtype.itemsize
    if 0 in shape:
        return np.empty(shape, dtype)
    memory = _Memory()
    memory.tensor = tensor
    memory.__array_interface__ = {
        "data": (tensor.data_ptr(), False),
        "shape": shape,
        "strides": tuple(step * size for step in tensor.stride()),
        "typestr": _TYPES[size],
        "version": 3,
    }
    return np.asarray(memory).view(dtype)
