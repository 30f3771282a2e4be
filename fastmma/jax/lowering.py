"""Within a `with`, what JAX compiles for the CPU multiplies as a GPU does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
from jax.interpreters import mlir
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError
from fastmma.isa.gpus import TargetName
from fastmma.jax.internals import cpu_lowerings, dot_general_p, lowered, register, scaled_matmul_p
from fastmma.jax.products import operands_text, plan_of, plan_text, product
from fastmma.jax.report import EMULATED, PASSED, Line, Report
from fastmma.jax.scaled import scaled_plan_of, scaled_product
from fastmma.jax.settings import Plans, Settings, settings_of

_changing = threading.RLock()


@contextmanager
def emulate(target: TargetName = "sm_90a", *, f32: str | None = None, plans: Plans | None = None, other: str = "pass") -> Iterator[Report]:
    """Compile JAX code for the CPU with the matrix products of a GPU, bit for bit: eager, under jit, grad, vmap and scan, and in Pallas.

    ``dot_general`` (and all that comes down to it) and ``jax.nn.scaled_matmul`` are emulated, for the whole process. JAX's caches of
    compiled code are cleared on the way in and out; the innermost of nested emulations wins.

    Parameters
    ----------
    target : str
        The GPU.
    f32 : {"tf32", None}
        What float32 is multiplied as where the precision is the default; as tf32, operands are rounded to nearest, ties away
        from zero; None leaves it to XLA.
    plans : mapping, optional
        ``{(M, N, K): parts of k or a GemmPlan}``; products that it does not have take one accumulator, k ascending. XLA's own choices for
        a GPU, which it tunes by time, are not known.
    other : {"pass", "warn", "error"}
        What becomes of a product that no tensor core is known to compute: XLA's own result, with a warning or without, or an error.

    Yields
    ------
    Report
        What was emulated, what was passed to XLA, and why.

    Raises
    ------
    TargetError, OperandError
        If an option is wrong; NotEmulatedError, from JAX's call, where `other` says so.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> x = jnp.ones((4, 64), jnp.float16)
    >>> with emulate("H100", other="error") as report:
    ...     y = jax.jit(lambda x: x @ x.T)(x).block_until_ready()
    >>> report.assert_all_emulated()
    """
    settings = settings_of(target, f32, plans, other)
    report = Report(settings.target)
    with _changing:
        before = {primitive: cpu_lowerings.get(primitive) for primitive in (dot_general_p, scaled_matmul_p)}
        jax.clear_caches()
        register(dot_general_p, partial(_dot_general, settings, report, before[dot_general_p]))
        register(scaled_matmul_p, partial(_scaled_matmul, settings, report))
    try:
        yield report
    finally:
        with _changing:
            for primitive, entry in before.items():
                if entry is None:
                    cpu_lowerings.pop(primitive, None)
                else:
                    cpu_lowerings[primitive] = entry
            jax.clear_caches()


def _dot_general(settings: Settings, report: Report, before: Any, context: Any, *operands: Any, **parameters: Any) -> Any:
    """The lowering of dot_general."""
    lhs, rhs = context.avals_in
    (out,) = context.avals_out
    text, dimensions = operands_text(lhs, rhs), parameters["dimension_numbers"]
    try:
        plan = plan_of(settings, lhs, rhs, out, dimensions, parameters["precision"])
    except NotEmulatedError as unknown:
        settings.refuse(f"dot_general of {text}: {unknown}")
        report.count(Line("dot_general", PASSED, text, str(unknown)))
        return lowered(dot_general_p, before, context, *operands, **parameters)
    line = Line("dot_general", EMULATED, text, plan_text(plan))
    called = partial(_counted, report, line, partial(product, dimensions=dimensions, plan=plan))
    call = partial(jax.pure_callback, called, jax.ShapeDtypeStruct(out.shape, out.dtype))
    return mlir.lower_fun(call, multiple_results=False)(context, *operands)


def _scaled_matmul(settings: Settings, report: Report, context: Any, *operands: Any, preferred_element_type: Any) -> Any:
    """The lowering of scaled_matmul, of which XLA has none for a CPU."""
    (out,) = context.avals_out
    plan = scaled_plan_of(settings.target, tuple(context.avals_in), preferred_element_type)
    line = Line("scaled_matmul", EMULATED, operands_text(*context.avals_in[:2]), plan.instruction)
    called = partial(_counted, report, line, partial(scaled_product, plan=plan))
    result = jax.ShapeDtypeStruct(out.shape, out.dtype)
    return mlir.lower_fun(lambda *arrays: [jax.pure_callback(called, result, *arrays)], multiple_results=True)(context, *operands)


def _counted(report: Report, line: Line, function: Any, *arrays: Any) -> NDArray[Any]:
    found: NDArray[Any] = function(*arrays)
    report.count(line)
    return found
