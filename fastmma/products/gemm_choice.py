"""Choosing the plan of a plain product from the dtypes of its operands and the parameters of the call."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.plan import Plan
from fastmma.backends.resolve import resolved_target
from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.host.signatures import spell_keywords
from fastmma.isa.formats import format_of
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.own import is_plain
from fastmma.operands.check import operand
from fastmma.products.bound import Arguments, Signature, operand_or_strided, signature
from fastmma.products.choice import SLICE_UNITS, UNALIGNED_TILE, accumulator, default_instruction, multiplicand, scale, takes_tcgen05
from fastmma.products.epilogue import f32_code
from fastmma.products.evidence import OrderEvidence
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.keywords import UNSET, Choices, GemmChoices, read_choices
from fastmma.products.library_order import SCALED, C, KernelEpilogue, LibraryOrder
from fastmma.products.steps import ACTIVATIONS, GELU, OUTPUTS, RELU, check_activation, operands_of, trimmed

# CUTLASS's linear combination: one fma each for the bias and for c
_EPILOGUE = ("alpha+bias", "beta*c", "relu", "round")
_CUTLASS = KernelEpilogue(_EPILOGUE, ("alpha+bias", "c", "relu", "round"), _EPILOGUE, with_gelu=("alpha+bias", "gelu", "round"))
_ONE = 0x3F800000
_OF_AMD = ("v_mfma", "v_wmma")
_NOT_COMPARED = OrderEvidence("assumed", "one accumulator over ascending k; no product of rocBLAS or hipBLASLt was compared")


class EpilogueInputs(NamedTuple):
    """The dtypes of c and out of a call, and the other inputs of its epilogue."""

    c: np.dtype[Any] | None = None
    out: np.dtype[Any] | None = None
    bias: bool = False
    alpha: bool = False  # one that is not 1
    beta: str = ""  # C, SCALED (by a factor that is not 1), or empty where there is none
    row: bool = False  # whether c is one row, (1, N), that is added as it is


_PLAIN = frozenset({str, int, bool, type(None), Instruction, Arithmetic})  # types whose equal values mean the same choice


def epilogue_inputs(arguments: Arguments, *, named: bool) -> EpilogueInputs:
    """Return the inputs of the epilogue; if the instruction is named, errors about c are raised later, with its name.

    Raises
    ------
    OperandTypeError
    """
    what, _, _, c, bias, alpha, beta, out, *_ = arguments
    if c is None and out is None and bias is None and beta is None and type(alpha) is float and alpha == 1:
        return _NO_EPILOGUE
    scaled = "" if beta is None else C if f32_code(beta, f"{what}: beta") == _ONE else SCALED
    return EpilogueInputs(
        None if c is None else _GIVEN if named else operand_or_strided(c, f"{what}: c", typed=True).dtype,
        out.dtype if isinstance(out, np.ndarray) and out.dtype.kind not in "OT" else None,
        bias is not None,
        f32_code(alpha, f"{what}: alpha") != _ONE,
        scaled,
        scaled != SCALED and _is_row(c),
    )


def _is_row(c: Any) -> bool:
    """Tell whether it is an array of one row, of NumPy or another library."""
    shape = getattr(c, "shape", None)
    return isinstance(shape, tuple) and shape[:-1] == (1,)


_NO_EPILOGUE = EpilogueInputs()
_GIVEN = np.dtype(object)  # of something that no choice depends on


def _instruction(operands: Signature | None, given: EpilogueInputs, choices: Choices, target: str, what: str) -> Instruction:
    """The instruction that is named, or else the usual one for the operands."""
    where = f"{what}: accumulator"
    wide = None if choices.accumulator is None else accumulator(_format(choices.accumulator, where), where)
    if choices.instruction is not None:
        ins = multiply(choices.instruction)
        if wide is not None and wide.name != ins.dtype:
            raise InstructionError(f"{ins}: it accumulates in {ins.dtype}, not {wide}")
        return ins
    assert operands is not None
    a, b = multiplicand(operands.a, f"{what}: a", target), multiplicand(operands.b, f"{what}: b", target)
    if wide is None and given.c is not None and not given.beta and choices.preset is None:
        wide = accumulator(given.c, f"{what}: c")
    scales = None if operands.scales is None else scale(operands.scales, what)
    form: dict[str, Any] = {"sparse": operands.sparse, "stype": scales.name if scales else "", "aligned": operands.aligned}
    return default_instruction(a.name, b.name, None if wide is None else wide.name, target, **form)


def _format(value: Any, what: str) -> np.dtype[Any]:
    try:
        return format_of(value).dtype
    except InstructionError as error:
        raise OperandTypeError(f"{what}: {error}") from None


def _result(ins: Instruction, given: EpilogueInputs, choices: Choices, what: str) -> str:
    """The format of the result as the call asks for it, empty where it does not."""
    asked = "" if given.out is None else next((name for name in OUTPUTS if format_of(name).dtype == given.out.newbyteorder("=")), "")
    if choices.out_dtype is None:
        return "" if asked == ins.dtype else asked
    name = format_of(_format(choices.out_dtype, f"{what}: out_dtype")).name
    if name not in (*OUTPUTS, ins.dtype):
        raise OperandTypeError(f"{what}: out_dtype must be one of {', '.join(dict.fromkeys((*OUTPUTS, ins.dtype)))}, not {name}")
    return "" if name == ins.dtype else name


def epilogue_steps(
    ins: Instruction, given: EpilogueInputs, choices: Choices, kernel: KernelEpilogue, what: str
) -> tuple[tuple[str, ...], str]:
    """Find the steps of the epilogue and the format of the result, both empty where the result is the accumulator."""
    activation, known, out = choices.activation, kernel.epilogues, _result(ins, given, choices, what)
    check_activation(activation)
    if activation == GELU:
        known = {"": kernel.with_gelu} if kernel.with_gelu else {}
    adds = given.beta or (C if choices.preset is not None and given.c is not None else "")
    if not (out or given.bias or given.alpha or adds or activation):
        return (), ""
    if adds not in known and activation == GELU:
        raise OperandError(f"{what}: preset {choices.preset!r} does not say how gelu is applied{' with c' if adds else ''} here")
    if adds not in known:
        raise OperandError(f"{what}: preset {choices.preset!r} does not say how c is added; add it to the result yourself")
    names = {"bias"} if given.bias else set()
    names |= {"alpha"} if given.alpha else set()
    names |= {"c"} if adds else set()
    steps = trimmed(known[adds], names | (set(ACTIVATIONS) - {RELU} if activation == GELU else {activation} if activation else set()))
    missing = names - {part for step in steps for part in (step, *operands_of(step))}
    missing |= {activation} if activation == RELU and RELU not in steps else set()
    if missing:
        raise OperandError(f"{what}: preset {choices.preset!r} does not say how {' and '.join(sorted(missing))} is applied here")
    return steps, out or ("f16" if ins.dtype == "f16" else "f32")


def _own(ins: Instruction, operands: Signature | None, choices: Choices, target: str) -> LibraryOrder:
    """Return what is done where no library is named."""
    alone = choices.instruction is None and choices.promote_every is None and operands is not None and not operands.aligned
    tile = UNALIGNED_TILE if alone and takes_tcgen05(target) and ins.formats.a.bits == 16 and not ins.sparse else 0
    order = choices.promote_every, choices.split_k, SLICE_UNITS.get(ins.op, 0), tile, choices.join, choices.join_dtype
    by_library = ins.op in _OF_AMD and choices.instruction is None and choices.promote_every is None and choices.split_k == 1
    return LibraryOrder(ins, *order, choices.cast, _CUTLASS, _NOT_COMPARED if by_library and ins.dtype != "s32" else None)


def _chosen(operands: Signature | None, given: EpilogueInputs, choices: Choices, what: str) -> GemmPlan:
    """The plan of a call. This is where the choices are checked."""
    target = resolved_target(choices.target)
    ins = _instruction(operands, given, choices, target, what)
    if choices.preset is None:
        done = _own(ins, operands, choices, target)
    elif choices.arithmetic is not None:
        raise OperandError(f"preset {choices.preset!r} is what a GPU computes; leave out the preset or arithmetic")
    else:
        from fastmma.products import library  # whose tables take as long to import as all that a plain product needs of this room

        shape = None if operands is None else operands.extents
        done = library.library_order(ins, target, shape, _result(ins, given, choices, what), choices, biased=given.bias, row=given.row)
    steps, out = epilogue_steps(done.instruction, given, choices, done.ends, what)
    return GemmPlan(
        target,
        done.instruction,  # type: ignore[arg-type]  # the plan keeps its name
        done.promote_every,
        done.split_k,  # type: ignore[arg-type]
        done.split_unit,
        done.first_tile,
        done.cast,
        done.join,
        done.join_dtype,
        steps,
        out,
        done.leaves_out,
        dealt=done.dealt,
        evidence=done.evidence,
        arithmetic=choices.arithmetic,
    )


@lru_cache(4096, typed=True)
def _remembered(operands: Signature | None, given: EpilogueInputs, what: str, *choices: Any) -> GemmPlan:
    return _chosen(operands, given, Choices(*choices), what)


def choose(arguments: Arguments, choices: Choices) -> GemmPlan:
    """The plan that the choices and the operands of a call lead to.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        If there is no such plan.
    """
    operands, given, what = signature(arguments, choices), epilogue_inputs(arguments, named=choices.instruction is not None), arguments.call
    if not _PLAIN.issuperset(map(type, choices)) or choices.target == "native" or not is_plain(choices.arithmetic):
        return _chosen(operands, given, choices, what)
    plan = _remembered(operands, given, what, *choices)  # type: ignore[arg-type]
    plan.recheck()
    return plan


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, int | str) and value == default)


def arrays(a: Any, b: Any, choices: Choices, plan: Plan | None, call: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Make arrays of the operands of a call; what is wrong with them is told with the instruction's name where the call knows it.

    Raises
    ------
    OperandTypeError
    """
    typed = plan is None and choices.reads_dtypes
    what = call if typed else choices.instruction if plan is None else plan.instruction
    return operand(a, f"{what}: a", typed=typed), operand(b, f"{what}: b", typed=typed)


def check_plan(plan: Plan, kinds: tuple[type[Plan], ...], choices: Choices, what: str) -> None:
    """Check the plan that a call is given.

    Raises
    ------
    OperandTypeError
        If it is none of the kinds.
    OperandError
        If the call has choices beside it.
    """
    if not isinstance(plan, kinds):
        raise OperandTypeError(f"{what}: plan must be a GemmPlan, not {type(plan).__name__}; fastmma.gemm_plan makes one")
    chosen = [name for name, value, default in zip(Choices._fields, choices, UNSET, strict=True) if not _is_default(value, default)]
    if chosen and not (chosen == ["target"] and resolved_target(choices.target) == plan.target):
        raise OperandError(f"{what}: with a plan, {', '.join(chosen)} must be left out; dataclasses.replace changes a plan")
    plan.recheck()


@public_call
@spell_keywords(GemmChoices, Choices)
def gemm_plan(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    metadata: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    alpha: Any = 1.0,
    beta: Any = None,
    bias: Any = None,
    out: Any = None,
    **choices: Unpack[GemmChoices],
) -> GemmPlan:
    """Return the plan that `fastmma.gemm` and `fastmma.matmul` follow for these arguments.

    Parameters
    ----------
    a, b, c, bias, out, metadata, scale_a, scale_b : array, optional but for a and b
        The operands. Of arrays only the dtypes count, and whether they are given; on a GPU with tcgen05 also whether K and N are
        multiples of 8, and with a preset the shapes, and along which dimension a and b are contiguous.
    alpha, beta : float
        Factors of the sums and of c in the epilogue. Only whether they are 1 counts.
    instruction, target, accumulator, promote_every, split_k, join, join_dtype, preset, activation, out_dtype, cast, arithmetic, unknown
        As in `fastmma.gemm`, in full.

    Returns
    -------
    GemmPlan
        It prints; `dataclasses.replace` changes it; ``gemm(a, b, plan=plan)`` follows it.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        All are `fastmma.FastmmaError`.

    Examples
    --------
    >>> from dataclasses import replace
    >>> a = np.ones((4, 64), np.float16)
    >>> plan = gemm_plan(a, a.T, target="sm_80", bias=np.ones(4, np.float32), activation="relu", out_dtype="bf16")
    >>> plan.instruction
    'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32'
    >>> plan.epilogue
    ('bias', 'relu', 'round')
    >>> replace(plan, split_k=2).split_k
    2
    """
    chosen = read_choices(choices)
    typed = chosen.reads_dtypes
    a, b = operand_or_strided(a, "gemm: a", typed=typed), operand_or_strided(b, "gemm: b", typed=typed)
    return choose(Arguments("gemm", a, b, c, bias, alpha, beta, out, metadata, scale_a, scale_b), chosen)
