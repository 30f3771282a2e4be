"""A product without its numbers: what choices and kernels depend on, as a value that is its own key."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.operands.check import operand
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


class Arguments(NamedTuple):
    """Arguments of a call: a and b as arrays, or `Strided` where only a plan is asked, and the rest as the caller gave it."""

    call: str  # its name, for messages
    a: Any
    b: Any
    c: Any = None
    bias: Any = None
    alpha: Any = 1.0
    beta: Any = None
    out: Any = None
    metadata: Any = None
    scale_a: Any = None
    scale_b: Any = None


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


def bind(arguments: Arguments) -> Bound | None:
    """Describe a product of two arrays; None where a or b is none, an addend is no array, a factor no float, or more is given."""
    _, a, b, c, bias, alpha, beta, _, metadata, scale_a, scale_b = arguments
    if type(a) is not np.ndarray or type(b) is not np.ndarray or not metadata is scale_a is scale_b is None:
        return None
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


def operand_or_strided(value: Any, what: str, *, typed: bool) -> NDArray[Any] | Strided:
    """Make an array of an operand of which no element is read: a description of one stays itself.

    Raises
    ------
    OperandTypeError
        As `fastmma.operands.check.operand`.
    """
    return value if type(value) is Strided else operand(value, what, typed=typed)


def extents(a: Any, b: Any) -> Extents | None:
    """Read the extents of two matrices, or of two stacks of as many; None where they are neither."""
    if a.ndim not in (2, 3) or b.ndim != a.ndim:
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


def signature(arguments: Arguments, choices: Choices) -> Signature | None:
    """Describe what the choice of an instruction depends on; None where it is named, and no plan book is asked.

    Raises
    ------
    OperandTypeError
        If a scale cannot be made an array of numbers.
    """
    if not choices.reads_dtypes:
        return None
    a, b, asked = arguments.a, arguments.b, choices.preset is not None
    scales = arguments.scale_a if arguments.scale_a is not None else arguments.scale_b
    scaled = None if scales is None else operand(scales, f"{arguments.call}: a scale", typed=True).dtype
    return Signature(a.dtype, b.dtype, scaled, arguments.metadata is not None, _in_eights(b), extents(a, b) if asked else None)


def _in_eights(b: Any) -> bool:
    """Tell whether K and N are multiples of 8."""
    for size in b.shape[-2:]:  # noqa: SIM110 - a generator takes a part of a small product
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
