"""A product without its numbers: what choices and kernels depend on, as a value that is its own key."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.errors import OperandTypeError
from fastmma.isa.gpus import keyword_hint
from fastmma.products.keywords import Choices

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


class Extents(NamedTuple):
    """The shape of a product, and how its operands lie in memory."""

    m: int
    n: int
    k: int
    layouts: tuple[str, ...]  # of a and b: n where rows are contiguous, t where columns are; of vectors, both, that of the strides first
    stack: int = 1  # how many are computed at once


class Signature(NamedTuple):
    """The dtypes of operands that the choice of an instruction depends on; None where nothing is given."""

    a: np.dtype[Any]
    b: np.dtype[Any]
    scales: np.dtype[Any] | None
    sparse: bool
    aligned: bool  # whether K and N are multiples of 8
    extents: Extents | None = None  # where a library's plan book is asked


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


def extents(a: Any, b: Any) -> Extents | None:
    """Read the extents of two matrices, or of two stacks of as many; None where they are neither."""
    if getattr(a, "ndim", 0) not in (2, 3) or getattr(b, "ndim", 0) != a.ndim or not hasattr(b, "strides"):
        return None
    stack = a.shape[0] if a.ndim == 3 else 1
    if a.ndim == 3 and not a.shape[0] == b.shape[0] > 1:
        return None
    spelled = [x + y for x in _layouts(a) for y in _layouts(b)]
    return Extents(a.shape[-2], b.shape[-1], a.shape[-1], tuple(spelled), stack)


def _layouts(array: Any) -> str:
    """Name the layouts that a matrix, or those of a stack, may be said to have."""
    matrix = Strided(array.dtype, array.shape[-2:], array.strides[-2:])
    if matrix.is_c_contiguous and matrix.is_f_contiguous:
        return "nt" if matrix.strides[1] == matrix.itemsize else "tn"
    return "n" if matrix.is_c_contiguous else "t" if matrix.is_f_contiguous else ""


def signature(a: Any, b: Any, scales: Any, sparse: bool, choices: Choices, what: str) -> Signature | None:
    """Describe what the choice of an instruction depends on; None where it is named, and no plan book is asked.

    `scales` is either of the scales, where they are given.

    Raises
    ------
    OperandTypeError
        If an operand cannot be made an array of numbers, or is made of Python's floats, which have no format.
    """
    asked = choices.preset is not None
    if not asked and choices.instruction is not None:
        return None
    first, second = dtype_of(a, f"{what}: a"), dtype_of(b, f"{what}: b")
    scaled = None if scales is None else dtype_of(scales, f"{what}: a scale")
    return Signature(first, second, scaled, sparse, _in_eights(b), extents(a, b) if asked else None)


def dtype_of(value: Any, what: str) -> np.dtype[Any]:
    """Find the dtype of an operand.

    Raises
    ------
    OperandTypeError
        If it cannot be made an array of numbers, or is made of Python's floats, which have no format.
    """
    if type(value) is Strided or (type(value) is np.ndarray and value.dtype.kind not in "OT"):
        found: np.dtype[Any] = value.dtype
        return found
    array = as_array(value, what)
    if hint := keyword_hint(value):
        raise OperandTypeError(f"{what} must be an array, not {value!r}{hint}")
    if isinstance(value, list | tuple | float) and array.dtype == np.float64:
        raise OperandTypeError(f"{what} is made of Python's floats, which have no format; numpy.asarray(..., numpy.float16) gives them one")
    return array.dtype


def _in_eights(b: Any) -> bool:
    """Tell whether K and N are multiples of 8."""
    for size in getattr(b, "shape", ())[-2:]:  # noqa: SIM110 - a generator takes a part of a small product
        if size % 8:
            return False
    return True


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
