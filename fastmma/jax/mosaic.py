"""Pallas kernels of Mosaic GPU in JAX's interpreter: wgmma with the bits of a Hopper GPU, others refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

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


def plan_wgmma(target: str, lhs: Any, rhs: Any, sums: Any) -> GemmPlan:
    """Choose the instruction of ``plgpu.wgmma``: all k of the operands in ascending order, from the accumulator on.

    Parameters
    ----------
    target : str
    lhs, rhs, sums : anything with a shape and a dtype
        float32 operands are multiplied as tf32, of which the tensor core reads the upper 19 bits.

    Raises
    ------
    NotEmulatedError
        If the target has no such instruction.
    """
    types = [np.dtype(each.dtype) for each in (lhs, rhs, sums)]
    if types[2].name not in _ACCUMULATORS:
        raise NotEmulatedError(f"wgmma has no sums in {types[2]}")
    options: dict[str, Any] = {"target": target, "accumulator": _ACCUMULATORS[types[2].name]}
    x, y = (np.broadcast_to(np.zeros((), each.dtype), each.shape) for each in (lhs, rhs))
    try:
        if types[0] == np.float32:
            options["instruction"] = default_instruction("tf32", "tf32", None, target)
        plan = gemm_plan(x, y, **options)
    except FastmmaError as error:
        raise NotEmulatedError(f"wgmma of {types[0]} with sums in {types[2]} on {target}: {error}") from error
    if not plan.instruction.startswith("wgmma"):
        raise NotEmulatedError(f"{target} has no wgmma: its kernels are written with other primitives")
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

    def __call__(self, lhs: NDArray[Any], rhs: NDArray[Any], sums: NDArray[Any]) -> NDArray[Any]:
        """Return ``sums + lhs @ rhs``."""
        self.report.count(self.line, self.where)
        return gemm(np.ascontiguousarray(lhs), np.ascontiguousarray(rhs), np.ascontiguousarray(sums), plan=self.plan)


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
    return replace_methods(interpreter, partial(_wgmma, settings, report, interpreter), _refuse)


def _wgmma(settings: Settings, report: Report, interpreter: Interpreter, place: Place) -> Any:
    """Interpret a wgmma."""
    text, where = describe(place.lhs, place.rhs), find_place(place.traceback)
    try:
        plan = plan_wgmma(settings.target, place.lhs, place.rhs, place.sums)
    except NotEmulatedError as unknown:
        settings.refuse(f"wgmma of {text}: {unknown}", where)
        report.count(Line("wgmma", PASSED, text, str(unknown)), write_place(where))
        return interpreter.multiply_natively(place)
    line = make_line("wgmma", text, plan, plan_text(plan), "")
    return interpreter.multiply(place, Product(plan, line, write_place(where), report))


def _refuse(name: str) -> None:
    """Refuse a primitive of Mosaic GPU that JAX's interpreter does not know."""
    raise NotEmulatedError(
        f"{name}: JAX's interpreter of Mosaic GPU kernels does not know it; it interprets copies, barriers, loops and wgmma. "
        "Products of tcgen05 are computed by fastmma.tcgen05 and by fastmma.triton's Gluon"
    )
