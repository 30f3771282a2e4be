"""Choices that a GPU's library answered for layers: they agree with what ran, and plans follow them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fastmma.cublas import plan
from numpy.typing import NDArray

import fastmma
from fastmma.products.cublas.answers import answers
from fastmma.products.cublas.book import shipped_book
from fastmma.products.cublas.raster import takes_bands
from fastmma.products.cublas.rows import Product
from fastmma.products.cublas.tables import TABLES, VERSION
from fastmma.products.lanes_plan import LanesPlan

ANSWERS = answers("cublas_algorithms_h200_13_1.npz")
DTYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32, "f32": np.float32}


def pair(product: Product) -> tuple[NDArray[Any], NDArray[Any]]:
    """Matrices that nobody reads, of which the system gives no memory."""
    _, layout, m, n, k = product[:5]
    dtype = DTYPES[product.fmt]
    a = np.empty((m, k), dtype) if layout[0] == "n" else np.empty((k, m), dtype).T
    return a, np.empty((k, n), dtype) if layout[1] == "n" else np.empty((n, k), dtype).T


def test_choices_are_those_of_products_that_ran() -> None:
    """The book has what PyTorch ran on an H200, which the answers were not made from."""
    pages, seen = shipped_book("H200"), Counter[tuple[str, str]]()
    assert pages is not None
    for kind, m, n, k in pages.products():
        product = Product(kind.type, kind.layout, m, n, k, "f32" if kind.type == "tf32" else kind.type)
        answer = ANSWERS.find(product) if not kind.addend else None
        recorded = pages.find(kind.type, product) if answer is not None else None
        if answer is None or recorded is None or not recorded.samples:
            continue
        try:
            found = plan(*pair(product), choice=answer, out_dtype=product.out)
        except fastmma.OperandError:
            seen[kind.type, "refused"] += 1
            continue
        ran = plan(*pair(product), choice=recorded.choice, out_dtype=product.out)
        seen[kind.type, "equal" if order(found) == order(ran) else "other"] += 1
    assert {key for key in seen if key[1] != "refused"} == {(fmt, "equal") for fmt in ("bf16", "f16", "tf32")}
    assert seen["tf32", "equal"] > 2400
    assert seen.total() - seen["tf32", "equal"] < 300


def order(found: fastmma.GemmPlan | LanesPlan) -> tuple[Any, ...]:
    """The order of k; two parts that are joined from the end are joined as others are."""
    assert isinstance(found, fastmma.GemmPlan)
    parts = found.split_k if isinstance(found.split_k, int) else len(found.split_k)  # type: ignore[arg-type]
    join = found.join if parts > 2 else found.join.replace("pairwise from the end", "ascending")
    return found.instruction, found.first_tile, parts, join, found.split_unit if isinstance(found.split_k, int) else 32


@pytest.mark.parametrize(
    "product",
    [
        Product("f32", "nt", 1025, 4096, 4096, "f32"),  # rows that were not asked
        Product("f32", "nt", 0, 4096, 4096, "f32"),
        Product("f32", "nn", 16, 4096, 4096, "f32"),
        Product("f32", "nt", 16, 4096, 4097, "f32"),
        Product("bf16", "nt", 16, 50257, 768, "f32"),
        Product("bf16", "nt", 16, 4096, 4096, "bf16"),  # in the map of parts
        Product("e4m3", "nt", 16, 4096, 4096, "bf16"),
    ],
)
def test_what_nobody_asked_has_no_answer(product: Product) -> None:
    assert ANSWERS.find(product) is None


def test_plans_follow_answers() -> None:
    wide, thin = Product("f32", "nt", 16, 4096, 4096, "f32"), Product("f32", "nt", 1, 4096, 4096, "f32")
    found = plan(*pair(wide))
    assert isinstance(found, fastmma.GemmPlan)
    assert (found.split_k, found.dealt, found.instruction) == (8, 8, "fma.rn.f32")
    assert "cuBLASLt 13.1 on H200 chooses algo 55, split_k 8, reduction 2, stages 31, for f32 nt of M = 16" in str(found.evidence)
    assert isinstance(plan(*pair(thin)), LanesPlan)
    odd = plan(*pair(Product("bf16", "nt", 33, 50257, 768, "bf16")), out_dtype="bf16")
    assert odd.evidence is not None
    assert odd.evidence.level == "fitted"
    tf32 = plan(*pair(Product("tf32", "nt", 40, 50257, 768, "f32")), tf32=True)
    assert "tf32.tf32" in tf32.instruction
    assert tf32.cast  # type: ignore[union-attr]


def test_what_is_added_through_another_call_is_not_looked_up() -> None:
    a, b = pair(Product("f32", "nt", 16, 4096, 4096, "f32"))
    assert plan(a, b, np.zeros((16, 4096), np.float32), beta=0.5).epilogue == ("c", "round")
    for more in ({"bias": b[0], "activation": "relu"}, {"activation": "relu"}, {"workspace": 1 << 20}, {"target": "B200"}):
        with pytest.raises(fastmma.OperandError):
            plan(a, b, **more)
    with pytest.raises(fastmma.OperandError):
        plan(a[None], b[None])


@pytest.mark.parametrize(("gpu", "least"), [("H200", 60), ("H100", 50)])
def test_bands_are_wide_where_operands_fill_the_cache(gpu: str, least: int) -> None:
    """Of a ninth of the layers, for rows in multiples of 64; the few sizes for which the library is tuned have another layout."""
    table, megabyte = TABLES[gpu, VERSION], 1 << 20
    found = answers(table.answers)
    runs = found._runs("tf32_nn")
    assert runs is not None
    near = Counter[bool]()
    for n, k in runs.sizes[::9].tolist():
        for m in range(64, 16385, 64):
            product = Product("tf32", "nn", m, n, k, "f32")
            choice = found.find(product)
            if choice is None or choice.algo != 43 or not choice.tile:
                continue
            assert takes_bands(product, table.cache) == bool(choice.swizzle), product
            near[bool(choice.swizzle)] += least * megabyte <= (m + n) * k * 4 <= (least + 10) * megabyte
    assert near[True] > 50
