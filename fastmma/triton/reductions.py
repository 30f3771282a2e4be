"""`tl.sum` in the order in which the threads of a GPU add: in registers, then across lanes, then across warps."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastmma.triton.compiled import CompiledSum
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.handles import FACTORS, SOURCES
from fastmma.triton.layouts import number_registers, take_by_bits
from fastmma.triton.numbers import fused
from fastmma.triton.positions import Position, position, sites
from fastmma.triton.sources import list_sources, mark_exchanged
from fastmma.triton.versions import TESTED

# in which order a thread adds its registers: Triton 3.6 one after another (seen on an H100), 3.9 in pairs (read off its PTX)
_IN_REGISTERS = {"3.6": "ascending", "3.9": "pairs"}
IN_REGISTERS = _IN_REGISTERS[TESTED[-1]]
_LANES = 32  # of a warp

Fused = tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]  # of values, the factors whose product they are, and which join a sum as such


def _join(total: NDArray[Any], factors: Fused | None, which: int | slice, addend: NDArray[Any]) -> NDArray[Any]:
    """Put sums in the places of others in which products join an addend in one rounding."""
    if factors is None or not factors[2][which].any():
        return total
    x, y, joins = (array[which] for array in factors)
    return np.where(joins, fused(x, y, addend), total)


def _in_thread(values: NDArray[Any], factors: Fused | None, order: str) -> NDArray[Any]:
    """Add along the first axis; a product joins the first sum that it enters."""
    if len(values) < 2:
        return np.asarray(values[0])
    if order == "ascending":
        total = _join(_join(values[0] + values[1], factors, 0, values[1]), factors, 1, values[0])
        for index in range(2, len(values)):
            total = _join(values[index] + total, factors, index, total)
        return total
    even, odd = slice(None, None, 2), slice(1, None, 2)
    sums = _join(_join(values[even] + values[odd], factors, even, values[odd]), factors, odd, values[even])
    while len(sums) > 1:
        sums = sums[even] + sums[odd]
    return np.asarray(sums[0])


def summed(values: NDArray[Any], axis: int, owners: list[str], factors: Fused | None = None, order: str = "pairs") -> NDArray[Any]:
    """The sum along an axis, whose coordinates' bits are held by `owners`, lowest first.

    A thread adds its registers, ``"ascending"`` or in ``"pairs"`` of neighbours, pairs of pairs and so on; products that are fused join the
    first sum that they enter in one rounding, which is that of two lanes where a thread has one value. Lanes, and then warps, exchange sums
    with those whose number differs in one bit, the highest first. The CTAs of a cluster exchange theirs before the warps, if one warp has a
    lane for each sum, else after them.
    """
    exchanged = owners.count("warp") + owners.count("block")
    others = ("lane", "block", "warp") if 1 << exchanged <= _LANES else ("lane", "warp", "block")
    size = len(owners)
    registers, *exchanges = ([bit for bit in reversed(range(size)) if owners[bit] == owner] for owner in ("register", *others))
    bits = [bit for each in exchanges for bit in each]
    rest = values.shape[:axis], values.shape[axis + 1 :]
    order_of_axes = [*(axis + size - 1 - bit for bit in (*registers, *bits)), *range(axis), *range(axis + size, values.ndim + size - 1)]

    def by_register(array: NDArray[Any]) -> NDArray[Any]:
        split = np.broadcast_to(array, values.shape).reshape(*rest[0], *(2,) * size, *rest[1])
        return split.transpose(order_of_axes).reshape(1 << len(registers), *(2,) * len(bits), *rest[0], *rest[1])

    parts = None if factors is None else (by_register(factors[0]), by_register(factors[1]), by_register(factors[2]))
    total = _in_thread(by_register(values), parts, order)
    for index in range(len(bits)):
        if index == 0 and not registers and parts is not None and parts[2].any():
            total = fused(parts[0][0, 0], parts[1][0, 0], total[1])
        else:
            total = total[0] + total[1]
    return total


def _find_fused(run: Emulation, found: CompiledSum, where: Position, handle: Any) -> Fused | str | None:
    """Find the products that join sums in one rounding; a string says why they are not known."""
    compiled = run.launch.compiled
    if not run.fuses or compiled is None:
        return None
    along = tuple(index for index, (dimension, _) in enumerate(found.registers) if dimension == found.axis)
    owners, places = found.owners or (), sites(where)
    if not along and {"lane", "warp"} <= set(owners) and compiled.contractions.exchanges_products(places):
        joins: tuple[bool, ...] | None = (True,) * (1 << len(found.registers))  # of the lanes whose sums the warps exchange
    else:
        joins = compiled.contractions.find_fused_registers(places, len(found.registers), along, "lane" in owners)
    if joins is None:
        return "which products the compiler fuses with it is not clear"
    if not any(joins):
        return None
    factors = handle.attr.get(FACTORS)
    if factors is None:
        return "the compiler fuses products with it that are not known"
    x, y = (_lay_out(one, handle, found) for one in (factors.x, factors.y))
    return x, y, np.array(joins)[number_registers(found.registers, found.shape)]


def _lay_out(array: NDArray[Any], handle: Any, found: CompiledSum) -> NDArray[Any]:
    array = np.broadcast_to(array, handle.data.shape)
    return array if found.source is None else take_by_bits(array, found.source[1])


def _sum(run: Emulation, original: Operation, value: Any, *_: Any) -> Any:
    if not value.dtype.is_floating():
        return original(value)
    reduction = cast(partial[Any], original).args[0]
    handle = value.handle
    shape = handle.data.shape
    axis = 0 if reduction.axis is None else reduction.axis % len(shape)
    here = position()
    of_f32 = handle.dtype.scalar.name == "fp32" and run.capability < 100
    found = run.launch.find_sum(here, shape, None if reduction.axis is None else axis) if of_f32 else None
    if found is None or found.owners is None:
        run.report.passes("sum", "the order of its additions depends on the layout of the threads, which is not known")
        return original(value)
    factors = _find_fused(run, found, here, handle)
    if isinstance(factors, str):
        run.report.passes("sum", factors)
        factors = None
    else:
        run.report.did("sum", "registers, lanes, warps" + (", products fused" if factors is not None else ""))
    result = summed(_lay_out(handle.data, handle, found), axis, list(found.owners), factors, IN_REGISTERS)
    if reduction.keep_dims:
        result = np.expand_dims(result, axis) if reduction.axis is not None else result.reshape((1,) * len(shape))
    tensor = reduction.to_tensor(result if np.ndim(result) else result[()], value.dtype)
    if set(found.owners) <= {"register"}:
        tensor.handle.attr[SOURCES] = list_sources(handle)
    else:
        mark_exchanged(tensor.handle)
    return tensor


def _other(run: Emulation, original: Operation, value: Any, *rest: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    if any(tensor.dtype.is_floating() for tensor in values):
        run.report.passes(
            "reduction", "the order in which it combines depends on the layout of the threads, and is modelled for tl.sum only"
        )
    return original(value, *rest)


REDUCTIONS = {"sum": _sum, "generic_reduce": _other}
SCANS = {"cumsum": _other, "cumprod": _other, "generic_scan": _other}
