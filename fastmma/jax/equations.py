"""Equations of programs that JAX compiles, each with its status in a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastmma.jax.calls import Call, describe, own_dot_general_p, write_place
from fastmma.jax.internals import dot_general_p, find_place, is_of_jax, pure_callback_p, scaled_matmul_p
from fastmma.jax.kernels import kernel_product_p
from fastmma.jax.mosaic_internals import is_of_interpreter
from fastmma.jax.primitives import KINDS
from fastmma.jax.report import Line, Report
from fastmma.jax.sums import SUMS
from fastmma.products.report import NEUTRAL, PASSED, UNSEEN


def count_equations(
    report: Report,
    equations: Sequence[Any],
    platforms: tuple[str, ...],
    outer: Any,
    refuse: Callable[[str, tuple[str, int] | None], None],
) -> None:
    """Count the equations of a program that is compiled, but for products and sums over devices, which report themselves.

    Parameters
    ----------
    report : Report
    equations : sequence of JAX's equations
    platforms : tuple of str
        For which they are compiled.
    outer : traceback of JAX, optional
        Of what the equations are a part of.
    refuse : callable
        Takes why a product, such as a convolution, is not emulated, and its place; raises or warns if a caller wants it.

    Raises
    ------
    NotEmulatedError
    """
    for equation in equations:
        found = find_status(equation, platforms)
        if found is not None:
            status, why = found
            text, place = describe(*(each.aval for each in equation.invars)), find_place(equation.source_info.traceback, outer)
            if status == PASSED and is_other_product(equation.primitive):
                refuse(f"{equation.primitive.name} of {text} {why}", place)
            report.count(Line(equation.primitive.name, status, text, why), write_place(place))


def is_other_product(primitive: Any) -> bool:
    """Tell whether a primitive multiplies matrices, and is no dot_general: a convolution, say."""
    kind = KINDS.get(primitive.name) if is_of_jax(primitive) else None
    return kind is not None and kind.is_product


def find_status(equation: Any, platforms: tuple[str, ...]) -> tuple[str, str] | None:
    """Find the status of an equation and its reason; None for fastmma's calls, and for what consists of other equations."""
    primitive = equation.primitive
    kind = KINDS.get(primitive.name) if is_of_jax(primitive) else None
    if primitive in (own_dot_general_p, kernel_product_p) or (kind is not None and kind.has_body):
        return None
    if primitive is pure_callback_p and isinstance(equation.params["callback"].callback_func, Call):
        return None
    if primitive.name == "io_callback" and is_of_jax(primitive) and is_of_interpreter(equation.params["callback"].callback_func):
        return NEUTRAL, ""
    if kind is not None and kind.is_neutral(equation):
        return NEUTRAL, ""
    if platforms != ("cpu",):
        return PASSED, f"is compiled for {' and '.join(platforms)}, where nothing is emulated"
    if primitive in (dot_general_p, scaled_matmul_p, *SUMS):
        return None
    return (UNSEEN, "is in no list of fastmma") if kind is None else (PASSED, kind.why)
