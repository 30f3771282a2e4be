"""tcgen05: products on tensor memory, copies into it, its loads and stores, and commits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError
from fastmma.numerics.lookup import fidelity
from fastmma.products.gemm import gemm
from fastmma.scaling import unpack_e2m1
from fastmma.triton.gluon.kernel import Kernel, Step
from fastmma.triton.gluon.layouts import find_share, parse_layout
from fastmma.triton.gluon.memory import View
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.products import make_product, take_operand
from fastmma.triton.gluon.program import Partition, Values
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


def _count_arrivals(kernel: Kernel, operands: list[Type]) -> int:
    """Count the CTAs of a cluster that tell another one when they have multiplied what was multicast to it."""
    bases = [parse_layout(kind.layout).cga_layout for kind in operands]
    bits, step = max((len(one) for one in bases), default=0), 2 if kernel.module.attributes.get("ttng.two-ctas") == "true" else 1
    return sum(
        any(not any(cta >> bit & 1 and any(vector) for bit, vector in enumerate(one)) for one in bases) for cta in range(0, 1 << bits, step)
    )


def _signal(partition: Partition, values: Values, barriers: list[int], predicates: list[int], place: str, number: int) -> None:
    """Arrive at barriers when all tcgen05 operations of the partition so far are complete."""
    for barrier, predicate in zip(barriers, predicates, strict=True):
        if values[predicate]:
            partition.program.barrier(values[barrier], place).arrive(number, partition.pipe, place)


def _begin(partition: Partition) -> int:
    """Start an operation of the tensor core, which comes after those that the partition started before."""
    partition.pipe.join(partition.clock)
    number, _ = partition.start(partition.pipe)
    return number


def _make_tcgen05(one: Operation, kernel: Kernel) -> Step:
    a, b, d = one.types[:3]
    arrivals = _count_arrivals(kernel, [a, b]) if "multicast" in one.attributes else 1
    product = make_product(one, kernel, "tcgen05", "tcgen05_mma", (a, b, d))
    place = kernel.describe(one)
    (left, right, total, uses, predicate), barriers, predicates = _split_operands(one, scaled=False)

    def step(partition: Partition, values: Values) -> None:
        if values[predicate]:
            number, target = _begin(partition), values[total]
            x, y = (take_operand(partition, values[operand], number, partition.pipe, place) for operand in (left, right))
            partition.access_later(number, partition.pipe, target, place, writes=True)
            target.store(product(x, y, target.load() if values[uses] else None))
            partition.pipe.done |= 1 << number
        _signal(partition, values, barriers, predicates, place, arrivals)
        _finish(one, values)

    return step


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
    names = re.findall(r"lhs = (\w+) rhs = (\w+)", one.text)
    if not names or any(name not in _FORMATS for name in names[0]):
        raise NotEmulatedError(f"{place}: operands that are not known")
    first, second = names[0]
    (left, right, total, *scales, uses, predicate), barriers, predicates = _split_operands(one, scaled=True)

    def step(partition: Partition, values: Values) -> None:
        if values[predicate]:
            number, target = _begin(partition), values[total]
            x, y = (take_operand(partition, values[operand], number, partition.pipe, place) for operand in (left, right))
            x_scales, y_scales = (take_operand(partition, values[operand], number, partition.pipe, place) for operand in scales)
            partition.access_later(number, partition.pipe, target, place, writes=True)
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
            partition.pipe.done |= 1 << number
        _signal(partition, values, barriers, predicates, place, 1)
        _finish(one, values)

    return step


def _view_elements(codes: NDArray[Any], fmt: str, axis: int) -> NDArray[Any]:
    return _elements(codes, fmt, axis)


def _view_scales(codes: NDArray[Any]) -> NDArray[Any]:
    dtype = np.dtype(ml_dtypes.float8_e4m3fn) if codes.dtype.kind not in "iu" else np.dtype(ml_dtypes.float8_e8m0fnu)
    return np.ascontiguousarray(codes).view(dtype)


def _make_commit(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)
    arrivals = _count_arrivals(kernel, one.types[1:]) if len(one.types) > 1 else 1

    def step(partition: Partition, values: Values) -> None:
        count()
        if len(one.operands) < 2 or values[one.operands[1]]:
            partition.pipe.join(partition.clock)
            partition.program.barrier(values[one.operands[0]], place).arrive(arrivals, partition.pipe, place)
            partition.tick()

    return step


def _make_copy(one: Operation, kernel: Kernel) -> Step:
    """Make a copy from shared to tensor memory, which the tensor core executes in the order of its operations."""
    count, place = kernel.neutral(one, "moves data"), kernel.describe(one)
    source, target, *barriers = one.operands
    kinds = one.types[:2]

    def step(partition: Partition, values: Values) -> None:
        count()
        number = _begin(partition)
        partition.access_later(number, partition.pipe, values[source], place, writes=False)
        partition.access_later(number, partition.pipe, values[target], place, writes=True)
        values[target].store(_arrange(values[source].load(), values[target], kinds[1], place))
        partition.pipe.done |= 1 << number
        for barrier in barriers:
            partition.program.barrier(values[barrier], place).arrive(1, partition.pipe, place)
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
