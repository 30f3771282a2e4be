"""Samples that tell orders of k apart: operands whose products cancel in pairs, and what a plan computes of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.isa.formats import FORMATS
from fastmma.isa.gpus import TargetName, target_named
from fastmma.products.cublas.book_file import TYPES
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.follow import Call, follow
from fastmma.products.cublas.look_up import Known
from fastmma.products.cublas.rows import Table
from fastmma.products.gemm import gemm
from fastmma.products.gemm_choice import EpilogueInputs
from fastmma.verification.cublas_requests import Request
from fastmma.verification.stream import Stream

KEPT = 8  # rows and columns of a product that are not zero
# bits of a significand that are drawn, and the largest exponent: sums of products stay in the format of the result
_DRAWN = {"bf16": (8, 6), "f16": (11, 5), "tf32": (24, 6), "f32": (24, 6), "e4m3": (4, 3)}
_PAIRED = 32  # from so many k on
_BIAS_EXPONENT = -6  # of a bias: sums are small where products cancel


class Sample(NamedTuple):
    """The lines of a product that are not zero.

    Attributes
    ----------
    a : array (rows, K)
    b : array (columns, K)
    bias : array (columns,), optional
    """

    a: NDArray[Any]
    b: NDArray[Any]
    bias: NDArray[Any] | None


def kept(size: int) -> NDArray[np.intp]:
    """Return the rows or columns that are not zero."""
    return np.unique(np.linspace(0, size - 1, min(KEPT, size)).astype(np.intp))


def draw_sample(request: Request) -> Sample:
    """Draw the lines of a product's operands."""
    kind = TYPES[request.type]
    a, b = _vectors(kind.fmt, request.k)
    rows, columns = (len(kept(size)) for size in (request.m, request.n))
    bias = _bias(kind.out)[:columns] if request.biased else None
    return Sample(a[:rows], b[:columns], bias)


def _numbers(stream: Stream, shape: tuple[int, ...], bits: int, most: int, base: int = 0) -> NDArray[np.float64]:
    significands = stream.integers(1 << (bits - 1), 1 << bits, shape)
    exponents = stream.integers(-most, most + 1, shape) - (bits - 1) + base
    signs = 1 - 2 * stream.integers(0, 2, shape)
    return np.asarray(np.ldexp(significands * signs.astype(np.float64), exponents))


@lru_cache(64)
def _vectors(fmt: str, depth: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Draw rows of a and columns of b whose products cancel in pairs: what is left of a sum is what was rounded off."""
    bits, most = _DRAWN[fmt]
    stream = Stream("plan book", fmt, depth)
    a, b = (_numbers(stream, (KEPT, depth), bits, most) for _ in range(2))
    places = np.argsort(stream.bits(depth), kind="stable")
    if depth >= _PAIRED:
        first, second = places[: depth // 2], places[depth // 2 : depth // 2 * 2]
        a[:, second], b[:, second] = a[:, first], -b[:, first]
    dtype = FORMATS[fmt].dtype
    return a.astype(np.float32).astype(dtype), b.astype(np.float32).astype(dtype)


@lru_cache(8)
def _bias(fmt: str) -> NDArray[Any]:
    bits = {"bf16": 8, "f16": 11}.get(fmt, 24)
    drawn = _numbers(Stream("bias of a plan book", fmt), (KEPT,), bits, 4, _BIAS_EXPONENT)
    return drawn.astype(np.float32).astype(FORMATS[fmt].dtype)


def operands(request: Request, sample: Sample) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Return a, b and the bias as they lie in memory: zeros but for the lines of a sample."""
    rows, columns = kept(request.m), kept(request.n)
    a = np.zeros((request.m, request.k), sample.a.dtype, order="C" if request.layout[0] == "n" else "F")
    b = np.zeros((request.k, request.n), sample.b.dtype, order="C" if request.layout[1] == "n" else "F")
    a[rows], b[:, columns] = sample.a, sample.b.T
    bias = None
    if sample.bias is not None:
        bias = np.zeros(request.n, sample.bias.dtype)
        bias[columns] = sample.bias
    first, second = (array if side == "n" else array.T for array, side in zip((a, b), request.layout, strict=True))
    return first, second, bias


def compute_sample(request: Request, sample: Sample, choice: Choice, table: Table, target: TargetName) -> NDArray[Any]:
    """Compute a sample by the plan that a table gives for a choice.

    Raises
    ------
    FastmmaError
        If there is no plan.
    """
    given = EpilogueInputs(bias=request.biased)
    call = Call(request.product, given, None, TYPES[request.type].fast, target_named(target))
    plan = follow(Known(choice, table, None), call)
    more: dict[str, Any] = {} if sample.bias is None else {"bias": sample.bias}
    with np.errstate(over="ignore", invalid="ignore"):
        found: NDArray[Any] = gemm(sample.a, sample.b.T, plan=plan, **more)
    return found


def have_same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Tell whether two arrays have the same bits, or both a NaN."""
    bits = np.dtype(f"u{one.itemsize}")
    nan = np.isnan(one.astype(np.float64)) & np.isnan(other.astype(np.float64))
    return one.dtype == other.dtype and bool(((np.ascontiguousarray(one).view(bits) == np.ascontiguousarray(other).view(bits)) | nan).all())
