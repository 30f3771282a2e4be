"""The share of a product that each of several devices multiplies, and the sum of their results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fastmma.jax.arrangements import Dimensions, arrangement
from fastmma.jax.partitions import Cut
from fastmma.jax.settings import Settings


@dataclass(frozen=True)
class Share:
    """The part of a product that a device multiplies.

    Attributes
    ----------
    lhs, rhs : anything with a shape and a dtype
        Its operands, or the whole ones.
    sizes : tuple of int
        Its part of each contracted dimension; empty for all of k.
    parts : int
        How many devices multiply parts of k of the same result.
    is_known : bool
        Whether XLA's partitioner says so.
    joined : str
        The operation by which devices add their results.
    """

    lhs: Any
    rhs: Any
    sizes: tuple[int, ...] = ()
    parts: int = 1
    is_known: bool = False
    joined: str = ""

    def describe(self, how: str, guess: str, is_in_text: bool = False) -> tuple[str, str]:
        """Write how the whole product is computed, and what of it is not known; XLA's text of a GPU may have the part."""
        if self.parts == 1:
            return how, guess
        text = f"{how}; {self.parts} devices multiply {math.prod(self.sizes)} k each and add by {self.joined}"
        if np.dtype(self.lhs.dtype).kind in "iu":
            return text, guess
        cut = "" if is_in_text else "cut as XLA's partitioner cuts for a CPU"
        order = "" if self.parts == 2 else "added in the order of the devices, where NCCL has an order of its own"
        return text, "; ".join(each for each in (cut, order, guess) if each)

    def options(self) -> tuple[tuple[str, Any], ...]:
        """Return keyword arguments of `product` that add parts of k in the dtype of the result."""
        return () if self.parts == 1 else (("sizes", self.sizes),)


def find_share(settings: Settings, cut: Cut | None, lhs: Any, rhs: Any, dimensions: Dimensions) -> Share:
    """Find what a device multiplies of a product; all of it where that is not known, or where the caller names the plan of the whole."""
    whole, sizes = Share(lhs, rhs), arrangement(lhs.shape, rhs.shape, dimensions)
    contracted, batch = (tuple(tuple(side) for side in pair) for pair in dimensions)
    if cut is None or (sizes.m, sizes.n, sizes.k) in dict(settings.plans) or cut.dimensions != (contracted, batch):
        return whole
    inner = tuple(cut.lhs[each] for each in contracted[0])
    parts = math.prod(-(-lhs.shape[each] // size) for each, size in zip(contracted[0], inner, strict=True))
    if inner != tuple(cut.rhs[each] for each in contracted[1]) or (parts > 1) != bool(cut.joined):
        return whole
    first, second = jax.ShapeDtypeStruct(cut.lhs, lhs.dtype), jax.ShapeDtypeStruct(cut.rhs, rhs.dtype)
    return Share(first, second, inner, parts, True, cut.joined)
