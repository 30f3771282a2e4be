"""The arrays that tests compare, as NumPy arrays: arrays of NumPy and JAX, tensors of torch and arrays of CuPy, on any device."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array


def host_array(value: Any, what: str) -> NDArray[Any]:
    """An array in main memory; narrow floats have the dtypes of ml_dtypes.

    Raises
    ------
    OperandTypeError
        If the value is no array of numbers.
    """
    torch, cupy = (sys.modules.get(name) for name in ("torch", "cupy"))
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_tensor(torch, value)
    if cupy is not None and isinstance(value, cupy.ndarray):
        return as_array(value.get(), what)
    array = as_array(value, what)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def result_like(operand: Any, result: NDArray[Any]) -> Any:
    """A product as the library of its operand returns it: of tensors of floats a tensor of their dtype, on their device."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(operand, torch.Tensor):
        return result
    found = torch.from_numpy(np.ascontiguousarray(result)).to(operand.device)
    return found.to(operand.dtype) if operand.dtype.is_floating_point else found


def _of_tensor(torch: Any, tensor: Any) -> NDArray[Any]:
    """A tensor of torch; the formats that NumPy lacks go through their codes."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    if hasattr(np, name):
        return np.asarray(tensor.numpy())
    codes = np.asarray(tensor.view(torch.int16 if tensor.itemsize == 2 else torch.uint8).numpy())
    return codes.view(getattr(ml_dtypes, name, codes.dtype))  # two e2m1 a byte stay bytes
