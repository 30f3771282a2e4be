"""Plans of products of float32 off the tensor cores: without TF32, and by vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import TargetError
from fastmma.isa.scalar import FMA
from fastmma.isa.targets import target_of
from fastmma.products.bound import Strided
from fastmma.products.evidence import OrderEvidence
from fastmma.products.gemm import gemm
from fastmma.products.gemm_choice import gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.library_gpu import library_gpu
from fastmma.torch.plans import Epilogue, Planned, UnknownError, by_choice, checked, epilogue_options, status_of, unknown_plan
from fastmma.torch.report import ASSUMED, EMULATED
from fastmma.torch.settings import Modes, Settings

_UNKNOWN = "float32 without TF32, or by a vector, is multiplied off the tensor cores, in parts of k that cuBLAS chooses"
# of float32 by vendors whose matrix cores multiply it, where products are not known
_MATRIX_CORES = {"AMD": "v_mfma_f32_16x16x4_f32"}
_DOTS = "stacks of single results are dot products, whose kernel was not always the same"
_TILE = 16  # k that kernels of stacks take at a time, or a part of them
_GAPS = "matrices with gaps between their rows or columns were not recorded"


class _Stacks(NamedTuple):
    """Stacks of matrices of which all that were recorded, of all sizes in these limits, were summed in one chain."""

    rows: int = 17  # of a, unless its columns are contiguous; cuBLAS has kernels of lanes for fewer
    most: int = 1100  # rows, columns and k
    matrices: int = 64

    def holds(self, a: Strided, b: Strided) -> bool:
        """Tell whether stacks of two and more are within the limits."""
        (count, m, k), n = a.shape, b.shape[2]
        by_column = a.strides[1] == a.dtype.itemsize
        return 1 < count <= self.matrices and min(m, n, k) > 1 and max(m, n, k) <= self.most and (m >= self.rows or by_column)


_STACKS = _Stacks()
_CHAIN = "stacks of float32 matrices, of 17 and more rows or contiguous columns, have one chain an element"
_CHAIN_RATES = {"H200": (1212, 1212)}  # fresh calls of torch.bmm that had every bit


def chained(settings: Settings, a: Strided, b: Strided, epilogue: Epilogue, modes: Modes) -> Planned:
    """The plan of a product of float32 off the tensor cores, where the slices of k are known: there is one k, or the caller says them.

    Parameters
    ----------
    settings : Settings
    a, b : Strided (..., M, K) and (..., K, N)
    epilogue : Epilogue
    modes : Modes

    Raises
    ------
    UnknownError
        If nobody knows.
    """
    said = settings.said(a.shape[-2], b.shape[-1], a.shape[-1])
    instruction = _MATRIX_CORES.get(target_of(settings.architecture).vendor)
    if instruction is not None and said is None:
        try:
            plan = gemm_plan(a, b, instruction=instruction, target=settings.target, **epilogue_options(epilogue))
        except TargetError as error:
            raise UnknownError(str(error)) from None
        return checked(settings, Planned(plan, ASSUMED, unknown_plan(settings, "f32")))
    if isinstance(said, GemmPlan):
        return Planned(said, EMULATED, "as the caller's plans say")
    if isinstance(said, int):
        status, how = EMULATED, f"{said} slices of k, as the caller's plans say"
    elif a.shape[-1] <= 1:
        said, status, how = 1, EMULATED, "one k"
    elif settings.library is None:
        said, status, how = 1, ASSUMED, "one accumulator"
    elif chosen := _of_matrices(settings, a, b, epilogue) if a.ndim == 2 else _of_stack(settings, a, b, epilogue, modes):
        return checked(settings, chosen)
    else:
        raise UnknownError(_UNKNOWN)
    if settings.library is not None and (epilogue.c or epilogue.bias):
        raise UnknownError("how cuBLAS adds to products of float32 without TF32 is not known")
    plan = gemm_plan(a, b, instruction=FMA, target=settings.target, split_k=said, **epilogue_options(epilogue))
    return checked(settings, Planned(plan, status, how))


def _of_matrices(settings: Settings, a: Strided, b: Strided, epilogue: Epilogue) -> Planned | None:
    """The plan of the kernel that the library chose for such matrices, or, assumed, for such without gaps; None where there is none."""
    if found := by_choice(settings, a, b, epilogue, tf32=False):
        return found
    found = by_choice(settings, _without_gaps(a), _without_gaps(b), epilogue, tf32=False)
    return found and found._replace(status=ASSUMED, how=f"{_GAPS}; without, {found.how}")


def _of_stack(settings: Settings, a: Strided, b: Strided, epilogue: Epilogue, modes: Modes) -> Planned | None:
    """The plan of a stack; None where nothing is known of such stacks."""
    rate = _CHAIN_RATES.get(library_gpu(settings.target))
    if rate is None or modes.tf32 or not epilogue.aligned or epilogue.c or epilogue.bias or epilogue.alpha != 1:
        return None
    if settings.book is None and _STACKS.holds(a, b):
        evidence = OrderEvidence("fitted", _CHAIN, rate)
        plan = gemm_plan(a, b, instruction=FMA, target=settings.target, split_k=1, **epilogue_options(epilogue))
        return Planned(plan, status_of(evidence), str(evidence))
    x, y = (a, b) if a.shape[0] > 1 else (a.matrix, b.matrix)  # a stack of one is multiplied as its matrices are
    found = _of_matrices(settings, x, y, epilogue)
    if found and a.shape[1] == b.shape[2] == 1:
        return found._replace(status=ASSUMED, how=f"{_DOTS}; else {found.how}")
    return found


def fills_k(settings: Settings, a: Strided) -> bool:
    """Tell whether the kernel fills k up to its tile with zeros, as in 138 of 138 recorded stacks of numbers whose products underflow."""
    return settings.library is not None and a.shape[-1] % _TILE != 0


def _without_gaps(matrices: Strided) -> Strided:
    """Lay out matrices, or a stack of them, one element after the other, by rows or by columns as they are."""
    size, (rows, columns) = matrices.dtype.itemsize, matrices.shape[-2:]
    by_column = matrices.strides[-2] == size and matrices.strides[-1] != size
    inner = (size, rows * size) if by_column else (columns * size, size)
    return Strided(matrices.dtype, matrices.shape, (rows * columns * size, *inner)[-len(matrices.shape) :])


def multiply_by_lanes(a: NDArray[Any], b: NDArray[Any], *, plan: LanesPlan, threads: int | None, **given: Any) -> NDArray[Any]:
    """Multiply matrices, or stacks of them one by one, by a plan of lanes."""
    if a.ndim == 2:
        return gemm(a, b, plan=plan, threads=threads, **given)
    return np.stack([gemm(x, y, plan=plan, threads=threads, **given) for x, y in zip(a, b, strict=True)])
