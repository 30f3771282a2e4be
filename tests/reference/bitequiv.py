"""Orders that the planner of bitequiv gives choices of cuBLASLt, in its own numbers: a second opinion.

They are facts of ``bitequiv/tests/fixtures/cublas_plan_*.json`` (github.com/facebookexperimental/triton, commit db4666f22c1f): all of an
H100, and those of cuBLAS's own kernels on a B200 and a GB300.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastmma.cublas import Choice

from fastmma.isa.table import multiply
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.lanes import Lanes
from fastmma.products.lanes_plan import LanesPlan

PATH = Path(__file__).with_suffix(".json")
CUTLASS = (21, 23, 24)  # its planner gives all of them one order; its fixtures name the first
_JOINS = {0: "ascending", 2: "workspace", 3: "in-place"}


class Case(NamedTuple):
    """A choice for a product, and its order: the name of a kernel with what it is given."""

    gpu: str
    version: str
    fmt: str
    m: int
    n: int
    k: int
    choice: Choice
    kernel: str
    numbers: tuple[int, ...]


def reported() -> Iterator[Case]:
    """All choices; those of CUTLASS once for each algorithm."""
    for where, cases in json.loads(PATH.read_text()).items():
        for fmt, m, n, k, algo, parts, reduction, custom, stages, kernel, *numbers in cases:
            # the planner reads no reduction of cuBLAS's own kernels, which answer this one
            joined = 2 if algo == 66 and parts > 1 else reduction
            for each in CUTLASS if algo == 12 else (algo,):
                choice = Choice(each, split_k=parts, reduction=joined, custom=custom, stages=stages)
                for gpu, version in map(str.split, where.split(", ")):
                    yield Case(gpu, version, fmt, m, n, k, choice, kernel, tuple(numbers))


def parts_of(case: Case) -> list[tuple[int, int]]:
    """Cut k as the planner does: by the length of a part, or not at all."""
    length = case.numbers[0] if case.kernel.startswith("split") else case.k
    return [(start, min(start + length, case.k)) for start in range(0, case.k, length)]


def lanes_of(case: Case) -> Lanes:
    """Spell the lanes of a kernel off the tensor cores."""
    if case.kernel == "gemmsn":
        lanes, chunk = case.numbers
        return Lanes(lanes, 0, chunk=chunk, tree="ascending") if lanes > 1 else Lanes()
    if case.kernel == "gemv14":
        return Lanes(128, case.numbers[1], apart=True, blocks=case.numbers[0])
    if case.kernel == "gemv_cslice":
        return Lanes(case.numbers[0], 0, chunk=case.numbers[1], tree="ascending")
    vector, lanes, chunk, halves, parts = case.numbers
    tree = "halves" if halves or lanes == 1 else "ascending"
    return Lanes(lanes, abs(vector), shrinks=vector < 0, chunk=chunk, tree=tree, parts=parts)


def is_alike(case: Case, plan: GemmPlan | LanesPlan) -> bool:
    """Compare an order with a plan, but for the k that parts leave out."""
    if isinstance(plan, LanesPlan):
        return plan.lanes == lanes_of(case)
    ((_, _, cuts),) = plan.order.blocks(case.m, case.n, case.k)
    if [cut for cut in cuts if cut[0] < cut[1]] != parts_of(case):
        return False
    step = multiply(plan.instruction).k
    if case.kernel == "k_per_dot":
        return (step, case.k % plan.first_tile) == case.numbers
    if case.kernel == "splitk_groups":
        _, *wanted, join = case.numbers
        return [step, plan.first_tile] == wanted and (len(cuts) == 1 or plan.join == _JOINS[join])
    promoted = case.numbers[1] if case.kernel == "split_blocks" else None
    return (plan.promote_every, plan.first_tile, plan.join) == (promoted, 0, "ascending")
