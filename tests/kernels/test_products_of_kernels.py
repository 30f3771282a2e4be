"""Every kernel has the bits of the exact reference on every operation that it takes, wherever operands and results lie."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from drivers.cases import SIZES, Case, Generator, hard_codes, one_of
from drivers.checks import check, expected
from drivers.kernels import KERNELS, Kernel
from drivers.operations import Array, as_operands, name_of, operands, operations, results

from fastmma.backends.call import Operation
from fastmma.backends.resolve import backend_of
from fastmma.isa.sparsity import pattern_of
from fastmma.kernels.llvm import cpu

WORK = 1500  # products of elements, which the reference computes in a moment
CASES = 3
# products, rows, columns and k of several tiles, panels, slabs, blocks and parts, none of them whole
LARGE = (
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
    """Products by a kernel, or by the reference."""
    shape = (*given["a"].shape[:2], given["b"].shape[2])
    if out is None:
        out = results(operation, shape)
    if kernel is None:
        backend_of("reference").run(operation, as_operands(given), out, 1)
    else:
        kernel.compute(operation, as_operands(given), out, threads)
    return out


def shape_of(rng: Generator, operation: Operation, work: int) -> tuple[int, int, int, int]:
    """Products, rows, columns and k, that are not the instruction's only where this kernel takes them."""
    ins = operation.instruction
    chunk = pattern_of(ins).chunk if ins.sparse else 1
    k = int(one_of(rng, (1, ins.k // 2 + 1, ins.k, ins.k, ins.k, ins.k + 1, 2 * ins.k, 3 * ins.k - 1)))
    k = ins.k if ins.ctype != ins.dtype else max(k - k % chunk, chunk)  # results go on as c
    count = int(one_of(rng, (1, 1, 1, 2, 3)))
    m, n = int(one_of(rng, SIZES[1:])), int(one_of(rng, SIZES[1:]))
    depth = -(-k // ins.k) * ins.k
    while count * m * n * depth > work and max(m, n) > 1:
        m, n = (m // 2, n) if m > n else (m, n // 2)
    return count, m, n, k


def checked(rng: Generator, operation: Operation, shape: tuple[int, int, int, int], counts: Counter[str], *, small: bool = True) -> None:
    """Compare what all kernels compute of the same operands; not `small` ones with portable kernels, else with the reference."""
    count, m, n, k = shape
    arrays = operands(rng, operation.instruction, m, n, k, count)
    if rng.random() < 0.3:
        del arrays["c"]
    known: Any = None
    for kernel in KERNELS:
        if not kernel.takes(operation, k):
            continue

        def call(kernel: Kernel | None = kernel, backend: str | None = None, **more: Any) -> Array:
            return computed(operation, None if backend else kernel, **more)

        out = (count, m, n), operation.instruction.formats.d.code_dtype
        case = Case("kernels", call, arrays, {}, (kernel.name,), out=out, paths=kernel.paths, small=small, inner=True)
        if known is None:
            known = expected(case, arrays)
        try:
            check(rng, case, counts, known=known)
        except AssertionError as error:
            error.add_note(f"{kernel.name}: {name_of(operation)}, (products, rows, columns, k) = {shape}")
            raise


@pytest.mark.parametrize("operation", operations(), ids=name_of)
def test_small_products_have_the_bits_of_the_reference(operation: Operation) -> None:
    rng = np.random.default_rng(operations().index(operation))
    counts: Counter[str] = Counter()
    for _ in range(CASES):
        checked(rng, operation, shape_of(rng, operation, WORK), counts)
    assert counts["whole"] == CASES


@pytest.mark.parametrize("operation", operations(), ids=name_of)
def test_large_products_have_the_bits_of_portable_kernels(operation: Operation) -> None:
    ins, number = operation.instruction, operations().index(operation)
    count, m, n, k = LARGE[number % len(LARGE)]
    chunk = pattern_of(ins).chunk if ins.sparse else 1
    k = ins.k if not k or ins.ctype != ins.dtype else -(-k // chunk) * chunk
    while count * m * n * k > MOST.get(operation.arithmetic.method, 1 << 23):
        m, n = (m // 2, n) if m > n else (m, n // 2)
    checked(np.random.default_rng(1000 + number), operation, (count, m, n, k), Counter(), small=False)


LANES = [kernel for kernel in KERNELS if kernel.name in ("panels", "thin", "blocks")]


@pytest.mark.skipif(not cpu.usable(), reason="needs a CPU that micro-kernels are emitted for")
@pytest.mark.parametrize("kernel", LANES, ids=lambda kernel: kernel.name)
def test_only_specials_are_left_to_portable_kernels(kernel: Kernel) -> None:
    """Of operands of moderate exponents nothing; an infinity or a NaN costs its row, its column or its product."""
    taken = [operation for operation in operations("fused") if kernel.takes(operation, operation.instruction.k)]
    assert len(taken) > 20
    for operation in taken:
        ins, rng = operation.instruction, np.random.default_rng(1)
        shapes = {"a": (9, 6, ins.k), "b": (9, ins.k, 11), "c": (9, 6, 11)}
        given = {name: hard_codes(rng, getattr(ins, f"{name}type"), shape, "cancel") for name, shape in shapes.items()}

        def left(out: Array, operation: Operation = operation, given: dict[str, Array] = given) -> int:
            return kernel.compute(operation, as_operands(given), out, 1)

        out = results(operation, (9, 6, 11))
        assert left(out) == 0, name_of(operation)
        for name in ("a", "b", "c"):
            fmt, kept = getattr(ins.formats, name), given[name][4, 2, 3]
            if fmt.nan is None:
                continue
            given[name][4, 2, 3] = fmt.nan
            joins_last = name == "c" and operation.arithmetic.split > 0  # by an addition of any numbers
            assert int(not joins_last) <= left(out) <= 4 * 66, name_of(operation)  # neighbours share what is noted of blocks
            np.testing.assert_array_equal(out, computed(operation, None, **given))
            given[name][4, 2, 3] = kept
