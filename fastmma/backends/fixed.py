"""Small products whose shapes and strides are known beforehand, where a compiled kernel computes them at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fastmma.backends import route
from fastmma.backends.call import Codes, Operation
from fastmma.backends.holds import blocks_of, cpu
from fastmma.backends.parameters import fused_parameters, scaled_parameters
from fastmma.backends.problem import Extents, Problem, Strides
from fastmma.kernels.params import PartsOfK, Scaled

if TYPE_CHECKING:
    from fastmma.kernels.scaled.lines import ScaledOperands
    from fastmma.kernels.sums.epilogue import EpilogueForm


class Form(NamedTuple):
    """Shapes of products, and strides in bytes of a (products, M, K) and b (products, K, N)."""

    products: int
    rows: int
    columns: int
    depth: int
    a: tuple[int, int, int]
    b: tuple[int, int, int]
    start: bool  # whether sums start from f32 numbers (products, M, N), C-contiguous
    parts: PartsOfK | None = None  # where k is cut


class Fixed(Protocol):
    """A product of which all but addresses is known."""

    def __call__(self, a: Any, b: Any, out: int, start: Any = None, addend: int = 0) -> bool:
        """Write the products to an address; False where one is out of reach. `a`, `b` and `start` are arrays or addresses."""


def fixed_product(operation: Operation, form: Form, epilogue: EpilogueForm | None, threads: int) -> Fixed | None:
    """Find what computes products of this form, or None where no kernel does it in one go."""
    extents = Extents(form.products, form.rows, form.columns, form.depth)
    ins = operation.instruction
    scaled, stored, finished = bool(ins.scale_vec_size), bool(ins.sparse), epilogue is not None
    parts = 1 if form.parts is None else len(form.parts.stops)
    problem = Problem(operation, extents, Strides(form.a, form.b), form.start, scaled, stored, finished=finished, parts=parts)
    fit = (name for name in _KERNELS if not route.refusal(route.row_named(name).row, problem, threads, "forms"))
    return next((_KERNELS[name](problem, form, epilogue) for name in fit), None)


class FixedScaled(Protocol):
    """A product of block-scaled matrices from zero, whose sums are multiplied by a number."""

    def __call__(self, a: Codes, b: Codes, scale_a: Codes, scale_b: Codes, out: Codes, factor: np.float32) -> bool:
        """Write the product to `out`; False where it is out of reach, and `out` is anything. Codes may have any types of one byte."""


@lru_cache(256)
def fixed_scaled(operation: Operation, shape: tuple[int, int, int], threads: int, usable: frozenset[str]) -> FixedScaled | None:  # noqa: ARG001
    """Find what computes products of a shape (M, N, K) on a CPU of these features, or None where no kernel does it in one go."""
    problem = Problem(operation, Extents(1, *shape), Strides((), ()), False, True, False)
    fit = [name for name in _SCALED if not operation.own and not route.refusal(route.row_named(name).row, problem, threads, "forms")]
    if not fit:
        return None
    from fastmma.kernels.scaled import lines

    kernels = [_SCALED[name](scaled_parameters(operation), shape) for name in fit]

    def multiply(a: Codes, b: Codes, scale_a: Codes, scale_b: Codes, out: Codes, factor: np.float32) -> bool:
        operands = lines.ScaledOperands(a, b, None, out, scale_a, scale_b)
        return any(kernel(operands, factor) for kernel in kernels)

    return multiply


def _small_groups(p: Scaled, _shape: tuple[int, int, int]) -> Callable[[ScaledOperands, np.float32], bool]:
    from fastmma.kernels.scaled import lines, small_groups

    def multiply(operands: ScaledOperands, factor: np.float32) -> bool:
        """Compiled code knows codes by their type."""
        a, b, scale_a, scale_b = (each.view(np.uint8) for each in (operands.a, operands.b, operands.scale_a, operands.scale_b))
        return small_groups.multiply(p, lines.ScaledOperands(a, b, None, operands.out.view(np.uint32), scale_a, scale_b), factor)

    return multiply


def _small_groups_on_amx(p: Scaled, shape: tuple[int, int, int]) -> Callable[[ScaledOperands, np.float32], bool]:
    from fastmma.kernels.scaled import amx_small_groups

    return amx_small_groups.FixedGroups(p, shape)


# tried one after the other: a kernel says whether operands are within its reach
_SCALED = {"groups on AMX of a form": _small_groups_on_amx, "groups of a form": _small_groups}


def _blocks(problem: Problem, form: Form, epilogue: EpilogueForm | None) -> Fixed:
    from fastmma.kernels.fused import batch, fixed

    found = blocks_of(problem.operation, form.rows, form.columns, form.depth, cpu().usable())
    assert found is not None
    sums = (4 * form.rows * form.columns, 4 * form.columns, 4)
    loop = batch.loop_of(found.config, form.rows, form.columns, form.depth, form.a, form.b, sums if form.start else None, sums)
    return fixed.FixedProduct(loop, form.products, epilogue)


def _panels(problem: Problem, form: Form, epilogue: EpilogueForm | None) -> Fixed:
    from fastmma.kernels.fused import fixed_panels

    panels = fixed_panels.PanelForm(form.rows, form.columns, form.depth, form.a[1:], form.b[1:])
    return fixed_panels.FixedPanels(fused_parameters(problem.operation), panels, epilogue)


def _bytes(problem: Problem, form: Form, _epilogue: EpilogueForm | None) -> Fixed:
    """Make a product of bytes whose sums wrap."""
    from fastmma.kernels.integer import int8

    formats = problem.operation.instruction.formats
    kinds = "u" if formats.a.kind == "unsigned" else "i", "u" if formats.b.kind == "unsigned" else "i"
    return int8.fixed(kinds, form[1:4], form.a[1:], form.b[1:], form.start)


def _bytes_on_amx(problem: Problem, form: Form, _epilogue: EpilogueForm | None) -> Fixed:
    """Make a product of bytes whose sums wrap, on AMX."""
    from fastmma.kernels.integer import amx, amx_kernel

    formats = problem.operation.instruction.formats
    config = amx_kernel.AmxConfig(formats.a.kind != "unsigned", formats.b.kind != "unsigned")
    return amx.FixedBytes(config, form[1:4], form.a[1:], form.b[1:], start=form.start)


def _chains(_problem: Problem, form: Form, epilogue: EpilogueForm | None) -> Fixed:
    from fastmma.kernels.fma import fixed

    parts = form.parts or PartsOfK(tuple(range(form.depth)), (form.depth,), ())
    return fixed.FixedChains(fixed.ChainForm(form.products, form.rows, form.columns, form.a, form.b, parts), epilogue)


_KERNELS: dict[str, Callable[[Problem, Form, EpilogueForm | None], Fixed]] = {
    "panels of a form": _panels,
    "blocks of a form": _blocks,
    "bytes on AMX of a form": _bytes_on_amx,
    "bytes of a form": _bytes,
    "chains of a form": _chains,
}
