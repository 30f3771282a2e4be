"""The kernels, each as a way to compute products of an operation: where their interfaces change, this file does, and no test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from reference import routes
from reference.fallbacks import fall_back
from reference.paths import PATHS

from fastmma.backends import parts, route, runs
from fastmma.backends.arranged import ordered
from fastmma.backends.batches import each
from fastmma.backends.call import Operands, Operation
from fastmma.backends.parameters import element_specs, fused_parameters, plain
from fastmma.backends.problem import problem_of
from fastmma.backends.resolve import backend_of
from fastmma.kernels.fma import f64, m8n8k4
from fastmma.kernels.fused import batch, packed, portable, thin
from fastmma.kernels.integer import words
from fastmma.kernels.llvm import cpu
from fastmma.kernels.macro_tiles import finish_empty
from fastmma.kernels.scaled import groups, small_groups
from fastmma.kernels.tiles import GROUPS, THIN, first_fit

Array = NDArray[Any]
Compute = Callable[[Operation, Operands, Array, int], int]


class Kernel(NamedTuple):
    """A way to compute products: what it takes, and what computes them and says how many results went another way."""

    name: str
    takes: Callable[[Operation, int], bool]  # an operation, and k
    compute: Compute
    paths: tuple[str, ...] = ("fast",)  # those that other code takes


def _truncates(operation: Operation) -> bool:
    """Whether steps are plain truncated sums of dense operands, which start from c as it is."""
    ins, row = operation.instruction, operation.arithmetic
    dense = not (ins.sparse or ins.scale_vec_size)
    return row.method == "fused" and dense and ins.ctype == ins.dtype == ins.accumulator


def _in_lanes(operation: Operation) -> bool:
    return _truncates(operation) and packed.supported(fused_parameters(operation))


def _grouped(operation: Operation) -> bool:
    return operation.arithmetic.method in ("fused", "grouped") and not operation.instruction.sparse and fused_sums(operation)


def fused_sums(operation: Operation) -> bool:
    """Whether c and d have the format of sums."""
    ins = operation.instruction
    return ins.ctype == ins.dtype == ins.accumulator


class _Left:
    """Portable kernels, which count the results that they are left."""

    def __init__(self) -> None:
        self.results = 0

    def __call__(self, p: Any, a: Array, b: Array, c: Array | None, out: Array, threads: int) -> None:
        self.results += out.size
        portable.gemm(p, a, b, c, out, threads)


def _panels(operation: Operation, operands: Operands, out: Array, threads: int) -> int:
    p, left = fused_parameters(operation), _Left()
    for one, results in each(operands, out):
        c = None if one.c is None else one.c.copy()
        if finish_empty(len(one.b), c, results):
            continue

        def again(rows: Any, columns: Any, part: Array, one: Operands = one, c: Array | None = c) -> None:
            left(p, one.a[rows], one.b[:, columns], None if c is None else c[rows][:, columns], part, 1)

        fall_back(packed.multiply(p, one.a, one.b, c, results, threads), results, again)
    return left.results


def _number(operation: Operation) -> int:
    """Any number, always the same one."""
    return crc32(f"{operation.target} {operation.instruction}".encode())


def _thin(operation: Operation, operands: Operands, out: Array, threads: int) -> int:
    """Try one kernel an operation: each is compiled for so many rows of A, and for the direction in which B is read."""
    p, left = fused_parameters(operation), _Left()
    height, along = 1 << _number(operation) % 4, bool(_number(operation) & 4)
    for one, results in each(operands, out):
        a, b = one.a, one.b
        c = None if one.c is None else one.c.copy()
        if finish_empty(len(b), c, results):
            continue
        if min(b.strides) <= 0 or b.itemsize not in b.strides or (b.strides[0] == b.itemsize) != along:
            b = np.array(b, order="F" if along else "C")
        for start in range(0, len(a), height if height < 8 else len(a)):
            lines = slice(start, start + height if height < 8 else None)
            x, z, part = a[lines], None if c is None else c[lines], results[lines]
            if len(x) <= height // 2:  # too few rows for this kernel
                x, part = np.resize(x, (height, len(b))), np.empty((height, b.shape[1]), out.dtype)
                z = None if z is None else np.resize(z, part.shape)

            def again(rows: Any, columns: Any, part: Array, x: Array = x, b: Array = b, z: Array | None = z) -> None:
                left(p, x[rows], b[:, columns], None if z is None else z[rows][:, columns], part, 1)

            fall_back(thin.multiply(p, x, b, z, part, threads), part, again)
            results[lines] = part[: len(results[lines])]
    return left.results


def _blocks(operation: Operation, operands: Operands, out: Array, threads: int) -> int:
    found = batch.blocks(fused_parameters(operation), element_specs(operation), *out.shape[1:], operands.depth)
    if found is None:
        _past_blocks(operation, operands, out, threads)
        return out.size
    operands = operands if operands.c is None else operands._replace(c=operands.c.copy())
    redone = np.flatnonzero(found.run(operands.a, operands.b, operands.c, out, threads) if out.size else np.zeros(0))
    if redone.size:
        again = np.empty((redone.size, *out.shape[1:]), out.dtype)
        _past_blocks(operation, operands.each(lambda codes: codes[redone]), again, threads)
        out[redone] = again
    return redone.size * out[:1].size


def _past_blocks(operation: Operation, operands: Operands, out: Array, threads: int) -> None:
    """The rows of the table that come after blocks."""
    if operation.arithmetic.interleave:
        operands, operation = ordered(operation, operands), plain(operation)
    first = route.row_named("macro tiles in blocks").place + 1
    route.multiply(problem_of(operation, operands, out), operands, out, threads, first)


def _without(compute: Callable[[Operation, Operands, Array, int], None]) -> Compute:
    """What counts nothing."""

    def run(operation: Operation, operands: Operands, out: Array, threads: int) -> int:
        compute(operation, operands, out, threads)
        return 0

    return run


def _whole(operation: Operation, operands: Operands, out: Array, threads: int) -> None:
    backend_of("numba").run(operation, operands, out, threads)


def _each_in_pieces(operation: Operation, operands: Operands, out: Array, threads: int) -> None:
    for index in range(len(out)):
        _past_blocks(operation, operands.products(index, index + 1), out[index : index + 1], threads)


def _tiles(operation: Operation, operands: Operands, out: Array, threads: int) -> None:
    """The rows of single instructions, which take one product, too."""
    with routes.widened(*(name for name in runs.RUNS if "tiles" in name)):
        first = 0 if operands.scale_a is not None else route.row_named("portable tiles").place
        problem = problem_of(operation, operands, out)
        route.multiply(problem, operands, out, threads, first)


@contextmanager
def smallest_parts(depth: int) -> Iterator[None]:
    """Parts and pieces as small as they come."""
    changes: tuple[tuple[Any, str, Any], ...] = (
        (parts, "DEPTH", depth),
        (parts, "_CODES", 1500),
        (parts, "_ELEMENTS", 1),
        (f64, "STEPS", 1),
        (m8n8k4, "STEPS", 1),
        (f64, "_DIRECTED_STEPS", 1),
        (portable, "STEPS", 1),
        (words, "_PACKED_WORDS", 1),
        (words, "_WAKING_WORDS", 1),
        (words, "_LONG_SLICES", {}),
        (groups, "_CHUNK_ROWS", 64),
    )
    with ExitStack() as stack:
        for module, name, value in changes:
            stack.enter_context(patch.object(module, name, value))
        yield


def _in_parts(operation: Operation, operands: Operands, out: Array, threads: int) -> None:
    with smallest_parts(2 * operation.instruction.k):
        _whole(operation, operands, out, threads)


def _thin_products(operation: Operation, operands: Operands, out: Array, threads: int) -> None:
    with routes.widened("thin", "thin, widened", bounds={"lines": (1, 8), "work": (1, 1 << 62)}):
        _whole(operation, operands, out, threads)


def _groups_in_pieces(operation: Operation, operands: Operands, out: Array, threads: int) -> None:
    with patch.object(small_groups, "multiply", lambda *_: False):
        _each_in_pieces(operation, operands, out, threads)


def _stored(operation: Operation, operands: Operands, out: Array, threads: int) -> None:
    with routes.widened("sparse panels"):
        _whole(operation, operands, out, threads)


def _general(operation: Operation, operands: Operands, out: Array, threads: int) -> None:
    runs.general(problem_of(operation, operands, out), operands, out, threads)


def _with_features(*features: str) -> Callable[[Operation, Operands, Array, int], None]:
    """The kernels of a lesser CPU, whose vectors LLVM makes of any."""

    def run(operation: Operation, operands: Operands, out: Array, threads: int) -> None:
        with patch.object(cpu, "features", lambda: frozenset(features)), smallest_parts(1 << 20):
            _whole(operation, operands, out, threads)

    return run


def _with_groups(row: Any) -> Callable[[Operation, Operands, Array, int], None]:
    """A register tile of groups that a lesser CPU takes."""

    def run(operation: Operation, operands: Operands, out: Array, threads: int) -> None:
        with patch.object(groups, "first_fit", lambda _table: row), patch.object(groups, "tile_of_cpu", lambda _table: row):
            _each_in_pieces(operation, operands, out, threads)

    return run


def _is(*methods: str) -> Callable[[Operation, int], bool]:
    return lambda operation, _k: operation.arithmetic.method in methods


KERNELS = (
    Kernel("whole", lambda _operation, _k: True, _without(_whole), PATHS),
    Kernel("parts", lambda _operation, _k: True, _without(_in_parts), PATHS),
    Kernel("panels", lambda operation, _k: _in_lanes(operation) and not operation.arithmetic.widened, _panels),
    Kernel("pieces", lambda operation, _k: _grouped(operation), _without(_each_in_pieces), PATHS),
    Kernel("tiles", lambda operation, k: _grouped(operation) and 0 < k <= operation.instruction.k, _without(_tiles), PATHS),
    Kernel("blocks", lambda operation, k: _truncates(operation) and k > 0, _blocks),
    Kernel(
        "thin",
        lambda operation, _k: (
            _in_lanes(operation) and not operation.arithmetic.widened and _number(operation) % 5 < 3 and first_fit(THIN) is not None
        ),
        _thin,
    ),
    Kernel(
        "thin products",  # of some operations
        lambda operation, _k: _in_lanes(operation) and _number(operation) % 9 == 0,
        _without(_thin_products),
    ),
    Kernel("groups in pieces", lambda operation, _k: _is("grouped")(operation, 0) and _grouped(operation), _without(_groups_in_pieces)),
    Kernel("stored", lambda operation, _k: bool(operation.instruction.sparse), _without(_stored)),
    Kernel(
        "general",
        lambda operation, k: _grouped(operation) and k > 0 and k % operation.instruction.k == 0,
        _without(_general),
    ),
    *(Kernel(" ".join(each), _is("integer", "bit"), _without(_with_features(*each))) for each in (("avx2",), ("avx512bw",))),
    *(
        Kernel(
            " ".join(sorted(row.features)),
            lambda operation, _k: _is("grouped")(operation, 0) and _grouped(operation),
            _without(_with_groups(row)),
        )
        for row in GROUPS
        if row.features <= cpu.features()
    ),
)
IN_LANES = tuple(kernel for kernel in KERNELS if kernel.compute in (_panels, _thin, _blocks))
