"""float32 matrices times vectors: the order in which cuBLAS's kernels sum them, which use no tensor cores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, empty, float32, strided

from fastmma.host.errors import OperandError
from fastmma.products import cublas
from fastmma.products.fma_lanes import fused, lane_product
from fastmma.products.gemm import gemm
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.library_gpu import library_gpu
from fastmma.torch.arrays import as_numpy
from fastmma.torch.emulation import Emulation, tensors_text
from fastmma.torch.plans import UnknownError
from fastmma.torch.report import EMULATED, Line

_GPUS = ("H100", "H200")
_ALIGNED = 16  # bytes, of every recorded operand
ROWS, COLUMNS = "rows", "columns"  # of a matrix, which lie in whole


class Recorded(NamedTuple):
    """Matrices of which every one that was recorded, of all sizes in these limits, was summed in this way."""

    lying: str
    least: tuple[int, int]  # rows and k
    most: tuple[int, int]
    lanes: int
    adjacent: bool


TABLE = (
    Recorded(ROWS, (2, 2), (8192, 48), 2, True),
    Recorded(ROWS, (2, 63), (1000, 513), 32, True),
    Recorded(ROWS, (256, 600), (1000, 5000), 32, False),
    Recorded(COLUMNS, (2, 2), (8192, 65), 2, True),
    Recorded(COLUMNS, (2, 384), (128, 768), 32, False),
)


def recorded(run: Emulation, a: Tensor) -> Recorded | None:
    """Tell how the library sums the rows of a matrix times a vector, if that is known."""
    if run.settings.library != "cublas" or library_gpu(run.settings.target) not in _GPUS or a.is_neg():
        return None
    (rows, depth), (down, along) = a.shape, a.stride()
    lying = ROWS if along == 1 and down >= depth else COLUMNS if down == 1 and along >= rows else None
    return next((each for each in TABLE if each.lying == lying and _inside((rows, depth), each)), None)


def _chosen(run: Emulation, a: Tensor, x: Tensor, alpha: float) -> LanesPlan | None:
    """The plan of the kernel that the library chose for such a vector and matrix when it was asked; None where it was not."""
    if run.settings.library != "cublas" or run.settings.other_workspace or a.is_neg() or a.data_ptr() % _ALIGNED or x.data_ptr() % _ALIGNED:
        return None
    try:
        given: dict[str, Any] = {"target": run.settings.target, "alpha": float(alpha), "plans": run.settings.book}
        plan = cublas.plan(as_numpy(x.resolve_neg())[None], as_numpy(a).T, **given)
    except OperandError:
        return None
    return plan if isinstance(plan, LanesPlan) and plan.evidence is not None and plan.evidence.is_known else None


def _inside(shape: tuple[int, int], limits: Recorded) -> bool:
    return all(low <= size <= high for low, size, high in zip(limits.least, shape, limits.most, strict=True))


def are_thin(run: Emulation, a: Tensor, b: Tensor) -> bool:
    """Tell whether a matrix is multiplied by one row or column of float32, as a library does it: TF32 concerns it as little as `mv`."""
    plain = a.dtype is b.dtype is float32 and a.layout is b.layout is strided and a.dim() == b.dim() == 2
    if not plain or 1 not in (a.shape[0], b.shape[1]) or a.shape[1] <= 1 or run.settings.library is None:
        return False
    return run.settings.said(a.shape[0], b.shape[1], a.shape[1]) is None


def thin(run: Emulation, name: str, a: Tensor, b: Tensor, c: Tensor | None = None, alpha: float = 1, beta: float = 1) -> Tensor:
    """``alpha * a @ b + beta * c`` of what `are_thin`.

    Raises
    ------
    UnknownError
        If nobody knows in which order the library sums such a matrix.
    """
    added = None if c is None or beta == 0 else c.expand(a.shape[0], b.shape[1])
    if b.shape[1] == 1:
        return product(run, name, a, b[:, 0], None if added is None else added[:, 0], alpha, beta, by_column=True)[:, None]
    return product(run, name, b.t(), a[0], None if added is None else added[0], alpha, beta)[None]


def are_outer(run: Emulation, a: Tensor, b: Tensor) -> bool:
    """Tell whether stacks of float32 vectors have one k, for which a library has a kernel that adds nothing."""
    plain = a.dtype is b.dtype is float32 and a.layout is b.layout is strided and a.dim() == b.dim() == 3
    if not plain or run.settings.library is None or a.shape[0] == 1 or b.shape[1] != 1 or a.shape[::2] != (b.shape[0], 1):
        return False
    return 1 in (a.shape[1], b.shape[2]) and run.settings.said(a.shape[1], b.shape[2], 1) is None


def outer(run: Emulation, name: str, a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` of what `are_outer`: products to which no zero is added, so that -0 stays."""
    run.done(Line(name, EMULATED, tensors_text((a, b)), "products of one k", "by definition"))
    return (a * b).contiguous()


def product(
    run: Emulation, name: str, a: Tensor, x: Tensor, y: Tensor | None = None, alpha: float = 1, beta: float = 1, *, by_column: bool = False
) -> Tensor:
    """``alpha * a @ x + beta * y``, a (M, K) and x (K,): the last product and sum are one fma; `by_column` where torch's call has x so.

    Raises
    ------
    UnknownError
        If nobody knows in which order the library sums such a matrix.
    """
    plain = a.layout is x.layout is strided and x.dtype is float32 and a.shape[1] == x.shape[0] and a.is_cpu and x.is_cpu
    how = recorded(run, a) if plain and run.settings.book is None else None
    plan = _chosen(run, a, x, alpha) if plain and how is None and y is None and not by_column else None
    if plan is not None:
        result = empty(a.shape[0])
        as_numpy(result)[...] = gemm(as_numpy(x.resolve_neg())[None], as_numpy(a).T, plan=plan, alpha=float(alpha))[0]
        run.done(Line(name, EMULATED, tensors_text((a, x)), f"{plan.instruction}; {plan.evidence}", "by definition"))
        return result
    if how is None:
        raise UnknownError("the order in which cuBLAS sums a float32 matrix of this size times a vector is not known")
    sums = lane_product(as_numpy(a), as_numpy(x.resolve_neg()), how.lanes, how.adjacent)
    if y is not None and beta != 0:
        with np.errstate(all="ignore"):
            sums = fused(np.full_like(sums, alpha), sums, np.float32(beta) * as_numpy(y.resolve_neg().expand(a.shape[0]).contiguous()))
    elif alpha != 1:
        sums = fused(np.full_like(sums, alpha), sums, np.zeros_like(sums))  # whose zeros are positive
    result = empty(a.shape[0])
    as_numpy(result)[...] = sums
    k = "adjacent k" if how.adjacent else f"each {how.lanes}th k"
    run.done(Line(name, EMULATED, tensors_text((a, x)), f"fma.rn.f32; {how.lanes} lanes of {k}, added in a tree", "measured"))
    return result
