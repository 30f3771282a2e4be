"""Sums over devices: those of two, which NCCL adds as IEEE does, with one rounding to the dtype."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.float_mode import in_default_mode
from fastmma.isa.targets import architecture
from fastmma.jax.calls import Call, describe, write_place
from fastmma.jax.internals import (
    all_gather_p,
    call_back,
    count_group,
    cpu_lowerings,
    find_place,
    has_automatic_axes,
    lower_natively,
    psum_invariant_p,
    psum_p,
)
from fastmma.jax.partitions import is_native
from fastmma.jax.primitives import KINDS
from fastmma.jax.report import Line, Report
from fastmma.jax.settings import Settings
from fastmma.products.report import ASSUMED, EMULATED, PASSED

SUMS = (psum_p, psum_invariant_p)
# the NaN that a GPU returns, by dtype
_NANS = {"float32": 0x7FFFFFFF, "bfloat16": 0x7FFF, "float16": 0x7FFF}
_HOW, _ELSEWHERE = "two devices: one IEEE addition", "recorded on two H200 only"


def add_devices(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Add what two devices have, with the NaN of a GPU.

    Examples
    --------
    >>> x = np.array([1.0, np.inf], np.float32)
    >>> add_devices(x, -x).view(np.uint32).tolist() == [0, 0x7FFFFFFF]
    True
    """
    total = in_default_mode(_add, first, second)  # where XLA runs callbacks, subnormal numbers are flushed
    if total.dtype.name not in _NANS:
        return total
    nan = np.array(_NANS[total.dtype.name], f"u{total.dtype.itemsize}").view(total.dtype)
    return np.where(np.isnan(total), nan, total)


def _add(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return np.asarray(first + second, first.dtype)


def add_gathered(both: NDArray[Any]) -> NDArray[Any]:
    """Add what was gathered from two devices."""
    return add_devices(*np.asarray(both))


def sum_rules(settings: Settings, report: Report) -> dict[Any, Any]:
    """Return the lowerings of sums over devices, by primitive."""
    return {each: partial(_sum, settings, report, each, cpu_lowerings.get(each)) for each in SUMS}


def _sum(settings: Settings, report: Report, primitive: Any, native: Any, context: Any, operand: Any, **parameters: Any) -> Any:
    """Lower a sum over devices."""
    (given,), (out,) = context.avals_in, context.avals_out
    if is_native() or given.dtype.name not in _NANS:
        return lower_natively(primitive, native, context, operand, **parameters)
    axes, text, where = parameters["axes"], describe(given), write_place(find_place(context.traceback))
    is_of_two = not any(isinstance(each, int) for each in axes) and parameters.get("axis_index_groups") is None
    if not is_of_two or has_automatic_axes(context) or count_group(context, axes) != 2:
        report.count(Line(primitive.name, PASSED, text, KINDS[primitive.name].why), where)
        return lower_natively(primitive, native, context, operand, **parameters)
    gathered = given.update(shape=(2, *given.shape))
    options = {"all_gather_dimension": 0, "axis_name": axes, "axis_index_groups": None, "axis_size": 2, "tiled": False}
    inner = context.replace(primitive=all_gather_p, avals_in=[given], avals_out=[gathered])
    (both,) = lower_natively(all_gather_p, cpu_lowerings.get(all_gather_p), inner, operand, **options)
    is_recorded = architecture(settings.target) == "sm_90"
    line = Line(primitive.name, EMULATED if is_recorded else ASSUMED, text, _HOW if is_recorded else f"{_HOW}; {_ELSEWHERE}")
    outer = context.replace(avals_in=[gathered], avals_out=[out])
    return call_back(outer, Call(add_gathered, (), line, where, report), both)
