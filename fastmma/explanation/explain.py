"""Asking why an element of a product has its bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastmma.backends.call import Operands
from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.backends.plan import Plan
from fastmma.execution.plan import MmaPlan
from fastmma.execution.tiles import mma
from fastmma.explanation.explanation import Explanation
from fastmma.explanation.recorder import Recorder
from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call, unknown
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import whole
from fastmma.isa.codes import to_codes
from fastmma.isa.formats import format_of
from fastmma.isa.table import multiply
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.products.by_tile import ByTile
from fastmma.products.gemm import gemm
from fastmma.products.gemm_choice import gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.keywords import DEFAULT_TARGET
from fastmma.products.plan import AccumulationPlan
from fastmma.products.scaled import scaled_matmul
from fastmma.products.scaled_choice import check_operands, scaled_plan
from fastmma.scaling import ScaledArray

_OWN = ("against", "row", "col")  # keywords of explain that no product takes
# the operands of a product besides a and b: along which of its sides their dimensions run; numbers have none
_CUTS = {"c": "mn", "metadata": "mk", "scale_a": "mk", "scale_b": "kn", "bias": "n", "alpha": "", "beta": ""}


@public_call
@accepts_cupy
def explain(a: Any, b: Any, row: int, col: int, *, against: Any = None, **options: Any) -> Explanation:
    """Explain the bits of element d[row, col] of a product: every step, and what alignment and rounding take from each term.

    The exact reference computes the element again, by the same steps as the call.

    Parameters
    ----------
    a, b : arrays (M, K) and (K, N), or ScaledArrays
        As of `fastmma.gemm`, or of `fastmma.scaled_matmul`.
    row, col : int
        The element.
    against : str, plan, Arithmetic, mapping or Explanation, optional
        What to compare with: another target, plan or arithmetic, other options, or another explanation.
    **options
        All other arguments of `fastmma.gemm`, or of `fastmma.scaled_matmul` if a and b are ScaledArrays: operands (c, metadata, scale_a,
        scale_b, ...) of the whole product, and choices (target, instruction, plan, promote_every, split_k, ...). `plan` may be an
        `MmaPlan`, and `instruction` one whose D is not its C: then a, b and c are the matrices of one instruction.

    Returns
    -------
    Explanation
        It prints; `steps` has the data.

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        All are `fastmma.FastmmaError`.

    Examples
    --------
    >>> a, b = np.zeros((1, 16), np.float16), np.ones((16, 1), np.float16)
    >>> a[0, :3] = 4096, 2**-14, -4096
    >>> found = explain(a, b, 0, 0, target="sm_90a")
    >>> found.value
    0.0
    >>> [(str(term.value), str(term.lost)) for term in found.steps[0].terms[:3]]
    [('1 * 2^12', '0'), ('1 * 2^-14', '1 * 2^-14'), ('-1 * 2^12', '0')]
    """
    found = _explain(a, b, row, col, options)
    if against is None:
        return found
    return replace(found, against=_other(found, a, b, row, col, against, options))


def _other(found: Explanation, a: Any, b: Any, row: int, col: int, against: Any, options: dict[str, Any]) -> Explanation:
    """Return what an explanation stands against."""
    if isinstance(against, Explanation):
        return against
    operands = {name: value for name, value in options.items() if name in _CUTS}
    if isinstance(against, Plan):
        return _explain(a, b, row, col, {**operands, "plan": against})
    if isinstance(against, Mapping):
        return _explain(a, b, row, col, {**options, **against})
    if isinstance(against, Arithmetic):
        if options.get("plan") is not None:
            return _explain(a, b, row, col, {**operands, "plan": replace(found.plan, arithmetic=against)})
        return _explain(a, b, row, col, {**options, "arithmetic": against})
    if options.get("plan") is not None:
        return _explain(a, b, row, col, {**operands, "plan": replace(found.plan, target=against)})
    return _explain(a, b, row, col, {**options, "target": against})


def _explain(a: Any, b: Any, row: int, col: int, options: dict[str, Any]) -> Explanation:
    operands = {name: value for name, value in options.items() if name in _CUTS and value is not None}
    choices = {name: value for name, value in options.items() if name not in _CUTS and not (name == "plan" and value is None)}
    if isinstance(a, ScaledArray) or isinstance(b, ScaledArray):
        return _of_scaled(a, b, row, col, operands, choices)
    a, b = as_array(a, "explain: a"), as_array(b, "explain: b")
    if a.ndim != 2 or b.ndim != 2:
        raise OperandError(f"explain: a and b must be matrices, not of shapes {a.shape} and {b.shape}")
    i, j = _place(row, a.shape[0], "row"), _place(col, b.shape[1], "col")
    single = _single(choices)
    if single is not None:
        recorder = Recorder(i, j)
        operands.setdefault("c", np.zeros((a.shape[0], b.shape[1]), single.operation.instruction.formats.c.dtype))
        d = mma(None, a, b, plan=single, backend=recorder, **operands)[i, j]  # type: ignore[arg-type]
        return _explanation(single, recorder, d, i, j)
    wrong = "" if "plan" in choices else unknown(gemm_plan, choices, "explain", _OWN)
    if wrong:
        raise OperandTypeError(wrong)
    plan = choices["plan"] if "plan" in choices else gemm_plan(a, b, **operands, **choices)
    if isinstance(plan, GemmPlan):
        ins = plan.operation.instruction
        if a.shape[1] * ins.k != b.shape[0] * ins.stored_k:
            raise OperandError(f"explain: a {a.shape} and b {b.shape} do not multiply{' for sparse A' if ins.sparse else ''}")
    own = _of_element(plan, (len(a), b.shape[1]), len(b), i, j)
    recorder = Recorder(0, 0)
    cut = {name: _cut(name, value, slice(i, i + 1), slice(j, j + 1), (len(a), b.shape[1])) for name, value in operands.items()}
    extra = {name: value for name, value in choices.items() if name != "plan" and "plan" in choices}
    d = gemm(a[i : i + 1], b[:, j : j + 1], plan=own, backend=recorder, **cut, **extra)[0, 0]  # type: ignore[arg-type]
    return _explanation(plan, recorder, d, i, j)


def _single(choices: dict[str, Any]) -> MmaPlan | None:
    """The plan of a single instruction, where it is asked for or D cannot be fed back as C."""
    plan, ins = choices.get("plan"), choices.get("instruction")
    if isinstance(plan, MmaPlan):
        return plan
    if plan is not None or ins is None:
        return None
    found = multiply(ins)
    if found.ctype == found.dtype:
        return None
    return MmaPlan(choices.get("target", DEFAULT_TARGET), found.opcode, arithmetic=choices.get("arithmetic"))


def _of_scaled(a: Any, b: Any, row: int, col: int, operands: dict[str, Any], choices: dict[str, Any]) -> Explanation:
    """An element of a product of block-scaled arrays: the blocks that hold it are multiplied, and their other elements left out."""
    wrong = "" if "plan" in choices else unknown(scaled_plan, choices, "explain", _OWN)
    if wrong:
        raise OperandTypeError(wrong)
    plan = choices.pop("plan") if "plan" in choices else scaled_plan(a, b, **choices)
    if not isinstance(plan, AccumulationPlan):
        raise OperandTypeError(f"explain: plan must be an AccumulationPlan for ScaledArrays, not {type(plan).__name__}")
    check_operands(a, b, plan)
    if a.ndim != 2 or b.ndim != 2:
        raise OperandError(f"explain: a and b must be matrices, not of shapes {a.shape} and {b.shape}")
    i, j = _place(row, a.shape[0], "row"), _place(col, b.shape[1], "col")
    rows, columns = _block(i, a, 0), _block(j, b, 1)
    cut = {name: _cut(name, value, rows, columns, (a.shape[0], b.shape[1])) for name, value in operands.items()}
    recorder = Recorder(i - rows.start, j - columns.start)
    own = _of_element(plan, (a.shape[0], b.shape[1]), b.shape[0], i, j)
    d = scaled_matmul(a[rows], b[:, columns], plan=own, backend=recorder, **cut)  # type: ignore[arg-type]
    return _explanation(plan, recorder, d[i - rows.start, j - columns.start], i, j)


def _of_element(plan: Any, shape: tuple[int, int], depth: int, i: int, j: int) -> Any:
    """A plan that cuts k for all elements as it does for one: stream-K cuts it by the tile where the element lies."""
    if not isinstance(getattr(plan, "split_k", None), ByTile):
        return plan
    blocks = plan.order.blocks(*shape, depth)
    cuts = next(cuts for rows, columns, cuts in blocks if rows.start <= i < rows.stop and columns.start <= j < columns.stop)
    return replace(plan, split_k=cuts if depth else 1)


def _block(place: int, array: ScaledArray, axis: int) -> slice:
    """Return what of an array can be cut out around a place: its block, or the place alone where one block spans all."""
    size = 1 if array.scales.shape[axis] == 1 else array.block[axis]
    start = place // size * size
    return slice(start, min(start + size, array.shape[axis]))


def _place(value: Any, extent: int, name: str) -> int:
    found = whole(value)
    if found is None or not 0 <= found < extent:
        raise OperandError(f"explain: {name} must be an integer from 0 to {extent - 1}, not {value!r}")
    return found


def _cut(name: str, value: Any, rows: slice, columns: slice, shape: tuple[int, int]) -> Any:
    """Return what of an operand of a product of a shape belongs to some rows and columns."""
    sides = _CUTS[name]
    if not sides:
        return value
    array = as_array(value, f"explain: {name}")
    extents, places = {"m": shape[0], "n": shape[1]}, {"m": rows, "n": columns, "k": slice(None)}
    if array.ndim != len(sides) or any(extents.get(side, extent) != extent for side, extent in zip(sides, array.shape, strict=True)):
        wanted = ", ".join(str(extents.get(side, "...")) for side in sides) + ("," if len(sides) == 1 else "")
        raise OperandError(f"explain: {name} must have shape ({wanted}), not {array.shape}")
    return array[tuple(places[side] for side in sides)]


def _explanation(plan: Plan, recorder: Recorder, d: Any, i: int, j: int) -> Explanation:
    result = np.asarray(d)
    fmt = format_of(result.dtype)
    return Explanation(plan, plan.operation, i, j, tuple(recorder.steps), int(to_codes(result, fmt)), fmt.name)


def explain_operands(plan: MmaPlan, operands: Operands, row: int, col: int) -> Explanation:
    """An element of one execution of an instruction on codes of matrices, whose first dimension is 1."""
    recorder = Recorder(row, col)
    fmt = plan.operation.instruction.formats.d
    d = np.zeros((1, operands.a.shape[1], operands.b.shape[2]), fmt.code_dtype)
    recorder.run(plan.operation, operands, d, 1)
    return Explanation(plan, plan.operation, row, col, tuple(recorder.steps), int(d[0, row, col]), fmt.name)
