"""The arithmetic of an instruction as a record, and how well it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastmma.host.calls import named_fields
from fastmma.isa.instruction import Instruction
from fastmma.numerics.evidence import Evidence
from fastmma.numerics.methods import METHODS, MethodName

AlignRounding = Literal["rz", "rn", "ro", "rm", "exact"]
Rounding = Literal["rz", "rn", "ro", "rm"]
CJoins = Literal["terms", "sum", "halves"]

ALL_OF_K = 0  # terms: one step for the whole instruction
NO_FLOOR = -1000  # below every exponent
CANONICAL_NAN = {"f16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0xFFF8000000000000}


@named_fields
@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic of one instruction.

    Sums are kept in the instruction's `accumulator`: c is converted to it first, and the result to d's format last, to nearest even.
    `fastmma.arithmetic` returns that of a GPU. `dataclasses.replace` changes it, and ``arithmetic=`` takes the changed one.

    Attributes
    ----------
    architectures, ops, atypes, dtypes : tuple of str
        The questions that the row answers.
    method : str
        A name of `fastmma.numerics.methods.METHODS`. ``"fused"``: fused dot-product-add steps, a product's exponent being that of its
        factors and of their scales; ``"grouped"``: fused steps whose terms are exact sums of `group` products times the significands of
        their scales, with the exponent of the scales alone; ``"f32-fma"``: a chain of IEEE f32 fma from zero, then one add of c;
        ``"f32-fma-pairs"``: two such chains of two products, ``(c + first) + second``; ``"f32-fma-from-c"``, ``"f64-fma"``: a
        chain of IEEE fma from c; ``"f32-tree"``: IEEE f32 products, `terms` of which are added in pairs, and their sum to c, each result
        without subnormals; ``"integer"`` and ``"bit"``: exact.
    terms : int
        Products a step (only stored ones count where A is sparse); `ALL_OF_K` means all that the instruction has.
    align_bits : int
        Terms, c among them, are rounded to a multiple of ``2 ** (emax - align_bits)``; emax is the largest exponent of a term that is not
        zero.
    align_rounding : str
        How they are rounded: ``"rz"`` toward zero, as on every known GPU; ``"rn"`` to nearest, ties to even; ``"ro"`` to odd (truncated,
        and the last bit set if anything was lost); ``"rm"`` down; ``"exact"`` not at all, whatever `align_bits` and `emax_floor`.
    emax_floor : int
        emax is never lower.
    keep_bits : int
        Fraction bits of a step's result, subnormals having as much fewer as in its format.
    rounding : str
        How the exact sum of a step is rounded to them: ``"rz"``, ``"rn"``, ``"ro"`` or ``"rm"``. What exceeds the format becomes an
        infinity.
    split : int
        0: c is a term of the first step. Else the form is lowered: products whose k has ``(k // split) % 2 == 0`` make the first step,
        the others the second; the sum starts at zero, and c is added at the end by one IEEE add.
    group : int
        Products a term. Without scales, the exponent of a term of several is the largest of its products that are not zero.
    interleave : int
        0: the steps of an instruction take its products in order of k. Otherwise the steps take turns, this many k at a time: step j has
        the products whose ``k // interleave % steps`` is j.
    widened : str
        The format that multiplicands are converted to (exactly) before they are multiplied, or empty. It decides their exponents: a
        subnormal e4m3 is a normal f16.
    evidence : Evidence
    native_c : bool
        Whether an f16 c meets f32 sums as it is: a subnormal has the exponent of the smallest normal f16, not that of its value. All
        products are then one step.
    c_joins : str
        ``"terms"``: c, or the result of the step before, is a term, as on every known NVIDIA GPU. ``"sum"``: it joins the sum of the
        terms. Then emax is the larger exponent of both, the sum is rounded down to a multiple of ``2 ** (emax - join_bits - 1)``, c to
        one of ``2 ** (emax - align_bits)``, and what they add up to is rounded down to `join_bits` fraction bits, before `rounding`; a
        product that f32 cannot hold is an infinity. ``"halves"``: as ``"sum"``, but products of even and of odd place are summed apart,
        each half with its own emax, and both rounded down to multiples of ``2 ** (emax - align_bits)`` before they join; c counts as zero
        where its exponent is below ``emax - align_bits - 1``.
    join_bits : int
        Fraction bits of the sum when c joins it.
    flush_inputs, flush_results : bool
        Whether subnormal elements of a, b and c, and subnormal results of steps, count as zeros of their sign.
    negative_zero : bool
        Whether a negative sum that is rounded to zero is -0; else it is +0, as on every known NVIDIA GPU.
    """

    architectures: tuple[str, ...]
    ops: tuple[str, ...]
    atypes: tuple[str, ...]
    dtypes: tuple[str, ...]
    method: MethodName
    evidence: Evidence
    terms: int = 0
    align_bits: int = 0
    emax_floor: int = 0
    keep_bits: int = 23
    split: int = 0
    group: int = 1
    widened: str = ""
    sparse: bool = False
    shapes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("", "f8f6f4")
    forms: tuple[str, ...] = ()
    depths: tuple[int, ...] = ()
    native_c: bool = False
    align_rounding: AlignRounding = "rz"
    rounding: Rounding = "rz"
    interleave: int = 0
    c_joins: CJoins = "terms"
    join_bits: int = 0
    flush_inputs: bool = False
    flush_results: bool = False
    negative_zero: bool = False

    def answers(self, ins: Instruction, base: str) -> bool:
        """Tell whether this row is for an instruction on a base architecture."""
        return (
            base in self.architectures
            and ins.op in self.ops
            and ins.atype in self.atypes
            and ins.btype in self.atypes
            and ins.accumulator in self.dtypes
            and ins.kind in self.kinds
            and bool(ins.sparse) == self.sparse
            and (not self.shapes or ins.shape in self.shapes)
            and (not self.forms or ins.form in self.forms)
            and (not self.depths or ins.k in self.depths)
        )

    @property
    def numbers(self) -> tuple[object, ...]:
        """What decides the bits; terms are those of one instruction."""
        steps = self.method, self.terms, self.group, self.split, self.interleave, self.widened, self.native_c
        joins = self.c_joins, self.join_bits, self.flush_inputs, self.flush_results, self.negative_zero
        return *steps, *joins, self.align_bits, self.align_rounding, self.emax_floor, self.keep_bits, self.rounding

    @property
    def family(self) -> str:
        """One line for tables: the method and its parameters."""
        method = METHODS.get(self.method)
        if method is None or not method.in_steps:
            return f"{self.method} of {self.terms}" if self.terms else self.method
        aligned = "exact alignment" if self.align_rounding == "exact" else f"F = {self.align_bits}{_named(self.align_rounding, 'rz')}"
        floor = "" if self.emax_floor == NO_FLOOR or self.align_rounding == "exact" else f", emax >= {self.emax_floor}"
        parts = [f"L = {self.terms or 'k'}", f"{aligned}{floor}", f"keep {self.keep_bits}{_named(self.rounding, self._usual_rounding)}"]
        parts += [f"groups of {self.group}"] if self.group > 1 and not method.by_scales else []
        parts += [f"steps in turns of {self.interleave} k"] if self.interleave else []
        parts += [f"lowered in halves of {self.split}"] if self.split else []
        sums = {"sum": "the sum", "halves": "the sums of even and odd k"}
        parts += [f"c joins {sums[self.c_joins]} at {self.join_bits}"] if self.c_joins in sums else []
        parts += [f"subnormal {what} are 0" for what in ("inputs", "results") if getattr(self, f"flush_{what}")]
        return f"{self.method}: {', '.join(parts)}"

    @property
    def _usual_rounding(self) -> str:
        """That of every known GPU."""
        return "rn" if self.dtypes == ("f16",) else "rz"


def _named(rounding: str, usual: str) -> str:
    return "" if rounding == usual else f" {rounding}"
