"""A product without its numbers: what choices and kernels depend on, as a value that is its own key."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Lying = tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]  # dtype, shape, and strides in bytes


class Strided(NamedTuple):
    """An array without its elements. Choices take it in an array's place."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes

    @property
    def ndim(self) -> int:
        """As of an array."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """As of an array."""
        return self.dtype.itemsize

    @property
    def is_c_contiguous(self) -> bool:
        """True if the elements follow each other, row after row."""
        return _is_dense(self.shape, self.strides, self.itemsize)

    @property
    def is_f_contiguous(self) -> bool:
        """True if the elements follow each other, column after column."""
        return _is_dense(self.shape[::-1], self.strides[::-1], self.itemsize)

    @property
    def matrix(self) -> Strided:
        """One of a stack of matrices."""
        return Strided(self.dtype, self.shape[-2:], self.strides[-2:])


class Bound(NamedTuple):
    """A product of two arrays, or of two stacks of them: how its operands lie, and the factors of its epilogue."""

    a: Lying
    b: Lying
    c: Lying | None = None
    bias: Lying | None = None
    alpha: float = 1.0
    beta: float | None = None


def bind(a: NDArray[Any], b: NDArray[Any], c: Any, bias: Any, alpha: Any, beta: Any) -> Bound | None:
    """Describe a product of arrays; None where an addend is no array, or a factor no float."""
    if type(alpha) is not float or (beta is not None and type(beta) is not float):
        if type(alpha) not in _REAL or type(beta) not in _REAL or not _is_short(alpha) or not _is_short(beta):
            return None
        alpha, beta = float(alpha), None if beta is None else float(beta)
    left, right = (a.dtype, a.shape, a.strides), (b.dtype, b.shape, b.strides)
    if c is None and bias is None:
        return Bound(left, right, None, None, alpha, beta)
    added: list[Lying | None] = []
    for each in (c, bias):
        if each is not None and type(each) is not np.ndarray:
            return None
        added.append(None if each is None else (each.dtype, each.shape, each.strides))
    return Bound(left, right, added[0], added[1], alpha, beta)


_REAL = (float, int, type(None))


def _is_short(factor: Any) -> bool:
    """Tell whether a factor is a float, or an integer that f32 holds."""
    return type(factor) is not int or factor.bit_length() <= 24


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Tell whether the elements of an array follow each other, the last dimension being the fastest."""
    if 0 in shape:
        return True
    step = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1:
            if stride != step:
                return False
            step *= extent
    return True
