"""tcgen05: products on tensor memory, copies into it, its loads and stores, and commits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError
from fastmma.numerics.lookup import fidelity
from fastmma.products.gemm import gemm
from fastmma.scaling import unpack_e2m1
from fastmma.triton.gluon.kernel import Kernel, Step
from fastmma.triton.gluon.layouts import find_holders, find_share
from fastmma.triton.gluon.memory import View
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.products import access_parts, make_product, take_operand
from fastmma.triton.gluon.program import Partition, Transfer, Values
from fastmma.triton.gluon.types import Type
from fastmma.triton.scaled import Side, native_instruction


def _split_operands(one: Operation, *, scaled: bool) -> tuple[list[int], list[int], list[int]]:
    """Return the operands of `tc_gen5_mma` before the barriers, the barriers, and their predicates."""
    body = one.text.partition(" ")[2]
    inside = re.sub(r"\[\]|\[%[^\]]*\]", lambda found: "" if found[0] == "[]" else found[0], body)
    barriers = re.findall(r"%[\w.$-]+\[(%[\w.$-]+(?:#\d+)?)\]", inside)
    count = 7 if scaled else 5
    rest = one.operands[count:]
    if len(rest) != 2 * len(barriers):
        raise NotEmulatedError(f"{one.name} with operands that are not known")
    return one.operands[:count], rest[::2], rest[1::2]


@dataclass(frozen=True)
class Commit:
    """Arrivals when all tcgen05 operations of a partition so far are complete.

    Attributes
    ----------
    place : str
    sources : tuple of tuple
        For each CTA of a cluster, those that arrive at its mbarrier: with operands that were multicast, all that multiplied the same ones.
    """

    place: str
    sources: tuple[tuple[int, ...], ...]

    def signal(self, partition: Partition, values: Values, barriers: list[int], predicates: list[int]) -> None:
        """Arrive at mbarriers."""
        for barrier, predicate in zip(barriers, predicates, strict=True):
            if values[predicate]:
                self.arrive(partition, values[barrier])

    def arrive(self, partition: Partition, barrier: View) -> None:
        """Arrive at an mbarrier."""
        arrivals = [(cta, partition.pipes[source]) for cta, sources in enumerate(self.sources) for source in sources]
        partition.program.barrier(barrier, self.place).arrive(len(self.sources[0]), arrivals, self.place)


def _make_commits(kernel: Kernel, place: str, operands: list[Type]) -> Commit:
    """Find who arrives where if operands of such layouts are multicast; without any, a CTA arrives at its own or at those of its pair."""
    held = [find_holders(kind.layout) for kind in operands] or [tuple(range(kernel.ctas))]

    def shares(source: int, cta: int) -> bool:
        pair = -kernel.pair & cta
        return source == pair or any(one[source] == one[pair] for one in held)

    starts = range(0, kernel.ctas, kernel.pair)
    return Commit(place, tuple(tuple(source for source in starts if shares(source, cta)) for cta in range(kernel.ctas)))


def _begin(partition: Partition, kernel: Kernel) -> list[Transfer]:
    """Start an operation of the tensor core, which comes after those that the partition started before; the first of two CTAs does it."""
    started = []
    for cta in range(0, len(partition.clocks), kernel.pair):
        partition.pipes[cta].join(partition.clocks[cta])
        started.append(partition.start_in(cta, partition.pipes[cta]))
    return started


def _make_tcgen05(one: Operation, kernel: Kernel) -> Step:
    a, b, d = one.types[:3]
    product = make_product(one, kernel, "tcgen05", "tcgen05_mma", (a, b, d))
    place = kernel.describe(one)
    commit = _make_commits(kernel, place, [a, b] if "multicast" in one.attributes else [])
    (left, right, total, uses, predicate), barriers, predicates = _split_operands(one, scaled=False)

    def step(partition: Partition, values: Values) -> None:
        if values[predicate]:
            started, target = _begin(partition, kernel), values[total]
            x, y = (take_operand(partition, values[operand], started, place) for operand in (left, right))
            access_parts(partition, target, started, place, writes=True)
            target.store(product(x, y, target.load() if values[uses] else None))
            _end(started)
        commit.signal(partition, values, barriers, predicates)
        _finish(one, values)

    return step


def _end(started: list[Transfer]) -> None:
    """Let what follows in the same tensor core know of an operation."""
    for one in started:
        one.finish()


def _finish(one: Operation, values: Values) -> None:
    for number in one.results:
        values[number] = None


def _elements(codes: NDArray[Any], fmt: str, axis: int) -> NDArray[Any]:
    return unpack_e2m1(np.ascontiguousarray(codes).view(np.uint8), axis=axis) if fmt == "e2m1" else codes


_FORMATS = {"e4m3": "e4m3", "e5m2": "e5m2", "e2m1": "e2m1"}


def _make_scaled(one: Operation, kernel: Kernel) -> Step:
    place, (run, recorder) = kernel.describe(one), kernel.borrow(one)
    if any(name in one.attributes for name in ("two_ctas", "multicast")):
        raise NotEmulatedError(f"{place} of two CTAs")
    commit = _make_commits(kernel, place, [])
    names = re.findall(r"lhs = (\w+) rhs = (\w+)", one.text)
    if not names or any(name not in _FORMATS for name in names[0]):
        raise NotEmulatedError(f"{place}: operands that are not known")
    first, second = names[0]
    (left, right, total, *scales, uses, predicate), barriers, predicates = _split_operands(one, scaled=True)

    def step(partition: Partition, values: Values) -> None:
        if values[predicate]:
            started, target = _begin(partition, kernel), values[total]
            x, y = (take_operand(partition, values[operand], started, place) for operand in (left, right))
            x_scales, y_scales = (take_operand(partition, values[operand], started, place) for operand in scales)
            access_parts(partition, target, started, place, writes=True)
            a = Side(_view_elements(x, first, -1), first, _view_scales(x_scales))
            b = Side(np.swapaxes(_view_elements(y, second, -2), -1, -2), second, _view_scales(y_scales))
            opcode = native_instruction(a, b, run.capability)
            if opcode is None:
                raise NotEmulatedError(f"{place} without an instruction")
            recorder.did("tcgen05_mma_scaled", f"{opcode} ({fidelity(opcode, run.target)})")
            start = target.load() if values[uses] else np.zeros(target.shape, np.float32)
            made = gemm(
                np.ascontiguousarray(a.elements),
                np.ascontiguousarray(b.elements.T),
                start,
                instruction=opcode,
                target=run.target,
                scale_a=np.ascontiguousarray(a.scales),
                scale_b=np.ascontiguousarray(b.scales.T) if b.scales is not None else None,
            )
            target.store(made)
            _end(started)
        commit.signal(partition, values, barriers, predicates)
        _finish(one, values)

    return step


def _view_elements(codes: NDArray[Any], fmt: str, axis: int) -> NDArray[Any]:
    return _elements(codes, fmt, axis)


def _view_scales(codes: NDArray[Any]) -> NDArray[Any]:
    dtype = np.dtype(ml_dtypes.float8_e4m3fn) if codes.dtype.kind not in "iu" else np.dtype(ml_dtypes.float8_e8m0fnu)
    return np.ascontiguousarray(codes).view(dtype)


def _make_commit(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)
    commit = _make_commits(kernel, place, one.types[1:])

    def step(partition: Partition, values: Values) -> None:
        count()
        if len(one.operands) < 2 or values[one.operands[1]]:
            for pipe, clock in zip(partition.pipes, partition.clocks, strict=True):
                pipe.join(clock)
            commit.arrive(partition, values[one.operands[0]])
            partition.tick()

    return step


def _make_copy(one: Operation, kernel: Kernel) -> Step:
    """Make a copy from shared to tensor memory, which the tensor core executes in the order of its operations."""
    count, place = kernel.neutral(one, "moves data"), kernel.describe(one)
    source, target, *barriers = one.operands
    kinds, commit = one.types[:2], _make_commits(kernel, place, [])

    def step(partition: Partition, values: Values) -> None:
        count()
        started = _begin(partition, kernel)
        access_parts(partition, values[source], started, place, writes=False)
        access_parts(partition, values[target], started, place, writes=True)
        values[target].store(_arrange(values[source].load(), values[target], kinds[1], place))
        _end(started)
        for barrier in barriers:
            commit.arrive(partition, values[barrier])
        _finish(one, values)

    return step


def _arrange(data: NDArray[Any], target: View, kind: Type, place: str) -> NDArray[Any]:
    if data.shape == target.shape:
        return data
    raise NotEmulatedError(f"{place} of {data.shape} to {kind.shape}")


def _make_slice(one: Operation, kernel: Kernel) -> Step:
    count, inside = kernel.neutral(one, "moves data"), re.search(r"(?:N|offset) = (\d+)|\[([\d, ]+)\]", one.text)
    whole, shape = one.types[0], one.types[-1].shape
    if inside is None or shape[-2] != whole.shape[-2] or find_share(whole.layout, whole.shape)[-1] != whole.shape[-1]:
        raise NotEmulatedError(f"{kernel.describe(one)}: {one.text}")
    offset = int((inside[1] or inside[2].split(",")[-1]).strip())

    def step(_: Partition, values: Values) -> None:
        count()
        values[one.results[0]] = values[one.operands[0]].slice((0,) * (len(shape) - 1) + (offset,), shape)

    return step


def _make_tensor_load(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "moves data"), kernel.describe(one)
    if any(name in one.attributes for name in ("redOp", "abs", "NaN")):
        raise NotEmulatedError(f"{place} that reduces")

    def step(partition: Partition, values: Values) -> None:
        count()
        view = values[one.operands[0]]
        partition.access(view, place, writes=False)
        values[one.results[0]] = view.load()
        for number in one.results[1:]:
            values[number] = None

    return step


def _make_tensor_store(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "moves data"), kernel.describe(one)
    given, target, *rest = one.operands

    def step(partition: Partition, values: Values) -> None:
        count()
        if not rest or values[rest[-1]]:
            partition.access(values[target], place, writes=True)
            values[target].store(values[given])
        _finish(one, values)

    return step


MAKERS: dict[str, Callable[[Operation, Kernel], Step]] = {
    "ttng.tc_gen5_mma": _make_tcgen05,
    "ttng.tc_gen5_mma_scaled": _make_scaled,
    "ttng.tc_gen5_commit": _make_commit,
    "ttng.tmem_copy": _make_copy,
    "ttng.tmem_subslice": _make_slice,
    "ttng.tmem_load": _make_tensor_load,
    "ttng.tmem_store": _make_tensor_store,
}
