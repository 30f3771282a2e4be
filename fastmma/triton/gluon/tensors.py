"""Operations that move the elements of tensors, and those of pointers: loads, stores and atomic operations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton._C.libtriton import interpreter as native

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.gluon.kernel import Kernel, Step
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.program import Partition, Values
from fastmma.triton.gluon.types import Type
from fastmma.triton.memory import Memory

_MEMORY = Memory(native)


def integer(text: str) -> int:
    """Read an attribute that is an integer, such as ``"1 : i32"``."""
    return int(text.partition(" ")[0])


def integers(text: str) -> tuple[int, ...]:
    """Read an attribute that is a list, such as ``"array<i32: 1, 0>"``."""
    inner = re.sub(r"array<i\d+:?|[<>\[\]]", "", text)
    return tuple(int(one) for one in re.findall(r"-?\d+", inner))


def _move(function: Callable[[Operation], Callable[..., Any]]) -> Callable[[Operation, Kernel], Step]:
    """Make the maker of an operation that moves elements."""

    def make(one: Operation, kernel: Kernel) -> Step:
        apply, count, results, operands = function(one), kernel.neutral(one, "moves data"), one.results, one.operands

        def step(_: Partition, values: Values) -> None:
            count()
            found = apply(*(values[number] for number in operands))
            if len(results) == 1:
                values[results[0]] = found
            else:
                for number, value in zip(results, found, strict=True):
                    values[number] = value

        return step

    return make


def _range(one: Operation) -> Callable[..., Any]:
    made = np.arange(integer(one.attributes["start"]), integer(one.attributes["end"]), dtype=np.int32)
    return lambda: made


def _splat(one: Operation) -> Callable[..., Any]:
    kind = one.types[-1]
    return lambda x: np.full(kind.shape, x, kind.dtype)


def _unsplat(_one: Operation) -> Callable[..., Any]:
    return lambda x: x.reshape(-1)[0]


def _expand(one: Operation) -> Callable[..., Any]:
    axis = integer(one.attributes["axis"])
    return lambda x: np.expand_dims(x, axis)


def _broadcast(one: Operation) -> Callable[..., Any]:
    shape = one.types[-1].shape
    return lambda x: np.broadcast_to(x, shape)


def _reshape(one: Operation) -> Callable[..., Any]:
    shape = one.types[-1].shape
    return lambda x: np.reshape(x, shape)


def _permute(one: Operation) -> Callable[..., Any]:
    order = integers(one.attributes["order"])
    return lambda x: np.transpose(x, order)


def _split(_one: Operation) -> Callable[..., Any]:
    return lambda x: (x[..., 0], x[..., 1])


def _join(_one: Operation) -> Callable[..., Any]:
    return lambda x, y: np.stack((x, y), -1)


def _gather(one: Operation) -> Callable[..., Any]:
    axis = integer(one.attributes["axis"])
    return lambda x, index: np.take_along_axis(x, index.astype(np.int64), axis)


def _keep(_one: Operation) -> Callable[..., Any]:
    return lambda x: x


def _make_place(one: Operation, kernel: Kernel) -> Step:
    axis, of_grid = "xyz".index(one.text.split()[1][0]), one.name == "tt.get_num_programs"
    count, result = kernel.neutral(one, "integers"), one.results[0]

    def step(partition: Partition, values: Values) -> None:
        count()
        program = partition.program
        values[result] = np.int32((program.grid if of_grid else program.where)[axis])

    return step


def _make_offset(one: Operation, kernel: Kernel) -> Step:
    width = max(1, one.types[0].pointee.dtype.itemsize if not one.types[0].pointee.is_pointer else 8)
    count, result, (pointer, offset) = kernel.neutral(one, "integers"), one.results[0], one.operands

    def step(_: Partition, values: Values) -> None:
        count()
        values[result] = values[pointer] + np.asarray(values[offset]).astype(np.int64) * width

    return step


def load_elements(pointers: Any, dtype: np.dtype[Any], mask: Any = None, other: Any = None, *, line: tuple[str, int]) -> Any:
    """Load elements from addresses; zeros where a mask leaves one out and nothing else is given."""
    array = np.ascontiguousarray(pointers).astype(np.uint64, copy=False)
    taken = np.ones(array.shape, bool) if mask is None else np.ascontiguousarray(np.broadcast_to(mask, array.shape))
    kind = np.dtype(f"u{dtype.itemsize}")
    rest = np.zeros(array.shape, dtype) if other is None else np.broadcast_to(np.asarray(other, dtype), array.shape)
    found = np.asarray(_MEMORY.load(array, taken, np.ascontiguousarray(rest).view(kind), kind, line)).view(dtype)
    return found if np.ndim(pointers) else found.reshape(())[()]


def store_elements(pointers: Any, values: Any, mask: Any = None, *, line: tuple[str, int]) -> None:
    """Store elements at addresses, but those that a mask leaves out."""
    array = np.ascontiguousarray(pointers).astype(np.uint64, copy=False)
    data = np.ascontiguousarray(np.broadcast_to(np.asarray(values), array.shape))
    taken = np.ones(array.shape, bool) if mask is None else np.ascontiguousarray(np.broadcast_to(mask, array.shape))
    _MEMORY.store(array, data.view(f"u{data.itemsize}"), taken, line)


def _pointee(kind: Type) -> np.dtype[Any]:
    return np.dtype(np.int64) if kind.pointee.is_pointer else kind.pointee.dtype


def _make_load(one: Operation, kernel: Kernel) -> Step:
    count, result, dtype = kernel.neutral(one, "moves data"), one.results[0], _pointee(one.types[0])
    operands, line = one.operands, kernel.site(one)

    def step(_: Partition, values: Values) -> None:
        count()
        values[result] = load_elements(values[operands[0]], dtype, *(values[number] for number in operands[1:]), line=line)

    return step


def _make_store(one: Operation, kernel: Kernel) -> Step:
    count, operands, line = kernel.neutral(one, "moves data"), one.operands, kernel.site(one)

    def step(_: Partition, values: Values) -> None:
        count()
        store_elements(*(values[number] for number in operands), line=line)

    return step


_ATOMIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "max": np.maximum,
    "min": np.minimum,
    "fadd": np.add,
    "exch": lambda _, y: y,
    "umax": lambda x, y: np.maximum(x.view(f"u{x.itemsize}"), y.view(f"u{y.itemsize}")).view(x.dtype),
    "umin": lambda x, y: np.minimum(x.view(f"u{x.itemsize}"), y.view(f"u{y.itemsize}")).view(x.dtype),
}


def _make_atomic(one: Operation, kernel: Kernel) -> Step:
    name = one.text.split()[1].strip(",")
    apply, dtype, recorder = _ATOMIC.get(name), _pointee(one.types[0]), kernel.recorder(one)
    if apply is None:
        raise NotEmulatedError(f"{kernel.describe(one)}: {name}")
    unordered, line = name in ("fadd", "exch"), kernel.site(one)

    def step(partition: Partition, values: Values) -> None:
        pointers, given, *masks = (values[number] for number in one.operands)
        places: NDArray[Any] = np.atleast_1d(pointers).ravel()
        data = np.broadcast_to(np.asarray(given, dtype), np.shape(pointers)).ravel() if np.ndim(pointers) else np.atleast_1d(given)
        taken = (
            np.broadcast_to(masks[0], np.shape(pointers)).ravel()
            if masks and np.ndim(pointers)
            else np.atleast_1d(masks[0] if masks else True)
        )
        alone = all(size == 1 for size in partition.program.grid) and np.unique(places).size == places.size
        if unordered and not alone:
            recorder.passes(f"atomic_{name}", "the order of threads changes from run to run of a GPU")
        else:
            recorder.tell("neutral", f"atomic_{name}", "in whichever order")
        found = np.zeros(len(places), dtype)
        for index, place in enumerate(places):
            if taken[min(index, len(taken) - 1)]:
                found[index] = load_elements(place, dtype, line=line)
                store_elements(place, apply(found[index], data[index]), line=line)
        values[one.results[0]] = found.reshape(np.shape(pointers)) if np.ndim(pointers) else found[0]

    return step


def _make_exchange(one: Operation, kernel: Kernel) -> Step:
    """Make a comparison of what lies in memory with an exchange, element after element."""
    dtype, recorder, line = _pointee(one.types[0]), kernel.recorder(one), kernel.site(one)

    def step(partition: Partition, values: Values) -> None:
        pointers = values[one.operands[0]]
        places: NDArray[Any] = np.atleast_1d(pointers).ravel()
        expected, given = (np.broadcast_to(np.asarray(values[number], dtype), np.shape(pointers)).ravel() for number in one.operands[1:])
        if all(size == 1 for size in partition.program.grid) and np.unique(places).size == places.size:
            recorder.tell("neutral", "atomic_cas", "in whichever order")
        else:
            recorder.passes("atomic_cas", "what it finds in memory changes from run to run of a GPU")
        found = np.zeros(len(places), dtype)
        for index, place in enumerate(places):
            found[index] = load_elements(place, dtype, line=line)
            if found[index : index + 1].tobytes() == expected[index : index + 1].tobytes():
                store_elements(place, given[index], line=line)
        values[one.results[0]] = found.reshape(np.shape(pointers)) if np.ndim(pointers) else found[0]

    return step


MAKERS = {
    "tt.make_range": _move(_range),
    "tt.splat": _move(_splat),
    "tt.unsplat": _move(_unsplat),
    "tt.expand_dims": _move(_expand),
    "tt.broadcast": _move(_broadcast),
    "tt.reshape": _move(_reshape),
    "tt.trans": _move(_permute),
    "tt.split": _move(_split),
    "tt.join": _move(_join),
    "tt.gather": _move(_gather),
    "ttg.convert_layout": _move(_keep),
    "tt.get_program_id": _make_place,
    "tt.get_num_programs": _make_place,
    "tt.addptr": _make_offset,
    "tt.load": _make_load,
    "tt.store": _make_store,
    "tt.atomic_rmw": _make_atomic,
    "tt.atomic_cas": _make_exchange,
}
