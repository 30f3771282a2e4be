"""Choosing how a scaled product is accumulated: the instruction, the promotion, and the order of the epilogue."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fastmma.backends.resolve import resolved_target
from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.host.integers import integer, whole
from fastmma.isa.formats import format_of
from fastmma.isa.gpus import TargetName
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply
from fastmma.isa.targets import TARGETS
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.lookup import is_strict
from fastmma.numerics.own import is_plain
from fastmma.products.by_tile import ByTile, Cuts
from fastmma.products.choice import named, usual_instruction
from fastmma.products.evidence import OrderEvidence
from fastmma.products.plan import PRESETS, AccumulationPlan, Preset, holders
from fastmma.products.steps import OUTPUTS, with_activation
from fastmma.scaling import ScaledArray, Scheme
from fastmma.scaling.schemes import scheme_of


class _Question(NamedTuple):
    """A product for which a plan is chosen: the schemes of a and b."""

    a: Scheme
    b: Scheme

    @property
    def block(self) -> int:
        """How many k share both scales; 0 if all do."""
        return math.gcd(*(each.extents[0] or 0 for each in self))

    @property
    def stype(self) -> str:
        """The format of the scales if an instruction could take them, else empty."""
        return self.a.scale if self.a.scale == self.b.scale and self.a.scale in ("ue8m0", "ue4m3") else ""


class _Choices(NamedTuple):
    """The parameters of a call that its plan follows from, besides the schemes."""

    target: TargetName
    preset: str | None
    instruction: str | Instruction | None
    promote_every: int | None
    promotion: str | None
    split_k: int | Cuts | list[tuple[int, int]] | ByTile
    epilogue: tuple[str, ...] | None
    out: str
    join: str
    join_dtype: str
    activation: str | None
    arithmetic: Arithmetic | None


# types whose equal values mean the same choice
_PLAIN = frozenset({str, int, type(None), Instruction, tuple, Arithmetic})


@public_call
def scaled_plan(
    a: Any,
    b: Any,
    *,
    target: TargetName = "sm_90a",
    preset: str | None = None,
    instruction: str | Instruction | None = None,
    promote_every: int | None = None,
    promotion: str | None = None,
    split_k: int | Cuts | list[tuple[int, int]] | ByTile = 1,
    join: str = "ascending",
    join_dtype: Any = "",
    activation: str | None = None,
    epilogue: tuple[str, ...] | None = None,
    out_dtype: Any = np.float32,
    arithmetic: Arithmetic | None = None,
) -> AccumulationPlan:
    """Return the plan by which `fastmma.scaled_matmul` accumulates, without running it.

    On targets with an instruction that takes the scales, that one is chosen. On others, scales that are shared by blocks of k are applied
    at promotion, once for every block of k that shares both scales (which Hopper's fp8 needs anyway, as DeepGEMM does it), and scales of
    whole rows, columns and tensors in the epilogue, without promotion. Elements of 4 and 6 bits are widened to e4m3 or f16, which have
    all their values, where the target multiplies no others.

    Parameters
    ----------
    a, b : ScaledArray (..., M, K) and (..., K, N)
        Contracted along their last and their last but one dimension.
    target : str
        The GPU.
    preset : str, optional
        The choices of a library: one of `fastmma.products.plan.PRESETS`.
    instruction : str or Instruction, optional
        By default the one that a library would use.
    promote_every : int, optional
        A multiple of the instruction's k; if the scales are applied at promotion, it must divide their blocks.
    promotion : str, optional
        How partial sums join the total: ``"add"``, ``"fma"``, ``"multiply-add"``, ``"fma-each"`` or ``"multiply-add-each"``.
    split_k : int, sequence of (start, stop), or StreamK
        Parts of k.
    join, join_dtype : str
        In which order the parts are added, and the format to which they and their sums are rounded; f32 if empty.
    activation : {"relu"}, optional
        ``max(x, 0)``, before the result is rounded.
    epilogue : tuple of str, optional
        The steps on the f32 sums, in order; `fastmma.AccumulationPlan` names them.
    out_dtype : dtype or format
        float32, bfloat16 or float16.
    arithmetic : Arithmetic, optional
        Your own arithmetic instead of the target's: `fastmma.arithmetic` returns the target's, and `dataclasses.replace` changes it.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        All are `fastmma.FastmmaError`. If no instruction of the target fits, it names the targets that have one.

    Examples
    --------
    >>> from fastmma.scaling import quantize
    >>> x = np.ones((4, 64), np.float32)
    >>> a, b = quantize(x, "nvfp4"), quantize(x, "nvfp4").T
    >>> scaled_plan(a, b, target="sm_120a").scales
    'instruction'
    >>> hopper = scaled_plan(a, b, target="sm_90a")
    >>> hopper.scales, hopper.promote_every, hopper.widened
    ('promotion', 16, ('f16', 'f16'))
    """
    question = _question(a, b)
    joined = named(join_dtype, "join_dtype") or ""
    given = target, preset, instruction, promote_every, promotion, split_k, epilogue
    choices = _Choices(*given, _out(out_dtype), join, joined, activation, arithmetic)
    names = isinstance(epilogue, tuple) and all(type(step) is str for step in epilogue)
    plain = _PLAIN.issuperset(map(type, choices)) and (epilogue is None or names) and type(split_k) is not tuple
    if plain and target != "native" and is_plain(arithmetic):
        return _remember(question.a.name, question.b.name, is_strict(), *choices)  # type: ignore[arg-type]
    return _chosen(question, choices)


@lru_cache(4096, typed=True)
def _remember(a: str, b: str, strict: bool, *choices: Any) -> AccumulationPlan:  # noqa: ARG001 - errors depend on strict mode
    return _chosen(_Question(scheme_of(a), scheme_of(b)), _Choices(*choices))


def _chosen(question: _Question, choices: _Choices) -> AccumulationPlan:
    """The plan of a call."""
    target, promote_every, promotion = resolved_target(choices.target), choices.promote_every, choices.promotion
    chosen = _preset(choices.preset, question, target)
    every = chosen.promote_every if promote_every is None and chosen else promote_every
    every = None if every is None else integer(every, "promote_every", 1)
    ins = multiply(choices.instruction) if choices.instruction is not None else _find(question, target, every)
    scales = "instruction" if ins.scale_vec_size else "promotion" if question.block else "epilogue"
    if scales == "promotion" and every is None:
        every = question.block
    given = choices.instruction, promote_every, promotion, choices.epilogue, choices.arithmetic
    changed = whole(choices.split_k) != 1 or any(each is not None for each in given)
    if promotion is None or (isinstance(promotion, str) and not promotion):
        promotion = (chosen.promotion if chosen else "") or ("fma" if scales == "promotion" else "add")
    both = ("scale_ab",) if _whole_tensors(question) else ("scale_a", "scale_b")
    steps = (*(both if scales == "epilogue" else ()), "alpha", "c", "bias", "round")
    steps = choices.epilogue if choices.epilogue is not None else chosen.epilogue if chosen else steps
    return AccumulationPlan(
        target=target,
        instruction=ins.opcode,
        schemes=(question.a.name, question.b.name),
        scales=scales,
        promote_every=every,
        promotion=promotion,
        split_k=choices.split_k,  # type: ignore[arg-type]
        epilogue=with_activation(steps, choices.activation),
        out=choices.out,
        evidence=OrderEvidence("assumed", chosen.source) if chosen and not changed else None,
        join=choices.join,
        join_dtype=choices.join_dtype,
        split_unit=chosen.split_unit if chosen else 0,
        leaves_out=chosen is not None and chosen.leaves_out,
        arithmetic=choices.arithmetic,
    )


def _question(a: Any, b: Any) -> _Question:
    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, ScaledArray):
            raise OperandTypeError(
                f"scaled_matmul: {name} must be a ScaledArray, not {type(value).__name__}; fastmma.scaling.quantize makes one"
            )
        if value.ndim < 2:
            raise OperandError(f"scaled_matmul: {name} must have at least two dimensions, not the shape {value.shape}")
    for name, value, axis, shape in (("a", a, a.ndim - 1, "(..., M, K)"), ("b", b, b.ndim - 2, "(..., K, N)")):
        if value.axis != axis:
            raise OperandError(
                f"scaled_matmul: {name} of shape {shape} must be quantised along axis {axis}, not {value.axis}"
                + (f"; pass {name}.T" if value.ndim == 2 else "")
            )
    if a.shape[-1] != b.shape[-2]:
        raise OperandError(f"scaled_matmul: a must have shape (..., M, K) and b (..., K, N), not {a.shape} and {b.shape}")
    return _Question(a.row, b.row)


def check_operands(a: Any, b: Any, plan: AccumulationPlan) -> None:
    """Raise a FastmmaError unless a and b are operands of a scaled product, of the schemes that a plan is for."""
    question = _question(a, b)
    if (question.a.name, question.b.name) != plan.schemes:
        expected, found = " x ".join(plan.schemes), f"{question.a.name} x {question.b.name}"
        raise OperandError(f"scaled_matmul: the plan is for {expected}, not {found}")


def _whole_tensors(question: _Question) -> bool:
    """Tell whether one scale serves all of a, and one all of b."""
    return question.a.extents == question.b.extents == (None, None, None)


def _preset(name: str | None, question: _Question, target: str) -> Preset | None:
    if name is None:
        return None
    rows = PRESETS.get(name) if isinstance(name, str) else None
    if rows is None:
        raise OperandError(f"preset must be one of {', '.join(PRESETS)}, not {name!r}")
    fitting = [row for row in rows if question.a.name in row.a and question.b.name in row.b]
    if not fitting:
        known = "; ".join(f"a of {' or '.join(row.a)} and b of {' or '.join(row.b)}" for row in rows)
        raise OperandError(f"preset {name!r} is for {known}, not {question.a.name} and {question.b.name}")
    for row in fitting:
        if not row.targets or target in row.targets:
            return row
    known_targets = dict.fromkeys(each for row in fitting for each in row.targets)
    raise OperandError(f"preset {name!r} is for {' and '.join(known_targets)}, not {target}")


def _out(dtype: Any) -> str:
    try:
        name = format_of(dtype).name
    except InstructionError:
        name = ""
    if name not in OUTPUTS:
        raise OperandTypeError(f"scaled_matmul: out_dtype must be float32, bfloat16 or float16, not {dtype!r}")
    return name


def _find(question: _Question, target: str, every: int | None) -> Instruction:
    """The instruction that a library would use."""
    chunk = every or question.block
    found = _best(question, target, chunk)
    if found is not None:
        return found
    able = [name for name in TARGETS if _best(question, name, chunk) is not None]
    what = f"{question.a.element} times {question.b.element}" + (f" whose k divides {chunk}" if chunk else "")
    raise InstructionError(f"{target} has no instruction for {what}" + (f"; these have one: {', '.join(able)}" if able else ""))


def _best(question: _Question, target: str, chunk: int) -> Instruction | None:
    return _block_scaled(question, target) or _unscaled(question, target, chunk)


def _block_scaled(question: _Question, target: str) -> Instruction | None:
    """The instruction that takes the scales, of its own blocks or of whole numbers of them, if there is one."""
    if not question.stype:
        return None
    ins = usual_instruction(question.a.element, question.b.element, "f32", target, stype=question.stype)
    if ins is None:
        return None
    return None if question.block % (ins.k // ins.scale_vec_size) else ins


def _unscaled(question: _Question, target: str, chunk: int) -> Instruction | None:
    """The instruction for the elements, widened where needed; wgmma and tcgen05 before the others, narrow formats before wide ones."""
    found = []
    # elements of less than a byte are widened without being asked
    formats = (holders(fmt) if fmt.bits < 8 else (fmt,) for fmt in (question.a.element_format, question.b.element_format))
    for a, b in product(*formats):
        ins = usual_instruction(a.name, b.name, None, target, chunk=chunk)
        if ins is not None:
            found.append(ins)
    return min(found, key=lambda ins: not ins.in_place, default=None)
