"""Permutations of the elements of matrices, as between a matrix and registers: the same one for every row of an array."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from fastmma.host.addresses import address_of
from fastmma.kernels.llvm import cpu, kinds
from fastmma.kernels.llvm.building import get_or_insert_function
from fastmma.kernels.llvm.compilation import compiled, inner
from fastmma.kernels.llvm.intrinsics import intrinsic
from fastmma.kernels.llvm.simd import itemsize_of, load_scalar, select, store
from fastmma.kernels.llvm.vectors import VectorType, llvm_vector

VECTOR = 64  # bytes
SOURCES = 4  # of one vector of the result
STEP = 4 * VECTOR  # of the plan, a vector of the result: sources, two indices, and which lanes are of the second one
_FEATURES = {1: {"avx512vbmi"}, 2: {"avx512bw"}, 4: {"avx512f"}}
_DTYPES: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class Permutation(NamedTuple):
    """The origins of every granule of a result.

    With AVX-512, `table` says for every vector of the result from which four vectors of the source its lanes come. Where there is no such
    vector, or they come from more, `vectors` is 0, and `table` holds the int32 offset in the source of every granule.
    """

    granule: int  # bytes
    vectors: int  # of the result
    table: NDArray[Any]

    @property
    def address(self) -> int:
        """Where the table lies."""
        return address_of(self.table)


def permutation(origin: NDArray[Any], size: int) -> Permutation:
    """The permutation that puts element ``origin[j]`` of a source at place j of a result; elements have `size` bytes."""
    origin = np.asarray(origin, np.int64).ravel()
    for granule in (4, 2, 1):
        each = _granules(origin, size, granule)
        if each is not None:
            break
    assert each is not None
    return Permutation(granule, *(_plan(each, granule) or (0, (granule * each).astype(np.int32))))


def _granules(origin: NDArray[np.int64], size: int, granule: int) -> NDArray[np.int64] | None:
    """The origin of every granule, if none is torn apart."""
    if granule <= size:
        return (origin[:, None] * (size // granule) + np.arange(size // granule)).ravel()
    together = granule // size
    if len(origin) % together:
        return None
    groups = origin.reshape(-1, together)
    if (groups[:, 0] % together).any() or (groups != groups[:, :1] + np.arange(together)).any():
        return None
    return groups[:, 0] // together


def _plan(origin: NDArray[np.int64], granule: int) -> tuple[int, NDArray[np.uint8]] | None:
    """Return how many vectors there are, and how each is made, if this CPU can and no vector comes from too many."""
    lanes = VECTOR // granule
    if len(origin) % lanes or not cpu.features() >= _FEATURES[granule] or cpu.portable():
        return None
    plan = np.zeros((len(origin) // lanes, STEP), np.uint8)
    dtype = _DTYPES[granule]
    for step, places in zip(plan, origin.reshape(-1, lanes), strict=True):
        used = np.unique(places // lanes)
        if len(used) > SOURCES:
            return None
        padded = np.concatenate([used, np.repeat(used[-1:], SOURCES - len(used))])
        which = np.searchsorted(used, places // lanes)
        step[: 8 * SOURCES].view(np.int64)[:] = VECTOR * padded
        step[8 * SOURCES :][:8].view(np.int64)[:] = len(used) > 2
        index = (which % 2 * lanes + places % lanes).astype(dtype)
        for part in (1, 2):
            step[part * VECTOR : (part + 1) * VECTOR].view(dtype)[:] = index
        step[3 * VECTOR :].view(dtype)[:] = which > 1
    return len(plan), plan


@intrinsic
def _picked(typingctx: Any, first: Any, index: Any, second: Any) -> Any:
    """Lanes of two vectors by their index, 0 for the first one's first lane."""
    name = {8: "qi", 16: "hi", 32: "d"}[first.dtype.bitwidth]

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        if not cpu.features() >= _FEATURES[first.dtype.bitwidth // 8]:
            return args[0]  # never runs: on such a CPU no plan has a vector
        function_type = ir.FunctionType(args[0].type, [args[0].type] * 3)
        function = get_or_insert_function(builder.module, function_type, f"llvm.x86.avx512.vpermi2var.{name}.512")
        return builder.call(function, args)

    return first(first, index, second), codegen


@intrinsic
def _load_whole(typingctx: Any, address: Any, dtype: Any) -> Any:
    """``_load_whole(address, dtype)``: a whole vector."""
    vector = VectorType(dtype.dtype, 8 * VECTOR // dtype.dtype.bitwidth)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        value = builder.load(builder.inttoptr(args[0], ir.PointerType(llvm_vector(vector.dtype, vector.lanes))))
        value.align = 1
        return value

    return vector(kinds.int64, dtype), codegen


@inner
def by_plan(dtype: Any, source: int, source_size: int, target: int, vectors: int, plan: int, count: int) -> None:
    """Permute rows of a source by the table of a `Permutation` with so many vectors."""
    for _ in range(count):
        for step in range(plan, plan + vectors * STEP, STEP):
            first = _load_whole(source + load_scalar(step, np.int64), dtype)
            second = _load_whole(source + load_scalar(step + 8, np.int64), dtype)
            result = _picked(first, _load_whole(step + VECTOR, dtype), second)
            if load_scalar(step + 8 * SOURCES, np.int64) != 0:
                first = _load_whole(source + load_scalar(step + 16, np.int64), dtype)
                second = _load_whole(source + load_scalar(step + 24, np.int64), dtype)
                other = _picked(first, _load_whole(step + 2 * VECTOR, dtype), second)
                result = select(_load_whole(step + 3 * VECTOR, dtype) == 0, result, other)
            store(result, target)
            target += VECTOR
        source += source_size


@inner
def _one_by_one(dtype: Any, source: int, source_size: int, target: int, entries: int, offsets: int, count: int) -> None:
    for _ in range(count):
        for entry in range(offsets, offsets + 4 * entries, 4):
            store(load_scalar(source + load_scalar(entry, np.int32), dtype), target)
            target += itemsize_of(dtype)
        source += source_size


@compiled
def _words_by_plan(source: int, source_size: int, target: int, vectors: int, plan: int, count: int) -> None:
    by_plan(np.uint32, source, source_size, target, vectors, plan, count)


@compiled
def _halves_by_plan(source: int, source_size: int, target: int, vectors: int, plan: int, count: int) -> None:
    by_plan(np.uint16, source, source_size, target, vectors, plan, count)


@compiled
def _bytes_by_plan(source: int, source_size: int, target: int, vectors: int, plan: int, count: int) -> None:
    by_plan(np.uint8, source, source_size, target, vectors, plan, count)


@compiled
def _one_granule_at_a_time(granule: int, source: int, source_size: int, target: int, entries: int, offsets: int, count: int) -> None:
    if granule == 1:
        _one_by_one(np.uint8, source, source_size, target, entries, offsets, count)
    elif granule == 2:
        _one_by_one(np.uint16, source, source_size, target, entries, offsets, count)
    else:
        _one_by_one(np.uint32, source, source_size, target, entries, offsets, count)


_BY_PLAN = {1: _bytes_by_plan, 2: _halves_by_plan, 4: _words_by_plan}


def permute(source: NDArray[Any], how: Permutation, target: NDArray[Any]) -> None:
    """Permute each row of `source` into the row of `target`, which is as large or holds copies; the rows of `target` are contiguous."""
    if source.strides[-1] != source.itemsize:
        source = np.ascontiguousarray(source)
    first, result = address_of(source), address_of(target)
    if how.vectors:
        _BY_PLAN[how.granule](first, source.strides[0], result, how.vectors, how.address, len(source))
    else:
        _one_granule_at_a_time(how.granule, first, source.strides[0], result, len(how.table), how.address, len(source))
