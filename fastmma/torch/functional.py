"""The products as functions, under torch's own signatures, with the GPU as an option: no mode is needed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, dtype

from fastmma.host.caller import find_caller
from fastmma.isa.gpus import TargetName
from fastmma.torch.emulation import AssumedWarning, Emulation
from fastmma.torch.operators import OPERATORS, called
from fastmma.torch.places import LIBRARIES
from fastmma.torch.report import ASSUMED, Line, Report
from fastmma.torch.settings import settings_of

aten = torch.ops.aten
_TARGET = "sm_90a"
_Lists = Any  # what torch.nn.functional takes: one value, or a list of them


class _Warnings(Report):
    """A report that keeps nothing: it warns of kinds of calls that are assumed."""

    def count(self, line: Line, where: str = "", number: int = 1) -> None:
        """Warn of a call that is assumed, if no call of its kind was."""
        if line.status == ASSUMED:
            _warn_once(self.target, line)


class _Silence(Report):
    """A report that keeps nothing."""

    def count(self, line: Line, where: str = "", number: int = 1) -> None:
        """Forget a call."""


@lru_cache(4096)
def _warn_once(target: str, line: Line) -> None:
    caller = find_caller(LIBRARIES)
    text = f"{line.operator} of {line.operands} on {target} is computed, but not known to have the library's bits: {line.how}"
    warnings.warn(text, AssumedWarning, stacklevel=caller.level if caller else 1)


@lru_cache(64)
def _remembered(target: TargetName, options: tuple[tuple[str, Any], ...]) -> Emulation:
    return _emulation(target, dict(options))


def _emulation(target: TargetName, options: dict[str, Any]) -> Emulation:
    warns = options["unknown"] == "warn"
    settings = settings_of(target, options | ({"unknown": "one"} if warns else {}))
    return Emulation(settings, (_Warnings if warns and settings.library else _Silence)(settings.architecture))


def _call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: TargetName, options: dict[str, Any]) -> Tensor:
    """An operator of the table, which never falls back to torch's own kernels."""
    assert func in OPERATORS
    wanted: dict[str, Any] = {"unknown": "warn", "other": "error"} | options
    try:
        run = _remembered(target, tuple(sorted(wanted.items())))
    except TypeError:  # plans have no hash
        run = _emulation(target, wanted)
    with torch.no_grad():
        found: Tensor = called(run, func, args, kwargs)
    return found


def _given(**kwargs: Any) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if value is not None}


def mm(a: Tensor, b: Tensor, *, out_dtype: dtype | None = None, target: TargetName = _TARGET, **options: Any) -> Tensor:
    """Compute `torch.mm` with the bits of a GPU. Functions here are not differentiable; products under `emulate` are.

    Parameters
    ----------
    a, b : Tensor (M, K) and (K, N)
        On the CPU, or both on one GPU. The result is on the same device.
    out_dtype : torch.dtype, optional
        float32, for 16-bit operands.
    target : str
        The GPU.
    **options
        Those of `emulate`. An operation that is not known raises an error. One that is assumed gives an `AssumedWarning`, once for each
        kind of call; with ``unknown="one"`` there is no warning.

    Raises
    ------
    NotEmulatedError, TargetError, OperandError
        All are `fastmma.FastmmaError`. RuntimeError, where torch would raise it.

    Examples
    --------
    >>> a = torch.ones(16, 32, dtype=torch.bfloat16)
    >>> mm(a, a.T, target="H100")[0, 0].item()
    32.0
    """
    return _call(aten.mm.default, (a, b), _given(out_dtype=out_dtype), target, options)


def addmm(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out_dtype: dtype | None = None,
    target: TargetName = _TARGET,
    **options: Any,
) -> Tensor:
    """Compute `torch.addmm` with the bits of a GPU; see `mm`."""
    return _call(aten.addmm.default, (c, a, b), _given(out_dtype=out_dtype, beta=beta, alpha=alpha), target, options)


def bmm(a: Tensor, b: Tensor, *, out_dtype: dtype | None = None, target: TargetName = _TARGET, **options: Any) -> Tensor:
    """Compute `torch.bmm` with the bits of a GPU; see `mm`."""
    return _call(aten.bmm.default, (a, b), _given(out_dtype=out_dtype), target, options)


def baddbmm(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out_dtype: dtype | None = None,
    target: TargetName = _TARGET,
    **options: Any,
) -> Tensor:
    """Compute `torch.baddbmm` with the bits of a GPU; see `mm`."""
    return _call(aten.baddbmm.default, (c, a, b), _given(out_dtype=out_dtype, beta=beta, alpha=alpha), target, options)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, target: TargetName = _TARGET, **options: Any) -> Tensor:
    """Compute `torch.nn.functional.linear` with the bits of a GPU, for x (..., K) and weight (N, K); see `mm`."""
    rows = x.reshape(-1, x.shape[-1])
    found = mm(rows, weight.t(), target=target, **options) if bias is None else addmm(bias, rows, weight.t(), target=target, **options)
    return found.reshape(*x.shape[:-1], weight.shape[0])


def int_mm(a: Tensor, b: Tensor, *, target: TargetName = _TARGET, **options: Any) -> Tensor:
    """Compute `torch._int_mm`, int8 (M, K) times int8 (K, N) to int32; see `mm`."""
    return _call(aten._int_mm.default, (a, b), {}, target, options)


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: dtype | None = None,
    target: TargetName = _TARGET,
    **options: Any,
) -> Tensor:
    """Compute `torch.nn.functional.grouped_mm` with the bits of a GPU; see `mm`."""
    return _call(aten._grouped_mm.default, (mat_a, mat_b, offs, bias, out_dtype), {}, target, options)


def _listed(value: _Lists) -> list[Any]:
    """torch takes a value for a list of one, and None for an empty one."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _scaling(scales: _Lists, recipe: _Lists, swizzle: _Lists) -> tuple[list[Tensor], list[int], list[int]]:
    """The scaling of an operand as the operator takes it: enums are numbers."""
    recipes, swizzles = ([each if isinstance(each, int) else each.value for each in _listed(value)] for value in (recipe, swizzle))
    return _listed(scales), recipes, swizzles


def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | list[Tensor],
    scale_recipe_a: _Lists,
    scale_b: Tensor | list[Tensor],
    scale_recipe_b: _Lists,
    swizzle_a: _Lists = None,
    swizzle_b: _Lists = None,
    bias: Tensor | None = None,
    output_dtype: dtype | None = torch.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    target: TargetName = _TARGET,
    **options: Any,
) -> Tensor:
    """Compute `torch.nn.functional.scaled_mm` with the bits of a GPU.

    Parameters
    ----------
    mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b, swizzle_a, swizzle_b, bias, output_dtype
        As torch takes them; so are `contraction_dim` and `use_fast_accum`.
    target : str
        The GPU.
    **options
        Those of `emulate`, see `mm`; ``check=None`` also computes products that torch refuses on a GPU.

    Raises
    ------
    NotEmulatedError, TargetError, OperandError
        All are `fastmma.FastmmaError`. RuntimeError and ValueError, where torch would raise them.

    Examples
    --------
    >>> from torch.nn.functional import ScalingType
    >>> a = torch.ones(16, 64).to(torch.float8_e4m3fn)
    >>> half = torch.tensor(0.5)
    >>> scaled_mm(a, a.T, half, ScalingType.TensorWise, half, ScalingType.TensorWise, target="H100")[0, 0].item()
    16.0
    """
    scales = *_scaling(scale_a, scale_recipe_a, swizzle_a), *_scaling(scale_b, scale_recipe_b, swizzle_b)
    args = (mat_a, mat_b, *scales, bias, output_dtype, list(contraction_dim), use_fast_accum)
    return _call(aten._scaled_mm_v2.default, args, {}, target, options)


def scaled_grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | list[Tensor],
    scale_recipe_a: _Lists,
    scale_b: Tensor | list[Tensor],
    scale_recipe_b: _Lists,
    swizzle_a: _Lists = None,
    swizzle_b: _Lists = None,
    bias: Tensor | None = None,
    offs: Tensor | None = None,
    output_dtype: dtype | None = torch.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    target: TargetName = _TARGET,
    **options: Any,
) -> Tensor:
    """Compute `torch.nn.functional.scaled_grouped_mm` with the bits of a GPU; see `scaled_mm`."""
    scales = *_scaling(scale_a, scale_recipe_a, swizzle_a), *_scaling(scale_b, scale_recipe_b, swizzle_b)
    args = (mat_a, mat_b, *scales, offs, bias, output_dtype, list(contraction_dim), use_fast_accum)
    return _call(aten._scaled_grouped_mm_v2.default, args, {}, target, options)
