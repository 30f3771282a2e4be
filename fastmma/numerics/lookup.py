"""The arithmetic of an instruction on a target, looked up in the table, and how well it is known."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from fastmma.host.calls import named_keywords
from fastmma.host.environment import variable
from fastmma.host.errors import TargetError
from fastmma.host.integers import flag
from fastmma.isa.amd.table import namesake
from fastmma.isa.gpus import TargetName, target_named
from fastmma.isa.instruction import Instruction, Movement, check_legal
from fastmma.isa.table import multiply
from fastmma.isa.targets import architecture
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.evidence import Evidence
from fastmma.numerics.methods import METHODS
from fastmma.numerics.own import own
from fastmma.numerics.rows import ROWS, WMMA_FRAGMENTS


@lru_cache(256)
def _rows(base: str, op: str) -> tuple[Arithmetic, ...]:
    """The rows of an op on a base architecture: tables look up thousands of instructions on few."""
    return tuple(row for row in ROWS if base in row.architectures and op in row.ops)


@lru_cache(4096)
def _row(ins: Instruction, base: str) -> Arithmetic | None:
    """The row of an instruction on a base architecture, `terms` filled in, if there is one."""
    rows = [row for row in _rows(base, ins.op) if row.answers(ins, base)]
    if len(rows) > 1:
        raise ValueError(f"two numerics rows answer {ins} on {base}")
    row = rows[0] if rows else None
    if row is not None and row.terms:
        return replace(row, terms=min(row.terms, ins.stored_k))
    if row is None or not METHODS[row.method].in_steps:
        return row
    return replace(row, terms=ins.stored_k // 2 if row.split else ins.stored_k)


def is_strict() -> bool:
    """Tell whether ``FASTMMA_STRICT`` is set to something other than 0: what is only reported is refused."""
    return variable("FASTMMA_STRICT") not in (None, "", "0")


def _strict(strict: bool | None) -> bool:
    return is_strict() if strict is None else flag(strict, "strict")


def check_strict(ins: Instruction, target: str, row: Arithmetic, strict: bool | None = None) -> None:
    """Raise TargetError where strict mode refuses what is only reported; by default ``FASTMMA_STRICT`` says whether it does."""
    if row.evidence.level == "reported" and _strict(strict):
        raise TargetError(f"{ins}: the arithmetic of {target} is only reported ({row.evidence.source}), which strict mode refuses")


@named_keywords
def arithmetic(ins: str | Instruction, target: TargetName, *, strict: bool | None = None) -> Arithmetic:
    """Return how a target computes an instruction, `terms` filled in.

    Parameters
    ----------
    ins : str or Instruction
    target : str
        For example ``"sm_90a"``.
    strict : bool, optional
        Refuse what is only reported; default is whether ``FASTMMA_STRICT`` is set to something other than 0.

    Raises
    ------
    TargetError
        If the target is unknown, does not take the opcode, or has no row; or, when strict, only a reported one.

    Examples
    --------
    >>> arithmetic("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80").align_bits
    24
    """
    target = target_named(target)
    ins = namesake(multiply(ins), target)
    check_legal(ins, target)
    row = _row(ins, architecture(target))
    if row is None:
        raise TargetError(f"{ins}: what {target} computes is not known, so there is nothing to emulate")
    check_strict(ins, target, row, strict)
    return row


def own_arithmetic(ins: Instruction, target: str, given: Any) -> Arithmetic:
    """An arithmetic that a caller gave in place of a target's, checked, `terms` filled in.

    Raises
    ------
    TargetError
        If the target does not take the opcode.
    OperandError, OperandTypeError
        If the instruction cannot be computed by it.
    """
    check_legal(ins, target)
    return own(ins, given, target, _row(ins, architecture(target)))


@named_keywords
def fidelity(ins: str | Instruction, target: TargetName) -> Evidence:
    """Return how well the arithmetic of an instruction on a target is known.

    Parameters
    ----------
    ins : str or Instruction
    target : str
        For example ``"sm_90a"``.

    Returns
    -------
    Evidence
        ``level`` is ``"by definition"`` (integers and IEEE operations, which need no GPU to be known), ``"measured"`` (on our own
        GPU), ``"recorded"`` (equal to others' recordings) or ``"reported"``; ``source`` says by what, and ``sources`` have the GPU, its
        driver or toolkit, the count of words and the citation of each.

    Raises
    ------
    InstructionError
        If there is no such opcode.
    TargetError
        If the target is unknown, does not take the opcode, or nothing is known of what it computes.

    Examples
    --------
    >>> fidelity("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90a").level
    'measured'
    >>> fidelity("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "RTX 5090").level
    'by definition'
    """
    return arithmetic(ins, target, strict=False).evidence


def fragment_evidence(ins: Instruction | Movement, target: TargetName, *, strict: bool | None = None) -> Evidence:
    """Return how the fragments of a wmma instruction on a target are known.

    Raises
    ------
    TargetError
        If they are not known (sm_70, sm_75), or, when strict, only reported.
    """
    target = target_named(target)
    evidence = WMMA_FRAGMENTS.get(architecture(target))
    check_legal(ins, target)
    if evidence is None:
        raise TargetError(f"{ins}: PTX leaves the fragments of wmma unspecified, and those of {target} are not known; use matrices")
    if evidence.level == "reported" and _strict(strict):
        raise TargetError(f"{ins}: the fragments of {target} are only reported ({evidence.source}), which strict mode refuses")
    return evidence
