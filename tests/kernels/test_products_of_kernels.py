"""Every kernel has the bits of the exact reference on every operation that it takes, wherever operands and results lie."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from drivers.cases import hard_codes
from drivers.kernel_cases import check_arrays, check_kernels, computed, large_shape, small_shape
from drivers.kernels import IN_LANES, KERNELS, Kernel
from drivers.operations import Array, as_operands, name_of, operands, operations
from reference.narrower import narrower

from fastmma import encode
from fastmma.backends.call import Operation
from fastmma.kernels.llvm import cpu

CASES = {"f64-fma": 24, "f32-fma": 12, "f32-fma-pairs": 12, "f32-fma-from-c": 12, "grouped": 8, "bit": 8}  # of other methods 3


@pytest.mark.parametrize("operation", operations(), ids=name_of)
def test_small_products_have_the_bits_of_the_reference(operation: Operation) -> None:
    rng, counts = np.random.default_rng(operations().index(operation)), Counter[str]()
    cases = CASES.get(operation.arithmetic.method, 3)
    for _ in range(cases):
        check_kernels(rng, operation, small_shape(rng, operation), counts)
    assert counts["whole"] == cases
    ins = operation.instruction
    for count, m, n, k in ((1, 0, 5, ins.k), (2, 4, 0, ins.k), (2, 4, 5, 0)):
        if k or ins.ctype == ins.dtype:
            check_kernels(rng, operation, (count, m, n, k), counts)


@pytest.mark.parametrize("operation", operations(), ids=name_of)
def test_large_products_have_the_bits_of_portable_kernels(operation: Operation) -> None:
    number = operations().index(operation)
    kernels = [kernel for kernel in KERNELS if kernel.name != "parts" or number % 3 == 0]  # many small parts take long
    check_kernels(np.random.default_rng(number), operation, large_shape(operation), Counter(), small=False, kernels=kernels)


# sums of few products, of which the last bit says how each was aligned, truncated or rounded: rows of a, columns of b, and c
FACTS: tuple[tuple[list[list[float]], list[list[float]], float | None], ...] = (
    # 2**-25 + 2**-46 rounds up in f16; 2**-47 is lost below the floor of -21, which leaves a tie
    ([[2.0**-12, 2.0**-23], [2.0**-12, 2.0**-24], [2.0**-13, 2.0**-24]], [[2.0**-13, 2.0**-23]], None),
    # c = 2**-23 has the exponent -14 in f16, so that 2**-40 is lost and 2**-25 leaves a tie
    ([[2.0**-12, 2.0**-20], [2.0**-12, 2.0**-19]], [[2.0**-13, 2.0**-20]], 2.0**-23),
    ([[2.0**-24, 0.0]], [[2.0**-24, 1.0]], 2.0**-148),
    # one and half a last place of f16, of which a product far below makes more: the highest of the 8 bits that an int32 sum loses
    ([[1.0, 2.0**-6, last] for last in (2.0**-7, 2.0**-8, 2.0**-9)], [[1.0, 2.0**-5, 2.0**-9]], None),
    # two and half a last place of f16, of which a product makes more that float32 cannot hold beside them
    ([[1.0, 1.0, 2.0**-5, last] for last in (2.0**-11, 2.0**-12, 2.0**-13)], [[1.0, 1.0, 2.0**-5, 2.0**-12]], None),
    # toward zero; zeros do not align
    ([[1, 2.0**-13, 2.0**-13, 0], [1, -(2.0**-13), -(2.0**-13), 0], [-1, 2.0**-13, 0, -0.0]], [[1, 2.0**-13, 2.0**-13, 65504]], None),
    ([[0, 2.0**-13, 0, 0], [65504, 0, 2.0**-13, 0], [-0.0, 0, -0.0, 0]], [[0, 2.0**-13, 2.0**-13, 65504]], -0.0),
    # overflow on the way stays
    ([[65504.0] * 4 + [-65504.0] * 4], [[65504.0] * 8], 3.4e38),
    ([[256.0] * 4 + [-256.0] * 4], [[64.0] * 8], None),
    # more than 31 bits, of both signs
    ([[65504.0] * 16], [[65504.0] * 16, [-65504.0] * 16, [63.96875] * 16], 1.999 * 2.0**31),
)


WIDE = [each for each in operations("fused") if each.instruction.atype in ("f16", "bf16", "tf32") and not each.instruction.sparse]


@pytest.mark.parametrize("operation", WIDE, ids=name_of)
def test_sums_that_show_how_terms_were_taken(operation: Operation) -> None:
    ins = operation.instruction
    for rows, columns, start in FACTS:
        k = ins.k * -(-len(rows[0]) // ins.k)
        a, b = (np.zeros((1, len(lines), k)) for lines in (rows, columns))
        a[0, :, : len(rows[0])], b[0, :, : len(rows[0])] = rows, columns
        given = {"a": encode(a, ins.atype), "b": encode(b, ins.btype).swapaxes(1, 2)}
        if start is not None:
            given["c"] = encode(np.full((1, len(rows), len(columns)), start), ins.ctype)
        if k == ins.k or ins.ctype == ins.dtype:
            check_arrays(np.random.default_rng(0), operation, given, Counter())


@pytest.mark.parametrize("operation", operations("fused", "grouped"), ids=name_of)
def test_sums_of_the_largest_numbers(operation: Operation) -> None:
    """All products of a column have one sign: sums have as many bits as they can."""
    ins, rng = operation.instruction, np.random.default_rng(0)
    given = operands(rng, ins, 3, 9, ins.k)
    for name in "ab":
        fmt = getattr(ins.formats, name)
        given[name][...] = fmt.first_special - 1 << fmt.padding
    given["b"][:, :, ::2] |= fmt.code_dtype.type(1 << fmt.bits - 1)
    for name in ("scale_a", "scale_b"):
        if name in given:
            given[name][...] = 127 if ins.stype == "ue8m0" else 0x38
    check_arrays(rng, operation, given, Counter())


@pytest.mark.skipif(not cpu.usable(), reason="needs a CPU that micro-kernels are emitted for")
@pytest.mark.parametrize("kernel", IN_LANES, ids=lambda kernel: kernel.name)
def test_only_specials_are_left_to_portable_kernels(kernel: Kernel) -> None:
    """Of operands of moderate exponents nothing; an infinity or a NaN costs its row, its column or its product."""
    taken = [operation for operation in operations("fused") if kernel.takes(operation, operation.instruction.k)]
    assert len(taken) > 10
    for operation in taken:
        ins, rng = operation.instruction, np.random.default_rng(1)
        shapes = {"a": (9, 6, ins.k), "b": (9, ins.k, 11), "c": (9, 6, 11)}
        given = {name: hard_codes(rng, getattr(ins, f"{name}type"), shape, "cancel") for name, shape in shapes.items()}
        out = computed(operation, None, **given)

        def left(operation: Operation = operation, given: dict[str, Array] = given, out: Array = out) -> int:
            return kernel.compute(operation, as_operands(given), out, 1)

        assert left() == 0, name_of(operation)
        for name in "abc":
            fmt, kept = getattr(ins.formats, name), given[name][4, 2, 3]
            if fmt.nan is None:
                continue
            given[name][4, 2, 3] = fmt.nan
            joins_last = name == "c" and operation.arithmetic.split > 0  # by an addition of any numbers
            assert int(not joins_last) <= left() <= 4 * 66, name_of(operation)  # neighbours share what is noted of blocks
            given[name][4, 2, 3] = kept


def test_narrower_vectors() -> None:
    """The AVX2 kernels on a CPU that has more, in a process that is told so: an operation for each kind of lanes."""
    program = """
from collections import Counter
import numpy as np
from drivers.kernel_cases import check_kernels
from drivers.kernels import IN_LANES
from drivers.operations import operations
rng, counts, kinds = np.random.default_rng(0), Counter(), {}
for operation in operations("fused"):
    if IN_LANES[0].takes(operation, operation.instruction.k):
        ins = operation.instruction
        kinds[max(ins.formats.a.bits, 8), ins.dtype] = operation
for operation in kinds.values():
    for shape in ((1, 9, 37, 70), (2, 1, 130, 16)):
        check_kernels(rng, operation, shape, counts, kernels=IN_LANES)
print(counts["panels"])
"""
    assert int(narrower(program)) > 6
