"""Gluon kernels of clusters of CTAs: products by wgmma whose operands are multicast, and where the parts of CTAs lie."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import fastmma  # noqa: E402
from fastmma.triton import interpret  # noqa: E402
from fastmma.triton.gluon.layouts import find_places, find_share  # noqa: E402
from tests.integrations.gluon.launches import clustered, tensor  # noqa: E402

PRODUCTS = {launch.name: launch for launch in clustered(draw=2) if launch.kernel.fn.__name__ == "cluster_product"}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_those_of_one_accumulator(name: str) -> None:
    launch = PRODUCTS[name]
    drawn = launch.drawn()
    tensors = {part: tensor(array) for part, array in drawn.items()}
    with interpret("H100") as report:
        launch.kernel[launch.grid](**launch.arguments(tensors), **launch.options)
    report.assert_all_emulated()
    a, b, c = (drawn[part] for part in ("a_desc", "b_desc", "c_desc"))
    assert (tensors["c_desc"].view(torch.int16).numpy() == fastmma.gemm(a, b, target="H100", out_dtype=c.dtype).view(np.int16)).all()


def test_each_cta_has_its_part_of_shared_memory() -> None:
    layout = "#ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [1, 0], CGALayout = [[1, 0], [0, 0], [0, 1]]}>"
    places, size = find_places(layout, (4, 8), 2, 1 << 10)
    row, column = np.indices((4, 8))
    assert find_share(layout, (4, 8)) == (2, 4)
    assert size == 16
    assert (places == (row // 2 + 4 * (column // 4) << 10) + row % 2 * 8 + column % 4 * 2).all()
