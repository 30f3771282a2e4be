"""Cluster launch control: a program takes over the work of one that is not launched yet."""

from __future__ import annotations

import re

import numpy as np

from fastmma.triton.gluon.kernel import Kernel, Step
from fastmma.triton.gluon.memory import View
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.program import Partition, Values

_BYTES = 16  # of an answer
_TAKEN = 1 << 32


def _make_request(one: Operation, kernel: Kernel) -> Step:
    """Make a request of the first CTA for the program that would be launched next; a GPU may give any that is not launched."""
    count, place = kernel.neutral(one, "computes nothing"), kernel.describe(one)
    result, barrier = one.operands[:2]

    def step(partition: Partition, values: Values) -> None:
        count()
        view: View = values[result]
        request, ctas = partition.start_in(0), range(partition.program.ctas)
        partition.access_later(request, view, place, writes=True, ctas=ctas)
        known = request.finish()
        pending = partition.program.pending
        taken = _TAKEN if pending else 0
        x, y, z = pending.popleft() if pending else (0, 0, 0)
        view.store(np.array([x | y << 32, z | taken], np.int64).reshape(view.shape))
        partition.program.barrier(values[barrier], place).receive(_BYTES, [(cta, known) for cta in ctas])

    return step


def _make_answer(one: Operation, kernel: Kernel) -> Step:
    count, place = kernel.neutral(one, "moves data"), kernel.describe(one)

    def step(partition: Partition, values: Values) -> None:
        count()
        view: View = values[one.operands[0]]
        partition.access(view, place, writes=False)
        values[one.results[0]] = view.load().ravel()

    return step


def _make_success(one: Operation, kernel: Kernel) -> Step:
    count = kernel.neutral(one, "integers")

    def step(_: Partition, values: Values) -> None:
        count()
        values[one.results[0]] = np.bool_(values[one.operands[0]][1] & _TAKEN)

    return step


def _make_place(one: Operation, kernel: Kernel) -> Step:
    count = kernel.neutral(one, "integers")
    found = re.search(r", ([xyz])\b", one.text)
    axis = "xyz".index(found[1] if found else "x")

    def step(_: Partition, values: Values) -> None:
        count()
        low, high = values[one.operands[0]]
        values[one.results[0]] = np.int32((low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF)[axis])

    return step


MAKERS = {
    "ttng.clc_try_cancel": _make_request,
    "ttng.clc_load_result": _make_answer,
    "ttng.clc_is_canceled": _make_success,
    "ttng.clc_get_program_id": _make_place,
}
