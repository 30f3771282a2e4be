"""From a known choice to the plan of its kernel: the row of the table, its order, its epilogue, and its evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from fastmma.isa.scalar import OPCODE as FMA
from fastmma.isa.table import multiply
from fastmma.products.cublas.find_row import find_row_as_computed
from fastmma.products.cublas.look_up import Known
from fastmma.products.cublas.rows import LaneRow, Product, TileRow
from fastmma.products.cublas.tile_order import tile_order
from fastmma.products.evidence import OrderEvidence
from fastmma.products.gemm_choice import EpilogueInputs, epilogue_steps
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.keywords import Choices
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.library_order import KernelEpilogue
from fastmma.products.presets import KERNEL_EPILOGUES


class Call(NamedTuple):
    """A call of `plan`: what a choice is followed for."""

    product: Product
    given: EpilogueInputs
    activation: str | None
    fast: bool
    target: str


def follow(known: Known, call: Call) -> GemmPlan | LanesPlan:
    """Follow a choice."""
    row, product = find_row_as_computed(known.table, known.choice, call.product)
    call = call._replace(product=product)
    return _lanes(row, known, call) if isinstance(row, LaneRow) else _tiles(row, known, call)


def _evidence(row: TileRow | LaneRow, known: Known, call: Call) -> OrderEvidence:
    table = known.table
    if known.evidence is not None:
        return known.evidence
    source = f"cuBLASLt {table.version} on {table.gpu}{known.says} {known.choice}, for {call.product}"
    unsaid = isinstance(row, TileRow) and row.segments is not None and known.choice.split_k < 1
    rate = table.segments.get(row.algo) if unsaid else table.rates.get((row.algo, call.product.fmt))
    return OrderEvidence("fitted", source, rate) if rate else OrderEvidence("assumed", f"{source}; {table.source}")


def _steps(ins: Any, kind: KernelEpilogue, known: Known, call: Call) -> tuple[tuple[str, ...], str]:
    """Find the steps of an epilogue, and the format of the result."""
    kind = kind.with_bias_as_c() if known.adds_bias_as_c else kind
    choices = Choices(activation=call.activation, out_dtype=call.product.out, preset="cublas")
    return epilogue_steps(ins, call.given, choices, kind, "plan")


def _lanes(row: LaneRow, known: Known, call: Call) -> LanesPlan:
    product, count = call.product, known.choice.parts if row.counts else 1
    lanes = replace(row.lanes, blocks=count) if row.counts == "blocks" else replace(row.lanes, parts=count)
    scaled = row.scaled if count == 1 and call.given.alpha else ""
    ending = call._replace(given=call.given._replace(alpha=False)) if scaled else call
    steps, out = _steps(multiply(FMA), KERNEL_EPILOGUES[row.ends if count == 1 else row.split_ends], known, ending)
    operand = ("a" if product.m == 1 else "b") if scaled == "vector" else scaled
    return LanesPlan(call.target, FMA, lanes, product.fmt, steps, out, operand, evidence=_evidence(row, known, call))


def _tiles(row: TileRow, known: Known, call: Call) -> GemmPlan:
    biased = call.given.bias and not known.adds_bias_as_c
    order = tile_order(row, known.choice, call.product, call.target, fast=call.fast, biased=biased)
    steps, out = _steps(multiply(order.opcode), order.ends, known, call)
    fields = {name: value for name, value in order._asdict().items() if name not in ("opcode", "ends")}
    return GemmPlan(call.target, order.opcode, epilogue=steps, out=out, evidence=_evidence(row, known, call), **fields)
