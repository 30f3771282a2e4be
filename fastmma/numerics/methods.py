"""The methods of arithmetic, a row each: what is summed how, which instructions are computed so, and where its CUDA source is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fastmma.isa.instruction import Instruction

MethodName = Literal["fused", "grouped", "f32-fma", "f32-fma-pairs", "f32-fma-from-c", "f64-fma", "f32-tree", "integer", "bit"]
Sums = Literal["steps", "chain", "trees", "integers"]

# the fields of an `Arithmetic` that say how steps are taken
STEP_FIELDS = (
    *("terms", "align_bits", "emax_floor", "keep_bits", "split", "group", "widened"),
    *("native_c", "align_rounding", "rounding", "interleave", "c_joins", "join_bits", "flush_inputs", "flush_results", "negative_zero"),
)


class Chain(NamedTuple):
    """Chains of IEEE fma, which may be joined by IEEE additions.

    Attributes
    ----------
    format : str
        The format of all sums.
    products : int
        Products of a chain, which is added to the sum so far; 0: one chain of all, which starts from c.
    start : int
        The code from which a chain starts that does not start from c.
    """

    format: str
    products: int = 0
    start: int = 0


@dataclass(frozen=True)
class Method:
    """The way in which an arithmetic sums.

    Attributes
    ----------
    name : str
        What users see and type.
    sums : {"steps", "chain", "trees", "integers"}
        Fused steps of terms that are aligned; chains of IEEE fma; IEEE additions in pairs; exact integers.
    takes : callable
        Tells whether an instruction may be computed so.
    cuda_source : str
        The file with its CUDA C++; empty where there is none.
    fields : tuple of str
        The fields of an `Arithmetic` that it has; the others are as they come.
    by_scales : bool
        Whether a term's exponent is that of its scales alone.
    chain : Chain, optional
    """

    name: MethodName
    sums: Sums
    takes: Callable[[Instruction], bool]
    cuda_source: str
    fields: tuple[str, ...] = ()
    by_scales: bool = False
    chain: Chain | None = None

    @property
    def in_steps(self) -> bool:
        """True if terms are aligned, summed exactly and rounded, a step at a time."""
        return self.sums == "steps"

    @property
    def exact(self) -> bool:
        """True if sums are the same in any order."""
        return self.sums == "integers"

    @property
    def in_pairs(self) -> bool:
        """True if each chain has two products."""
        return self.chain is not None and self.chain.products == 2


def _by_scales(ins: Instruction) -> bool:
    return ins.kind in ("mxf4", "mxf4nvf4")


def _in_steps(ins: Instruction) -> bool:
    floats = ins.formats.a.kind == "float" and ins.accumulator in ("f16", "f32")
    return floats and ins.atype != "f32" and not _by_scales(ins)


def _lowered(ins: Instruction) -> bool:
    return ins.shape == "m8n8k4" and ins.atype == "f16"


METHODS: dict[str, Method] = {
    row.name: row
    for row in (
        Method("fused", "steps", _in_steps, "fused.cuh", STEP_FIELDS),
        Method("grouped", "steps", _by_scales, "fused.cuh", STEP_FIELDS, by_scales=True),
        Method("f32-fma", "chain", _lowered, "f32_chain.cuh", chain=Chain("f32", 4)),
        # the first product of a pair is a plain multiplication: -0 and it
        Method("f32-fma-pairs", "chain", _lowered, "f32_chain.cuh", chain=Chain("f32", 2, 1 << 31)),
        Method("f32-fma-from-c", "chain", lambda ins: ins.atype == "f32", "f32_from_c.cuh", chain=Chain("f32")),
        Method("f64-fma", "chain", lambda ins: ins.atype == "f64", "f64_chain.cuh", chain=Chain("f64")),
        Method("f32-tree", "trees", lambda ins: ins.op == "v_mfma" and ins.formats.a.bits == 16, "", ("terms",)),
        Method("integer", "integers", lambda ins: ins.formats.a.kind in ("signed", "unsigned"), "integer.cuh"),
        Method("bit", "integers", lambda ins: ins.formats.a.kind == "bit", "integer.cuh"),
    )
}
