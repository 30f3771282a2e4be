"""Loads, stores, copies and atomic operations: global memory is this process's, by its addresses; shared and local memory are arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton.runtime import interpreter

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.addresses import check_addresses
from fastmma.triton.machine.floats import flush
from fastmma.triton.machine.state import Mask, State
from fastmma.triton.machine.values import KINDS, PAIRS, UNSIGNED, join_pairs, split_pairs

Array = NDArray[Any]
_UNITS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
    16: np.dtype(np.complex128),
}
_memory = interpreter._interpreter


def load_global(state: State, addresses: Array, size: int, count: int, mask: Mask) -> list[Array]:
    """Load `count` neighbours of `size` bytes from each address."""
    shape = addresses.shape if mask is None else np.broadcast_shapes(addresses.shape, mask.shape)
    places = np.ascontiguousarray(np.broadcast_to(addresses, shape))
    active = np.ones(shape, np.bool_) if mask is None else np.ascontiguousarray(np.broadcast_to(mask, shape))
    check_addresses(places, active, line=state.line)
    unit = _UNITS.get(size * count)
    if unit is None:
        return [load_global(state, addresses + np.uint64(size * index), size, 1, mask)[0] for index in range(count)]
    found = np.asarray(_memory.load(places, active, np.zeros(shape, unit), unit))
    if count == 1:
        return [found]
    split = found[..., None].view(UNSIGNED[size])
    return [split[..., index] for index in range(count)]


def store_global(state: State, addresses: Array, values: list[Array], size: int, mask: Mask) -> None:
    """Store neighbours to each address; every thread does, in the order of their numbers."""
    shape = np.broadcast_shapes(addresses.shape, *(one.shape for one in values), *(() if mask is None else (mask.shape,)))
    places = np.ascontiguousarray(np.broadcast_to(addresses, shape))
    active = np.ones(shape, np.bool_) if mask is None else np.ascontiguousarray(np.broadcast_to(mask, shape))
    check_addresses(places, active, stores=True, line=state.line)
    unit = _UNITS.get(size * len(values))
    if unit is None:
        for index, one in enumerate(values):
            store_global(state, addresses + np.uint64(size * index), [one], size, mask)
        return
    joined = np.empty((*shape, len(values)), UNSIGNED[size])
    for index, one in enumerate(values):
        joined[..., index] = one
    _memory.store(places, joined.view(unit)[..., 0], active)


def _places(state: State, addresses: Array, size: int, mask: Mask) -> Array:
    """Return the numbers of units of shared memory.

    Raises
    ------
    NotEmulatedError
        If an address lies outside.
    """
    places = addresses.astype(np.int64) // size
    if mask is not None:
        places = np.where(mask, places, 0)
    if places.size and int(places.max()) >= state.shared.shape[1] // size:
        raise NotEmulatedError(f"shared memory at {int(addresses.max())}, of {state.shared.shape[1]} bytes")
    return places


def load_shared(state: State, addresses: Array, size: int, count: int, mask: Mask) -> list[Array]:
    """Load neighbours from shared memory."""
    units = state.shared.view(UNSIGNED[size])
    places = _places(state, addresses, size, mask)
    if places.shape[0] == 1:
        return [units[:, places[0] + index] for index in range(count)]
    return [units[state.rows, places + index] for index in range(count)]


@lru_cache(maxsize=64)
def _order(threads: int, size: int) -> Array:
    """Return the order in which threads store so many bytes each: the last to one place leaves its value, as an H200's do.

    A warp stores 128 bytes at a time, of which the lowest lane comes last.
    """
    lanes = np.arange(threads).reshape(-1, max(1, min(32, 128 // size)))
    by_warp = lanes[:, ::-1].reshape(-1, min(32, threads))
    return by_warp[::-1].ravel()


def store_shared(state: State, addresses: Array, values: list[Array], size: int, mask: Mask) -> None:
    """Store neighbours to shared memory."""
    units = state.shared.view(UNSIGNED[size])
    places = _places(state, addresses, size, mask)
    order = _order(state.threads, size * len(values))
    if mask is None and places.shape == (1, state.threads):
        for index, one in enumerate(values):
            units[:, places[0, order] + index] = state.full(one)[:, order]
        return
    rows, columns = np.nonzero(state.active(mask)[:, order])
    columns = order[columns]
    where = state.full(places)[rows, columns]
    for index, one in enumerate(values):
        units[rows, where + index] = state.full(one)[rows, columns]


def _local(state: State, addresses: Array, size: int, mask: Mask) -> tuple[Array, Array]:
    """Return each thread's local memory in units, and the numbers of units in it.

    Raises
    ------
    NotEmulatedError
        If an address lies outside.
    """
    places = np.where(state.active(mask), state.full(addresses.astype(np.int64)) // size, 0)
    if places.max() >= state.local.shape[2] // size:
        raise NotEmulatedError(f"local memory at {int(places.max()) * size}, of {state.local.shape[2]} bytes")
    return state.local.view(UNSIGNED[size]), places


def load_local(state: State, addresses: Array, size: int, count: int, mask: Mask) -> list[Array]:
    """Load neighbours from each thread's local memory."""
    units, places = _local(state, addresses, size, mask)
    return [np.take_along_axis(units, places[..., None] + index, 2)[..., 0] for index in range(count)]


def store_local(state: State, addresses: Array, values: list[Array], size: int, mask: Mask) -> None:
    """Store neighbours to each thread's local memory."""
    units, places = _local(state, addresses, size, mask)
    rows, columns = np.nonzero(state.active(mask))
    for index, one in enumerate(values):
        units[rows, columns, places[rows, columns] + index] = state.full(one)[rows, columns]


def copy_to_shared(state: State, to: Array, source: Array, size: int, given: Array | None, mask: Mask) -> None:
    """Copy bytes from global to shared memory, ``cp.async``; zeros beyond those that are given."""
    is_given = mask
    if given is not None:
        full = given >= size
        if not np.all(full | (given == 0)):
            raise NotEmulatedError("cp.async of a part of its bytes")
        is_given = full if mask is None else full & mask
    unit = min(size, 8)
    values = load_global(state, source, unit, size // unit, is_given)
    store_shared(state, to, [np.asarray(one) for one in values], unit, mask)


def _join(name: str, kind: str, found: Array, value: Array) -> Array:
    """Return what an atomic operation leaves."""
    dtype = KINDS[kind]
    if kind in PAIRS:
        one, other = (split_pairs(part, PAIRS[kind]) for part in (found, value))
        return join_pairs((one.astype(np.float32) + other.astype(np.float32)).astype(PAIRS[kind]))
    x, y = found.view(dtype), value.view(dtype)
    if name == "exch":
        return value
    if kind == "f32":
        result = flush(flush(x) + flush(y))
    elif dtype.kind == "f" or kind == "bf16":
        result = (x + y).astype(dtype)
    else:
        result = _INTEGERS[name](x, y)
    return np.asarray(result).view(found.dtype)


_INTEGERS: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda x, y: x + y,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda _x, y: y,
    "inc": lambda x, y: np.where(x >= y, x.dtype.type(0), x + x.dtype.type(1)),
    "dec": lambda x, y: np.where((x == 0) | (x > y), y, x - x.dtype.type(1)),
}
_FLOATS = ("add", "exch")


def _rounds(places: Array) -> Iterator[Array]:
    """Yield the threads that reach a place first, those that come second, and so on."""
    _, inverse, counts = np.unique(places, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    number = np.empty(places.size, np.intp)
    number[order] = np.arange(places.size) - np.repeat(np.cumsum(counts) - counts, counts)
    for turn in range(int(counts.max(initial=0))):
        yield np.flatnonzero(number == turn)


def change(
    state: State, space: str, name: str, kind: str, addresses: Array, values: list[Array], compared: Array | None, mask: Mask
) -> list[Array]:
    """Change neighbours at each address, one thread after another, and return what was found there.

    Raises
    ------
    NotEmulatedError
        If there is no such operation.
    """
    is_float = kind in ("f16", "bf16", "f32", "f64", *PAIRS)
    if name not in (_FLOATS if is_float else (*_INTEGERS, "cas")):
        raise NotEmulatedError(f"atom.{name}.{kind}")
    size = KINDS[kind].itemsize
    active = state.active(mask)
    places = state.full(addresses)[active]
    blocks = np.broadcast_to(state.rows, active.shape)[active]
    units = state.shared.view(UNSIGNED[size])
    found = [np.zeros((state.blocks, state.threads), UNSIGNED[size]) for _ in values]
    keys = places if space == "global" else blocks * np.int64(state.shared.shape[1]) + places
    for index, one in enumerate(values):
        given = state.full(one)[active]
        wanted = state.full(compared)[active] if compared is not None else None
        before = np.zeros(places.size, UNSIGNED[size])
        for chosen in _rounds(keys):
            at = places[chosen] + places.dtype.type(size * index)
            everyone = np.ones(at.shape, np.bool_)
            if space == "global":
                check_addresses(at, everyone, stores=True, line=state.line)
                held = np.asarray(_memory.load(at, everyone, np.zeros(at.shape, UNSIGNED[size]), UNSIGNED[size]))
            else:
                held = units[blocks[chosen], at // size]
            before[chosen] = held
            left = _join(name, kind, held, given[chosen]) if wanted is None else np.where(held == wanted[chosen], given[chosen], held)
            if space == "global":
                _memory.store(at, np.ascontiguousarray(left), everyone)
            else:
                units[blocks[chosen], at // size] = left
        found[index][active] = before
    return found
