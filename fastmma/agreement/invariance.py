"""Which numbers of rows of a layer share their bits: the plans that a library takes for each, grouped by what they compute."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from fastmma.agreement.build import Cell
from fastmma.agreement.decide import normal_form
from fastmma.agreement.draw import draw
from fastmma.agreement.form import Node
from fastmma.agreement.layer import ALONE, LEAST_RATE, Layer, Planned, Sharing
from fastmma.agreement.problem import problem_of
from fastmma.agreement.ranks import RING, RanksPlan
from fastmma.agreement.reasons import order_of
from fastmma.agreement.run import compute
from fastmma.agreement.same_bits import same_bits
from fastmma.agreement.search import Pair, hints_of
from fastmma.agreement.verdict import Verdict
from fastmma.backends.resolve import resolved_target
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import integer
from fastmma.isa.gpus import TargetName
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.library_gpu import library_gpu

_TURNS = "each part of a ring's result starts at another rank, so its bits differ"
_EITHER_WAY = 2  # ranks whose results add up alike from either
_BATCHES = 8  # draws on which all groups are computed before pairs are


@dataclass(frozen=True)
class Invariance:
    """The numbers of rows of a product that share their bits.

    Attributes
    ----------
    n, k : int
    dtype : str
        The format of the operands.
    gpu : str
    groups : tuple of tuple of range
        Numbers of rows whose results have the same bits, whatever the operands; the group of most rows first.
    unknown : tuple of range
        Numbers of rows whose plan is not known well enough.
    plans : tuple of GemmPlan, LanesPlan or RanksPlan
        One of each group.
    undecided : tuple of (int, int)
        Pairs of groups of which it is not known whether they differ.
    sharing : Sharing
        How ranks share the product.
    """

    n: int
    k: int
    dtype: str
    gpu: str
    groups: tuple[tuple[range, ...], ...]
    unknown: tuple[range, ...]
    plans: tuple[Planned, ...] = ()
    undecided: tuple[tuple[int, int], ...] = ()
    sharing: Sharing = ALONE

    @property
    def where(self) -> str:
        """Name the GPU, or the ranks that share a product."""
        return f"{self.gpu}{self.sharing}"

    @cached_property
    def turns_show(self) -> bool:
        """Tell whether bits depend on the rank at which a ring begins, which is another for other parts of a result."""
        plans = [plan for plan in self.plans if isinstance(plan, RanksPlan) and plan.all_reduce == RING and plan.ranks > _EITHER_WAY]
        return any(form_of_layer(plan, self.k) != form_of_layer(replace(plan, first=1), self.k) for plan in plans)

    @property
    def is_invariant(self) -> bool | None:
        """Tell whether all numbers of rows have the same bits; None where some are not known."""
        if len(self.groups) - len({max(pair) for pair in self.undecided}) > 1:
            return False
        return None if self.unknown or self.undecided or self.turns_show else True

    @property
    def known(self) -> int:
        """Count the numbers of rows that are in a group."""
        return sum(len(each) for group in self.groups for each in group)

    def group_of(self, rows: int) -> int | None:
        """Return the number of the group of so many rows; None where they are not known."""
        return next((number for number, group in enumerate(self.groups) if any(rows in each for each in group)), None)

    def same(self, first: int, second: int) -> bool | None:
        """Tell whether a row has the same bits in batches of these two numbers of rows; None if that is not known."""
        groups = self.group_of(first), self.group_of(second)
        if groups[0] is None or groups[1] is None:
            return None
        pair = min(groups), max(groups)  # type: ignore[type-var]
        if pair[0] == pair[1]:
            return None if self.turns_show and first != second else True
        return None if pair in self.undecided else False

    def verdict(self, first: int, second: int) -> Verdict:
        """Decide about two numbers of rows, with a witness where they differ.

        Raises
        ------
        OperandError
            If the plan of one of them is not known.
        """
        groups = self.group_of(first), self.group_of(second)
        for rows, group in zip((first, second), groups, strict=True):
            if group is None:
                raise OperandError(f"invariance: the plan of {rows} rows is not known")
        return same_bits(*(self.plans[group] for group in groups if group is not None), k=self.k)

    def __str__(self) -> str:
        lines = [f"{self.dtype} on {self.where}, N = {self.n}, K = {self.k}: {_counted(self)}"]
        lines += [f"  {spoken(group)}: {order_of(plan, self.k)}" for group, plan in zip(self.groups, self.plans, strict=True)]
        lines += [f"  {spoken(self.unknown)}: not known"] if self.unknown else []
        lines += [f"  {_TURNS}"] if self.turns_show else []
        return "\n".join(lines)


def _counted(found: Invariance) -> str:
    if not found.groups:
        return "no plan is known"
    kinds = "all have the same bits" if len(found.groups) == 1 else f"{len(found.groups)} groups, each with bits of its own"
    unsure = f", {len(found.undecided)} pairs of which may have the same bits" if found.undecided else ""
    missing = sum(len(each) for each in found.unknown)
    return f"{found.known:,} numbers of rows, {kinds}{unsure}" + (f"; {missing:,} are not known" if missing else "")


def spoken(rows: Iterable[range], most: int = 8) -> str:
    """Write ranges as a person says them.

    Examples
    --------
    >>> spoken([range(1, 49), range(97, 641)]), spoken([range(5, 6)])
    ('rows 1 to 48 and 97 to 640', 'row 5')
    """
    ranges = list(rows)
    texts = [f"{each[0]}" if len(each) == 1 else f"{each[0]} to {each[-1]}" for each in ranges]
    if len(texts) > most:
        texts = [*texts[:most], f"{len(texts) - most} ranges more"]
    start = "row" if len(ranges) == 1 and len(ranges[0]) == 1 else "rows"
    return f"{start} {' and '.join([', '.join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)}"


@public_call
def invariance(
    n: int,
    k: int,
    *,
    dtype: Any,
    target: TargetName,
    rows: Collection[int] = range(1, 4097),
    layout: str = "nt",
    preset: str = "cublas",
    out_dtype: Any = None,
    bias: bool = False,
    least_rate: float = LEAST_RATE,
    stack: int = 1,
    ranks: int = 1,
    cut: str = "k",
    all_reduce: str = RING,
) -> Invariance:
    """Find the numbers of rows for which a layer's results have the same bits, whatever its input and its weights.

    Parameters
    ----------
    n, k : int
        Columns of the result, and length of the sums: outputs and inputs of a linear layer.
    dtype : dtype or format
        Of both operands; float32 is multiplied off the tensor cores, and with ``"tf32"`` on them.
    target : str
        The GPU, for example ``"H200"``.
    rows : range, or other collection of int
        Numbers of rows: tokens of a batch.
    layout : {"nt", "nn", "tn", "tt"}
        Of a and b: n where rows are contiguous, t where columns are. ``"nt"`` is that of ``torch.nn.Linear``.
    preset : {"cublas", "cublas-fast-accum"}
    out_dtype : dtype or format, optional
        Of the result; by default that of the operands, and bfloat16 for 8-bit floats.
    bias : bool
        Whether a bias is added.
    least_rate : float
        Plans that are predicted count as known where at least this share of fresh products was predicted.
    stack : int
        How many such products a call has: ``torch.bmm``.
    ranks : int
        How many GPUs share the product: tensor parallel.
    cut : {"k", "n"}
        What they share: parts of k, whose results an all-reduce adds, or columns.
    all_reduce : {"ring", "tree"}
        In which order: rank after rank, from another one on for each part of the result, or neighbours first. Each sum is rounded to
        the type of the result.

    Returns
    -------
    Invariance
        Its ``groups`` are tuples of ranges of numbers of rows; ``unknown`` has those whose plan is not known.

    Raises
    ------
    OperandError, OperandTypeError, TargetError

    Examples
    --------
    >>> found = invariance(4096, 4096, dtype="bf16", target="H200", rows=range(1, 49))
    >>> print(found)
    bf16 on H200, N = 4096, K = 4096: 48 numbers of rows, 2 groups, each with bits of its own
      rows 1 to 24, 32 to 40 and 48: k in 2 parts, rounded up to 64 k, added in ascending order, f32
      rows 25 to 31 and 41 to 47: k in one part
    >>> found.same(1, 48), found.same(1, 25)
    (True, False)
    """
    sharing = Sharing(integer(ranks, "invariance: ranks", 1), cut, all_reduce)
    layer = Layer.of(n, k, dtype=dtype, layout=layout, preset=preset, out_dtype=out_dtype, bias=bias, stack=stack, sharing=sharing)
    if isinstance(rows, int) or not all(isinstance(each, int) and each > 0 for each in rows):
        raise OperandTypeError("invariance: rows must be numbers of at least 1, for example range(1, 4097)")
    resolved_target(target)
    known: dict[tuple[Any, ...], tuple[Planned, list[int]]] = {}
    unknown: list[int] = []
    for count in sorted(set(rows)):
        plan = layer.plan(count, target, least_rate)
        if plan is None:
            unknown.append(count)
        else:
            known.setdefault(_key(plan), (plan, []))[1].append(count)
    groups = _grouped(known.values(), layer.k)
    undecided = _undecided(groups, layer.k)
    return Invariance(
        layer.n,
        layer.k,
        layer.fmt.name,
        library_gpu(target),
        tuple(tuple(ranges(members)) for _, members in groups),
        tuple(ranges(unknown)),
        tuple(plan for plan, _ in groups),
        undecided,
        sharing if sharing.ranks > 1 else ALONE,
    )


def _key(plan: Planned) -> tuple[Any, ...]:
    """Gather what decides a plan's bits."""
    return (type(plan), *(getattr(plan, each.name) for each in fields(plan) if each.name != "evidence"))


def _grouped(known: Iterable[tuple[Planned, list[int]]], depth: int) -> list[tuple[Planned, list[int]]]:
    """Put plans of one normal form together, those of most rows first."""
    forms: dict[Node, tuple[Planned, list[int]]] = {}
    for plan, members in known:
        forms.setdefault(form_of_layer(plan, depth), (plan, []))[1].extend(members)
    found = [(plan, sorted(members)) for plan, members in forms.values()]
    return sorted(found, key=lambda group: (-len(group[1]), group[1]))


def form_of_layer(plan: Planned, depth: int) -> Node:
    """Return the normal form of an element of a layer, which all elements have that stream-K does not cut."""
    cuts = next(plan.order.blocks(1, 1, depth))[2] if isinstance(plan, GemmPlan) else ((0, depth),)
    return normal_form(plan, Cell(depth, cuts), problem_of(plan, False))


def _undecided(groups: list[tuple[Planned, list[int]]], depth: int) -> tuple[tuple[int, int], ...]:
    """Compute all groups on operands that tell them apart; return the pairs of which none did, nor a search."""
    plans = [plan for plan, _ in groups]
    left = {(first, second) for second in range(len(plans)) for first in range(second)}
    if left:
        problem = problem_of(plans[0], False)
        rng, hints = (
            np.random.default_rng(0),
            hints_of(Pair(plans[0], plans[1], problem, (form_of_layer(plans[0], depth), form_of_layer(plans[1], depth)), depth)),
        )
        for turn in range(_BATCHES):
            operands = draw(problem, hints._replace(size=min(hints.size, 16)), rng, 4 * turn)
            results = [compute(plan, problem, operands).tobytes() for plan in plans]
            left = {pair for pair in left if results[pair[0]] == results[pair[1]]}
    return tuple(sorted(pair for pair in left if same_bits(plans[pair[0]], plans[pair[1]], k=depth).as_written is not False))


def ranges(numbers: Iterable[int]) -> Iterator[range]:
    """Put ascending numbers together to ranges of neighbours.

    Examples
    --------
    >>> list(ranges([1, 2, 3, 7]))
    [range(1, 4), range(7, 8)]
    """
    first = last = None
    for number in numbers:
        if last is not None and number != last + 1:
            yield range(first, last + 1)  # type: ignore[arg-type]
            first = number
        first, last = number if first is None else first, number
    if first is not None and last is not None:
        yield range(first, last + 1)
