"""Within a `with`, what JAX compiles for the CPU multiplies as a GPU does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from fastmma.host.calls import named_keywords
from fastmma.host.errors import NotEmulatedError
from fastmma.isa.gpus import TargetName
from fastmma.jax.active import Emulation, enter, leave
from fastmma.jax.algorithms import kernel_precision
from fastmma.jax.arrangements import arrangement
from fastmma.jax.calls import Call, describe, make_line, write_place
from fastmma.jax.compiled_programs import describe_order, follow_options
from fastmma.jax.internals import (
    call_back,
    count_devices,
    cpu_lowerings,
    dot_general_p,
    find_place,
    has_automatic_axes,
    lower_natively,
    scaled_matmul_p,
)
from fastmma.jax.kernels import kernel_product_p, multiply_natively
from fastmma.jax.mosaic import emulate_kernels
from fastmma.jax.partitions import take_cut
from fastmma.jax.products import (
    find_followed,
    find_guess,
    find_kernel_guess,
    is_widened,
    plan_of,
    plan_text,
    product,
    product_options,
)
from fastmma.jax.report import Line, Report
from fastmma.jax.scaled import CUDNN, scaled_plan_of, scaled_product
from fastmma.jax.settings import Plans, Settings, kernel_settings, settings_of
from fastmma.jax.shares import find_share
from fastmma.jax.sums import sum_rules
from fastmma.products.report import PASSED

_native = cpu_lowerings.get(dot_general_p)


@named_keywords
@contextmanager
def emulate(target: TargetName = "sm_90a", *, f32: str | None = None, plans: Plans | None = None, other: str = "pass") -> Iterator[Report]:
    """Compile JAX code for the CPU with the matrix products of a GPU: eager code, code under jit, grad, vmap and scan, and Pallas.

    It emulates ``dot_general``, all functions that call it, and ``jax.nn.scaled_matmul``, for the whole process. It clears JAX's caches of
    compiled code on entry and on exit. Of nested emulations, the innermost one is in effect.

    Parameters
    ----------
    target : str
        The GPU.
    f32 : {"tf32", None}
        The format in which float32 is multiplied if the precision is the default. With tf32, operands are rounded to nearest, ties away
        from zero. None leaves the product to XLA.
    plans : mapping, str or Path, optional
        ``{(M, N, K): parts of k or a GemmPlan}``: XLA's choices, if you know them; these products are emulated. Others use one accumulator,
        with k ascending, and are assumed, because XLA times its choices on the GPU. A file that ``fastmma record --cublas`` wrote has the
        choices of cuBLAS, which XLA may call; its products are assumed, too. A file with XLA's text of a program that it compiled for a
        GPU, or the folder of ``--xla_dump_to``, has XLA's choices; products that it tells all of are emulated.
    other : {"pass", "warn", "error"}
        What to do with a product that no tensor core is known to compute: return XLA's own result, with a warning or without, or raise an
        error.

    Yields
    ------
    Report
        Each operation is emulated, assumed, passed to XLA, neutral or unseen, and the report says why.

    Raises
    ------
    TargetError, OperandError
        If an option is wrong. JAX's call raises NotEmulatedError if `other` says so.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> x = jnp.ones((4, 64), jnp.float16)
    >>> with emulate("H100", other="error") as report:
    ...     y = jax.jit(lambda x: x @ x.T)(x).block_until_ready()
    >>> report.assert_all_emulated(assumed=True)
    """
    settings = settings_of(target, f32, plans, other)
    report = Report(settings.target)
    rules = {
        dot_general_p: partial(_dot_general, settings, report),
        scaled_matmul_p: partial(_scaled_matmul, settings, report),
        kernel_product_p: partial(_kernel_product, settings, report),
        **sum_rules(settings, report),
    }
    emulation = Emulation(report, rules, partial(emulate_kernels, settings, report), settings.refuse)
    enter(emulation)
    try:
        yield report
    finally:
        leave(emulation)


def _dot_general(settings: Settings, report: Report, context: Any, *operands: Any, **parameters: Any) -> Any:
    """Lower dot_general."""
    lhs, rhs = context.avals_in
    (out,) = context.avals_out
    text, dimensions, place = describe(lhs, rhs), parameters["dimension_numbers"], find_place(context.traceback)
    without_precision = {**parameters, "precision": None}  # which XLA may not know on a CPU, and which cuts nothing
    cut, natively = take_cut(lambda: lower_natively(dot_general_p, _native, context, *operands, **without_precision))
    if natively is not None:
        return natively
    try:
        if has_automatic_axes(context):
            raise NotEmulatedError("JAX runs no callbacks on a mesh of which some axes are automatic: map all of them by shard_map")
        devices = count_devices(context)
        share = find_share(settings, cut if devices > 1 else None, lhs, rhs, dimensions)
        followed = find_followed(settings, share.lhs, share.rhs, out, dimensions, str(context.name_stack))
        plan = plan_of(settings, share.lhs, share.rhs, out, dimensions, parameters["precision"], followed)
    except NotEmulatedError as unknown:
        settings.refuse(f"dot_general of {text}: {unknown}", place)
        report.count(Line("dot_general", PASSED, text, str(unknown)), write_place(place))
        return lower_natively(dot_general_p, _native, context, *operands, **parameters)
    guess = find_guess(settings, share.lhs, share.rhs, dimensions, 1 if share.is_known else devices, plan, followed)
    how = plan_text(plan) + describe_order(followed.product)
    line = make_line("dot_general", text, plan, *share.describe(how, guess, followed.product is not None))
    options = (*product_options(lhs, rhs, out, dimensions, plan), *follow_options(followed.product), *share.options())
    called = Call(product, options, line, write_place(place), report)
    return call_back(context, called, *operands)


def _kernel_product(settings: Settings, report: Report, context: Any, *operands: Any, **parameters: Any) -> Any:
    """Lower a product of a Pallas kernel, with the accumulator that it is added to, if there is one."""
    lhs, rhs, *sums = context.avals_in
    (out,) = context.avals_out
    text, dimensions, place = describe(lhs, rhs), parameters["dimension_numbers"], find_place(context.traceback)
    common, neighbours = (np.dtype(np.float16), 4) if is_widened(settings.target, lhs, rhs) else (None, 1)
    x, y = (jax.ShapeDtypeStruct(each.shape, common or each.dtype) for each in (lhs, rhs))
    try:
        if lhs.dtype != rhs.dtype:
            raise NotEmulatedError(f"Triton multiplies no {lhs.dtype} with {rhs.dtype}")
        precision = kernel_precision(parameters["precision"], x, out)
        plan = plan_of(kernel_settings(settings), x, y, out, dimensions, precision)
        if neighbours > 1 and arrangement(lhs.shape, rhs.shape, dimensions).k % (8 * neighbours):
            raise NotEmulatedError("the order of k is not known of float8 that is widened where k is no multiple of 32")
    except NotEmulatedError as unknown:
        settings.refuse(f"dot_general of {text}: {unknown}", place)
        report.count(Line("dot_general", PASSED, text, str(unknown)), write_place(place))
        natively = mlir.lower_fun(partial(multiply_natively, **parameters), multiple_results=False)
        return natively(context, *operands)
    how = plan_text(plan) + ("; widened, four k a thread" if common else "") + ("; from the accumulator on" if sums else "")
    line = make_line("dot_general", text, plan, how, find_kernel_guess(lhs))
    options = ("dimensions", dimensions), ("plan", plan), ("common", common), ("neighbours", neighbours)
    return call_back(context, Call(product, options, line, write_place(place), report), *operands)


def _scaled_matmul(settings: Settings, report: Report, context: Any, *operands: Any, preferred_element_type: Any) -> Any:
    """Lower scaled_matmul, of which XLA has no lowering for a CPU."""
    plan = scaled_plan_of(settings.target, tuple(context.avals_in), preferred_element_type)
    line = make_line("scaled_matmul", describe(*context.avals_in[:2]), plan, plan.instruction, CUDNN)
    called = Call(scaled_product, (("plan", plan),), line, write_place(find_place(context.traceback)), report)
    return call_back(context, called, *operands)
