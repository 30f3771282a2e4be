"""Which numbers of rows of a layer share their bits: the plans that a library takes for each, grouped by what they compute."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fastmma.agreement.build import Cell
from fastmma.agreement.decide import normal_form
from fastmma.agreement.draw import draw
from fastmma.agreement.form import Node
from fastmma.agreement.problem import problem_of
from fastmma.agreement.reasons import order_of
from fastmma.agreement.run import compute
from fastmma.agreement.same_bits import same_bits
from fastmma.agreement.search import Pair, hints_of
from fastmma.agreement.verdict import Verdict
from fastmma.backends.resolve import resolved_target
from fastmma.host.arrays import integer
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.formats import FORMATS, Format, format_of
from fastmma.isa.gpus import TargetName
from fastmma.products import cublas
from fastmma.products.bound import Strided
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.library_gpu import library_gpu

LAYOUTS = ("nn", "nt", "tn", "tt")
PRESETS = {"cublas": False, "cublas-fast-accum": True}
LEAST_RATE = float.fromhex("0x1.fff2e48e8a71ep-1")  # 0.9999
Planned = GemmPlan | LanesPlan
_RESULTS = {"e4m3": "bf16", "e5m2": "bf16", "tf32": "f32"}  # where they have not the format of the operands
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
    plans : tuple of GemmPlan or LanesPlan
        One of each group.
    undecided : tuple of (int, int)
        Pairs of groups of which it is not known whether they differ.
    """

    n: int
    k: int
    dtype: str
    gpu: str
    groups: tuple[tuple[range, ...], ...]
    unknown: tuple[range, ...]
    plans: tuple[Planned, ...] = ()
    undecided: tuple[tuple[int, int], ...] = ()

    @property
    def is_invariant(self) -> bool | None:
        """Tell whether all numbers of rows have the same bits; None where some are not known."""
        if len(self.groups) - len({max(pair) for pair in self.undecided}) > 1:
            return False
        return None if self.unknown or self.undecided else True

    @property
    def known(self) -> int:
        """Count the numbers of rows that are in a group."""
        return sum(len(each) for group in self.groups for each in group)

    def group_of(self, rows: int) -> int | None:
        """Return the number of the group of so many rows; None where they are not known."""
        return next((number for number, group in enumerate(self.groups) if any(rows in each for each in group)), None)

    def same(self, first: int, second: int) -> bool | None:
        """Tell whether a row has the same bits among so many rows and among so many others; None where that is not known."""
        groups = self.group_of(first), self.group_of(second)
        if groups[0] is None or groups[1] is None:
            return None
        pair = min(groups), max(groups)  # type: ignore[type-var]
        return True if pair[0] == pair[1] else None if pair in self.undecided else False

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
        lines = [f"{self.dtype} on {self.gpu}, N = {self.n}, K = {self.k}: {_counted(self)}"]
        lines += [f"  {spoken(group)}: {order_of(plan, self.k)}" for group, plan in zip(self.groups, self.plans, strict=True)]
        lines += [f"  {spoken(self.unknown)}: not known"] if self.unknown else []
        return "\n".join(lines)


def _counted(found: Invariance) -> str:
    if not found.groups:
        return "no plan is known"
    kinds = "all have the same bits" if len(found.groups) == 1 else f"{len(found.groups)} groups, each with bits of its own"
    unsure = f", {len(found.undecided)} pairs of which may be alike" if found.undecided else ""
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
    wide, depth, fmt = integer(n, "invariance: n", 1), integer(k, "invariance: k", 1), format_of(dtype)
    if layout not in LAYOUTS:
        raise OperandError(f"invariance: layout must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    if preset not in PRESETS:
        raise OperandError(f"invariance: preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    if isinstance(rows, int) or not all(isinstance(each, int) and each > 0 for each in rows):
        raise OperandTypeError("invariance: rows must be numbers of at least 1, for example range(1, 4097)")
    out = format_of(out_dtype) if out_dtype is not None else FORMATS[_RESULTS.get(fmt.name, fmt.name)]
    resolved_target(target)
    options: dict[str, Any] = {"target": target, "out_dtype": None if fmt.kind != "float" else out.name, "use_fast_accum": PRESETS[preset]}
    options |= {"tf32": True} if fmt.name == "tf32" else {}
    if bias:
        options["bias"] = Strided(out.dtype, (wide,), (out.dtype.itemsize,))
    known: dict[tuple[Any, ...], tuple[Planned, list[int]]] = {}
    unknown: list[int] = []
    for count in sorted(set(rows)):
        plan = _planned(fmt, layout, (count, wide, depth), options, least_rate)
        if plan is None:
            unknown.append(count)
        else:
            known.setdefault(_key(plan), (plan, []))[1].append(count)
    groups = _grouped(known.values(), depth)
    undecided = _undecided(groups, depth)
    return Invariance(
        wide,
        depth,
        fmt.name,
        library_gpu(target),
        tuple(tuple(ranges(members)) for _, members in groups),
        tuple(ranges(unknown)),
        tuple(plan for plan, _ in groups),
        undecided,
    )


def _planned(fmt: Format, layout: str, sizes: tuple[int, int, int], options: dict[str, Any], least: float) -> Planned | None:
    """Return the library's plan; None where it is not known well enough."""
    m, n, k = sizes
    try:
        plan = cublas.plan(_operand(fmt, m, k, layout[0]), _operand(fmt, k, n, layout[1]), **options)
    except OperandError:
        return None
    evidence = plan.evidence
    rate = evidence.rate if evidence is not None else None
    sure = rate is not None and rate[0] >= least * rate[1]
    found: Planned | None = plan if evidence is not None and (evidence.level == "recorded" or sure) else None
    return found


def _operand(fmt: Format, rows: int, columns: int, layout: str) -> Strided:
    size = fmt.dtype.itemsize
    return Strided(fmt.dtype, (rows, columns), (columns * size, size) if layout == "n" else (size, rows * size))


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
    cuts = ((0, depth),) if isinstance(plan, LanesPlan) else next(plan.order.blocks(1, 1, depth))[2]
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
