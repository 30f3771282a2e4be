"""`tl.sum` in the order in which the threads of a GPU add: in registers, then across lanes, then across warps."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastmma.triton.arithmetic import fused
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.handles import FACTORS, Factors
from fastmma.triton.positions import position, sites, straight
from fastmma.triton.versions import TESTED

# in which order a thread adds its registers: Triton 3.6 one after another (seen on an H100), 3.9 in pairs (read off its PTX)
_IN_REGISTERS = {"3.6": "ascending", "3.9": "pairs"}
IN_REGISTERS = _IN_REGISTERS[TESTED[-1]]

Term = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # a value and the factors whose product it is


def _in_thread(terms: list[Term], are_products: bool, order: str) -> NDArray[Any]:
    def plus(term: Term, other: NDArray[Any]) -> NDArray[Any]:
        return fused(term[1], term[2], other) if are_products else term[0] + other

    if order == "ascending" or len(terms) < 2:
        total = terms[0][0] if len(terms) < 2 else plus(terms[0], terms[1][0])
        for term in terms[2:]:
            total = plus(term, total)
        return total
    sums = [plus(first, second[0]) for first, second in zip(terms[::2], terms[1::2], strict=True)]
    while len(sums) > 1:
        sums = [first + second for first, second in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0]


def summed(values: NDArray[Any], axis: int, owners: list[str], factors: Factors | None = None, order: str = "pairs") -> NDArray[Any]:
    """The sum along an axis, whose coordinates' bits are held by `owners`, lowest first.

    A thread adds its registers, ``"ascending"`` or in ``"pairs"`` of neighbours, pairs of pairs and so on; products join the first sum that
    they enter in one rounding. Then lanes, and then warps, exchange sums with those whose number differs in one bit, the highest first.
    """
    bits = range(len(owners))
    registers, rest = [[bit for bit in bits if (owners[bit] == "register") == wanted] for wanted in (True, False)]
    lead = values.ndim - 1
    places = [*range(lead), *(lead + len(bits) - 1 - bit for bit in (*rest[::-1], *registers[::-1]))]

    def by_register(array: NDArray[Any]) -> NDArray[Any]:
        moved = np.moveaxis(np.broadcast_to(array, values.shape), axis, -1)
        split = moved.reshape(*moved.shape[:-1], *(2,) * len(bits)).transpose(places)
        return np.moveaxis(split.reshape(*split.shape[: lead + len(rest)], -1), -1, 0)

    parts = [by_register(array) for array in ((values, values, values) if factors is None else (values, factors.x, factors.y))]
    total = _in_thread(list(zip(*parts, strict=True)), factors is not None, order)
    left = list(rest)
    for owner in ("lane", "warp"):
        for bit in [bit for bit in rest[::-1] if owners[bit] == owner]:
            where = total.ndim - 1 - left.index(bit)
            total = np.take(total, 0, where) + np.take(total, 1, where)
            left.remove(bit)
    return total


def _sum(run: Emulation, original: Operation, value: Any) -> Any:
    if not value.dtype.is_floating():
        return original(value)
    reduction = cast(partial[Any], original).args[0]
    handle = value.handle
    data, axis = (handle.data.ravel(), 0) if reduction.axis is None else (handle.data, reduction.axis % handle.data.ndim)
    here = position()
    owners = run.launch.order_of_sum(sites(here), data.shape, axis) if handle.dtype.scalar.name == "fp32" and run.capability < 100 else None
    factors = handle.attr.get(FACTORS)
    if factors is not None and not (run.fuses and straight(factors.where, here)):
        factors = None
    if owners is None or (factors is not None and "register" not in owners):
        run.report.passes("sum", "the order of its additions depends on the layout of the threads, which is not known")
        return original(value)
    result = summed(data, axis, owners, factors, IN_REGISTERS)
    run.report.did("sum", "registers, lanes, warps" + (", products fused" if factors is not None else ""))
    if reduction.keep_dims:
        result = np.expand_dims(result, axis) if reduction.axis is not None else result.reshape((1,) * handle.data.ndim)
    return reduction.to_tensor(result if np.ndim(result) else result[()], value.dtype)


def _other(run: Emulation, original: Operation, value: Any, *rest: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    if any(tensor.dtype.is_floating() for tensor in values):
        run.report.passes(
            "reduction", "the order in which it combines depends on the layout of the threads, and is modelled for tl.sum only"
        )
    return original(value, *rest)


REDUCTIONS = {"sum": _sum, "generic_reduce": _other}
SCANS = {"cumsum": _other, "cumprod": _other, "generic_scan": _other}
