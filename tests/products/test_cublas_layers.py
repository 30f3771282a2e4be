"""The choices of layers by their numbers of rows: they agree with the map, and plans agree with choices that no file was made from."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fastmma
from fastmma import cublas, invariance
from fastmma.agreement.invariance import form_of_layer
from fastmma.products.choice_map import choice_map, read_runs
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.layers import FILES, layers
from fastmma.products.cublas.rows import Product
from fastmma.products.cublas.tables import TABLES

MAP = choice_map(TABLES["H200", "13.1"].parts)
LAYERS = layers(FILES["H200", "13.1"])
HELD_BACK = Path(__file__).parents[1] / "reference" / "cublas_layers.npz"
OUTS = {"tf32": "f32", "e4m3": "bf16"}


def test_layers_agree_with_the_map() -> None:
    rng, compared = np.random.default_rng(0), 0
    for kind, biased in (("bf16", False), ("f16", False), ("bf16", True), ("e4m3", False), ("e4m3fast", False)):
        fmt = kind.removesuffix("fast")
        known = MAP._runs(f"{kind}_nt{'_bias' * biased}")
        assert known is not None
        for n, k in rng.permutation(known.sizes)[:60].tolist():
            for m in rng.integers(1, 641, 20).tolist():
                found = LAYERS.find(kind, Product(fmt, "nt", m, n, k, OUTS.get(fmt, fmt)), biased=biased)
                parts = MAP.find(kind, "nt", m, n, k, biased=biased)
                if found is not None and parts is not None:
                    assert (found.algo, found.split_k) == (66, parts)
                    compared += 1
    assert compared > 3000


@pytest.mark.parametrize(
    "product",
    [
        Product("bf16", "nt", 641, 7168, 16384, "bf16"),  # rows that were not asked
        Product("bf16", "nt", 128, 15872, 16384, "bf16"),
        Product("bf16", "nt", 200, 7168 + 8, 16384, "bf16"),
        Product("bf16", "tn", 200, 7168, 16384, "bf16"),
        Product("bf16", "nt", 200, 7168, 16384, "f32"),
        Product("bf16", "nt", 0, 7168, 16384, "bf16"),
    ],
)
def test_what_nobody_asked_has_no_answer(product: Product) -> None:
    assert LAYERS.find("bf16", product) is None
    assert LAYERS.find("bf16", product._replace(m=192, n=7168, layout="nt", out="bf16")) is not None


@pytest.mark.parametrize(("kind", "least"), [("bf16", 0.2), ("f16", 0.2), ("tf32", 0.01), ("e4m3", 0.9)])
def test_known_rows_of_other_layers_are_cut_as_a_gpu_answered(kind: str, least: float) -> None:
    """The recording has layers of random sizes; nothing that ships was made from it."""
    archive = np.load(HELD_BACK)
    held, fmt, out = read_runs(archive, kind, "id"), fastmma.FORMATS[kind].dtype, OUTS.get(kind, kind)
    assert held is not None
    counts: Counter[bool] = Counter()
    for n, k in held.sizes[:: len(held.sizes) // 6].tolist():
        rows = list(range(1, 641, 71))
        found = invariance(n, k, dtype=kind, target="H200", rows=rows)
        for m in rows:
            group = found.group_of(m)
            counts[group is not None] += 1
            if group is None:
                continue
            *row, workspace = archive["choices"][held.find(m, n, k)].tolist()
            choice = Choice.of_row(tuple(row))
            choice = choice if workspace < 0 else replace(choice, workspace=workspace)
            answered = cublas.plan(np.empty((m, k), fmt), np.empty((n, k), fmt).T, choice=choice, target="H200", out_dtype=out)
            forms = [form_of_layer(plan, k) for plan in (answered, found.plans[group])]
            assert forms[0] == forms[1], (kind, m, n, k)
    assert counts[True] > least * counts.total()
