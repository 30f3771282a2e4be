"""Evidence that a library adds up a product as a plan does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from fastmma.host.errors import OperandError

_SURE = 999  # of 1,000 fresh products
OrderLevel = Literal["recorded", "fitted", "assumed", "unknown"]
ORDER_LEVELS: dict[str, str] = {
    "recorded": "this product, on this GPU, with this version of the library",
    "fitted": "a rule says so, which predicted a known share of products that it was not made from",
    "assumed": "nobody compared it with the library",
    "unknown": "the library adds in an order that no plan has",
}


@dataclass(frozen=True)
class OrderEvidence:
    """Evidence that a library's kernel has the order of k, the joins and the epilogue of a plan.

    A plan that is changed by `dataclasses.replace` loses its evidence: nobody recorded the changed one.

    Attributes
    ----------
    level : {"recorded", "fitted", "assumed", "unknown"}
        `ORDER_LEVELS` says what each one means.
    source : str
        The library with its version, the GPU and the product, or the rule.
    rate : (int, int), optional
        Of a rule: how many fresh products it predicted in every bit, of how many.
    choices : tuple
        The fields of the plan that it is about; plans fill it in.

    Raises
    ------
    OperandError
        If there is no such level, or a rule has no rate.

    Examples
    --------
    >>> print(OrderEvidence("fitted", "one part of k where K <= 1024", (987, 1000)))
    fitted: one part of k where K <= 1024; 987 of 1,000 fresh products
    """

    level: OrderLevel
    source: str
    rate: tuple[int, int] | None = None
    choices: tuple[Any, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.level not in ORDER_LEVELS:
            raise OperandError(f"the evidence of an order must be one of {', '.join(ORDER_LEVELS)}, not {self.level!r}")
        if (self.level == "fitted") != (self.rate is not None):
            raise OperandError(f"{self.source}: a fitted order has a rate, and no other has one")

    @property
    def is_known(self) -> bool:
        """Tell whether products of this order are known to have the library's bits: recorded, or by a rule that predicts 999 of 1,000."""
        return self.level == "recorded" or (self.rate is not None and 1000 * self.rate[0] >= _SURE * self.rate[1])

    def __str__(self) -> str:
        rate = f"; {self.rate[0]:,} of {self.rate[1]:,} fresh products" if self.rate else ""
        return f"{self.level}: {self.source}{rate}"
