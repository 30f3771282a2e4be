"""Gluon kernels of clusters of CTAs: products by wgmma whose operands are multicast, and tensors that move from CTA to CTA."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import fastmma  # noqa: E402
from fastmma.triton import interpret  # noqa: E402
from fastmma.triton.gluon.layouts import find_places, find_share  # noqa: E402
from tests.integrations.gluon.launches import Launch, clustered, tensor  # noqa: E402

BY_KERNEL = {launch.name: launch for launch in clustered(draw=2)}


def left_by(launch: Launch) -> dict[str, torch.Tensor]:
    tensors = {name: tensor(array) for name, array in launch.drawn().items()}
    with interpret("H100", fp_fusion=True) as report:
        launch.kernel[launch.grid](**launch.arguments(tensors), **launch.options)
    if launch.kernel.fn.__name__ != "cluster_transpose":
        report.assert_all_emulated()
    return tensors


@pytest.mark.parametrize("name", [name for name in BY_KERNEL if name.startswith("cluster_product")])
def test_products_are_those_of_one_accumulator(name: str) -> None:
    tensors = left_by(BY_KERNEL[name])
    a, b, c = (BY_KERNEL[name].drawn()[part] for part in ("a_desc", "b_desc", "c_desc"))
    assert (tensors["c_desc"].view(torch.int16).numpy() == fastmma.gemm(a, b, target="H100", out_dtype=c.dtype).view(np.int16)).all()


def test_what_ctas_exchange_is_the_same_tensor() -> None:
    [launch] = [launch for name, launch in BY_KERNEL.items() if name.startswith("cluster_transpose")]
    tensors = left_by(launch)
    assert (tensors["out"] == tensors["x"].T).all()


@pytest.mark.parametrize("name", [name for name in BY_KERNEL if name.startswith("cluster_softmax")])
def test_rows_are_spread_over_ctas(name: str) -> None:
    tensors = left_by(BY_KERNEL[name])
    powers = torch.exp2(tensors["x"].double())
    torch.testing.assert_close(tensors["out"].double(), powers / powers.sum(1, keepdim=True), rtol=1e-5, atol=0)


def test_each_cta_has_its_part_of_shared_memory() -> None:
    layout = "#ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [1, 0], CGALayout = [[1, 0], [0, 0], [0, 1]]}>"
    places, size = find_places(layout, (4, 8), 2, 1 << 10)
    row, column = np.indices((4, 8))
    assert find_share(layout, (4, 8)) == (2, 4)
    assert size == 16
    assert (places == (row // 2 + 4 * (column // 4) << 10) + row % 2 * 8 + column % 4 * 2).all()
