"""The products of a study: on a GPU's tensor cores, or in IEEE f32 for comparison."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.isa.formats import FORMATS, Format
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.changes import changed
from fastmma.numerics.lookup import arithmetic, own_arithmetic
from fastmma.numerics.own import FIELDS
from fastmma.products.choice import default_instruction
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.order import checked_loop, checked_parts
from fastmma.products.scaled_choice import scaled_plan
from fastmma.study.encoding import Encoded, blank, formats_of

IEEE = "ieee-f32"
OUTPUT = FORMATS["f32"]


@lru_cache(1024)
def instruction_of(name: str, target: str, promote_every: int | None, split_k: int, changes: str = "") -> Instruction | None:
    """The instruction that multiplies the format on that target under that accumulation plan; none for IEEE f32.

    `changes` are those of the target's arithmetic, as text.

    Raises
    ------
    InstructionError, TargetError, OperandError
        If there is none, or its arithmetic is not known.
    """
    a, b = formats_of(name)
    if target == IEEE:
        if promote_every is not None or split_k != 1 or changes:
            raise OperandError(f"{IEEE} takes neither promote_every nor split_k nor arithmetic: it is one sum in ascending k")
        return None
    if not (isinstance(a.base, Format) and isinstance(b.base, Format)):
        plan = scaled_plan(blank(a), blank(b).T, target=target, promote_every=promote_every, split_k=split_k)
        ins = multiply(plan.instruction)
        own(ins, target, changes)
        return ins
    ins = default_instruction(a.base.name, b.base.name, OUTPUT.name, target)
    own(ins, target, changes)
    checked_loop(ins, promote_every)
    checked_parts(ins, split_k)
    return ins


@lru_cache(1024)
def own(ins: Instruction, target: str, changes: str) -> Arithmetic | None:
    """The target's arithmetic with changes, or None without any.

    Raises
    ------
    TargetError, OperandError
        If the target's is not known, or the instruction cannot be computed so.
    """
    its = arithmetic(ins, target)
    return own_arithmetic(ins, target, changed(its, changes)) if changes else None


class Known(NamedTuple):
    """The computation of a case as records have it.

    Attributes
    ----------
    instruction : str or None
    plan : list of str
        The accumulation, line by line.
    arithmetic_in_full : str
        The method and every field of the `fastmma.Arithmetic`.
    evidence : str
        How well it is known.
    evidence_sources : list of str
        What that stands on.
    """

    instruction: str | None
    plan: list[str]
    arithmetic_in_full: str
    evidence: str
    evidence_sources: list[str]


_IEEE = Known(None, ["IEEE f32: c = round(c + round(a * b)) in ascending k, from +0"], "method=ieee-f32", "definition", ["IEEE 754-2019"])


@lru_cache(1024)
def known(name: str, target: str, promote_every: int | None, split_k: int, changes: str) -> Known:
    """Return what is known of how a case is computed."""
    ins = instruction_of(name, target, promote_every, split_k, changes)
    if ins is None:
        return _IEEE
    its = own(ins, target, changes) or arithmetic(ins, target)
    options: dict[str, Any] = {"target": target, "promote_every": promote_every, "split_k": split_k, "instruction": ins.opcode}
    options |= {"arithmetic": own(ins, target, changes)}
    a, b = formats_of(name)
    plan = str(GemmPlan(**options) if isinstance(a.base, Format) else scaled_plan(blank(a), blank(b).T, **options))
    fields = ",".join([f"method={its.method}", *(f"{each}={getattr(its, each)}" for each in FIELDS)])
    sources = [its.evidence.source, *map(str, its.evidence.sources)]
    return Known(ins.opcode, [" ".join(line.split()) for line in plan.splitlines()], fields, its.evidence.level, sources)


def multiplied(
    ins: Instruction | None, target: str, promote_every: int | None, split_k: int, changes: str, a: Encoded, b: Encoded, threads: int
) -> NDArray[Any]:
    """A (M, K) times the transpose of B (N, K), with the bits of the target, or those of its arithmetic with changes; float32 (M, N)."""
    if ins is None:
        from fastmma.kernels.fma import ieee_f32

        # values that f32 does not hold, such as those with f32 scales, are rounded to it first
        with np.errstate(invalid="ignore", over="ignore"):  # infinities and NaN of the tensors
            left, right = ((each.values(np.arange(each.stored.shape[0])) * each.factor).astype(np.float32) for each in (a, b))
        return ieee_f32.gemm(left, right.T, None, threads)
    from fastmma.products.gemm import gemm  # both take time to import, and a study that goes on may have all its products
    from fastmma.products.scaled import scaled_matmul

    options: dict[str, Any] = {"instruction": ins, "target": target, "threads": threads}
    options |= {"promote_every": promote_every, "split_k": split_k, "arithmetic": own(ins, target, changes)}
    product = gemm if isinstance(a.stored, np.ndarray) else scaled_matmul
    return product(a.stored, b.stored.T, **options)
