"""Sums and means of torch that one kernel computes where their operands lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastmma.functions.fixed_sums import FixedSum, fixed_sum
from fastmma.torch.arrays import as_numpy
from fastmma.torch.norms import ALIGNED

SUMS = {"sum": False, "mean": True}  # of an operator: whether it is a mean


class PlacedSum(NamedTuple):
    """A sum of the first argument of a call.

    Attributes
    ----------
    fixed : FixedSum
    offset : int
        Where the argument begins on a GPU, in elements after an aligned address.
    shape : tuple of int
        Of the result.
    dtype : torch.dtype
    """

    fixed: FixedSum
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def compute(self, args: tuple[Any, ...], threads: int | None) -> Tensor | None:
        """Compute a call of the same form; None where its address decides that a GPU adds in another order."""
        x: Tensor = args[0]
        if x.storage_offset() % ALIGNED != self.offset:
            return None
        result = torch.empty(self.shape, dtype=self.dtype)
        self.fixed(as_numpy(x), result.data_ptr())
        return result


def place_sum(name: str, given: Mapping[str, Any], axes: list[int] | None) -> PlacedSum | None:
    """Find what computes sums, or means, like one whose arguments are `given`; None where `fastmma.functions.reduce` is to look at it."""
    x: Tensor = given["self"]
    if not x.dim() or not x.numel() or not x.is_contiguous() or x.is_neg() or given.get("dtype") not in (None, x.dtype):
        return None
    offset = x.storage_offset() % ALIGNED
    found = fixed_sum(as_numpy(x), axes, offset, mean=SUMS[name])
    gone = range(x.dim()) if axes is None else {axis % x.dim() for axis in axes}
    kept = 1 if given.get("keepdim") else None
    sizes = (kept if axis in gone else size for axis, size in enumerate(x.shape))
    return None if found is None else PlacedSum(found, offset, tuple(size for size in sizes if size is not None), x.dtype)
