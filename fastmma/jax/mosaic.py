"""Pallas kernels of Mosaic GPU in JAX's interpreter: wgmma and tcgen05_mma with a GPU's bits, others refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import FastmmaError, NotEmulatedError
from fastmma.jax.calls import describe, make_line, write_place
from fastmma.jax.internals import find_place
from fastmma.jax.mosaic_internals import Interpreter, Place, find_interpreter, replace_methods
from fastmma.jax.products import plan_text
from fastmma.jax.report import Line, Report
from fastmma.jax.settings import Settings
from fastmma.products.choice import default_instruction
from fastmma.products.gemm import gemm
from fastmma.products.gemm_choice import gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.report import PASSED

_ACCUMULATORS = {"float32": "f32", "float16": "f16", "int32": "s32"}
_INSTRUCTIONS = {"wgmma": "wgmma.", "tcgen05_mma": "tcgen05."}
_ADVICE = {"tmem": "; that of JAX 0.11, for Python 3.12 and later, knows tensor memory and tcgen05_mma"}
_F16_SUMS = "tcgen05.mma.cta_group::1.kind::f16 idesc=0x08400000"  # gemm takes mma.sync for them


def plan_product(target: str, lhs: Any, rhs: Any, sums: Any, operation: str = "wgmma") -> GemmPlan:
    """Choose the instruction of ``plgpu.wgmma`` or ``plgpu.tcgen05_mma``: all k of the operands ascending, from the accumulator on.

    Parameters
    ----------
    target : str
    lhs, rhs, sums : anything with a shape and a dtype
        float32 operands are multiplied as tf32, of which the tensor core reads the upper 19 bits.
    operation : {"wgmma", "tcgen05_mma"}

    Raises
    ------
    NotEmulatedError
        If the target has no such instruction.
    """
    types = [np.dtype(each.dtype) for each in (lhs, rhs, sums)]
    if types[2].name not in _ACCUMULATORS:
        raise NotEmulatedError(f"{operation} has no sums in {types[2]}")
    options: dict[str, Any] = {"target": target, "accumulator": _ACCUMULATORS[types[2].name]}
    x, y = (np.broadcast_to(np.zeros((), each.dtype), each.shape) for each in (lhs, rhs))
    try:
        if types[0] == np.float32:
            options["instruction"] = default_instruction("tf32", "tf32", None, target)
        if operation == "tcgen05_mma" and types[2] == np.float16:
            options["instruction"] = _F16_SUMS
        plan = gemm_plan(x, y, **options)
    except FastmmaError as error:
        raise NotEmulatedError(f"{operation} of {types[0]} with sums in {types[2]} on {target}: {error}") from error
    if not plan.instruction.startswith(_INSTRUCTIONS[operation]):
        raise NotEmulatedError(f"{target} has no {operation} for these operands: its kernels are written with other primitives")
    return plan


@dataclass(frozen=True)
class Product:
    """A product that an interpreted kernel asks for; it counts each time it runs.

    Attributes
    ----------
    plan : GemmPlan
    line : Line
    where : str
        The caller's file and line.
    report : Report
    """

    plan: GemmPlan
    line: Line
    where: str
    report: Report

    def __call__(self, lhs: NDArray[Any], rhs: NDArray[Any], sums: NDArray[Any] | None) -> NDArray[Any]:
        """Return ``sums + lhs @ rhs``, or ``lhs @ rhs`` where the accumulator is overwritten."""
        self.report.count(self.line, self.where)
        c = None if sums is None else np.ascontiguousarray(sums)
        return gemm(np.ascontiguousarray(lhs), np.ascontiguousarray(rhs), c, plan=self.plan)


def emulate_kernels(settings: Settings, report: Report) -> Callable[[], None] | None:
    """Have JAX's interpreter of Mosaic GPU kernels multiply as a GPU does, and return what puts its own methods back.

    Returns
    -------
    callable, optional
        None where `find_interpreter` finds none: what runs is then in the report as unseen.
    """
    interpreter = find_interpreter()
    if interpreter is None:
        return None
    return replace_methods(interpreter, partial(_interpret, settings, report, interpreter), _refuse)


def _interpret(settings: Settings, report: Report, interpreter: Interpreter, place: Place) -> Any:
    """Interpret a wgmma or a tcgen05_mma."""
    text, where = describe(place.lhs, place.rhs), find_place(place.traceback)
    if place.options:
        _refuse(f"{place.operation} with {', '.join(place.options)}", place.traceback)
    try:
        plan = plan_product(settings.target, place.lhs, place.rhs, place.sums, place.operation)
    except NotEmulatedError as unknown:
        settings.refuse(f"{place.operation} of {text}: {unknown}", where)
        report.count(Line(place.operation, PASSED, text, str(unknown)), write_place(where))
        return interpreter.multiply_natively(place)
    line = make_line(place.operation, text, plan, plan_text(plan), "")
    return interpreter.multiply(place, Product(plan, line, write_place(where), report))


def _refuse(name: str, traceback: Any) -> None:
    """Refuse a primitive of Pallas that JAX's interpreter of Mosaic GPU kernels does not know."""
    where = write_place(find_place(traceback))
    raise NotEmulatedError(
        f"{name}{where and f' at {where}'}: the interpreter of Mosaic GPU kernels of JAX {jax.__version__} does not know it"
        f"{_ADVICE.get(name, '')}. Other kernels of Hopper and Blackwell GPUs run in fastmma.triton's Gluon; "
        "single instructions are in fastmma.warpgroup and fastmma.tcgen05"
    )
