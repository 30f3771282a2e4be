"""Whether two GPUs, or two libraries, agree about a layer: the numbers of rows for which both have the same bits."""

from __future__ import annotations

from dataclasses import dataclass

from fastmma.agreement.invariance import Invariance, ranges, spoken
from fastmma.agreement.same_bits import same_bits
from fastmma.agreement.verdict import Verdict
from fastmma.host.calls import named_keywords
from fastmma.host.errors import OperandError, OperandTypeError


@dataclass(frozen=True)
class Agreement:
    """The numbers of rows of a layer for which two GPUs have the same bits.

    Attributes
    ----------
    n, k : int
    dtype : str
    gpus : (str, str)
    same, differ, unknown : tuple of range
        Numbers of rows; those of which the plan of either is not known, or which are not decided, are unknown.
    verdicts : tuple of Verdict
        One for each pair of plans that were compared.
    """

    n: int
    k: int
    dtype: str
    gpus: tuple[str, str]
    same: tuple[range, ...]
    differ: tuple[range, ...]
    unknown: tuple[range, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def equal(self) -> bool | None:
        """Tell whether all numbers of rows have the same bits; None where some are not known and none is known to differ."""
        return False if self.differ else None if self.unknown else True

    def __str__(self) -> str:
        found = (("the same bits", self.same), ("other bits", self.differ), ("not known", self.unknown))
        lines = [f"{self.dtype} on {' and '.join(self.gpus)}, N = {self.n}, K = {self.k}"]
        return "\n".join([*lines, *(f"  {spoken(rows)}: {text}" for text, rows in found if rows)])


@named_keywords
def compare_gpus(first: Invariance, second: Invariance) -> Agreement:
    """Compare the plans of two GPUs for a layer, each number of rows with itself.

    Parameters
    ----------
    first, second : Invariance
        What `fastmma.invariance` returns for each of them.

    Raises
    ------
    OperandError, OperandTypeError
        If they are not about one layer.

    Examples
    --------
    >>> from fastmma import invariance
    >>> layers = [invariance(4096, 4096, dtype="bf16", target=gpu, rows=range(1, 6)) for gpu in ("H100", "H200")]
    >>> compare_gpus(*layers).equal
    True
    """
    for each in (first, second):
        if not isinstance(each, Invariance):
            raise OperandTypeError(
                f"compare_gpus: first and second must be an Invariance, not {type(each).__name__}; fastmma.invariance returns one"
            )
    if (first.n, first.k, first.dtype) != (second.n, second.k, second.dtype):
        raise OperandError("compare_gpus: the layers differ in N, K or the type")
    found: dict[bool | None, list[int]] = {True: [], False: [], None: []}
    verdicts = []
    known: set[int] = set()
    for plan, group in zip(first.plans, first.groups, strict=True):
        members = {rows for each in group for rows in each}
        for other, others in zip(second.plans, second.groups, strict=True):
            both = members & {rows for each in others for rows in each}
            if both:
                verdict = same_bits(plan, other, k=first.k)
                verdicts.append(verdict)
                turns = verdict.equal and (first.turns_show or second.turns_show)
                found[None if turns else verdict.equal] += both
                known |= both
    asked = {rows for one in (first, second) for group in (*one.groups, one.unknown) for each in group for rows in each}
    found[None] += asked - known
    same, differ, unknown = (tuple(ranges(sorted(found[each]))) for each in (True, False, None))
    return Agreement(first.n, first.k, first.dtype, (first.where, second.where), same, differ, unknown, tuple(verdicts))
