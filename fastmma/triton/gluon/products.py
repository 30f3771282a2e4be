"""Products of matrices by warpgroup_mma, mma_v2 and dot_fma: fastmma's own instructions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError
from fastmma.numerics.lookup import fidelity
from fastmma.triton.dots import multiplied
from fastmma.triton.formats import ACCUMULATORS, BY_MLIR
from fastmma.triton.gluon.barriers import BarrierError
from fastmma.triton.gluon.kernel import Kernel, Recorder, Step
from fastmma.triton.gluon.layouts import find_share, parse_layout
from fastmma.triton.gluon.memory import View
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.program import Partition, Transfer, Values, wait
from fastmma.triton.gluon.tensors import integer
from fastmma.triton.gluon.types import Type
from fastmma.triton.lowering import Dot, Lowering


@dataclass
class Unfinished:
    """The result of an asynchronous product, which nobody may use before it is waited for."""

    value: NDArray[Any]
    place: str
    numbers: list[int]

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise BarrierError(f"the result of {self.place} is used before warpgroup_mma_wait")

    def __getattr__(self, name: str) -> Any:
        raise BarrierError(f"the result of {self.place} is used before warpgroup_mma_wait ({name})")


@dataclass(frozen=True)
class Product:
    """A product of tiles: what computes it, and what it is called."""

    kernel: Kernel
    run: Any
    recorder: Recorder
    dot: Dot
    lowering: Lowering
    name: str

    def __call__(self, a: NDArray[Any], b: NDArray[Any], start: NDArray[Any] | None) -> NDArray[Any]:
        """Multiply, from `start` or from zero."""
        instruction, every = self.lowering.instruction(self.dot), self.lowering.promotion(self.dot)
        permuted = f", kWidth {self.lowering.k_width}" if self.lowering.order(self.dot.k) is not None else ""
        known = fidelity(instruction, self.run.target)
        self.recorder.did(self.name, f"{instruction}{f', promoted every {every} k' if every else ''} ({known}){permuted}")
        x, y = (np.ascontiguousarray(array) for array in (a, b))
        return multiplied(self.run, self.dot, self.lowering, x, y, None if start is None else np.ascontiguousarray(start))


def make_product(one: Operation, kernel: Kernel, unit: str, name: str, types: tuple[Type, Type, Type], k_width: int = 0) -> Product:
    """Choose the instructions of a product, which each CTA of a cluster, or each pair of them, makes of its own rows and columns.

    Raises
    ------
    NotEmulatedError
        If nothing here computes one of such formats.
    """
    a, b, d = types
    formats = [BY_MLIR[kind.element].multiplied if kind.element in BY_MLIR else "" for kind in (a, b)]
    if not all(formats):
        raise NotEmulatedError(f"{kernel.describe(one)} of {a.element} and {b.element}")
    ctas, k = 2 if "two_ctas" in one.attributes else 1, a.shape[-1]
    m, n = find_share(d.layout, d.shape)[-2:]
    if unit == "fma":
        formats = ["f32" if found == "tf32" else found for found in formats]
        if formats != ["f32", "f32"]:
            raise NotEmulatedError(f"{kernel.describe(one)}: chains of fused multiply-adds of {formats[0]}")
    imprecise = integer(one.attributes.get("maxNumImpreciseAcc", "0"))
    narrowest = min(kind.bits for kind in (a, b))
    dot = Dot(m * ctas, n, k, formats[0], formats[1], ACCUMULATORS[d.dtype], len(a.shape) > 2, "tf32", imprecise, narrowest)
    run, recorder = kernel.borrow(one)
    return Product(kernel, run, recorder, dot, Lowering(unit, formats[0], formats[1], k_width, ctas=ctas), name)


def access_parts(partition: Partition, view: View, started: list[Transfer], place: str, *, writes: bool) -> None:
    """Note that the tensor cores of CTAs access what these hold, or what those of a pair hold if one of the two starts the operation."""
    width = len(partition.clocks) // len(started)
    for one in started:
        partition.access_later(one, view, place, writes=writes, ctas=range(one.cta, one.cta + width))


def take_operand(partition: Partition, value: Any, started: list[Transfer], place: str) -> NDArray[Any]:
    """Return an operand; one in shared memory is read by the tensor core, of two CTAs where only every other one starts the operation."""
    if isinstance(value, View):
        access_parts(partition, value, started, place, writes=False)
        return value.load()
    return np.asarray(value)


def _make_warpgroup(one: Operation, kernel: Kernel) -> Step:
    product = make_product(one, kernel, "wgmma", "warpgroup_mma", (one.types[0], one.types[1], one.types[-1]))
    place, is_async, result = kernel.describe(one), one.attributes.get("isAsync") == "true", one.results[0]
    left, right, total, *uses = one.operands

    def step(partition: Partition, values: Values) -> None:
        started = partition.start()
        a, b = (take_operand(partition, values[operand], started, place) for operand in (left, right))
        start = values[total]
        before = start.value if isinstance(start, Unfinished) else start
        made = product(a, b, before if not uses or values[uses[0]] else None)
        partition.products.append([1 << one.number for one in started])
        if is_async:
            values[result] = Unfinished(made, place, [one.number for one in started])
        else:
            wait(partition.products, 0, partition.clocks)
            values[result] = made

    return step


def _make_warpgroup_wait(one: Operation, kernel: Kernel) -> Step:
    count, left = kernel.neutral(one, "computes nothing"), integer(one.attributes["pendings"])

    def step(partition: Partition, values: Values) -> None:
        count()
        wait(partition.products, left, partition.clocks)
        for source, result in zip(one.operands, one.results, strict=True):
            value = values[source]
            is_done = isinstance(value, Unfinished) and partition.clocks[0].done >> value.numbers[0] & 1
            values[result] = value.value if is_done else value

    return step


def _make_dot(one: Operation, kernel: Kernel) -> Step:
    a, b, d = one.types[0], one.types[1], one.types[-1]
    of_cores = "nvidia_mma" in d.layout
    precision = one.attributes.get("inputPrecision", "") or next(iter(re.findall(r"inputPrecision = (\w+)", one.text)), "")
    if of_cores and a.element == "f32" and precision not in ("0", "tf32", "0 : i32"):
        raise NotEmulatedError(f"{kernel.describe(one)} of f32 with input_precision {precision or 'ieee'}")
    width = parse_layout(a.layout).k_width if of_cores else 0
    product = make_product(one, kernel, "mma" if of_cores else "fma", "mma_v2" if of_cores else "dot_fma", (a, b, d), width)
    first, second, total = one.operands

    def step(_: Partition, values: Values) -> None:
        values[one.results[0]] = product(values[first], values[second], values[total])

    return step


MAKERS: dict[str, Callable[[Operation, Kernel], Step]] = {
    "ttng.warp_group_dot": _make_warpgroup,
    "ttng.warp_group_dot_wait": _make_warpgroup_wait,
    "tt.dot": _make_dot,
}
