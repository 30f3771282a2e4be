"""Small products of which all but the memory is known: what computes them from addresses, with the steps of their epilogue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastmma.backends.engine import Backend
from fastmma.backends.fixed import Fixed, Form
from fastmma.isa.formats import FORMATS
from fastmma.kernels.params import ADDENDS, FORMULAS, PartsOfK
from fastmma.products.bound import Bound, Strided
from fastmma.products.by_tile import ByTile
from fastmma.products.epilogue import Epilogue, f32_code
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.loop import join_parts
from fastmma.products.order import NARROW_JOINS
from fastmma.products.steps import ROUND, SCALED_C, operands_of

if TYPE_CHECKING:
    from fastmma.kernels.sums.epilogue import EpilogueForm

_ONE = 0x3F800000
_FORMATS = {FORMATS[name].dtype_name: FORMATS[name] for name in ("f32", "bf16", "f16")}


class Addend(NamedTuple):
    """A bias or a c: the format of its elements, and its strides in bytes, from row to row of all products and along a row."""

    name: str
    format: str
    row_stride: int
    column_stride: int


def fixed_product(plan: GemmPlan, runner: Backend, threads: int, bound: Bound) -> Fixed | None:
    """Find what computes a small product from addresses alone, without looking at anything; None where there is nothing of the kind.

    Results are C-contiguous.
    """
    (a_dtype, a_shape, a_strides), (b_dtype, b_shape, b_strides) = bound.a, bound.b
    formats = plan.operation.instruction.formats
    if a_dtype != formats.a.dtype or b_dtype != formats.b.dtype or (plan.cast and (formats.a.padding or formats.b.padding)):
        return None
    matched = len(a_shape) == len(b_shape) and len(a_shape) in (2, 3) and a_shape[-1] == b_shape[-2] and a_shape[:-2] == b_shape[:-2]
    if not matched:
        return None
    products, (rows, depth), columns = math.prod(a_shape[:-2]), a_shape[-2:], b_shape[-1]
    parts = None if plan.is_direct else parts_of(plan, rows, columns, depth)
    if parts is None and not plan.is_direct:
        return None
    shape = (*a_shape[:-1], columns)
    if not products * rows * columns * depth:
        return None
    epilogue = None
    if plan.epilogue:
        epilogue = _epilogue_of_bound(plan, runner, shape, bound)
        if epilogue is None:
            return None
    elif not _starts_only(bound, formats.c.dtype, shape):
        return None
    a, b = ((0, *strides)[-3:] for strides in (a_strides, b_strides))
    start = not plan.epilogue and bound.c is not None
    form = Form(products, rows, columns, depth, a, b, start, parts)  # type: ignore[arg-type]
    return runner.fixed(plan.operation, form, epilogue, threads)


def parts_of(plan: GemmPlan, rows: int, columns: int, depth: int) -> PartsOfK | None:
    """The parts of k that a plan joins to sums of a shape; None where they are rounded, promoted, or not those of all results.

    Examples
    --------
    >>> parts_of(GemmPlan("sm_90a", "fma.rn.f32", split_k=3, join="pairwise"), 8, 8, 5)
    PartsOfK(k=(0, 1, 2, 3, 4), stops=(2, 4, 5), joins=((0, 1), (0, 2)))
    """
    order = plan.order
    if plan.promote_every is not None or plan.in_place or order.join_dtype or order.join in NARROW_JOINS:
        return None
    if isinstance(order.parts, ByTile) or (order.first_tile and plan.operation.instruction.k > 1):
        return None
    ((_, _, cuts),) = order.blocks(rows, columns, depth)
    places = order.places(depth)
    k = range(depth) if places is None else places.tolist()
    joins: list[tuple[int, int]] = []

    def add(total: int, part: int) -> int:
        joins.append((total, part))
        return total

    join_parts(range(len(cuts)), order, add)
    return PartsOfK(tuple(k[: cuts[-1][1]]), tuple(stop for _, stop in cuts), tuple(joins))


def _starts_only(bound: Bound, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Tell whether sums start from c, if there is one, and nothing else is done to them."""
    if bound.bias is not None or bound.beta is not None or bound.alpha != 1:
        return False
    if bound.c is None:
        return True
    c = Strided(*bound.c)
    return c.dtype == dtype and c.shape == shape and c.is_c_contiguous


def _epilogue_of_bound(plan: GemmPlan, runner: Backend, shape: tuple[int, ...], bound: Bound) -> EpilogueForm | None:
    """The epilogue of a product; None where there is none that takes its operands as they are."""
    c, bias = bound.c, bound.bias
    if bound.alpha == 0 or bound.beta == 0 or (bound.beta is not None and c is None) or (c is not None and bias is not None):
        return None
    if (c is not None and (not plan.adds_c or c[1] != shape)) or (bias is not None and bias[1] != shape[-1:]):
        return None
    addend = None
    if c is not None or bias is not None:
        addend = addend_of("bias", *bias) if c is None else addend_of("c", *c)  # type: ignore[misc]
        if addend is None:
            return None
    return epilogue_form(plan, runner, shape, bound.alpha, bound.beta, addend)


def addend_of(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> Addend | None:
    """An array as an addend; None where no kernel reads its elements, or its rows do not lie at equal distances."""
    fmt = _FORMATS.get(dtype.name)
    if fmt is None or fmt.dtype != dtype:
        return None
    if len(shape) == 1:
        return Addend(name, fmt.name, 0, strides[0])
    if len(shape) == 3 and shape[0] > 1 and strides[0] != shape[1] * strides[1]:
        return None
    return Addend(name, fmt.name, *strides[-2:])


def epilogue_form(
    plan: GemmPlan, runner: Backend, shape: tuple[int, ...], alpha: Any, beta: Any, addend: Addend | None
) -> EpilogueForm | None:
    """The epilogue of a plan for results of a shape; None where an addend has to be changed before it is added, or a step is a formula.

    Raises
    ------
    OperandError, OperandTypeError
        If the plan has no step for what is given.
    """
    from fastmma.kernels.sums import epilogue as compiled

    finish = Epilogue("prepared", plan.epilogue, plan.out, runner, 1)
    values = finish.operands(alpha, None, None, None, shape)
    if addend is not None:
        values[addend.name] = np.zeros((1, 1), np.uint32)
        if beta is not None and (factor := f32_code(beta, "prepared: beta")) != _ONE:
            if SCALED_C not in plan.epilogue or not factor & 0x7FFFFFFF:
                return None
            values["beta"] = np.full((1, 1), factor, np.uint32)
        late = [name for step in plan.epilogue[plan.epilogue.index(ROUND) :] for name in operands_of(step)]
        if addend.name not in [name for step in plan.epilogue for name in operands_of(step)]:
            return None
        if addend.name in late and plan.out not in ("f32", addend.format):
            return None
    rows, places, kept = [], [], []
    steps = finish.steps_of(plan.operation.instruction.dtype, values, shape)
    if any(step.operation in FORMULAS for step in steps):
        return None
    for number, step in enumerate(steps):
        operands = []
        for name, given, place in zip(step.names, (step.first, step.second), (compiled.FIRST, compiled.SECOND), strict=False):
            if addend is not None and name == addend.name:
                places.append(compiled.ROWS + number * compiled.ROW + place)
                operands.append(compiled.Operand(0, addend.row_stride, addend.column_stride, ADDENDS.index(addend.format)))
            else:
                kept.append(given)
                operands.append(compiled.operand_of(given))
        rows.append(compiled.operation_of(step, *operands))
    return compiled.EpilogueForm(rows, places, plan.out, kept)
