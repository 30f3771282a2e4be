"""Rules of how cuBLAS takes scaled products of 8-bit floats on an H200, with the fresh products that they predicted."""

from __future__ import annotations

from typing import NamedTuple

from fastmma.products.evidence import OrderEvidence

_GPU = "H200"
_ROWS = OrderEvidence("fitted", "one part of k for 8-bit floats with scales of rows, M > 1", (329, 329))
_BLOCKS = OrderEvidence("fitted", "one part of k for 8-bit floats with scales of 128 k, K <= 5120", (202, 202))
_ALIKE = "as of e4m3 without a bias or fast accumulation, which is recorded or has K <= 5120"
_ALIKE_RATE = (414, 414)
_UNCUT = 5120  # K


class Scaled(NamedTuple):
    """The facts of a scaled product that its order follows from."""

    schemes: tuple[str, str]
    m: int
    k: int


def rule_of(gpu: str, product: Scaled) -> OrderEvidence | None:
    """Find the rule that k is in one part; None where no rule says so.

    Examples
    --------
    >>> print(rule_of("H200", Scaled(("fp8_row", "fp8_row"), 16, 8192)))
    fitted: one part of k for 8-bit floats with scales of rows, M > 1; 329 of 329 fresh products
    >>> rule_of("H100", Scaled(("fp8_row", "fp8_row"), 16, 8192))
    """
    if gpu != _GPU:
        return None
    if all(name.startswith("fp8_row") for name in product.schemes):
        return _ROWS if product.m > 1 else None
    if all(name.startswith(("fp8_1x128", "fp8_128x128")) for name in product.schemes):
        return _BLOCKS if product.k <= _UNCUT else None
    return None


def alike(gpu: str, plain: OrderEvidence | None, k: int) -> OrderEvidence | None:
    """Find how well it is known that a product is cut as that of e4m3 without a bias or fast accumulation, of which `plain` is known."""
    if gpu != _GPU or plain is None or not plain.is_known or (plain.level != "recorded" and k > _UNCUT):
        return None
    return OrderEvidence("fitted", f"{_ALIKE}: {plain.source}", _ALIKE_RATE)
