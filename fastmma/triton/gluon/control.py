"""Control flow: regions as lists of steps, loops, branches, calls, and partitions of warps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.gluon.kernel import Kernel, Step
from fastmma.triton.gluon.layouts import find_ctas
from fastmma.triton.gluon.mlir import Operation, Region
from fastmma.triton.gluon.program import Partition, Steps, Values, run_together

_WAITS = frozenset({"ttng.wait_barrier", "ttg.warp_specialize"})
_EXCHANGES = frozenset({"ttg.convert_layout", "tt.reduce", "tt.scan"})
_ENDS = frozenset({"scf.yield", "tt.return", "ttg.warp_yield", "ttg.warp_return", "tt.reduce.return", "tt.scan.return", "scf.condition"})


@dataclass
class Block:
    """The steps of a region.

    Attributes
    ----------
    steps : list
        Each with whether it may wait: then it is a generator.
    waits : bool
        Whether any may.
    results : list of int
        The numbers of the values that it ends with.
    """

    steps: list[tuple[bool, Step]]
    waits: bool
    results: list[int]

    def run(self, partition: Partition, values: Values) -> list[Any]:
        """Run steps of which none waits, and return the values that they end with."""
        for _, step in self.steps:
            step(partition, values)
        return [values[number] for number in self.results]

    def run_waiting(self, partition: Partition, values: Values) -> Steps:
        """Run steps, and return the values that they end with."""
        for waits, step in self.steps:
            if waits:
                yield from step(partition, values)
            else:
                step(partition, values)
        return [values[number] for number in self.results]


def _may_wait(one: Operation, kernel: Kernel) -> bool:
    if one.name == "tt.call":
        called = kernel.module.functions[_callee(one)]
        return any(_may_wait(inner, kernel) for inner in called.body.operations)
    return one.name in _WAITS or any(_may_wait(inner, kernel) for region in one.regions for inner in region.operations)


def _callee(one: Operation) -> str:
    return one.text.partition("@")[2].partition("(")[0]


def prepare(region: Region, kernel: Kernel) -> Block:
    """Make a region ready to run.

    Raises
    ------
    NotEmulatedError
        If an operation is in no list.
    """
    steps = []
    results: list[int] = []
    for one in region.operations:
        if one.name in _ENDS:
            results = one.operands
            continue
        make = kernel.makers.get(one.name)
        if make is None:
            raise NotEmulatedError(f"{kernel.describe(one)}, which is {one.name}: fastmma does not run it")
        step = make(one, kernel)
        steps.append((_may_wait(one, kernel), _meet_after(step) if kernel.ctas > 1 and _crosses(one) else step))
    return Block(steps, any(waits for waits, _ in steps), results)


def _crosses(one: Operation) -> bool:
    """Tell whether CTAs of a cluster exchange elements of tensors, which the compiler puts between barriers of the cluster."""
    if one.name not in _EXCHANGES:
        return False
    ctas, shared = find_ctas(one.types[0].layout, one.types[0].shape)
    if "axis" in one.attributes:
        return bool(np.ptp(ctas, int(one.attributes["axis"].partition(" ")[0])).any())
    others, others_shared = find_ctas(one.types[-1].layout, one.types[-1].shape)
    return bool((ctas != others).any()) or shared != others_shared


def _meet_after(step: Step) -> Step:
    def meet(partition: Partition, values: Values) -> None:
        step(partition, values)
        partition.meet()

    return meet


def _set(values: Values, numbers: list[int], given: list[Any]) -> None:
    for number, value in zip(numbers, given, strict=True):
        values[number] = value


def _make_for(one: Operation, kernel: Kernel) -> Step:
    region, (low, high, width) = one.regions[0], one.operands[:3]
    block, given, results = prepare(region, kernel), one.operands[3:], one.results
    counter, carried = region.arguments[0], region.arguments[1:]
    dtype = one.types[-1].dtype.type if one.types and one.types[-1].kind == "scalar" and not one.types[-1].is_float else np.int32

    def start(values: Values) -> tuple[range, list[Any]]:
        return range(int(values[low]), int(values[high]), int(values[width])), [values[number] for number in given]

    def step(partition: Partition, values: Values) -> None:
        count, kept = start(values)
        for index in count:
            values[counter] = dtype(index)
            _set(values, carried, kept)
            kept = block.run(partition, values)
        _set(values, results, kept)

    def waiting(partition: Partition, values: Values) -> Steps:
        count, kept = start(values)
        for index in count:
            values[counter] = dtype(index)
            _set(values, carried, kept)
            kept = yield from block.run_waiting(partition, values)
        _set(values, results, kept)

    return waiting if block.waits else step


def _make_if(one: Operation, kernel: Kernel) -> Step:
    blocks = [prepare(region, kernel) for region in one.regions]
    condition, results = one.operands[0], one.results

    def choose(values: Values) -> Block | None:
        return blocks[0] if values[condition] else blocks[1] if len(blocks) > 1 else None

    def step(partition: Partition, values: Values) -> None:
        block = choose(values)
        if block is not None:
            _set(values, results, block.run(partition, values))

    def waiting(partition: Partition, values: Values) -> Steps:
        block = choose(values)
        if block is not None:
            _set(values, results, (yield from block.run_waiting(partition, values)))

    return waiting if any(block.waits for block in blocks) else step


def _make_while(one: Operation, kernel: Kernel) -> Step:
    before, after = (prepare(region, kernel) for region in one.regions)
    first, second = (region.arguments for region in one.regions)
    given, results = one.operands, one.results

    def waiting(partition: Partition, values: Values) -> Steps:
        kept = [values[number] for number in given]
        while True:
            _set(values, first, kept)
            condition, *kept = yield from before.run_waiting(partition, values)
            if not condition:
                break
            _set(values, second, kept)
            kept = yield from after.run_waiting(partition, values)
        _set(values, results, kept)

    def step(partition: Partition, values: Values) -> None:
        for _ in waiting(partition, values):
            raise AssertionError("a loop that does not wait")

    return waiting if before.waits or after.waits else step


def _make_call(one: Operation, kernel: Kernel) -> Step:
    function = kernel.module.functions[_callee(one)]
    prepared: list[Block] = []
    waits = _may_wait(one, kernel)

    def enter(values: Values) -> tuple[Block, Values]:
        if not prepared:  # when it is called: functions may call themselves
            prepared.append(prepare(function.body, kernel.enter(function)))
        inner: Values = [None] * function.size
        _set(inner, function.body.arguments, [values[number] for number in one.operands])
        return prepared[0], inner

    def step(partition: Partition, values: Values) -> None:
        block, inner = enter(values)
        _set(values, one.results, block.run(partition, inner))

    def waiting(partition: Partition, values: Values) -> Steps:
        block, inner = enter(values)
        _set(values, one.results, (yield from block.run_waiting(partition, inner)))

    return waiting if waits else step


def _make_specialize(one: Operation, kernel: Kernel) -> Step:
    default, *others = (prepare(region, kernel) for region in one.regions)
    warps = [int(number) for number in one.attributes["warps"].split(",") if number]
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)

    def waiting(partition: Partition, values: Values) -> Steps:
        count()
        given = [values[number] for number in one.operands]
        parts = []
        for index, (block, number) in enumerate(zip(others, warps, strict=True)):
            made = partition.program.partition(f"partition {index + 1} of {place}", number, partition)
            _set(values, one.regions[index + 1].arguments, given)
            parts.append((made, block.run_waiting(made, values)))
        partition.tick()
        found: list[Any] = []

        def run_default() -> Steps:
            found.extend((yield from default.run_waiting(partition, values)))

        yield from run_together([(partition, run_default()), *parts])
        for made, _ in parts:
            for clock, other in zip(partition.clocks, made.clocks, strict=True):
                clock.join(other)
            partition.tick()
        _set(values, one.results, found)

    return waiting


MAKERS = {
    "scf.for": _make_for,
    "scf.if": _make_if,
    "scf.while": _make_while,
    "tt.call": _make_call,
    "ttg.warp_specialize": _make_specialize,
}
