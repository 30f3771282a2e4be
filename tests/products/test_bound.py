"""A product without its numbers: its layouts are NumPy's, equal ones are one key, and choices take it in an array's place."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastmma
from fastmma.products.bound import Arguments, Bound, Strided, bind, extents

A, B = np.ones((24, 200), np.float16), np.ones((200, 40), np.float16)
C, BIAS = np.ones((24, 40), np.float32), np.ones(40, np.float32)


def strided(array: Any) -> Strided:
    return Strided(array.dtype, array.shape, array.strides)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.lists(st.integers(-2, 2), min_size=3, max_size=3),
    st.permutations(range(3)),
    st.sampled_from((np.uint8, np.float16, np.float32)),
)
@settings(max_examples=400, deadline=None)
def test_layouts_are_those_of_numpy(shape: list[int], steps: list[int], order: list[int], dtype: Any) -> None:
    array = np.zeros([6] * len(shape), dtype).transpose([axis for axis in order if axis < len(shape)])
    part = array[tuple(slice(0, extent * abs(step) or extent, abs(step) or 1) for extent, step in zip(shape, steps, strict=False))]
    for each in (part, part.copy(), part.copy(order="F"), part[::-1], np.broadcast_to(part, (2, *part.shape))):
        found = strided(each)
        assert (found.is_c_contiguous, found.is_f_contiguous) == (each.flags.c_contiguous, each.flags.f_contiguous)
        assert (found.ndim, found.itemsize) == (each.ndim, each.itemsize)


@pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("shape", [(64, 512, 128), (1, 256, 64), (64, 1, 256), (16, 16, 1)])
def test_choices_take_it_in_an_arrays_place(order: str, shape: tuple[int, int, int]) -> None:
    rows, columns, depth = shape
    a, b = (np.zeros(of, ml_dtypes.bfloat16, order=each) for of, each in zip(((rows, depth), (depth, columns)), order, strict=True))
    for preset in (None, "cublas"):
        assert fastmma.gemm_plan(strided(a), strided(b), target="H200", preset=preset) == fastmma.gemm_plan(
            a, b, target="H200", preset=preset
        )
    stacks = np.stack([a, a]), np.stack([b, b])
    assert extents(*map(strided, stacks)) == extents(*stacks)
    assert strided(stacks[0]).matrix == strided(stacks[0][0])


def described(*operands: Any) -> Bound | None:
    return bind(Arguments("gemm", *operands))


def test_equal_products_are_one_key() -> None:
    first = described(A, B)
    assert first == described(A.copy(), B.copy(), None, None, 1, None) == Bound(strided(A), strided(B))
    assert len({first, described(A.copy(), B), Bound(strided(A), strided(B))}) == 1
    others = [
        described(A, np.asfortranarray(B)),
        described(A.view(np.int16), B),
        described(A, B, C, None),
        described(A, B, C, None, 1.0, 1.0),
        described(A, B, C, None, 2, 1),
        described(A, B, None, BIAS),
        described(A, B, None, C),
        described(A, B, C, BIAS),
    ]
    assert len({first, *others}) == len(others) + 1
    assert others[4] == described(A, B, C, None, 2.0, 1.0)
    wrong: tuple[tuple[Any, ...], ...] = (
        ([[1.0]], None, 1.0, None),
        (None, [1.0], 1.0, None),
        (C, None, True, None),
        (C, None, 1.0, np.float32(1)),
        (C, None, 1 << 24 | 1, 1 << 40),
    )
    assert [described(A, B, *each) for each in wrong] == [None] * len(wrong)
