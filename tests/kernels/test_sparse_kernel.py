"""Sparse A without its zeros: which products are taken, and how a word of metadata is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drivers.kernel_cases import computed
from drivers.kernels import KERNELS
from drivers.operations import operands, operations

from fastmma.backends.parameters import fused_parameters
from fastmma.isa.sparsity import pattern_of
from fastmma.kernels.fused import packed
from fastmma.kernels.fused.sparse_rows import Words
from fastmma.kernels.matrices.addresses import LINES


def test_what_is_stored_is_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    multiply = packed.multiply
    monkeypatch.setattr(packed, "multiply", lambda *given, **named: called.append(named.get("chosen")) or multiply(*given, **named))
    (stored,) = (kernel for kernel in KERNELS if kernel.name == "stored")
    for operation in operations("fused"):
        ins, p = operation.instruction, fused_parameters(operation)
        if ins.sparse and not ins.scale_vec_size:
            called.clear()
            computed(operation, stored, **operands(np.random.default_rng(0), ins, 17, 65, ins.k))
            plain = ins.ctype == ins.dtype == ins.accumulator
            assert any(each is not None for each in called) == (plain and packed.supports_sparse(p._replace(split=0))), ins


def test_a_word_says_where_elements_lie_and_which_are_negative() -> None:
    rule = next(pattern_of(each.instruction) for each in operations("fused") if each.instruction.sparse)
    words = Words(np.zeros((1, LINES), np.uint8), rule.table(False), rule.chunk)
    for word, (first, second) in rule.words:
        assert words._places[word] == first | second << 16
        for own in range(4):
            minus = (own & 1) << first | (own >> 1) << second
            assert words._bits[word, own] == (1 << first | 1 << second | minus << 16)
    assert words.selection.default in dict(rule.words)
