"""Structured sparsity of matrices: pruning, compression and back."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference import sparsity as facts
from reference.cases import cases
from reference.sparse_operands import PATTERNS, finite_values, random_words

import fastmma
from fastmma import OperandError, OperandTypeError, sparse
from fastmma.isa.codes import decode, to_codes
from fastmma.isa.formats import format_of

DTYPES = [
    *(np.float16, ml_dtypes.bfloat16, np.float32, np.int8, np.uint8, ml_dtypes.int4, ml_dtypes.uint4),
    *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn, ml_dtypes.float4_e2m1fn),
]


def default_pattern(dtype: Any) -> str:
    return {32: "1:2", 4: "4:8"}.get(format_of(dtype).bits, "2:4")


@cases("name", PATTERNS)
@cases("dtype", DTYPES)
def test_compress_and_decompress(dtype: Any, name: str) -> None:
    rng = np.random.default_rng(1)
    rule = facts.GRANULARITIES[name]
    stored = finite_values(rng, dtype, (3, 5, 4 * rule.stored))
    words = random_words(rng, name, (3, 5, 4), ordered=True)
    dense = sparse.decompress(stored, words, pattern=name)
    assert dense.dtype == stored.dtype
    fmt = format_of(dtype)
    for row, codes, metadata in zip(
        to_codes(dense, fmt).reshape(15, -1), to_codes(stored, fmt).reshape(15, -1), words.reshape(15, -1), strict=True
    ):
        assert list(row) == facts.dense_row(codes, metadata, name, 0)
    for prune in (False, True):
        again, metadata = sparse.compress(dense, pattern=name, prune=prune)
        np.testing.assert_array_equal(metadata, words)
        np.testing.assert_array_equal(to_codes(again, fmt), to_codes(stored, fmt))
    if name == default_pattern(dtype):
        np.testing.assert_array_equal(sparse.compress(dense)[1], words)
        np.testing.assert_array_equal(to_codes(sparse.decompress(stored, words), fmt), to_codes(dense, fmt))


@pytest.mark.parametrize("name", PATTERNS)
def test_unordered_words_decompress_too(name: str) -> None:
    rng = np.random.default_rng(2)
    rule = facts.GRANULARITIES[name]
    stored = rng.integers(-100, 100, (4, 8 * rule.stored)).astype(np.float16)
    words = random_words(rng, name, (4, 8), ordered=False)
    expected = [facts.dense_row(row, metadata, name, 0) for row, metadata in zip(stored, words, strict=True)]
    np.testing.assert_array_equal(sparse.decompress(stored, words, pattern=name), expected)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("zeros", range(9))
def test_sparser_than_needed(name: str, zeros: int) -> None:
    """Every subset of a chunk with few enough elements compresses, and decompresses to itself."""
    rule = facts.GRANULARITIES[name]
    if zeros >= rule.chunk:
        pytest.skip("more zeros than elements")
    chunks = np.array([[(number >> place) & 1 for place in range(rule.chunk)] for number in range(1 << rule.chunk)], np.int8)
    fits = [
        any({i for i, x in enumerate(chunk) if x} <= set(facts.places(word, name)) for word in facts.words(name, ordered=True))
        for chunk in chunks
    ]
    chosen = chunks[(chunks == 0).sum(axis=1) == zeros], np.array(fits)[(chunks == 0).sum(axis=1) == zeros]
    for chunk, fit in zip(*chosen, strict=True):
        if fit:
            stored, words = sparse.compress(chunk, pattern=name)
            assert int(words[0]) in facts.words(name, ordered=True)
            np.testing.assert_array_equal(sparse.decompress(stored, words, pattern=name), chunk)
        else:
            with pytest.raises(OperandError, match=f"not {name} sparse"):
                sparse.compress(chunk, pattern=name)


@cases("name", PATTERNS)
@cases("dtype", DTYPES)
def test_prune_keeps_the_largest(dtype: Any, name: str) -> None:
    rng = np.random.default_rng(3)
    rule = facts.GRANULARITIES[name]
    dense = finite_values(rng, dtype, (20, 3 * rule.chunk))
    stored, words = sparse.compress(dense, pattern=name, prune=True)
    magnitudes = np.abs(decode(to_codes(dense, format_of(dtype)), format_of(dtype)).astype(np.float64))
    for chunk, word in zip(magnitudes.reshape(-1, rule.chunk), words.ravel(), strict=True):
        kept = tuple(dict.fromkeys(place // rule.unit for place in facts.places(int(word), name)))
        assert kept in facts.kept_units(list(chunk), name)
    pruned = sparse.decompress(stored, words, pattern=name)
    same = to_codes(pruned, format_of(dtype)) == to_codes(dense, format_of(dtype))
    assert (same | (to_codes(pruned, format_of(dtype)) == 0)).all()
    assert same.sum() >= dense.size // 2


def test_prune_takes_the_first_of_equals_and_keeps_what_is_no_number() -> None:
    assert sparse.compress(np.ones((1, 4), np.float16), prune=True)[1].tolist() == [[0b0100]]
    inf, nan = np.inf, np.nan
    stored, words = sparse.compress(np.array([[1, nan, 2, inf], [65504, -inf, 1, 3]], np.float16), prune=True)
    assert words.tolist() == [[0b1101], [0b0100]]
    assert np.isnan(stored[0, 0])
    assert stored[1].tolist() == [65504, -inf]


def test_negative_zeros_are_zeros() -> None:
    stored, words = sparse.compress(np.array([[-0.0, 1, -0.0, 2]], np.float16))
    assert stored.tolist() == [[1, 2]]
    assert words.tolist() == [[0b1101]]


def test_empty_matrices_compress() -> None:
    for shape, prune in itertools.product(((0, 8), (3, 0), (2, 0, 16)), (False, True)):
        stored, words = sparse.compress(np.zeros(shape, np.float16), prune=prune)
        assert stored.shape == (*shape[:-1], shape[-1] // 2)
        assert words.shape == (*shape[:-1], shape[-1] // 4)
        assert sparse.decompress(stored, words).shape == shape


def test_results_are_new_arrays() -> None:
    dense = np.array([[0, 5, 0, 7]], np.float16)
    stored, words = sparse.compress(dense)
    stored[:], words[:] = 0, 4
    assert dense.tolist() == [[0, 5, 0, 7]]


@pytest.mark.parametrize("k", [1, 2, 3, 5, 6, 7, 9, 63])
def test_tails_are_errors(k: int) -> None:
    with pytest.raises(OperandError, match="multiple of 4 for 2:4"):
        sparse.compress(np.zeros((2, k), np.float16))
    with pytest.raises(OperandError, match="multiple of 8 for 4:8"):
        sparse.compress(np.zeros((2, k), ml_dtypes.int4))


def test_errors_of_compress() -> None:
    dense = np.zeros((2, 3, 8), np.float16)
    dense[1, 2, 5:8] = 1
    with pytest.raises(OperandError, match=r"a is not 2:4 sparse: row \(1, 2\), columns 4 to 7; prune=True"):
        sparse.compress(dense)
    with pytest.raises(OperandError, match="no sparsity pattern '3:4'; there are"):
        sparse.compress(dense, pattern="3:4")
    with pytest.raises(OperandError):
        sparse.compress(np.float16(1))
    for bad in (["a", "b"], object(), [[1, 2], [3]], np.zeros(4, "U3"), np.zeros(4, complex)):
        with pytest.raises(fastmma.FastmmaError):
            sparse.compress(bad)


def test_errors_of_decompress() -> None:
    stored = np.ones((2, 4), np.float16)
    with pytest.raises(OperandError, match=r"metadata must have shape \(2, 2\), not \(2, 3\)"):
        sparse.decompress(stored, np.full((2, 3), 4))
    with pytest.raises(OperandTypeError, match="metadata must be an array of integers, not float64"):
        sparse.decompress(stored, np.full((2, 2), 4.0))
    for word in (*facts.INVALID_WORDS, 16, -1, 255, 1 << 40):
        with pytest.raises(OperandError, match=rf"metadata: {word} at \(1, 0\) is no 2:4 index; valid are 0b0100, "):
            sparse.decompress(stored, [[4, 4], [word, 4]])
    for word in set(range(16)) - set(facts.TF32_WORDS):
        with pytest.raises(OperandError, match=rf"metadata: {word} at \(0, 1\) is no 1:2 index; valid are 0b0100, 0b1110"):
            sparse.decompress(np.ones((1, 2), np.float32), [[4, word]])
