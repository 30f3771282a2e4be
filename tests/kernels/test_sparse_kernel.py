"""Sparse A without its zeros, against the exact reference and against dense kernels that multiply the zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.sparse_operands import bits, elements, random_words

import fastmma
from fastmma.backends import stored
from fastmma.backends.parameters import fused_parameters
from fastmma.backends.resolve import operation_of
from fastmma.isa.sparsity import pattern_of
from fastmma.kernels.fused import x86
from fastmma.kernels.fused.sparse_rows import Words
from fastmma.kernels.matrices.addresses import LINES

# f64 lanes, f32 lanes, one element of two, two halves of k that start from zero
OPCODES = (
    ("wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.f16.f16", "sm_90a"),
    ("wgmma.mma_async.sp.sync.aligned.m64n128k64.f32.e4m3.e5m2", "sm_90a"),
    ("wgmma.mma_async.sp.sync.aligned.m64n128k16.f32.tf32.tf32", "sm_90a"),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32", "sm_90a"),
)
M, N, DEPTH = 37, 67, 200  # two panels of columns, and an odd number of rows


def operands(opcode: str, *, special: bool) -> dict[str, Any]:
    """Elements of all exponents that A has, or near 1, with zeros; a few infinities and NaNs where they are wanted."""
    rng = np.random.default_rng(len(opcode))
    ins = fastmma.instruction(opcode)
    assert isinstance(ins, fastmma.Instruction)
    rule, k = pattern_of(ins), -(-DEPTH // ins.k) * ins.k - pattern_of(ins).chunk
    a = elements(rng, ins.atype, (M, k * ins.stored_k // ins.k))
    near_one = rng.standard_normal((k, N)).astype(np.float32)
    b = (
        near_one.astype(fastmma.FORMATS[ins.btype].dtype)
        if ins.btype != "tf32"
        else (near_one.view(np.uint32) & 0xFFFFE000).view(np.float32)
    )
    a[rng.random(a.shape) < 0.2] = 0
    b[rng.random(b.shape) < 0.2] = 0
    if special:
        a[5, 3], b[k - 2, 40] = np.nan, np.nan
        b[7, 66] = np.inf
    c = (rng.standard_normal((M, N)) * np.exp2(rng.integers(-12, 12, (M, N)))).astype(np.float32)
    return {"a": a, "b": b, "c": c, "metadata": random_words(rng, rule.name, (M, k // rule.chunk), ordered=ins.ordered_metadata)}


def product(opcode: str, target: str, given: dict[str, Any], **more: Any) -> NDArray[Any]:
    return bits(fastmma.gemm(given["a"], given["b"], given["c"], metadata=given["metadata"], instruction=opcode, target=target, **more))


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(("opcode", "target"), OPCODES)
def test_what_is_stored_is_multiplied_exactly(opcode: str, target: str, special: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = operands(opcode, special=special)
    with_zeros = product(opcode, target, given)
    called = []
    multiply = x86.multiply
    monkeypatch.setattr(stored, "_LEAST", 0)
    monkeypatch.setattr(x86, "multiply", lambda *a, **k: called.append(k.get("chosen")) or multiply(*a, **k))
    found = product(opcode, target, given, threads=2)
    supports = x86.supports_sparse(fused_parameters(operation_of(opcode, target))._replace(restart=0))
    assert any(chosen is not None for chosen in called) == supports
    np.testing.assert_array_equal(found, with_zeros)
    rows, columns = np.array([0, 5, 36]), np.array([0, 40, 63, 64, 66])
    part = {"a": given["a"][rows], "b": given["b"][:, columns], "c": given["c"][np.ix_(rows, columns)], "metadata": given["metadata"][rows]}
    np.testing.assert_array_equal(found[np.ix_(rows, columns)], product(opcode, target, part, backend="reference"))


def test_c_may_be_where_results_go(monkeypatch: pytest.MonkeyPatch) -> None:
    opcode, target = OPCODES[0]
    given = operands(opcode, special=True)
    expected = product(opcode, target, given)
    monkeypatch.setattr(stored, "_LEAST", 0)
    np.testing.assert_array_equal(product(opcode, target, given, out=given["c"]), expected)


def test_a_word_says_where_elements_lie_and_which_are_negative() -> None:
    rule = pattern_of(fastmma.instruction(OPCODES[0][0]))  # type: ignore[arg-type]
    words = Words(np.zeros((1, LINES), np.uint8), rule.table(False), rule.chunk)
    for word, (first, second) in rule.words:
        assert words._places[word] == first | second << 16
        for own in range(4):
            minus = (own & 1) << first | (own >> 1) << second
            assert words._bits[word, own] == (1 << first | 1 << second | minus << 16)
    assert words.selection.default in dict(rule.words)
