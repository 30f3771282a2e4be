"""Copies between tensors and shared memory by the TMA."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.gluon.kernel import Kernel, Step
from fastmma.triton.gluon.maps import TensorMap
from fastmma.triton.gluon.memory import View
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.program import Partition, Values, wait
from fastmma.triton.gluon.tensors import integer


def _start(values: Values, numbers: list[int]) -> tuple[int, ...]:
    return tuple(int(values[number]) for number in numbers)


def _find_receivers(one: Operation, kernel: Kernel) -> Callable[[View], dict[int, list[int]]]:
    """Return what finds the CTAs that start a load, each with those that it copies to: by multicast, those with the same part."""
    multicast = "multicast" in one.attributes

    def find(view: View) -> dict[int, list[int]]:
        starts: dict[int, list[int]] = {}
        for cta in range(kernel.ctas):
            starts.setdefault(view.held[cta] if multicast else cta, []).append(cta)
        return starts

    return find


def _finish_load(partition: Partition, view: View, barrier: Any, place: str, data: NDArray[Any], receivers: dict[int, list[int]]) -> None:
    arrivals = []
    for first, ctas in receivers.items():
        load = partition.start_in(first)
        partition.access_later(load, view, place, writes=True, ctas=ctas)
        known = load.finish()
        arrivals += [(cta, known) for cta in ctas]
    view.store(data)
    partition.program.barrier(barrier, place).receive(view.bytes, arrivals)


def _make_load(one: Operation, kernel: Kernel) -> Step:
    recorder, place = kernel.recorder(one), kernel.describe(one)
    descriptor, *coordinates, target, barrier, predicate = one.operands
    receivers = _find_receivers(one, kernel)
    by_pixels = re.search(r"offsets = \[([^\]]*)\]", one.text)
    count = len(by_pixels[1].split(",")) if by_pixels else 0
    coordinates, offsets = coordinates[: len(coordinates) - count], coordinates[len(coordinates) - count :]

    def step(partition: Partition, values: Values) -> None:
        tensor: TensorMap = values[descriptor]
        recorder.tell("neutral", "tma.async_load", "moves data")
        if not values[predicate]:
            return
        if tensor.rounds:
            raise NotEmulatedError(f"{place} of f32 that is rounded to tf32")
        view: View = values[target]
        start = _start(values, coordinates)
        if by_pixels:
            data = tensor.load_pixels(start, _start(values, offsets), view.shape)
        else:
            data = tensor.load(start, (1,) * (len(start) - len(view.shape)) + view.shape)
        _finish_load(partition, view, values[barrier], place, data.reshape(view.shape), receivers(view))

    return step


def _make_store(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "moves data"), kernel.describe(one)
    descriptor, *coordinates, source = one.operands

    def step(partition: Partition, values: Values) -> None:
        count()
        tensor, start = values[descriptor], _start(values, coordinates)
        box = (1,) * (len(start) - len(values[source].shape)) + values[source].shape
        _send(partition, values[source], place, lambda data: tensor.store(start, data.reshape(box)))

    return step


def _send(partition: Partition, view: View, place: str, store: Callable[[NDArray[Any]], None]) -> None:
    sent = partition.start()
    for one in sent:
        partition.access_later(one, view, place, writes=False, ctas=[one.cta])
    partition.stores.append([1 << one.number for one in sent])
    store(view.load())


_JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _make_reduction(one: Operation, kernel: Kernel) -> Step:
    recorder, place, name = kernel.recorder(one), kernel.describe(one), one.text.split()[1].strip(",")
    if name not in _JOINS:
        raise NotEmulatedError(f"{place}: {name}")
    descriptor, *coordinates, source = one.operands

    def step(partition: Partition, values: Values) -> None:
        tensor: TensorMap = values[descriptor]
        is_float = tensor.dtype.kind not in "iu"
        if is_float and name == "add" and any(size > 1 for size in partition.program.grid):
            recorder.passes("tma.async_atomic_add", "floating-point numbers are added in an order that changes from run to run of a GPU")
        elif is_float:
            recorder.passes(f"tma.async_atomic_{name}", "how floats are joined in memory was not recorded")
        else:
            recorder.tell("neutral", f"tma.async_atomic_{name}", "integers, in whichever order")
        _send(partition, values[source], place, lambda data: tensor.store(_start(values, coordinates), data, _JOINS[name]))

    return step


def _make_gather(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "moves data"), kernel.describe(one)
    descriptor, rows, column, target, barrier, predicate = one.operands
    receivers = _find_receivers(one, kernel)

    def step(partition: Partition, values: Values) -> None:
        count()
        if values[predicate]:
            view: View = values[target]
            taken = [values[descriptor].load((int(row), int(values[column])), (1, view.shape[1])) for row in values[rows]]
            _finish_load(partition, view, values[barrier], place, np.concatenate(taken), receivers(view))

    return step


def _make_scatter(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "moves data"), kernel.describe(one)
    descriptor, rows, column, source = one.operands

    def step(partition: Partition, values: Values) -> None:
        count()

        def store(data: NDArray[Any]) -> None:
            for row, line in zip(values[rows], data, strict=True):
                values[descriptor].store((int(row), int(values[column])), line[None])

        _send(partition, values[source], place, store)

    return step


def _make_wait(one: Operation, kernel: Kernel) -> Step:
    count, left = kernel.neutral(one, "computes nothing"), integer(one.attributes["pendings"])

    def step(partition: Partition, _values: Values) -> None:
        count()
        wait(partition.stores, left, partition.clocks)

    return step


MAKERS = {
    "ttng.async_tma_copy_global_to_local": _make_load,
    "ttng.async_tma_copy_local_to_global": _make_store,
    "ttng.async_tma_reduce": _make_reduction,
    "ttng.async_tma_gather": _make_gather,
    "ttng.async_tma_scatter": _make_scatter,
    "ttng.async_tma_store_wait": _make_wait,
}
