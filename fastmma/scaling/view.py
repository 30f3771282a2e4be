"""Arrays as the kernels see them: C-contiguous (outer, rows, columns), blocks in the last two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.scaling.rounding import Block
from fastmma.scaling.schemes import Scheme


@dataclass(frozen=True)
class View:
    """An array of three dimensions, and the way back.

    Attributes
    ----------
    array : array (outer, rows, columns)
    block : (int, int)
        The extents of a block in rows and columns.
    order : tuple of int
        The dimensions of the original array in the order of the view.
    """

    array: NDArray[Any]
    block: Block
    order: tuple[int, ...]

    def arrange(self, scales: NDArray[Any]) -> NDArray[Any]:
        """Scales in the order of dimensions of the original array, as the view has them."""
        outer, rows, columns = self.array.shape
        return np.ascontiguousarray(scales.transpose(self.order)).reshape(outer, -(-rows // self.block[0]), -(-columns // self.block[1]))

    def restore(self, found: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """The inverse of `arrange`, for elements too; `shape` is the original one."""
        return found.reshape([shape[d] for d in self.order]).transpose(np.argsort(self.order))


def c_order(view: View, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], int]:
    """Numbers of the first elements of the view's rows in the C order of the original array, of this shape, and the step in a row."""
    strides = [math.prod(shape[d + 1 :]) for d in view.order]
    inner = view.array.shape[-1]
    if view.order == tuple(range(len(shape))):
        return np.arange(0, math.prod(shape), max(inner, 1), dtype=np.int64), 1
    starts = np.zeros((), np.int64)
    for dimension, stride in zip(view.order[:-1], strides, strict=False):
        starts = starts[..., None] + np.arange(shape[dimension]) * stride
    return starts.reshape(-1), strides[-1]


def view_of(array: NDArray[Any], scheme: Scheme, block: tuple[int, ...], axis: int, *, any_order: bool = True) -> View:
    """Bring the blocked dimensions to where the kernels look for them, with a copy only where memory lies otherwise.

    With ``any_order=False`` the dimensions keep their order where blocks allow it.
    """
    order = list(range(array.ndim))
    if any_order and array.flags.f_contiguous and not array.flags.c_contiguous:
        order.reverse()
    if scheme.dimensions == 2:
        other = next(d for d in range(array.ndim) if d != axis and block[d] == scheme.extents[1])
        if {order[-1], order[-2]} != {axis, other}:
            order = [d for d in order if d not in (axis, other)] + [axis, other]
    ordered = np.ascontiguousarray(array.transpose(order))
    if scheme.extents[2] is None:
        return View(ordered.reshape(1, 1, -1), (1, array.size), tuple(order))
    if scheme.dimensions == 2:
        return View(ordered.reshape(-1, *ordered.shape[-2:]), (block[order[-2]], block[order[-1]]), tuple(order))
    extent, inner = array.shape[axis], math.prod(ordered.shape[order.index(axis) + 1 :])
    if inner == 1:
        return View(ordered.reshape(1, -1, extent), (1, block[axis]), tuple(order))
    return View(ordered.reshape(-1, extent, inner), (block[axis], 1), tuple(order))
