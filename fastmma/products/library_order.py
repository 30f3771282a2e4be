"""The known facts of a library's way with a product: its instruction, how it shares k, and how its kernel ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from fastmma.isa.instruction import Instruction
from fastmma.products.by_tile import ByTile, Cuts
from fastmma.products.evidence import OrderEvidence

C, SCALED = "c", "beta*c"  # what a call adds: c, or c times a factor that is not 1
_OF_BIAS = {"c": "bias", "beta*c": "bias", "alpha+c": "alpha+bias"}  # steps of a bias that is added as c is


@dataclass(frozen=True)
class KernelEpilogue:
    """The steps of the epilogue of a library's kernel.

    Attributes
    ----------
    alone, with_c, with_scaled_c : tuple of str
        Where nothing is added but a bias; where c is added as it is; and times a beta that is not 1. Empty where they are not known.
    wide : str
        The row of `KERNEL_EPILOGUES` by which the kernel ends that writes f32, if it is another.
    with_gelu : tuple of str
        Where gelu is asked for, and nothing is added but a bias; empty where it is not known.
    """

    alone: tuple[str, ...]
    with_c: tuple[str, ...] = ()
    with_scaled_c: tuple[str, ...] = ()
    wide: str = ""
    with_gelu: tuple[str, ...] = ()

    @property
    def epilogues(self) -> dict[str, tuple[str, ...]]:
        """Steps by what is added: nothing, c, or c times beta."""
        return {"": self.alone} | {name: steps for name, steps in ((C, self.with_c), (SCALED, self.with_scaled_c)) if steps}

    def with_bias_as_c(self) -> KernelEpilogue:
        """Return how the kernel ends where a bias is added as c."""
        return replace(self, alone=tuple(_OF_BIAS.get(step, step) for step in self.with_c))


class LibraryOrder(NamedTuple):
    """A library's way with a product, as far as it is known."""

    instruction: Instruction
    promote_every: int | None
    split_k: int | Cuts | list[tuple[int, int]] | ByTile
    split_unit: int
    first_tile: int
    join: str
    join_dtype: str
    cast: bool
    ends: KernelEpilogue
    evidence: OrderEvidence | None
    leaves_out: bool = False
    dealt: int = 0
