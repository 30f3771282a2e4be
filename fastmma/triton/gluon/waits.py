"""mbarriers and their waits, barriers of CTAs and clusters, and fences."""

from __future__ import annotations

import re
from collections.abc import Callable

from fastmma.triton.gluon.barriers import Barrier
from fastmma.triton.gluon.clocks import Clock
from fastmma.triton.gluon.kernel import Kernel, Step, make_nothing
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.program import Partition, Steps, Values
from fastmma.triton.gluon.tensors import integer


def _make_copy_arrival(one: Operation, kernel: Kernel) -> Step:
    """Make an arrival that comes when all copies before it are complete; without an increment it counts as one of the expected."""
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)
    added = "noIncrement" not in one.attributes

    def step(partition: Partition, values: Values) -> None:
        count()
        barrier = partition.program.barrier(values[one.operands[0]], place)
        arrivals = []
        for cta, clock in enumerate(partition.clocks):
            known = clock.copy()
            for group in (partition.open, *partition.copies):
                known.done |= group[cta]
            arrivals.append((cta, known))
        if added:
            barrier.pending += 1
        barrier.arrive(1, arrivals, place)

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
        partition.program.barriers[id(view.allocation), view.start] = Barrier(name, arrivals, held=view.held)
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


def _find_route(one: Operation) -> Callable[[Partition], list[tuple[int, Clock]]]:
    """Return what finds for each CTA who arrives at its mbarrier: the CTA of which `fromCTA` keeps some bits of the number, or itself."""
    kept = integer(one.attributes.get("fromCTA", "-1"))
    return lambda partition: [(cta, partition.clocks[cta & kept]) for cta in range(len(partition.clocks))]


def _make_expect(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)
    number = re.search(r", (\d+)", one.text)
    assert number is not None
    size, route = int(number[1]), _find_route(one)

    def step(partition: Partition, values: Values) -> None:
        count()
        if len(one.operands) < 2 or values[one.operands[1]]:
            barrier = partition.program.barrier(values[one.operands[0]], place)
            barrier.expect(size)
            barrier.arrive(1, route(partition), place)
            partition.tick()

    return step


def _make_arrival(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)
    number = re.search(r", (\d+)", one.text)
    arrivals, route = int(number[1]) if number else 1, _find_route(one)

    def step(partition: Partition, values: Values) -> None:
        count()
        if len(one.operands) < 2 or values[one.operands[1]]:
            partition.program.barrier(values[one.operands[0]], place).arrive(arrivals, route(partition), place)
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
        for holder, released in barrier.released.items():  # those that hold none do not wait
            partition.clocks[holder].join(released)

    return waiting


def _make_fence(one: Operation, kernel: Kernel) -> Step:
    count = kernel.neutral(one, "computes nothing")

    def step(partition: Partition, _values: Values) -> None:
        count()
        partition.fence()

    return step


def _make_cluster_barrier(one: Operation, kernel: Kernel) -> Step:
    """Make a barrier of all CTAs, which orders accesses unless it is relaxed."""
    count, orders = kernel.neutral(one, "computes nothing"), one.attributes.get("relaxed") != "true"

    def step(partition: Partition, _values: Values) -> None:
        count()
        if orders:
            partition.meet()

    return step


MAKERS = {
    "ttng.async_copy_mbarrier_arrive": _make_copy_arrival,
    "ttng.init_barrier": _make_init,
    "ttng.inval_barrier": _make_invalidation,
    "ttng.barrier_expect": _make_expect,
    "ttng.arrive_barrier": _make_arrival,
    "ttng.wait_barrier": _make_wait,
    "ttng.fence_async_shared": _make_fence,
    "ttng.fence_mbarrier_init_release_cluster": make_nothing,
    "ttng.cluster_barrier": _make_cluster_barrier,
    "ttg.barrier": make_nothing,
    "gpu.barrier": make_nothing,
}
