"""Shared memory, its descriptors, copies by cp.async, and mbarriers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from fastmma.triton.gluon.barriers import Barrier
from fastmma.triton.gluon.kernel import Kernel, Step
from fastmma.triton.gluon.memory import View, allocate
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.program import Partition, Steps, Values, wait
from fastmma.triton.gluon.tensors import integer, integers, load_elements


def _make_allocation(one: Operation, kernel: Kernel) -> Step:
    kind, result, place = one.types[-1], one.results[0], kernel.describe(one)
    given = one.operands[0] if one.operands else None
    count = kernel.neutral(one, "moves data")

    def step(partition: Partition, values: Values) -> None:
        count()
        view = values[result] = allocate(kind, place)
        if given is not None:
            partition.access(view, place, writes=True)
            view.store(values[given])

    return step


def _make_part(take: Callable[[Operation], Callable[..., View]]) -> Callable[[Operation, Kernel], Step]:
    def make(one: Operation, kernel: Kernel) -> Step:
        apply, count, result, operands = take(one), kernel.neutral(one, "moves data"), one.results[0], one.operands

        def step(_: Partition, values: Values) -> None:
            count()
            values[result] = apply(*(values[number] for number in operands))

        return step

    return make


def _index(_one: Operation) -> Callable[..., View]:
    return lambda view, number: view.index(int(number))


def _slice(one: Operation) -> Callable[..., View]:
    inside = re.search(r"\[([^\]]*)\]", one.text)
    offsets = tuple(int(part) for part in inside[1].split(",")) if inside else ()
    shape = one.types[-1].shape
    return lambda view: view.slice(offsets, shape)


def _permute(one: Operation) -> Callable[..., View]:
    order = integers(one.attributes["order"])
    return lambda view: view.permute(order)


def _reshape(one: Operation) -> Callable[..., View]:
    shape = one.types[-1].shape
    return lambda view: view.reshape(shape)


def _reinterpret(one: Operation) -> Callable[..., View]:
    kind = one.types[-1]
    return lambda view: view.reinterpret(kind)


def _make_load(one: Operation, kernel: Kernel) -> Step:
    count, place, result, source = kernel.neutral(one, "moves data"), kernel.describe(one), one.results[0], one.operands[0]

    def step(partition: Partition, values: Values) -> None:
        count()
        view = values[source]
        partition.access(view, place, writes=False)
        values[result] = view.load()

    return step


def _make_store(one: Operation, kernel: Kernel) -> Step:
    count, place, (given, target) = kernel.neutral(one, "moves data"), kernel.describe(one), one.operands

    def step(partition: Partition, values: Values) -> None:
        count()
        view = values[target]
        partition.access(view, place, writes=True)
        view.store(values[given])

    return step


def _make_copy(one: Operation, kernel: Kernel) -> Step:
    """Make an asynchronous copy from pointers, complete when its group is waited for."""
    count, place = kernel.neutral(one, "moves data"), kernel.describe(one)
    (pointers, target, *rest), line = one.operands, kernel.site(one)

    def step(partition: Partition, values: Values) -> None:
        count()
        view = values[target]
        number, known = partition.start()
        partition.access_later(number, known, view, place, writes=True, proxy="generic")
        partition.open |= 1 << number
        view.store(load_elements(values[pointers], view.dtype, *(values[given] for given in rest), line=line))

    return step


def _make_commit(one: Operation, kernel: Kernel) -> Step:
    count = kernel.neutral(one, "computes nothing")

    def step(partition: Partition, _values: Values) -> None:
        count()
        partition.copies.append(partition.open)
        partition.open = 0

    return step


def _make_group_wait(one: Operation, kernel: Kernel) -> Step:
    count, left = kernel.neutral(one, "computes nothing"), integer(one.attributes["num"])

    def step(partition: Partition, _values: Values) -> None:
        count()
        wait(partition.copies, left, partition.clock)

    return step


def _make_copy_arrival(one: Operation, kernel: Kernel) -> Step:
    """Make an arrival that comes when all copies before it are complete; without an increment it counts as one of the expected."""
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)
    added = "noIncrement" not in one.attributes

    def step(partition: Partition, values: Values) -> None:
        count()
        barrier = partition.program.barrier(values[one.operands[0]], place)
        known = partition.clock.copy()
        known.done |= partition.open
        for group in partition.copies:
            known.done |= group
        if added:
            barrier.pending += 1
        barrier.arrive(1, known, place)

    return step


def _make_init(one: Operation, kernel: Kernel) -> Step:
    count = kernel.neutral(one, "computes nothing")
    number = re.search(r", (\d+)", one.text)
    assert number is not None
    arrivals = int(number[1])

    def step(partition: Partition, values: Values) -> None:
        count()
        view = values[one.operands[0]]
        name = f"the mbarrier at byte {view.start} of {view.allocation.name}"
        partition.program.barriers[id(view.allocation), view.start] = Barrier(name, arrivals)
        partition.program.kept.append(view)  # so that its identity stays its own

    return step


def _make_invalidation(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)

    def step(partition: Partition, values: Values) -> None:
        count()
        view = values[one.operands[0]]
        partition.program.barrier(view, place)
        del partition.program.barriers[id(view.allocation), view.start]

    return step


def _make_expect(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)
    number = re.search(r", (\d+)", one.text)
    assert number is not None
    size = int(number[1])

    def step(partition: Partition, values: Values) -> None:
        count()
        if len(one.operands) < 2 or values[one.operands[1]]:
            barrier = partition.program.barrier(values[one.operands[0]], place)
            barrier.expect(size)
            barrier.arrive(1, partition.clock, place)
            partition.tick()

    return step


def _make_arrival(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)
    number = re.search(r", (\d+)", one.text)
    arrivals = int(number[1]) if number else 1

    def step(partition: Partition, values: Values) -> None:
        count()
        if len(one.operands) < 2 or values[one.operands[1]]:
            partition.program.barrier(values[one.operands[0]], place).arrive(arrivals, partition.clock, place)
            partition.tick()

    return step


def _make_wait(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)
    of_barrier, of_phase, *predicate = one.operands

    def waiting(partition: Partition, values: Values) -> Steps:
        count()
        if predicate and not values[predicate[0]]:
            return
        barrier, parity = partition.program.barrier(values[of_barrier], place), int(values[of_phase]) & 1
        while not barrier.is_complete(parity):
            yield barrier, parity, place
        partition.clock.join(barrier.released)

    return waiting


def _make_fence(one: Operation, kernel: Kernel) -> Step:
    count = kernel.neutral(one, "computes nothing")

    def step(partition: Partition, _values: Values) -> None:
        count()
        partition.fence()

    return step


def _make_nothing(one: Operation, kernel: Kernel) -> Step:
    count = kernel.neutral(one, "computes nothing")

    def step(_: Partition, __: Values) -> None:
        count()

    return step


def _make_gather(one: Operation, kernel: Kernel) -> Step:
    count, place, axis = kernel.neutral(one, "moves data"), kernel.describe(one), integer(one.attributes["axis"])

    def step(partition: Partition, values: Values) -> None:
        count()
        view: View = values[one.operands[0]]
        partition.access(view, place, writes=False)
        values[one.results[0]] = np.take_along_axis(view.load(), values[one.operands[1]].astype(np.int64), axis)

    return step


def _make_scatter(one: Operation, kernel: Kernel) -> Step:
    count, place, axis = kernel.neutral(one, "moves data"), kernel.describe(one), integer(one.attributes["axis"])

    def step(partition: Partition, values: Values) -> None:
        count()
        view: View = values[one.operands[0]]
        index, given = values[one.operands[1]], values[one.operands[2]]
        partition.access(view, place, writes=True)
        data: Any = view.load().copy()
        np.put_along_axis(data, index.astype(np.int64), given, axis)
        view.store(data)

    return step


MAKERS = {
    "ttg.local_alloc": _make_allocation,
    "ttng.tmem_alloc": _make_allocation,
    "ttg.local_dealloc": _make_nothing,
    "ttg.memdesc_index": _make_part(_index),
    "ttg.memdesc_subslice": _make_part(_slice),
    "ttg.memdesc_trans": _make_part(_permute),
    "ttg.memdesc_reshape": _make_part(_reshape),
    "ttg.memdesc_reinterpret": _make_part(_reinterpret),
    "ttg.local_load": _make_load,
    "ttg.local_store": _make_store,
    "ttg.local_gather": _make_gather,
    "ttg.local_scatter": _make_scatter,
    "ttg.async_copy_global_to_local": _make_copy,
    "ttg.async_commit_group": _make_commit,
    "ttg.async_wait": _make_group_wait,
    "ttng.async_copy_mbarrier_arrive": _make_copy_arrival,
    "ttng.init_barrier": _make_init,
    "ttng.inval_barrier": _make_invalidation,
    "ttng.barrier_expect": _make_expect,
    "ttng.arrive_barrier": _make_arrival,
    "ttng.wait_barrier": _make_wait,
    "ttng.fence_async_shared": _make_fence,
    "ttng.fence_mbarrier_init_release_cluster": _make_nothing,
    "ttng.cluster_barrier": _make_nothing,
    "ttg.barrier": _make_nothing,
    "gpu.barrier": _make_nothing,
}
