"""The map of cuBLAS's choices: it agrees with products that ran, and answers nothing that was not asked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma.products.choice_map import choice_map
from fastmma.products.cublas.book import Book
from fastmma.products.cublas.rows import Product

RAN = Path(__file__).parents[1] / "reference" / "cublas_mapped.npz"
MAP = choice_map("cublas_choices_h200_13_1.npz")


def test_choices_are_those_of_products_that_ran() -> None:
    """The recording has what PyTorch ran on an H200, which the map was not made from."""
    pages, asked = Book(RAN), MAP
    same: Counter[tuple[str, str, str]] = Counter()
    for kind, m, n, k in pages.products():
        found = pages.find(kind.type, Product(kind.type, kind.layout, m, n, k, kind.out), biased=bool(kind.addend))
        assert found is not None
        assert found.choice.algo == 66
        assert asked.find(kind.type, kind.layout, m, n, k, biased=bool(kind.addend)) == found.choice.split_k
        same[kind.type, kind.layout, kind.addend] += 1
    assert len(same) == 7
    assert same.total() == len(pages) > 7000


@pytest.mark.parametrize(
    ("fmt", "layout", "m", "n", "k"),
    [
        ("bf16", "nt", 1025, 1024, 3584),  # rows that were not asked
        ("bf16", "nt", 4104, 1024, 3584),
        ("bf16", "nt", 0, 4096, 4096),
        ("bf16", "nt", 129, 4096 + 64, 4096),
        ("bf16", "nt", 16, 4096 + 8, 4096),
        ("bf16", "nt", 16, 16448, 16384),
        ("bf16", "tn", 16, 4096, 4096),
        ("tf32", "nt", 16, 4096, 4096),
        ("f16", "nt", 16, 4096, 2560),
    ],
)
def test_what_nobody_asked_has_no_answer(fmt: str, layout: str, m: int, n: int, k: int) -> None:
    assert MAP.find(fmt, layout, m, n, k) is None


def test_edges_of_the_grid_have_answers() -> None:
    assert all(MAP.find("bf16", "nt", m, n, k) for m in (1, 128) for n in (64, 16384) for k in (2624, 16384))


@pytest.mark.parametrize("biased", [False, True])
def test_plans_follow_the_map(biased: bool) -> None:
    bf16, bias = np.dtype(ml_dtypes.bfloat16), np.zeros(14336, np.float32) if biased else None
    levels: Counter[str] = Counter()
    for m in (1, 7, 33, 100, 333, 1024):
        a, b = np.zeros((m, 4096), bf16), np.zeros((14336, 4096), bf16).T
        plan = fastmma.gemm_plan(a, b, target="H200", preset="cublas", bias=bias, out_dtype="bf16", unknown="refuse")
        assert plan.split_k == MAP.find("bf16", "nt", m, 14336, 4096, biased=biased)
        levels[plan.evidence.level] += 1  # type: ignore[union-attr]
        assert fastmma.gemm_plan(a, b, target="H100", preset="cublas", bias=bias, out_dtype="bf16").evidence != plan.evidence
    assert levels == {"recorded": 6}
