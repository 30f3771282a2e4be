"""Tensors in shards, on a mesh of one process: their products have a GPU's bits."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch was built without gloo", allow_module_level=True)

from torch.distributed._functional_collectives import AsyncCollectiveTensor, all_reduce  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: E402

import fastmma.torch as ft  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about itself
BF16 = torch.bfloat16


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Any]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        torch.distributed.destroy_process_group()


def drawn(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(shape, generator=generator) * torch.exp2(torch.randint(-14, 1, shape, generator=generator))).to(BF16)


def test_products_of_sharded_tensors(mesh: Any) -> None:
    a, b = drawn(64, 2048), drawn(2048, 64)
    wanted = ft.mm(a, b, target="H100")
    assert not torch.equal(a @ b, wanted)
    for placements in ((Shard(0), Replicate()), (Replicate(), Shard(1)), (Shard(1), Shard(0))):
        x, y = (distribute_tensor(each, mesh, [place]).requires_grad_() for each, place in zip((a, b), placements, strict=True))
        with ft.emulate("H100", functions="torch", other="error") as gpu:
            product = (x @ y).full_tensor()
            product.backward(torch.ones_like(product))
        assert torch.equal(product, wanted), placements
        assert torch.equal(x.grad.full_tensor(), ft.mm(torch.ones_like(wanted), b.t(), target="H100")), placements
        gpu.report.assert_all_emulated(assumed=True)
        assert gpu.report.emulated + gpu.report.assumed == 3


@pytest.mark.usefixtures("mesh")
def test_products_of_tensors_that_a_collective_is_still_to_fill() -> None:
    a, b = drawn(64, 2048), drawn(2048, 64)
    with ft.emulate("H100", functions="torch", other="error") as gpu:
        waiting = all_reduce(a, "sum", torch.distributed.group.WORLD)
        assert isinstance(waiting, AsyncCollectiveTensor)
        product = waiting @ b
    assert torch.equal(product, ft.mm(a, b, target="H100"))
    assert gpu.report.emulated + gpu.report.assumed == 1


def test_a_fully_sharded_model_trains_to_the_same_bits(mesh: Any) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32, bias=False)).to(BF16)
    sharded = copy.deepcopy(model)
    for layer in (sharded[0], sharded[2], sharded):
        fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=BF16))
    found: list[list[torch.Tensor]] = []
    for each in (model, sharded):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.125)
        with ft.emulate("H100", functions="torch", other="error") as gpu:
            for _ in range(2):  # the second pass gathers into storages that the first has freed
                optimizer.zero_grad()
                each(drawn(16, 64)).float().square().sum().backward()
                optimizer.step()
        passed = {line.operator.split(".")[1] for line, _ in gpu.report.lines("passed", "unseen")}
        assert passed == {"randn", "randint", "exp2", "sum", "add_"}  # an optimizer adds by one fma on a GPU
        assert gpu.report.emulated == 10
        found.append([part.full_tensor() if hasattr(part, "full_tensor") else part for part in each.parameters()])
    assert [torch.equal(one, other) for one, other in zip(*found, strict=True)] == [True] * 3
