"""Plans of torch's products: what cuBLAS does where that is known, and what is assumed elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from fastmma.host.errors import InstructionError, OperandError, TargetError
from fastmma.isa.targets import target_of
from fastmma.products import cublas
from fastmma.products.bound import Strided
from fastmma.products.choice import default_instruction
from fastmma.products.evidence import OrderEvidence
from fastmma.products.gemm_choice import gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.library_gpu import library_gpu
from fastmma.products.order import WORKSPACE
from fastmma.torch.arrays import DTYPES
from fastmma.torch.report import ASSUMED, EMULATED
from fastmma.torch.settings import USUAL, Modes, Settings

# torch's dtypes that cuBLAS multiplies on tensor cores, and the formats that they are multiplied in
FORMATS = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "tf32", torch.int8: "s8"}

# of vendors whose libraries are others than the one that a caller names
_LIBRARIES = {"AMD": "rocBLAS or hipBLASLt"}


class UnknownError(Exception):
    """The reason why a call has no bits that are known; what becomes of it is up to the settings."""


class InvalidError(Exception):
    """The call is one that torch refuses, with an error of its own."""


class Epilogue(NamedTuple):
    """The result and the inputs of the epilogue of a product."""

    out: torch.dtype
    c: bool = False
    bias: bool = False
    alpha: float = 1.0
    beta: float = 1.0
    grouped: bool = False  # by torch's kernel for groups of matrices
    activation: str | None = None
    row: bool = False  # whether c is one row, which torch adds by cuBLASLt as it adds a bias
    aligned: bool = True  # whether a and b begin at multiples of 16 bytes, as every recorded operand does


class Planned(NamedTuple):
    """A plan, and how well it is known to be the library's."""

    plan: GemmPlan | LanesPlan
    status: str
    how: str


def planned(settings: Settings, a: Strided, b: Strided, dtype: torch.dtype, epilogue: Epilogue, modes: Modes) -> Planned:
    """The plan of a product of matrices, or of stacks of them.

    Parameters
    ----------
    settings : Settings
    a, b : Strided (..., M, K) and (..., K, N)
    dtype : torch.dtype
        Of both operands.
    epilogue : Epilogue
    modes : Modes

    Raises
    ------
    UnknownError
        If nobody knows.
    """
    if dtype not in FORMATS:
        raise UnknownError(f"no product of {dtype} in a library is known")
    given: dict[str, Any] = {"target": settings.target, "out_dtype": None if dtype is torch.int8 else DTYPES[epilogue.out]}
    if dtype is torch.float32:
        given |= {"instruction": _tf32(settings.architecture), "cast": True}
    if modes.half_sums:
        given |= {"accumulator": "f16"}
    given |= epilogue_options(epilogue)
    if a.ndim == 3 and a.shape[0] == 1:  # a stack of one is multiplied as its matrices are
        a, b = a.matrix, b.matrix
    said = settings.said(a.shape[-2], b.shape[-1], a.shape[-1])
    try:
        if not a.shape[-1]:
            return Planned(gemm_plan(a, b, **given), EMULATED, "no k")
        if settings.library and said is None:
            _refuse(modes)
            if modes.half_sums:
                return _summed_in_half(settings, a, b, epilogue, modes)
        found = _of_library(settings, a, b, dtype, epilogue, given) if settings.library and not modes.half_sums else None
        if found is None:
            how = "one accumulator" if settings.library is None or modes.half_sums else unknown_plan(settings, FORMATS[dtype])
            found = Planned(gemm_plan(a, b, **given), ASSUMED, how)
    except (InstructionError, TargetError, OperandError) as error:
        raise UnknownError(str(error)) from None
    if not modes.narrow_joins and settings.library is not None and said is None:
        return checked(settings, _joined_wide(settings, a, b, epilogue, modes, found))
    if found.status == ASSUMED and epilogue.activation:
        raise UnknownError(f"what cuBLASLt chooses with {epilogue.activation} is not known here")
    if found.status == ASSUMED and said is None and settings.library is not None and not epilogue.grouped:
        chosen = by_choice(settings, a, b, epilogue)
        if chosen is not None and isinstance(chosen.plan, LanesPlan):
            return checked(settings, chosen)
        found = chosen or found
    return checked(settings, _chosen(found, said))


def _refuse(modes: Modes) -> None:
    """Raise UnknownError where torch's settings make a library take kernels in orders that are not known."""
    if not modes.split_k:
        raise UnknownError("without split-k, torch refuses most products on a GPU, and the order of others is not known")


def _summed_in_half(settings: Settings, a: Strided, b: Strided, epilogue: Epilogue, modes: Modes) -> Planned:
    """Plan a product of float16 that is summed in float16; raise UnknownError where what the library chooses is not known.

    Nothing is recorded of them but answers, and one of 131 fresh calls at the surest leaves had other bits: they are assumed.
    """
    found = by_choice(settings, a, b, epilogue, modes)
    if found is None:
        raise UnknownError("cuBLAS sums float16 products in float16 by kernels of mma, in parts of k that are not known here")
    return checked(settings, found._replace(status=ASSUMED))


def _joined_wide(settings: Settings, a: Strided, b: Strided, epilogue: Epilogue, modes: Modes, found: Planned) -> Planned:
    """Take the plan where torch lets the library join parts of k in float32 alone; `found` is that with all joins."""
    plan = found.plan
    if found.status == EMULATED and isinstance(plan, GemmPlan):
        alike = plan.operation.instruction.op == "wgmma" or plan.split_k == 1 or plan.out not in ("f16", "bf16")
        rate = _WIDE.get(library_gpu(settings.target))
        if alike and rate:
            return Planned(plan, EMULATED, f"{found.how}; {OrderEvidence('fitted', _WIDE_RULE, rate)}")
    chosen = None if epilogue.grouped else by_choice(settings, a, b, epilogue, modes)
    if chosen is not None:
        return chosen
    if epilogue.activation:
        raise UnknownError(f"what cuBLASLt chooses with {epilogue.activation} is not known here")
    if isinstance(plan, GemmPlan) and plan.join == WORKSPACE:
        plan = replace(plan, join="ascending", join_dtype="")
    how = found.how if found.status == ASSUMED else f"no plan without reduced-precision reductions is recorded; with them, {found.how}"
    return Planned(plan, ASSUMED, how)


def by_choice(settings: Settings, a: Strided, b: Strided, epilogue: Epilogue, modes: Modes = USUAL, *, tf32: bool = True) -> Planned | None:
    """The plan of the kernel that the library chose for matrices like these when it was asked; None where it was not, or no plan has it."""
    other = modes.half_sums or not modes.narrow_joins
    if settings.library is None or not epilogue.aligned or (a.ndim != 2 and tf32 and settings.book is None and not other):
        return None
    given = epilogue_options(epilogue) | {"reduced_precision_reduction": modes.narrow_joins}
    given |= {"accumulator": "f16"} if modes.half_sums else {}
    try:
        plan = cublas.plan(a, b, target=settings.target, out_dtype=DTYPES[epilogue.out], tf32=tf32, plans=settings.book, **given)
    except OperandError:
        return None
    return Planned(plan, status_of(plan.evidence), str(plan.evidence))


ALIGNED = 16  # bytes, of every recorded operand
# fresh products by GPU that had every bit: of torch's kernel for groups of bfloat16 matrices, which is CUTLASS's
_GROUPED = {"H200": (440, 440), "H100": (4, 4)}
_GROUPED_RULE = "torch's kernel for groups of bfloat16 matrices has one accumulator, k ascending"
# and of plans of wgmma, of one part of k and of results in float32, where torch forbids joins in 16 bits
_WIDE = {"H200": (455, 455)}
_WIDE_RULE = "wgmma, one part of k and results in float32 are alike without reduced-precision reductions"
# stand for an addend where only its presence counts, or that it is one row
_ADDED, _ROW = np.zeros(1, np.float32), np.zeros((1, 1), np.float32)


def epilogue_options(epilogue: Epilogue) -> dict[str, Any]:
    """Return the inputs of an epilogue as arguments of `gemm_plan`."""
    given: dict[str, Any] = {"alpha": float(epilogue.alpha)}
    given |= {"bias": _ADDED} if epilogue.bias else {}
    given |= {"activation": epilogue.activation} if epilogue.activation else {}
    return given | ({"c": _ROW if epilogue.row else _ADDED, "beta": epilogue.beta} if epilogue.c else {})


@lru_cache(64)
def _tf32(target: str) -> str:
    return default_instruction("tf32", "tf32", None, target).opcode


def unknown_plan(settings: Settings, fmt: str) -> str:
    """Say that nobody knows a library's plan of a format's products."""
    library = _LIBRARIES.get(target_of(settings.architecture).vendor, settings.library)
    return f"no plan of {library} for {fmt} on {settings.architecture} is known"


def _of_library(
    settings: Settings, a: Strided, b: Strided, dtype: torch.dtype, epilogue: Epilogue, given: dict[str, Any]
) -> Planned | None:
    """The library's plan; None where it is not known that it has one."""
    if dtype is torch.int8:  # sums are exact in any order
        return Planned(gemm_plan(a, b, **given), EMULATED, "exact sums")
    if epilogue.grouped and settings.architecture == "sm_90a":
        rate = _GROUPED.get(library_gpu(settings.target))
        evidence = OrderEvidence("fitted" if rate else "assumed", _GROUPED_RULE, rate)
        return Planned(gemm_plan(a, b, **given), status_of(evidence), str(evidence))
    if settings.book is not None:
        return by_choice(settings, a, b, epilogue)
    try:
        plan = gemm_plan(a, b, **given, preset=settings.library)
    except OperandError:
        return None
    if not epilogue.aligned:
        return Planned(plan, ASSUMED, f"operands at addresses that are no multiples of {ALIGNED}; else {plan.evidence}")
    return Planned(plan, status_of(plan.evidence), str(plan.evidence))


def status_of(evidence: OrderEvidence | None) -> str:
    """Tell what a report calls a product whose order is known so well."""
    return EMULATED if evidence is not None and evidence.is_known else ASSUMED


def _chosen(found: Planned, said: int | GemmPlan | None) -> Planned:
    """The plan with what the caller knows of the shape."""
    if said is None or not isinstance(found.plan, GemmPlan):
        return found
    return Planned(said if isinstance(said, GemmPlan) else replace(found.plan, split_k=said), EMULATED, "as the caller's plans say")


def checked(settings: Settings, found: Planned) -> Planned:
    """The plan, unless the settings refuse what is only assumed, or reported."""
    if found.status == ASSUMED and settings.unknown == "error" and settings.library is not None:
        raise TargetError(f"{found.how}; unknown='one' takes one part of k")
    evidence = found.plan.operation.arithmetic.evidence
    if settings.strict and evidence.level == "reported":
        raise TargetError(f"{found.plan.instruction} on {settings.architecture} is only reported: {evidence}")
    return found
