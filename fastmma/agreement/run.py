"""Compute an element's operands by a plan, whatever it is a plan of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.agreement.problem import Problem
from fastmma.agreement.ranks import RanksPlan
from fastmma.backends.plan import Plan
from fastmma.execution.plan import MmaPlan
from fastmma.execution.tiles import mma
from fastmma.isa.codes import from_codes, to_codes
from fastmma.isa.formats import FORMATS
from fastmma.products.by_tile import ByTile, Cuts
from fastmma.products.gemm import gemm
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.plan import AccumulationPlan
from fastmma.products.scaled import scaled_matmul
from fastmma.scaling import ScaledArray
from fastmma.scaling.schemes import scheme_of


class Operands(NamedTuple):
    """Operands of a product of any number of rows and columns.

    Attributes
    ----------
    a, b : array (M, K) and (K, N)
        Elements; of sparse A those that are stored.
    others : dict
        What else there is, by the names of calls.
    """

    a: NDArray[Any]
    b: NDArray[Any]
    others: dict[str, Any]

    def element(self, row: int, column: int) -> Operands:
        """Return the operands of one element."""
        cut = {name: value if np.ndim(value) == 0 else _CUTS[name](value, row, column) for name, value in self.others.items()}
        return Operands(self.a[row : row + 1], self.b[:, column : column + 1], cut)


_CUTS: dict[str, Callable[[NDArray[Any], int, int], NDArray[Any]]] = {
    "c": lambda value, row, column: value[row : row + 1, column : column + 1],
    "bias": lambda value, _, column: value[column : column + 1],
    "metadata": lambda value, row, _: value[row : row + 1],
    # one for each row or column, or for a block that has them all
    "scale_a": lambda value, row, _: value[min(row, len(value) - 1)][None],
    "scale_b": lambda value, _, column: value[:, min(column, value.shape[1] - 1)][:, None],
}


def of_cuts(plan: Plan, cuts: Cuts) -> Plan:
    """Return the plan that gives all elements the parts of k that stream-K gives some."""
    streamed = isinstance(plan, GemmPlan | AccumulationPlan) and isinstance(plan.split_k, ByTile)
    return replace(plan, split_k=cuts if len(cuts) > 1 else 1) if streamed else plan  # type: ignore[call-arg]


def compute(plan: Plan, problem: Problem, operands: Operands, backend: str = "numba") -> NDArray[Any]:
    """Return the codes of the results (M, N)."""
    a, b, others = operands
    if isinstance(plan, MmaPlan):
        return _tiles(plan, problem, operands, backend)
    if isinstance(plan, AccumulationPlan):
        scales = {name: value for name, value in others.items() if name.startswith("scale_")}
        given = {name: value for name, value in others.items() if name not in scales}
        left, right = (
            scaled_array(elements, scales[f"scale_{name}"], scheme, axis)
            for elements, name, scheme, axis in ((a, "a", plan.schemes[0], 1), (b, "b", plan.schemes[1], 0))
        )
        found = scaled_matmul(left, right, plan=plan, backend=backend, **given)
    elif isinstance(plan, RanksPlan):
        parts = (plan.part(rank, len(b)) for rank in range(plan.ranks))
        results = [compute(plan.each, problem, Operands(np.ascontiguousarray(a[:, part]), b[part], {}), backend) for part in parts]
        found = plan.add([from_codes(each, problem.result).astype(np.float32) for each in results]).astype(FORMATS[plan.out].dtype)
    else:
        assert isinstance(plan, GemmPlan | LanesPlan)
        found = gemm(a, b, plan=plan, backend=backend, **others)
    return to_codes(found, problem.result)


def scaled_array(elements: NDArray[Any], scales: NDArray[Any], scheme: str, axis: int) -> ScaledArray:
    """Return a block-scaled array of elements and scales."""
    row = scheme_of(scheme)
    return ScaledArray(elements, scales, row.block(elements.shape, axis), axis, np.float32(1) if row.two_level else None, scheme)


def _tiles(plan: MmaPlan, problem: Problem, operands: Operands, backend: str) -> NDArray[Any]:
    """One instruction for every element: tiles whose rows are alike, and whose columns are."""
    ins = plan.operation.instruction
    a, b, others = operands
    rows, columns = len(a), b.shape[1]
    tiles: dict[str, Any] = {
        "a": _spread(a[:, None, None, :], ins.m, 2),
        "b": _spread(b.T[None, :, :, None], ins.n, 3),
        "c": np.broadcast_to(
            others.get("c", np.zeros((rows, columns), FORMATS[ins.ctype].dtype))[..., None, None], (rows, columns, ins.m, ins.n)
        ),
    }
    if "metadata" in others:
        tiles["metadata"] = _spread(others["metadata"][:, None, None, :], ins.m, 2)
    if "scale_a" in others:
        tiles["scale_a"] = _spread(others["scale_a"][:, None, None, :], ins.m, 2)
        tiles["scale_b"] = _spread(others["scale_b"].T[None, :, :, None], ins.n, 3)
    found = mma(None, tiles.pop("a"), tiles.pop("b"), tiles.pop("c"), plan=plan, backend=backend, **tiles)
    return to_codes(np.ascontiguousarray(found[..., 0, 0]), problem.result)


def _spread(array: NDArray[Any], count: int, axis: int) -> NDArray[Any]:
    """Repeat along an axis of one."""
    shape = list(array.shape)
    shape[axis] = count
    return np.broadcast_to(array, shape)
