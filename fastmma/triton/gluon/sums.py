"""Additions of floats, with the products that the compiler fuses into them; and sums along axes in the order of the threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.contraction import COMPARED, OTHER, PRODUCT, QUOTIENT, SUM, Contractions, Origin
from fastmma.triton.extrema import reduce_to_extremum
from fastmma.triton.formats import canonicalise_nan
from fastmma.triton.gluon.control import prepare
from fastmma.triton.gluon.kernel import Kernel, Step
from fastmma.triton.gluon.layouts import find_owners
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.program import Partition, Values
from fastmma.triton.gluon.tensors import integer
from fastmma.triton.numbers import fused
from fastmma.triton.ptx import EXCHANGED, Program, Sites
from fastmma.triton.reductions import IN_REGISTERS, summed

_KINDS = {"arith.mulf": PRODUCT, "arith.divf": QUOTIENT, "arith.addf": SUM, "arith.subf": SUM}
_SPREADING = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans")
_OPAQUE = ("ttg.", "ttng.", "scf.", "tt.reduce", "tt.scan", "tt.dot", "tt.atomic", "tt.call", "tt.gather", "tt.histogram")


@dataclass
class Trace:
    """The origins of values, read off the operations that define them."""

    kernel: Kernel

    @cached_property
    def contractions(self) -> Contractions:
        """The additions of the machine code."""
        return Contractions(Program.read_from(self.kernel.ptx()))

    def spread(self, number: int) -> tuple[Operation | None, list[Operation]]:
        """Return what computes a value, and the operations that spread it since."""
        one, path = self.kernel.definitions.get(number), []
        while one is not None and one.name in _SPREADING:
            path.append(one)
            one = self.kernel.definitions.get(one.operands[0])
        return one, path

    def sites(self, one: Operation) -> Sites:
        """Return the calls that lead to an operation, outermost first."""
        return tuple(reversed(self.kernel.module.find_places(one.place)))

    def loads(self, number: int, seen: dict[int, frozenset[Sites]]) -> frozenset[Sites]:
        """List the places of the loads behind a value."""
        if number not in seen:
            one = self.kernel.definitions.get(number)
            if one is None:
                seen[number] = frozenset({EXCHANGED}) if number in self.kernel.carried else frozenset()
            elif one.name == "tt.load":
                seen[number] = frozenset({self.sites(one)})
            elif one.name.startswith(_OPAQUE):
                seen[number] = frozenset({EXCHANGED})
            else:
                operands = one.operands[1:] if one.name == "arith.select" else one.operands
                seen[number] = frozenset().union(*(self.loads(operand, seen) for operand in operands))
        return seen[number]

    def origin(self, number: int) -> Origin:
        """Say what a value is, as far as additions ask."""
        one, _ = self.spread(number)
        loads = self.loads(number, {})
        kind = _KINDS.get(one.name, OTHER) if one is not None else OTHER
        if one is None or kind not in (PRODUCT, QUOTIENT):
            return Origin(kind, loads)
        constants = [found for operand in one.operands if (found := self.kernel.find_constant(operand)) is not None]
        return Origin(kind, loads, len(set(one.operands)) == 1, constants[0] if constants and kind == PRODUCT else None)


def _factors(trace: Trace, number: int) -> Callable[[Values], tuple[Any, Any]] | None:
    """Return what finds the factors of a product, spread as it is; None where a value is none."""
    one, path = trace.spread(number)
    if one is None or one.name != "arith.mulf":
        return None
    unseen = replace(trace.kernel, recorders=[])  # what was spread once is not counted again
    steps = [unseen.makers[spreading.name](spreading, unseen) for spreading in reversed(path)]
    first, second = one.operands

    def find(values: Values) -> tuple[Any, Any]:
        found = []
        for operand in (first, second):
            scratch: Any = {one.results[0]: values[operand]}
            for step in steps:
                step(None, scratch)  # type: ignore[arg-type]
            found.append(scratch[path[0].results[0]] if path else values[operand])
        return found[0], found[1]

    return find


def _make_addition(one: Operation, kernel: Kernel) -> Step:
    sign, name = (1, "+") if one.name == "arith.addf" else (-1, "-")
    (x, y), result = one.operands, one.results[0]
    trace = kernel.trace = kernel.trace or Trace(kernel)
    factors = [_factors(trace, number) for number in (x, y)] if kernel.run.fuses else [None, None]
    recorder = kernel.recorder(one)
    chosen: int | None = -1
    if any(factors):
        chosen = trace.contractions.find_fused_operand(trace.sites(one), trace.origin(x), trace.origin(y))
    unclear = chosen is None
    index = next((place for place, found in enumerate(factors) if found), -1) if chosen is None else chosen
    if index >= 0 and factors[index] is None:
        index, unclear = -1, True
    find = factors[index] if index >= 0 else None

    def tell() -> None:
        if unclear:
            recorder.passes(name, "whether the compiler fuses a product with it is not clear")
        elif any(factors) and kernel.run.capability >= COMPARED:
            recorder.assumes(name, "fused multiply-adds as PTX has them: which others ptxas makes for this GPU is not known")
        elif find is not None:
            recorder.did(name, "fused multiply-add")
        else:
            recorder.tell("neutral", name, "IEEE 754")

    def step(_: Partition, values: Values) -> None:
        tell()
        if find is None:
            values[result] = canonicalise_nan(values[x] + values[y] if sign > 0 else values[x] - values[y])
            return
        first, second = find(values)
        addend = values[y] if index == 0 else values[x]
        made = fused(first if index == 0 or sign > 0 else -first, second, addend if index == 1 or sign > 0 else -addend)
        values[result] = canonicalise_nan(made if np.ndim(addend) else np.asarray(made).reshape(())[()])

    return step


_COMBINES = {"arith.addf": "sum", "arith.maxnumf": "max", "arith.minnumf": "min"}
_EXACT: dict[str, Callable[..., Any]] = {
    "arith.addi": np.add.reduce,
    "arith.maxsi": np.maximum.reduce,
    "arith.minsi": np.minimum.reduce,
    "arith.andi": np.bitwise_and.reduce,
    "arith.ori": np.bitwise_or.reduce,
    "arith.xori": np.bitwise_xor.reduce,
}


def _combiner(one: Operation) -> str:
    """Return the operation that a reduction repeats, if it is one alone on its two arguments."""
    region = one.regions[0]
    inner = [found for found in region.operations if not found.name.endswith(".return")]
    return inner[0].name if len(inner) == 1 and set(inner[0].operands) == set(region.arguments) else ""


def _owners(layout: str, shape: tuple[int, ...], axis: int) -> list[str] | None:
    """Return who holds each bit of a coordinate along an axis, lowest first: registers, lanes, warps or CTAs."""
    found: dict[int, str] = {}
    for owner, vectors in find_owners(layout, shape).items():
        for vector in vectors:
            value = vector[axis]
            if value and (any(other for index, other in enumerate(vector) if index != axis) or value & (value - 1)):
                return None
            if value:
                found[value.bit_length() - 1] = owner
    return [found[bit] for bit in range(len(found))] if sorted(found) == list(range(shape[axis].bit_length() - 1)) else None


def _make_reduction(one: Operation, kernel: Kernel) -> Step:
    axis, kind, combiner = integer(one.attributes["axis"]), one.types[0], _combiner(one)
    recorder = kernel.recorder(one)
    if len(one.operands) == 1 and combiner in _EXACT:
        reduce = _EXACT[combiner]
        return _set_reduced(one, recorder, ("neutral", "reduction", "integers, in whichever order"), lambda data: reduce(data, axis=axis))
    if len(one.operands) == 1 and combiner in ("arith.maxnumf", "arith.minnumf"):
        largest = combiner == "arith.maxnumf"
        return _set_reduced(
            one,
            recorder,
            ("neutral", _COMBINES[combiner], "IEEE 754 in whichever order"),
            lambda data: canonicalise_nan(reduce_to_extremum(data, axis, largest=largest, keepdims=False)),
        )
    if len(one.operands) == 1 and combiner == "arith.addf" and kind.element == "f32":
        owners = _owners(kind.layout, kind.shape, axis)
        if owners is not None:
            return _make_sum(one, kernel, axis, owners)
    return _make_general(one, kernel, axis)


def _set_reduced(one: Operation, recorder: Any, told: tuple[str, str, str], reduce: Callable[[NDArray[Any]], Any]) -> Step:
    def step(_: Partition, values: Values) -> None:
        recorder.tell(*told)
        values[one.results[0]] = _as_value(reduce(np.ascontiguousarray(values[one.operands[0]])))

    return step


def _as_value(data: Any) -> Any:
    return data if np.ndim(data) else np.asarray(data)[()]


def _make_sum(one: Operation, kernel: Kernel, axis: int, owners: list[str]) -> Step:
    """Make a sum along an axis in the order of the threads; which of its values are fused products the machine code says."""
    trace = kernel.trace = kernel.trace or Trace(kernel)
    recorder = kernel.recorder(one)
    told = ("emulated", "sum", "registers, lanes, warps" + (", CTAs" if "block" in owners else ""))
    if kernel.run.capability >= COMPARED:
        told = ("assumed", "sum", "registers, lanes and warps in the order of Hopper's code")
    elif kernel.run.fuses and _factors(trace, one.operands[0]) is not None:
        told = ("passed", "sum", "which products the compiler fuses with it is not clear")
    return _set_reduced(one, recorder, told, lambda data: canonicalise_nan(summed(data, axis, owners, None, IN_REGISTERS)))


def _make_general(one: Operation, kernel: Kernel, axis: int) -> Step:
    """Make a reduction by any function, element after element."""
    region, recorder = one.regions[0], kernel.recorder(one)
    block = prepare(region, kernel)
    count = len(one.operands)
    is_float = any(kind.is_float for kind in one.types[:count])

    def step(partition: Partition, values: Values) -> None:
        if is_float:
            recorder.passes(
                "reduction", "the order in which it combines depends on the layout of the threads, and is modelled for sums only"
            )
        else:
            recorder.tell("neutral", "reduction", "integers, in whichever order")
        arrays = [np.moveaxis(values[number], axis, 0) for number in one.operands]
        kept: list[Any] = [array[0] for array in arrays]
        for index in range(1, len(arrays[0])):
            for number, value in zip(region.arguments, [*kept, *(array[index] for array in arrays)], strict=True):
                values[number] = value
            kept = block.run(partition, values)
        for number, value in zip(one.results, kept, strict=True):
            values[number] = _as_value(value)

    return step


def _make_scan(one: Operation, kernel: Kernel) -> Step:
    """Make a scan by any function, element after element."""
    axis, backward = integer(one.attributes["axis"]), one.attributes.get("reverse", "false") == "true"
    region, recorder = one.regions[0], kernel.recorder(one)
    block = prepare(region, kernel)
    is_float = any(kind.is_float for kind in one.types[: len(one.operands)])

    def step(partition: Partition, values: Values) -> None:
        if is_float:
            recorder.passes("scan", "the order in which it combines depends on the layout of the threads")
        else:
            recorder.tell("neutral", "scan", "integers, in whichever order")
        arrays = [np.moveaxis(values[number], axis, 0) for number in one.operands]
        arrays = [array[::-1] for array in arrays] if backward else arrays
        kept: list[Any] = [array[0] for array in arrays]
        found = [[value] for value in kept]
        for index in range(1, len(arrays[0])):
            for number, value in zip(region.arguments, [*kept, *(array[index] for array in arrays)], strict=True):
                values[number] = value
            kept = block.run(partition, values)
            for row, value in zip(found, kept, strict=True):
                row.append(value)
        for number, rows in zip(one.results, found, strict=True):
            made = np.stack(rows[::-1] if backward else rows)
            values[number] = np.moveaxis(made, 0, axis)

    return step


def _make_histogram(one: Operation, kernel: Kernel) -> Step:
    if not one.types[0].element.startswith("i"):
        raise NotEmulatedError(f"{kernel.describe(one)} of {one.types[0].element}")
    bins, count = one.types[-1].shape[0], kernel.neutral(one, "integers")

    def step(_: Partition, values: Values) -> None:
        count()
        data = values[one.operands[0]]
        taken = data[values[one.operands[1]]] if len(one.operands) > 1 else data.ravel()
        inside = taken[(taken >= 0) & (taken < bins)]
        values[one.results[0]] = np.bincount(inside, minlength=bins).astype(np.int32)

    return step


MAKERS = {
    "arith.addf": _make_addition,
    "arith.subf": _make_addition,
    "tt.reduce": _make_reduction,
    "tt.scan": _make_scan,
    "tt.histogram": _make_histogram,
}
