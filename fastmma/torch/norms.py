"""Layer norms and RMS norms of torch that one kernel computes where their operands lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastmma.functions.fixed_norms import FixedNorm, NormForm, fixed_norm
from fastmma.functions.norms import VECTOR
from fastmma.torch.arrays import DTYPES

Arguments = Mapping[str, Any]

ALIGNED = 16  # bytes of an address from which kernels load vectors


def _is_plain(tensor: Tensor) -> bool:
    """Tell whether kernels read a tensor where it lies."""
    return tensor.is_contiguous() and not tensor.storage_offset() * tensor.itemsize % ALIGNED and not tensor.is_neg()


class Norm(NamedTuple):
    """A norm of tensors of one form.

    Attributes
    ----------
    fixed : FixedNorm
    centred : bool
        Whether means are subtracted.
    shape, outer : tuple of int
        Of the results, and of means and factors.
    dtype : torch.dtype
    """

    fixed: FixedNorm
    centred: bool
    shape: tuple[int, ...]
    outer: tuple[int, ...]
    dtype: torch.dtype

    def compute(self, eps: float, operands: tuple[Tensor | None, ...], threads: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the results, means, or factors in their place, and factors of the input, a weight and a bias."""
        result = torch.empty(self.shape, dtype=self.dtype)
        rstd = torch.empty(self.outer, dtype=torch.float32)
        mean = torch.empty_like(rstd) if self.centred else rstd  # of which nothing is read or written there
        x, weight, bias = (0 if each is None else each.data_ptr() for each in operands)
        self.fixed(eps, x, weight, bias, result.data_ptr(), mean.data_ptr(), rstd.data_ptr(), threads)
        return result, mean, rstd


class PlacedNorm(NamedTuple):
    """A norm of arguments of a call, at places among them; -1 stands for an operand that is not there.

    Attributes
    ----------
    norm : Norm
    eps : float
    places : tuple of int
        Of the input, a weight and a bias.
    """

    norm: Norm
    eps: float
    places: tuple[int, ...]

    def compute(self, args: tuple[Any, ...], threads: int | None) -> tuple[Tensor, ...] | None:
        """Compute a call of the same form; None where an address decides how a GPU adds."""
        operands = self.operands(args)
        return None if operands is None else self.norm.compute(self.eps, operands, threads)

    def operands(self, args: tuple[Any, ...]) -> tuple[Tensor | None, ...] | None:
        """Find the operands among arguments; None where an address decides how a GPU adds."""
        found = tuple(None if place < 0 else args[place] for place in self.places)
        return None if any(each is not None and each.storage_offset() * each.itemsize % ALIGNED for each in found) else found


def place_layer_norm(given: Arguments, places: Mapping[int, int]) -> PlacedNorm | None:
    """Find what computes layer norms like one whose arguments are `given`, whose tensors have places by their identities."""
    found = norm_of(given, True)
    operands = (given["input"], given["weight"], given["bias"])
    placed = tuple(-1 if each is None else places.get(id(each)) for each in operands)
    return None if found is None or None in placed else PlacedNorm(found, given["eps"], placed)  # type: ignore[arg-type]


def norm_of(given: Arguments, centred: bool) -> Norm | None:
    """Find the norm of operands where they lie; None where `fastmma.functions.norms` is to look at them."""
    x, shape, operands = given["input"], given["normalized_shape"], (given["weight"], given.get("bias"))
    columns, tensors = math.prod(shape), [x, *(each for each in operands if each is not None)]
    alike = all(each.dtype is x.dtype and _is_plain(each) for each in tensors) and list(x.shape[-len(shape) :]) == list(shape)
    weighted, biased = (each is not None for each in operands)
    if not alike or not x.numel() or columns % VECTOR or (biased and not weighted):
        return None
    rows, outer = x.numel() // columns, (*x.shape[: x.dim() - len(shape)], *(1 for _ in shape))
    fixed = fixed_norm(NormForm(rows, columns, DTYPES[x.dtype], weighted, biased, centred))
    return Norm(fixed, centred, tuple(x.shape), outer, x.dtype)
