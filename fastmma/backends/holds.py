"""The arithmetics and operands that each kernel computes, as texts and as tests of a problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from fastmma.backends.call import Operation
from fastmma.backends.cdna import in_exact_lanes, in_window_lanes
from fastmma.backends.parameters import (
    element_of,
    element_specs,
    fused_parameters,
    general_parameters,
    holds,
    in_exact_sums,
    in_kernels,
    in_windows,
    scaled_parameters,
)
from fastmma.backends.problem import Problem
from fastmma.backends.quantities import in_place_bytes, is_turned

if TYPE_CHECKING:
    from fastmma.kernels.fused.batch import Blocks, RegisterBlocks


class Holds(NamedTuple):
    """The arithmetics and operands that a kernel computes: a text, and a test of a problem."""

    text: str
    test: Callable[[Problem], bool]


@lru_cache(1024)
def blocks_of(operation: Operation, rows: int, columns: int, depth: int, usable: frozenset[str]) -> Blocks | None:  # noqa: ARG001 - a key
    """Find what multiplies batches of matrices of this shape."""
    from fastmma.kernels.fused import batch

    return batch.blocks(fused_parameters(operation), element_specs(operation), rows, columns, depth)


@lru_cache(1024)
def register_blocks_of(operation: Operation, usable: frozenset[str]) -> RegisterBlocks | None:  # noqa: ARG001 - a key
    """Find what multiplies matrices in the registers of warps."""
    from fastmma.kernels.fused import batch

    a, b, c, d = (operation.instruction.operands[name].layout for name in "abcd")
    orders = batch.Orders(a.inverse[0], b.inverse[0], c.inverse[0], d.offsets)
    return batch.register_blocks(fused_parameters(operation), element_specs(operation), orders)


@cache
def cpu() -> ModuleType:
    """Import what kernels are compiled for. It takes long the first time, and to import it again takes a part of a small product."""
    from fastmma.kernels.llvm import cpu

    return cpu


def portable_only() -> bool:
    """Say whether only portable kernels are allowed."""
    return bool(cpu().portable())


def _in_blocks(problem: Problem) -> bool:
    _, rows, columns, depth = problem.extents
    operation = problem.operation
    return holds(operation) and blocks_of(operation, rows, columns, depth, cpu().usable()) is not None


def _is_plain(operation: Operation) -> bool:
    """Tell whether a GPU's arithmetic multiplies all elements in the order of k, and keeps sums in f32."""
    ins = operation.instruction
    plain = not operation.own and not operation.arithmetic.interleave and not ins.sparse and not ins.scale_vec_size
    return plain and ins.ctype == ins.dtype == ins.accumulator == "f32"


def _of_form(problem: Problem) -> bool:
    operation = problem.operation
    return _is_plain(operation) and not (problem.starts and fused_parameters(operation).split) and _in_blocks(problem)


def _panels_of_form(problem: Problem) -> bool:
    operation = problem.operation
    others = problem.starts or is_turned(problem) or operation.arithmetic.widened  # which `panels` do
    return _is_plain(operation) and not others and _in_lanes(problem)


def _bytes_of_form(problem: Problem) -> bool:
    operation, ins = problem.operation, problem.operation.instruction
    plain = not ins.sparse and not ins.satfinite and not operation.own
    alike = all(fmt.bits == 8 for fmt in (ins.formats.a, ins.formats.b))
    return plain and alike and 1 in problem.strides.a[1:] and 1 in problem.strides.b[1:]


def _wraps(problem: Problem) -> bool:
    """Tell whether no sum is clamped: by the instruction, or since none can leave int32."""
    ins = problem.operation.instruction
    largest = (1 << fmt.bits - (fmt.kind != "unsigned") for fmt in (ins.formats.a, ins.formats.b))
    return not ins.satfinite or (not problem.starts and problem.extents.depth * math.prod(largest) < 1 << 31)


def _in_lanes(problem: Problem) -> bool:
    from fastmma.kernels.fused import packed

    return holds(problem.operation) and packed.supported(fused_parameters(problem.operation))


def _in_place(problem: Problem) -> bool:
    """Check the strides of the operand that is read where it is."""
    if problem.operation.arithmetic.widened or not _in_lanes(problem):
        return False
    strides = (problem.strides.a if is_turned(problem) else problem.strides.b)[1:]
    return in_place_bytes(problem) in strides and min(strides) > 0


def _widened(problem: Problem) -> bool:
    return bool(problem.operation.arithmetic.widened) and _in_lanes(problem)


def _in_halves(problem: Problem) -> bool:
    from fastmma.kernels.fused import packed

    if not holds(problem.operation):
        return False
    parameters = fused_parameters(problem.operation)
    return parameters.split > 0 and packed.promotes(parameters._replace(split=0), problem.operation.instruction.k)


def _sparse(problem: Problem) -> bool:
    from fastmma.kernels.fused import packed

    operation, ins = problem.operation, problem.operation.instruction
    plain = not operation.arithmetic.interleave and ins.ctype == ins.dtype == ins.accumulator
    if not plain or not holds(operation):
        return False
    parameters = fused_parameters(operation)
    multiplied = parameters._replace(split=0)
    return packed.supports_sparse(multiplied) and (not parameters.split or packed.promotes(multiplied, ins.k))


def _promoted(problem: Problem) -> bool:
    from fastmma.kernels.fused import packed

    operation = problem.operation
    dense = not problem.stored and not operation.arithmetic.interleave
    return dense and holds(operation) and packed.promotes(fused_parameters(operation), problem.promoted)


def _in_registers(problem: Problem) -> bool:
    operation, ins = problem.operation, problem.operation.instruction
    layouts = [ins.operands[name].layout for name in "abcd"]
    formats = ins.formats.a, ins.formats.b, ins.formats.c, ins.formats.d
    alike = all(layout.tiles == 1 and layout.bits == fmt.bits for layout, fmt in zip(layouts, formats, strict=True))
    kept = {ins.ctype, ins.dtype} == {ins.accumulator}
    dense = not (portable_only() or ins.sparse or ins.stype or operation.arithmetic.interleave)
    return dense and alike and kept and holds(operation) and register_blocks_of(operation, cpu().usable()) is not None


def _tiles_of_groups(problem: Problem) -> bool:
    from fastmma.kernels.scaled import group_tiles

    return holds(problem.operation) and group_tiles.group_tiles(scaled_parameters(problem.operation), *problem.extents[1:]) is not None


def _tiles_of_scales(problem: Problem) -> bool:
    from fastmma.kernels.scaled import tiles

    return holds(problem.operation) and tiles.scaled_tiles(scaled_parameters(problem.operation), *problem.extents[1:]) is not None


def _groups(problem: Problem) -> bool:
    from fastmma.kernels.scaled import groups

    return holds(problem.operation) and groups.supported(scaled_parameters(problem.operation))


def _groups_on_amx(problem: Problem) -> bool:
    from fastmma.kernels.scaled import amx_groups

    return holds(problem.operation) and amx_groups.supported(scaled_parameters(problem.operation))


def _scaled_panels(problem: Problem) -> bool:
    from fastmma.kernels.scaled import products

    return holds(problem.operation) and products.supported(scaled_parameters(problem.operation))


def _in_window(problem: Problem) -> bool:
    from fastmma.kernels.general import products

    operation = problem.operation
    a, b = (element_of(fmt) for fmt in operation.multiplied)
    return in_kernels(operation.arithmetic) and products.fits_window(general_parameters(operation), a, b)


def _in_step_lanes(problem: Problem) -> bool:
    return not portable_only() and in_window_lanes(problem.operation)


def _in_exact_step_lanes(problem: Problem) -> bool:
    return not portable_only() and in_exact_lanes(problem.operation)


def _unknown(problem: Problem) -> bool:
    operation = problem.operation
    return not (in_kernels(operation.arithmetic) or in_windows(operation) or in_exact_sums(operation))


BLOCKS = Holds("1 <= K <= 4096, steps that fill units of 8 to 64 k, sums exact in float lanes", _in_blocks)
FORM = Holds("f32 sums of a GPU's arithmetic, in blocks", _of_form)
PANELS_OF_FORM = Holds("f32 sums of a GPU's arithmetic from zero, of codes as they are multiplied, in panels", _panels_of_form)
BYTES = Holds("8-bit integers with adjacent rows or columns, sums that wrap", _bytes_of_form)
WRAPPED = Holds("sums that wrap, or cannot leave int32", _wraps)
STEPS_OF_ONE = Holds("one k an instruction", lambda problem: problem.operation.instruction.k == 1)
REGISTERS = Holds("dense, of whole blocks, C and D as sums are kept", _in_registers)
SPARSE = Holds("f32 sums of at least 16 products a step, which lose no bits at a step's start", _sparse)
IN_PLACE = Holds("codes as they are multiplied, rows or columns of B adjacent, sums exact in float lanes", _in_place)
WIDENED = Holds("codes that are widened, sums exact in float lanes", _widened)
LANES = Holds("sums exact in float lanes", _in_lanes)
HALVES = Holds("sums of an instruction that start at zero and join c, exact in float lanes", _in_halves)
SCALED_TILES = Holds("ue8m0, tiles that fit blocks", _tiles_of_scales)
GROUP_TILES = Holds("groups of e2m1, tiles of 8 columns", _tiles_of_groups)
GROUPS = Holds("groups of e2m1 with 35 alignment bits", _groups)
GROUPS_ON_AMX = Holds("groups of e2m1 with 35 alignment bits, steps of 64 or 128 k", _groups_on_amx)
SCALED_PANELS = Holds("ue8m0, sums exact in float lanes", _scaled_panels)
PROMOTED = Holds("dense, whole steps a sum, which is f32 and exact in float lanes", _promoted)
WINDOW = Holds("steps of which c is a term, nothing rounded down, nothing flushed, aligned sums of 64 bits", _in_window)
ENVELOPE = Holds("arithmetics in kernels/envelopes.py", lambda problem: holds(problem.operation))
GENERAL = Holds(
    "steps of which c is a term, nothing rounded down, nothing flushed", lambda problem: in_kernels(problem.operation.arithmetic)
)
WINDOWS = Holds("f32 sums to nearest that c joins", lambda problem: in_windows(problem.operation))
STEP_LANES = Holds("f32 sums to nearest that c joins, as CDNA3 has them", _in_step_lanes)
EXACT_STEP_LANES = Holds("f32 sums to nearest of 2 or 4 products and c", _in_exact_step_lanes)
EXACT_SUMS = Holds("f32 sums to nearest of at most 4 products and c", lambda problem: in_exact_sums(problem.operation))
REFERENCE = Holds("what no kernel knows", _unknown)
NEAREST = Holds("rounding to nearest", lambda problem: problem.operation.instruction.rounding == "rn")
ALL = Holds("all", lambda _: True)
