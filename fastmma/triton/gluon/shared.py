"""Shared memory, its descriptors, and copies by cp.async."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from fastmma.triton.gluon.kernel import Kernel, Step, make_nothing
from fastmma.triton.gluon.memory import View, allocate
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.program import Partition, Values, wait
from fastmma.triton.gluon.tensors import integer, integers, load_elements


def _make_allocation(one: Operation, kernel: Kernel) -> Step:
    kind, result, place = one.types[-1], one.results[0], kernel.describe(one)
    given = one.operands[0] if one.operands else None
    count = kernel.neutral(one, "moves data")

    def step(partition: Partition, values: Values) -> None:
        count()
        view = values[result] = allocate(kind, place)
        if given is not None:
            partition.access(view, place, writes=True, layout=one.types[0].layout)
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
    layout = one.types[-1].layout

    def step(partition: Partition, values: Values) -> None:
        count()
        view = values[source]
        partition.access(view, place, writes=False, layout=layout)
        values[result] = view.load()

    return step


def _make_store(one: Operation, kernel: Kernel) -> Step:
    count, place, (given, target) = kernel.neutral(one, "moves data"), kernel.describe(one), one.operands
    layout = one.types[0].layout

    def step(partition: Partition, values: Values) -> None:
        count()
        view = values[target]
        partition.access(view, place, writes=True, layout=layout)
        view.store(values[given])

    return step


def _make_later_store(one: Operation, kernel: Kernel) -> Step:
    """Make an asynchronous store into the shared memory of the CTAs of a cluster, whose bytes count at the mbarrier of each."""
    count, place, (given, target, barrier) = kernel.neutral(one, "moves data"), kernel.describe(one), one.operands
    layout = one.types[0].layout

    def step(partition: Partition, values: Values) -> None:
        count()
        view: View = values[target]
        arrivals, size = [], 0
        for store, masks in zip(partition.start(), view.reach(layout), strict=True):
            for cta, mask in masks.items():
                partition.access_later(store, view, place, writes=True, ctas=[cta], proxy="generic", mask=mask)
            known = store.finish()
            arrivals += [(cta, known) for cta in masks]
            size += masks.get(0, 0).bit_count()
        view.store(values[given])
        partition.program.barrier(values[barrier], place).receive(size, arrivals)

    return step


def _make_copy(one: Operation, kernel: Kernel) -> Step:
    """Make an asynchronous copy from pointers, complete when its group is waited for."""
    count, place = kernel.neutral(one, "moves data"), kernel.describe(one)
    (pointers, target, *rest), line = one.operands, kernel.site(one)

    def step(partition: Partition, values: Values) -> None:
        count()
        view = values[target]
        for one in partition.start():
            partition.access_later(one, view, place, writes=True, ctas=[one.cta], proxy="generic")
            partition.open[one.cta] |= 1 << one.number
        view.store(load_elements(values[pointers], view.dtype, *(values[given] for given in rest), line=line))

    return step


def _make_commit(one: Operation, kernel: Kernel) -> Step:
    count = kernel.neutral(one, "computes nothing")

    def step(partition: Partition, _values: Values) -> None:
        count()
        partition.copies.append(partition.open)
        partition.open = [0] * len(partition.open)

    return step


def _make_group_wait(one: Operation, kernel: Kernel) -> Step:
    count, left = kernel.neutral(one, "computes nothing"), integer(one.attributes["num"])

    def step(partition: Partition, _values: Values) -> None:
        count()
        wait(partition.copies, left, partition.clocks)

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
    "ttg.local_dealloc": make_nothing,
    "ttg.memdesc_index": _make_part(_index),
    "ttg.memdesc_subslice": _make_part(_slice),
    "ttg.memdesc_trans": _make_part(_permute),
    "ttg.memdesc_reshape": _make_part(_reshape),
    "ttg.memdesc_reinterpret": _make_part(_reinterpret),
    "ttg.local_load": _make_load,
    "ttg.local_store": _make_store,
    "ttng.async_shared_store": _make_later_store,
    "ttg.local_gather": _make_gather,
    "ttg.local_scatter": _make_scatter,
    "ttg.async_copy_global_to_local": _make_copy,
    "ttg.async_commit_group": _make_commit,
    "ttg.async_wait": _make_group_wait,
}
