"""The same operands for every kernel that takes an operation: small ones for the reference, and large ones for portable kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from drivers.arrangement import Place, anywhere
from drivers.cases import SIZES, Case, Generator, one_of
from drivers.checks import check, expected
from drivers.kernels import KERNELS, Kernel
from drivers.operations import Array, as_operands, name_of, operands, operations
from fastmma.backends.call import Operation
from fastmma.backends.resolve import backend_of
from fastmma.host.float_mode import in_default_mode
from fastmma.isa.sparsity import pattern_of

Shape = tuple[int, int, int, int]  # products, rows, columns and k
WORK = 1500  # products of elements, which the reference computes in a moment
# of several tiles, panels, slabs, blocks and parts, none of them whole
LARGE: tuple[Shape, ...] = (
    (1, 61, 131, 67),
    (1, 130, 33, 300),
    (1, 5, 200, 520),
    (300, 16, 8, 0),  # k of the instruction
    (1, 1100, 70, 130),
    (1, 64, 64, 256),
    (37, 21, 13, 37),
    (1, 37, 131, 1031),
    (2, 67, 100, 1),
    (1, 4, 600, 33),
    (1, 600, 4, 100),
)
MOST = {"f64-fma": 1 << 20, "grouped": 1 << 22}  # multiply-adds that portable kernels do in a moment


def computed(operation: Operation, kernel: Kernel | None, *, out: Array | None = None, threads: int = 1, **given: Array) -> Array:
    """Products by a kernel, or by the reference, in the default mode of floats, as every public call runs them."""
    if out is None:
        out = np.empty((*given["a"].shape[:2], given["b"].shape[2]), operation.instruction.formats.d.code_dtype)
    if kernel is None:
        in_default_mode(backend_of("reference").run, operation, as_operands(given), out, 1)
    else:
        in_default_mode(kernel.compute, operation, as_operands(given), out, threads)
    return out


def _whole_chunks(operation: Operation, k: int) -> int:
    """So many k, or a few more; those of one instruction where its results cannot go on as c."""
    ins = operation.instruction
    chunk = pattern_of(ins).chunk if ins.sparse else 1
    return ins.k if ins.ctype != ins.dtype else -(-k // chunk) * chunk


def small_shape(rng: Generator, operation: Operation) -> Shape:
    """Some elements; K around that of one instruction, and of a few."""
    k = operation.instruction.k
    k = _whole_chunks(operation, int(one_of(rng, (1, k // 2 + 1, k, k, k, k + 1, 2 * k, 3 * k - 1))))
    count, m, n = (int(one_of(rng, sizes)) for sizes in ((1, 1, 1, 2, 3), SIZES[1:], SIZES[1:]))
    depth = -(-k // operation.instruction.k) * operation.instruction.k
    while count * m * n * depth > WORK and max(m, n) > 1:
        m, n = (m // 2, n) if m > n else (m, n // 2)
    return count, m, n, k


def large_shape(operation: Operation) -> Shape:
    """One of `LARGE`."""
    count, m, n, k = LARGE[operations().index(operation) % len(LARGE)]
    k = _whole_chunks(operation, k or operation.instruction.k)
    while count * m * n * k > MOST.get(operation.arithmetic.method, 1 << 23):
        m, n = (m // 2, n) if m > n else (m, n // 2)
    return count, m, n, k


def check_kernels(
    rng: Generator,
    operation: Operation,
    shape: Shape,
    counts: Counter[str],
    *,
    small: bool = True,
    memory: Place = anywhere,
    kernels: Sequence[Kernel] = KERNELS,
) -> None:
    """Compare what kernels compute of the same operands; not `small` ones with portable kernels, else with the reference."""
    count, m, n, k = shape
    arrays = operands(rng, operation.instruction, m, n, k, count)
    if rng.random() < 0.3:
        del arrays["c"]
    check_arrays(rng, operation, arrays, counts, small=small, memory=memory, kernels=kernels)


def check_arrays(
    rng: Generator,
    operation: Operation,
    arrays: dict[str, Array],
    counts: Counter[str],
    *,
    small: bool = True,
    memory: Place = anywhere,
    kernels: Sequence[Kernel] = KERNELS,
) -> None:
    """Do so with these operands."""
    (count, m, _), (_, k, n) = arrays["a"].shape, arrays["b"].shape
    known: Any = None
    for kernel in kernels:
        if not kernel.takes(operation, k):
            continue

        def call(kernel: Kernel | None = kernel, backend: str | None = None, **more: Any) -> Array:
            return computed(operation, None if backend else kernel, **more)

        out = (count, m, n), operation.instruction.formats.d.code_dtype
        case = Case("kernels", call, arrays, {}, (kernel.name,), out=out, paths=kernel.paths, small=small, inner=True)
        known = known or expected(case, arrays)
        try:
            check(rng, case, counts, memory, known)
        except AssertionError as error:
            error.add_note(f"{kernel.name}: {name_of(operation)}, (products, rows, columns, k) = {count, m, n, k}")
            raise
