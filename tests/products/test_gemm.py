"""gemm is, bit for bit, the instruction looped over k; whatever the shapes, strides and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from reference.cases import cases
from reference.methods import METHODS, MMA, mixed, operands, product
from reference.paths import PATHS, taking
from reference.products import bits, elements, looped, special_codes

from fastmma import FORMATS, gemm, instruction

DISTRIBUTIONS = ("bits", "special", "finite", "near", "tiny", "huge", "cancel")
SHAPES = [(1, 1, 1), (3, 2, 7), (17, 9, 33), (16, 8, 64), (65, 23, 97)]


@cases("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(("opcode", "target"), METHODS)
def test_gemm_is_the_instruction_looped_over_k(opcode: str, target: str, distribution: str) -> None:
    ins = instruction(opcode)
    for number, shape in enumerate((*SHAPES, SHAPES[-1])):
        a, b, c = operands(opcode, shape, distribution)
        given = a, b, c if number < len(SHAPES) else None
        with taking(PATHS[number % 2]):
            expected = looped(ins, target, *given)
        for path in PATHS:
            with taking(path):
                np.testing.assert_array_equal(product(opcode, target, *given), expected, err_msg=path)


def on_each_path(opcode: str, target: str, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> None:
    """The kernels of each path have the reference's bits."""
    expected = product(opcode, target, a, b, c, backend="reference")
    for path in PATHS:
        with taking(path):
            np.testing.assert_array_equal(product(opcode, target, a, b, c), expected, err_msg=path)


MIXTURES = [
    ("zero", "special", "zero"),
    ("special", "zero", "near"),
    ("zero", "huge", "special"),
    ("tiny", "huge", "near"),
    ("near", "tiny", "huge"),
    ("zero", "zero", "special"),
    ("tiny", "tiny", "zero"),
    ("finite", "near", "tiny"),
]


@cases("distributions", MIXTURES)
@pytest.mark.parametrize(("opcode", "target"), METHODS)
def test_operands_of_different_kinds(opcode: str, target: str, distributions: tuple[str, str, str]) -> None:
    ins = instruction(opcode)
    for shape in ((3, 2, 9), (33, 40, 70)):
        a, b, c = mixed(opcode, shape, *distributions)
        expected = looped(ins, target, a, b, c)
        for path in PATHS:
            with taking(path):
                np.testing.assert_array_equal(product(opcode, target, a, b, c), expected, err_msg=path)
    on_each_path(opcode, target, *mixed(opcode, (2, 2, min(ins.k + 1, 33)), *distributions))


@pytest.mark.parametrize(("opcode", "target"), METHODS)
def test_the_reference_agrees(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    for distribution in DISTRIBUTIONS:
        on_each_path(opcode, target, *operands(opcode, (5, 3, min(2 * ins.k + 3, 70)), distribution, seed=1))


@pytest.mark.each_path
def test_a_sum_that_rounded_to_zero_from_below_does_not_raise_the_next_steps_exponent() -> None:
    opcode = MMA + "m16n8k16.row.col.f16.f16.f16.f16"
    a, b = np.zeros((3, 32), np.float16), np.zeros((32, 40), np.float16)
    a[:, 0], b[0] = -(2.0**-14), 2.0**-14
    a[:, 16], b[16] = 2.0**-12, 2.0**-13  # a tie in the second instruction ...
    a[:, 17], b[17] = 2.0**-23, 2.0**-23  # ... and what breaks it
    assert (gemm(a, b, instruction=opcode) == 2.0**-24).all()
    assert (bits(gemm(a[:, :16], b[:16], instruction=opcode)) == 0).all()


@pytest.mark.each_path
@cases(("opcode", "target"), METHODS)
def test_empty_products(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    for m, n, k in ((0, 5, 7), (4, 0, 7), (0, 0, 0), (0, 3, 0)):
        a, b, c = operands(opcode, (m, n, k), "bits")
        assert product(opcode, target, a, b, c).shape == (m, n)
        assert product(opcode, target, a, b, None).shape == (m, n)
    a, b, c = operands(opcode, (4, 5, 0), "near")
    np.testing.assert_array_equal(product(opcode, target, a, b, c), c)
    assert not product(opcode, target, a, b, None).any()
    assert product(opcode, target, a, b, None).dtype == FORMATS[ins.dtype].code_dtype


MEDIUM = [METHODS[index] for index in (4, 9, 14, 16, 20, 23, 26, 28, 31, 34, 36, 38)]


@pytest.mark.parametrize(("opcode", "target"), MEDIUM)
def test_larger_matrices_and_threads(opcode: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several panels, blocks of k and tails, with one specimen of what the fast path cannot do by itself."""
    ins = instruction(opcode)
    for m, n, k in ((131, 150, 519), (300, 40, 1030)):
        a, b, c = operands(opcode, (m, n, k), "near", seed=2)
        a[m // 2, k // 3] = special_codes(ins.atype)[-1]
        b[k // 2, n // 2] = special_codes(ins.btype)[len(special_codes(ins.btype)) // 2]
        expected = looped(ins, target, a, b, c)
        monkeypatch.setenv("FASTMMA_NUM_THREADS", "3")
        for path in PATHS:
            with taking(path):
                for threads in (1, 2, 5, None):
                    found = product(opcode, target, a, b, c, threads=threads)
                    np.testing.assert_array_equal(found, expected, err_msg=f"{path}, {threads} threads")


@pytest.mark.each_path
@cases(("opcode", "target"), MEDIUM)
def test_strides_and_byte_orders(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    codes = operands(opcode, (21, 14, 70), "finite", seed=3)
    a, b, c = (elements(x, fmt) for x, fmt in zip(codes, (ins.atype, ins.btype, ins.ctype), strict=True))
    expected = bits(gemm(a, b, c, instruction=ins, target=target))

    def spread(x: NDArray[Any]) -> NDArray[Any]:
        wide = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
        wide[::2, ::3] = x
        return wide[::2, ::3]

    def backward(x: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]

    def frozen(x: NDArray[Any]) -> NDArray[Any]:
        copy = x.copy()
        copy.flags.writeable = False
        return copy

    def swapped(x: NDArray[Any]) -> NDArray[Any]:
        return x.astype(x.dtype.newbyteorder(">")) if x.dtype.isbuiltin == 1 else x

    for change in (np.asfortranarray, spread, backward, frozen, swapped):
        inputs = [change(x) for x in (a, b, c)]
        before = [x.tobytes() for x in inputs]
        np.testing.assert_array_equal(bits(gemm(*inputs, instruction=ins, target=target)), expected)
        assert [x.tobytes() for x in inputs] == before
    np.testing.assert_array_equal(bits(gemm(a, b, np.broadcast_to(c[:1], c.shape), instruction=ins, target=target)[:1]), expected[:1])


@pytest.mark.each_path
@cases(("opcode", "target"), MEDIUM)
def test_out(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    codes = operands(opcode, (19, 12, 45), "near", seed=4)
    a, b, c = (elements(x, fmt) for x, fmt in zip(codes, (ins.atype, ins.btype, ins.ctype), strict=True))
    expected = gemm(a, b, c, instruction=ins, target=target)
    for out in (np.empty_like(expected), np.asfortranarray(np.empty_like(expected)), np.zeros((38, 36), expected.dtype)[::2, ::-3]):
        assert gemm(a, b, c, instruction=ins, target=target, out=out) is out
        np.testing.assert_array_equal(bits(out), bits(expected))
    fed_back = c.copy()
    assert gemm(a, b, fed_back, instruction=ins, target=target, out=fed_back) is fed_back
    np.testing.assert_array_equal(bits(fed_back), bits(expected))
    shifted = np.zeros((20, 12), c.dtype)
    shifted[:-1] = c
    gemm(a, b, shifted[:-1], instruction=ins, target=target, out=shifted[1:])
    np.testing.assert_array_equal(bits(shifted[1:]), bits(expected))


@pytest.mark.each_path
def test_out_may_overlap_an_input() -> None:
    opcode = MMA + "m16n8k16.row.col.f16.f16.f16.f16"
    a, b, _ = (elements(x, "f16") for x in operands(opcode, (24, 24, 24), "near"))
    expected = gemm(a, b, instruction=opcode)
    memory = a.copy()
    np.testing.assert_array_equal(bits(gemm(memory, b, instruction=opcode, out=memory)), bits(expected))
    memory = b.copy()
    np.testing.assert_array_equal(bits(gemm(a, memory, instruction=opcode, out=memory.T)), bits(expected))
    square = a.copy()
    np.testing.assert_array_equal(
        bits(gemm(square, square, square, instruction=opcode, out=square)), bits(gemm(a, a, a, instruction=opcode))
    )


def code_arrays(fmt: str, shape: tuple[int, int]) -> st.SearchStrategy[NDArray[Any]]:
    row = FORMATS[fmt]
    codes = st.one_of(st.sampled_from([int(code) for code in special_codes(fmt)]), st.integers(0, (1 << row.bits) - 1))
    return arrays(row.code_dtype, shape, elements=codes)


HYPOTHESIS_METHODS = [METHODS[index] for index in (1, 4, 7, 8, 10, 12, 16, 17, 20, 24, 26, 27, 29, 31, 33, 37)]


@pytest.mark.parametrize(("opcode", "target"), HYPOTHESIS_METHODS)
def test_adversarial_inputs(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    depth = min(ins.k, 32) + 1

    @settings(max_examples=25, deadline=None, derandomize=True, database=None)
    @given(code_arrays(ins.atype, (2, depth)), code_arrays(ins.btype, (depth, 2)), code_arrays(ins.ctype, (2, 2)))
    def check(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> None:
        on_each_path(opcode, target, a, b, c)

    check()


@pytest.mark.each_path
@pytest.mark.parametrize("shape", [(300, 270, 40), (31, 1100, 130), (200, 190, 270), (1, 9000, 250), (257, 16, 700)])
@pytest.mark.parametrize(("opcode", "target"), [METHODS[index] for index in (4, 16, 24, 25, 26)])
def test_products_that_are_cut_into_chunks(opcode: str, target: str, shape: tuple[int, int, int]) -> None:
    """Flat, shallow and middle-sized products: the same as row by row, also with a few specials, strides and c in place."""
    rows = shape[0]
    ins = instruction(opcode)
    a, b, c = mixed(opcode, shape, "normal" if rows == 1 else "rare", "rare", "special")
    few = np.random.default_rng(0).integers(0, rows, 3)
    expected = product(opcode, target, a[few], b, c[few])
    found = product(opcode, target, a, b, c)
    np.testing.assert_array_equal(found[few], expected)
    into = elements(c, ins.dtype).copy()
    turned = elements(b.T.copy(), ins.btype).T
    again = gemm(elements(a, ins.atype), turned, into, instruction=opcode, target=target, out=into, threads=3)
    np.testing.assert_array_equal(bits(again), found)
