"""Operands and results of fused attention: tensors as arrays, and arrays as tensors that lie as those of a GPU do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fastmma.functions import libdevice
from fastmma.functions.attention import Dropout
from fastmma.host.errors import FastmmaError
from fastmma.host.float_mode import in_default_mode
from fastmma.torch import generators
from fastmma.torch.arrays import as_numpy, to_numpy
from fastmma.torch.emulation import Emulation
from fastmma.torch.plans import UnknownError
from fastmma.torch.reductions import FLOATS
from fastmma.torch.report import ASSUMED

ANY_ORDER = "a GPU adds up the gradient of the queries in any order; those of keys and values have its bits"


def as_arrays(*tensors: Tensor) -> list[NDArray[Any]]:
    """Return tensors as arrays.

    Raises
    ------
    UnknownError
        If they are no plain tensors on the CPU.
    NotEmulatedError
        If there is no known release of libdevice.
    """
    libdevice.required_release()
    for each in tensors:
        if each.device.type != "cpu" or each.layout is not torch.strided or each.is_nested or each.dtype not in FLOATS:
            raise UnknownError("fused attention is computed of plain tensors on the CPU")
    return [to_numpy(each) for each in tensors]


def computed(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Compute a function of arrays.

    Raises
    ------
    UnknownError
        If it refuses them.
    """
    try:
        return in_default_mode(function, *args, **options)
    except FastmmaError as error:
        raise UnknownError(str(error)) from None


def tell(run: Emulation, func: Any, args: tuple[Any, ...], why: str = "") -> None:
    if why and not run.guess:
        run.tell(str(func), ASSUMED, why, args)
    else:
        run.computed(str(func), args)


def filled(empty: Tensor, array: NDArray[Any]) -> Tensor:
    """Give a tensor these elements; those of its shape that the array lacks are left."""
    as_numpy(empty)[tuple(map(slice, array.shape))] = array
    return empty


def lie_like(tensor: Tensor, array: NDArray[Any]) -> Tensor:
    """A tensor that lies in memory as ``empty_like`` of (batch, length, heads, head dimension) does."""
    return filled(torch.empty_like(tensor.transpose(1, 2)).transpose(1, 2), array)


def lie_in_rows(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """A tensor (batch, heads, length, head dimension) whose heads lie side by side."""
    batch, heads, length, size = array.shape
    return filled(torch.empty(batch, length, heads, size, dtype=dtype).transpose(1, 2), array)


def draw(probability: float, count: int) -> Dropout | None:
    return Dropout(probability, *generators.take(count)) if probability > 0 else None


def numbers_of(dropout: Dropout | None) -> tuple[Tensor, Tensor]:
    """Return the seed and the offset of what was dropped, as operators have them."""
    seed, offset = (0, 0) if dropout is None else (dropout.seed, dropout.offset)
    return torch.tensor(seed - (1 << 64) if seed >= 1 << 63 else seed), torch.tensor(offset)


def dropout_of(probability: float, seed: Tensor, offset: Tensor) -> Dropout | None:
    """Return what a forward pass dropped."""
    return Dropout(probability, int(seed) % (1 << 64), int(offset)) if probability > 0 else None
