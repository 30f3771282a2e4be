"""torch's scaled products: fp8, MX and NVFP4 operands with their scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from fastmma.host.errors import FastmmaError, InstructionError, OperandError, TargetError
from fastmma.isa.targets import target_of
from fastmma.products import cublas
from fastmma.products.evidence import OrderEvidence
from fastmma.products.gemm_choice import gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.library_gpu import library_gpu
from fastmma.products.plan import AccumulationPlan
from fastmma.products.scaled import scaled_matmul
from fastmma.products.scaled_choice import scaled_plan
from fastmma.scaling import ScaledArray
from fastmma.scaling.schemes import scheme_of
from fastmma.torch import on_gpu
from fastmma.torch.arrays import DTYPES, E2M1_PAIRS, as_numpy, to_numpy
from fastmma.torch.checks import check_bias, check_fast, check_scaled
from fastmma.torch.emulation import Emulation, operands_text
from fastmma.torch.fp8_rules import Scaled, alike, rule_of
from fastmma.torch.plans import UnknownError, status_of, unknown_plan
from fastmma.torch.recipes import B16, B32, B128, L128, ROW, TENSOR, scaled_operand
from fastmma.torch.report import ASSUMED, EMULATED, Line
from fastmma.torch.scaled_on_gpu import PlacedOperand, multiplied, placed_operand

Tensors = Sequence[torch.Tensor]
Operand = ScaledArray | PlacedOperand
_OUTPUTS = (torch.float32, torch.bfloat16, torch.float16)
_BLOCKED = (B16, B32)
_TENSORS = ("fp8_tensor", "fp8_tensor_e5m2")  # schemes of one scale, whose products are in the plan book
_E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
_FOUR = 4
_ADDED = np.zeros(1, np.float32)  # stands for a bias, of which only the presence counts


def scaled_mm_v2(
    run: Emulation,
    name: str,
    a: Tensor,
    b: Tensor,
    scale_a: Tensors,
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Tensors,
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """Compute torch.nn.functional.scaled_mm."""
    if run.settings.check == "cuda":
        scales = list(scale_a), list(recipe_a), list(swizzle_a), list(scale_b), list(recipe_b), list(swizzle_b)
        given = (a, b, *scales, bias, out_dtype, list(contraction_dim), use_fast_accum)
        check_scaled(run.settings.capability, "meta_scaled_mm_v2", *given)
        check_bias(bias, out_dtype or a.dtype)
        check_fast(use_fast_accum, (*recipe_a, *recipe_b))
    scale_a, scale_b = _rows_first(scale_a, recipe_a), _rows_first(scale_b, recipe_b)
    x = operand(a, scale_a, recipe_a[0], bool(swizzle_a and swizzle_a[0]))
    y = operand(b.t(), scale_b, recipe_b[0], bool(swizzle_b and swizzle_b[0]))
    return product(run, name, x, y, bias, out_dtype or a.dtype, use_fast_accum, (recipe_a[0], recipe_b[0]))


def _rows_first(scales: Tensors, recipe: Sequence[int]) -> Tensors:
    """Scales of 128 x 128 come with those of k first."""
    return [scales[0].t(), *scales[1:]] if recipe[0] == B128 else scales


def scaled_mm(
    run: Emulation,
    name: str,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """torch._scaled_mm: the recipe follows from the dtypes and shapes of the scales. No results are fp8."""
    if run.settings.check == "cuda":
        given = (a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)
        check_scaled(run.settings.capability, "meta_scaled_mm", *given)
        check_bias(bias, out_dtype or a.dtype)
    if scale_result is not None:
        raise UnknownError("scaled results are not known")
    k = a.shape[1] * (2 if a.dtype is E2M1_PAIRS else 1)
    kinds = recipe_of(scale_a, (a.shape[0], k)), recipe_of(scale_b.t() if scale_b.dim() == 2 else scale_b, (b.shape[1], k))
    if run.settings.check == "cuda":
        check_fast(use_fast_accum, kinds)
    blocked = kinds[0] in _BLOCKED
    first, second = scale_a, scale_b
    if kinds[1] in (ROW, L128, B128):
        second = scale_b.t()
    if any(kind == B128 and not _in_fours(scales) for kind, scales in zip(kinds, (first, second), strict=True)):
        raise UnknownError("a GPU expects the 128 x 128 scales of each column to begin at a multiple of four k, and these do not")
    x = operand(a, [first], kinds[0], blocked)
    y = operand(b.t(), [second], kinds[1], blocked)
    return product(run, name, x, y, bias, out_dtype or a.dtype, use_fast_accum, kinds)


def _in_fours(scales: Tensor) -> bool:
    """Tell whether scales of 128 x 128 (outer, K / 128), K last, lie where a GPU reads them."""
    return 1 in scales.shape or scales.stride(0) == -(-scales.shape[1] // _FOUR) * _FOUR


def recipe_of(scales: Tensor, shape: tuple[int, int]) -> int:
    """The recipe of scales of an operand (outer, K), K last, as torch tells it."""
    rows, k = shape
    if scales.dtype is torch.float8_e8m0fnu:
        return B32
    if scales.dtype is torch.float8_e4m3fn:
        return B16
    if scales.numel() == 1:
        return TENSOR
    if tuple(scales.shape) == (rows, 1):
        return ROW
    return L128 if tuple(scales.shape) == (rows, -(-k // 128)) else B128


def operand(elements: Tensor, scales: Tensors, recipe: int, swizzled: bool) -> Operand:
    """An operand (outer, K), where its tensors lie."""
    return (placed_operand if on_gpu.resides(elements) else scaled_operand)(elements, scales, recipe, swizzled)


def product(
    run: Emulation, name: str, x: Operand, y: Operand, bias: Tensor | None, out: torch.dtype, fast: bool, kinds: tuple[int, int]
) -> Tensor:
    """The product of x (M, K) and y (N, K)."""
    if out not in _OUTPUTS:
        raise UnknownError(f"scaled products with results in {out} are not known")
    first, second = (each.described if isinstance(each, PlacedOperand) else each for each in (x, y))
    try:
        plan, status, how = _plan(run, first, second.T, out, fast and kinds[0] in (TENSOR, ROW), bias is not None)
    except (InstructionError, OperandError) as error:
        raise UnknownError(str(error)) from None
    if isinstance(x, PlacedOperand) and isinstance(y, PlacedOperand):
        result = multiplied(plan, x, y, out, bias)
    else:
        row = None if bias is None else to_numpy(bias)
        result = torch.empty((first.shape[0], second.shape[0]), dtype=out)  # its memory is torch's own, and stays resizable
        scaled_matmul(first, second.T, plan=plan, bias=row, out=as_numpy(result), threads=run.settings.threads)
    operation = plan.operation
    text = f"{first.scheme} {operands_text(first.elements)} x {second.scheme} {operands_text(second.T.elements)}"
    run.done(Line(name, status, text, f"{operation.instruction.opcode}; {how}", operation.arithmetic.evidence.level))
    return result


def _plan(run: Emulation, x: ScaledArray, y: ScaledArray, out: torch.dtype, fast: bool, biased: bool) -> tuple[AccumulationPlan, str, str]:
    """The plan of a scaled product, how well it is known, and why.

    Raises
    ------
    TargetError
        If only a known plan will do, and there is none.
    """
    settings = run.settings
    given: dict[str, Any] = {"target": settings.architecture, "out_dtype": DTYPES[out]}
    why = "one accumulator"
    if settings.library is not None:
        preset = f"{settings.library}-fast-accum" if fast else settings.library
        try:
            plan = scaled_plan(x, y, preset=preset, **given)
            if biased and not any("bias" in step for step in plan.epilogue):
                raise OperandError(f"preset {preset!r} is not known with a bias here")
            found = _cut(run, plan, x, y, preset, biased)
            if settings.other_workspace and found[1] == EMULATED:
                found = found[0], ASSUMED, f"{settings.other_workspace}; else {found[2]}"
            if found[1] == ASSUMED and settings.unknown == "error":
                raise TargetError(f"{found[2]}; unknown='one' takes it")
            return found
        except OperandError as error:
            of_cublas = target_of(settings.architecture).vendor == "NVIDIA"
            why = str(error) if of_cublas else unknown_plan(settings, scheme_of(x.scheme).element)
    plan = scaled_plan(x, y, **given)
    if settings.unknown == "error" and settings.library is not None:
        raise TargetError(f"{why}; unknown='one' takes the plan of fastmma.scaled_plan")
    if settings.strict and plan.operation.arithmetic.evidence.level == "reported":
        raise TargetError(f"{plan.instruction} on {settings.architecture} is only reported")
    return plan, ASSUMED, why


def _cut(
    run: Emulation, plan: AccumulationPlan, x: ScaledArray, y: ScaledArray, preset: str, biased: bool
) -> tuple[AccumulationPlan, str, str]:
    """Cut k as the library does where that is known of e4m3, or a rule says so."""
    gpu, k = library_gpu(run.settings.target), x.shape[1]
    if not set(plan.schemes) <= set(_TENSORS) or plan.target != "sm_90a":
        rule = rule_of(gpu, Scaled(plan.schemes, x.shape[0], k))
        return replace(plan, evidence=rule or plan.evidence), status_of(rule), str(rule or plan.evidence)
    first, second = (each.elements.view(_E4M3) for each in (x, y))
    given: dict[str, Any] = {"target": run.settings.target}
    mixed = any(each.elements.dtype != _E4M3 for each in (x, y))
    if run.settings.book is not None:
        return _cut_as_recorded(run.settings.book, plan, first, second, preset != run.settings.library, given | _bias(biased), mixed)
    try:
        own = gemm_plan(first, second, preset=preset, **given, **_bias(biased))
        plain = gemm_plan(first, second, preset=run.settings.library, **given)
    except FastmmaError:
        return plan, ASSUMED, str(plan.evidence)
    evidence, parts = own.evidence, own.split_k
    if mixed or evidence is None or not evidence.is_known:
        known = alike(gpu, plain.evidence, k)
        if known is not None:
            evidence, parts = known, plain.split_k
        elif mixed and evidence is not None and evidence.is_known:
            evidence = OrderEvidence("assumed", f"as e4m3, which is {evidence}")
    evidence = None if evidence is None else replace(evidence, choices=())  # of another plan
    return replace(plan, split_k=parts, evidence=evidence), status_of(evidence), str(evidence)


def _bias(biased: bool) -> dict[str, Any]:
    return {"bias": _ADDED} if biased else {}


def _cut_as_recorded(
    book: str | Path, plan: AccumulationPlan, a: Any, b: Any, fast: bool, given: dict[str, Any], mixed: bool
) -> tuple[AccumulationPlan, str, str]:
    """Cut k as the caller's file of plans has it; of e4m3 alone."""
    try:
        own = cublas.plan(a, b, plans=book, use_fast_accum=fast, out_dtype=plan.out or "f32", **given)
    except OperandError as error:
        return plan, ASSUMED, str(error)
    if mixed or own.evidence is None or not isinstance(own, GemmPlan):
        return plan, ASSUMED, f"as e4m3, which is {own.evidence}"
    evidence = replace(own.evidence, choices=())  # of another plan
    return replace(plan, split_k=own.split_k, evidence=evidence), status_of(evidence), str(evidence)
