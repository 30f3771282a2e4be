"""A product whose k several GPUs share: each multiplies a part, and an all-reduce adds what they rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.plan import Plan
from fastmma.host.errors import OperandError
from fastmma.isa.formats import FORMATS
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.loop import join_parts
from fastmma.products.order import Order

RING, TREE = "ring", "tree"
ALL_REDUCES = (RING, TREE)
_JOINS = {RING: "ascending", TREE: "pairwise"}


@dataclass(frozen=True)
class RanksPlan(Plan):
    """Everything that decides the bits of a product whose k are cut in equal parts, one a GPU, and whose results are added.

    Attributes
    ----------
    target, instruction : str
        Of `each`.
    each : GemmPlan or LanesPlan
        How every rank multiplies its part of k, and rounds the sums.
    ranks : int
    all_reduce : {"ring", "tree"}
        The order of the sum: rank after rank, or neighbours first. Each sum is rounded to the type of the result.
    first : int
        The rank at which a ring begins.

    Raises
    ------
    OperandError
        If the parts do not go together.

    Examples
    --------
    >>> plan = GemmPlan("sm_90a", "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", epilogue=("round",), out="bf16")
    >>> print(across_ranks(plan, 2).order_text)
    2 ranks that a ring adds, in bf16
    """

    each: GemmPlan | LanesPlan
    ranks: int
    all_reduce: str = RING
    first: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.all_reduce not in ALL_REDUCES:
            raise OperandError(f"all_reduce must be one of {', '.join(ALL_REDUCES)}, not {self.all_reduce!r}")
        if self.ranks < 1 or not 0 <= self.first < self.ranks:
            raise OperandError(f"ranks must be at least 1, and first one of them, not {self.ranks} and {self.first}")
        if FORMATS[self.out].kind != "float":
            raise OperandError(f"the order of an all-reduce does not matter for {self.out}, which is exact")

    @property
    def out(self) -> str:
        """The format of the results of all ranks, and of their sums."""
        return self.each.out or self.each.operation.instruction.dtype

    @property
    def turns(self) -> list[int]:
        """The ranks in the order in which they are added."""
        return [(self.first + turn) % self.ranks for turn in range(self.ranks)]

    @property
    def joined(self) -> Order:
        """The joins of the ranks' results, as of parts of k."""
        return Order(self.ranks, join=_JOINS[self.all_reduce])

    @property
    def order_text(self) -> str:
        """The order of ranks in words."""
        start = f" from rank {self.first}" if self.first else ""
        return f"{self.ranks} ranks that a {self.all_reduce} adds{start}, in {self.out}"

    def part(self, rank: int, k: int) -> slice:
        """Return which of K a rank multiplies.

        Raises
        ------
        OperandError
            If ranks have no equal parts.
        """
        if k % self.ranks:
            raise OperandError(f"K = {k} cannot be cut into equal parts for {self.ranks} ranks")
        return slice(rank * k // self.ranks, (rank + 1) * k // self.ranks)

    def add(self, results: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Add the results of all ranks, as f32 numbers."""
        dtype = FORMATS[self.out].dtype

        def add(total: NDArray[np.float32], value: NDArray[np.float32]) -> NDArray[np.float32]:
            with np.errstate(all="ignore"):
                return np.asarray((total + value).astype(dtype).astype(np.float32))

        return join_parts((results[rank] for rank in self.turns), self.joined, add)


def across_ranks(plan: GemmPlan | LanesPlan, ranks: int, all_reduce: str = RING, first: int = 0) -> RanksPlan:
    """Return the plan of a product whose k so many GPUs share, each of which multiplies by a plan.

    Raises
    ------
    OperandError
    """
    return RanksPlan(plan.target, plan.instruction, plan, ranks, all_reduce, first, arithmetic=plan.arithmetic)
