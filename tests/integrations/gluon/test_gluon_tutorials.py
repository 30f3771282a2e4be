"""Triton's own tutorials of Gluon, as of its commit 63068fc.

FASTMMA_TRITON_TUTORIALS names the folder that holds them (python/tutorials in its repository).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from triton._C.libtriton import nvidia  # noqa: E402

import fastmma.torch  # noqa: E402
from fastmma.triton import interpret  # noqa: E402

FOLDER = os.environ.get("FASTMMA_TRITON_TUTORIALS", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="FASTMMA_TRITON_TUTORIALS names no folder")


def scheduler() -> Any:
    return importlib.import_module("07-persistence").PersistentTileScheduler


# the GPU, the tutorial, its test, and the test's arguments
TESTS = (
    ("H100", "01-intro", "test_memcpy", (64, 500)),
    ("H100", "02-layouts", "test_memcpy_2d_inout", (300, 400, True, False)),
    ("H100", "03-async-copy", "test_elementwise_add_pipelined", (4000, 120, 32, 64, 2)),
    ("H100", "04-tma", "test_elementwise_add_pipelined", (4000, 120, 32, 64, 2)),
    ("H100", "05-wgmma", "test_small_mma", (64, 32, 32, True, 16, 4)),
    ("H100", "05-wgmma", "test_blocked_matmul", (208, 416, 304, 64, 64, 64, True, 8)),
    ("H100", "05-wgmma", "test_blocked_matmul_pipelined", (208, 416, 304, 128, 128, 128, 4)),
    ("B200", "06-tcgen05", "test_tmem_example_kernel", (64, 128, 4)),
    ("B200", "06-tcgen05", "test_small_mma", (64, 128, 128, True, True, 4)),
    ("B200", "06-tcgen05", "test_small_mma", (128, 128, 128, False, False, 8)),
    ("B200", "06-tcgen05", "test_blocked_matmul_pipelined", (208, 416, 304, 128, 128, 128, 4)),
    ("H100", "08-warp-specialization", "test_elementwise_add_warp_specialized", (4000, 120, 32, 64, 2, 2, 4)),
    ("H100", "07-persistence", "test_persistent_matmul_pipelined", (208, 416, 304, 64, 64, 64, 3, 4, scheduler)),
    ("H100", "07-persistence", "test_persistent_matmul_pipelined", (208, 416, 304, 128, 256, 64, 4, 8, scheduler)),
    ("B200", "07-persistence", "test_persistent_matmul_pipelined", (208, 416, 304, 128, 256, 64, 3, 4, scheduler)),
    ("B200", "08-warp-specialization", "test_matmul_warp_specialized", (208, 416, 304, 128, 256, 64, 2, 4, 4, scheduler)),
    ("B200", "09-tma-gather-scatter", "test_async_gather", (8, 16, 48, torch.bfloat16, 256, 256, None)),
    ("B200", "09-tma-gather-scatter", "test_async_scatter", (8, 16, 48, torch.bfloat16, 256, 256, None)),
    ("B200", "09-tma-gather-scatter", "test_matmul_fused_gather_scatter", (256, 256, 256, 128, 128, 64, 3)),
    ("B200", "10-tcgen05-copy", "test_tcgen05_copy_nvmma_shared", (128, 64, 2, torch.float32, 128)),
    ("B200", "11-tcgen05-mma-scaled", "test_simple_mma_scaled", (256, 256, 512, "mxfp8", "mxfp4", 128, 128)),
    ("B200", "11-tcgen05-mma-scaled", "test_mma_scaled_tcgen05_copy", (256, 256, 512, "nvfp4", "nvfp4", 128, 256)),
    ("B200", "12-cluster-launch-control", "test_op", (504, 504, 200, True)),
    ("B200", "12-cluster-launch-control", "test_op", (504, 504, 200, False)),
    ("H100", "13-conv-im2col", "test_tma_im2col_simple", ()),
    ("H100", "13-conv-im2col", "test_tma_im2col_padded", ()),
    ("H100", "13-conv-im2col", "test_tma_im2col_offset", ()),
    ("H100", "13-conv-im2col", "test_tma_im2col_multi_batch", ()),
    ("H100", "13-conv-im2col", "test_tma_im2col_multi_batch_padded", ()),
    ("H100", "13-conv-im2col", "test_conv2d_tma_im2col", (1, 16, 16, 64, 64, 3, 3, 2, 1)),
    ("H100", "14-multicta", "test_multicta_softmax_f32", (16, 1 << 16)),
    ("H100", "14-multicta", "test_tma_multicast_copy", ()),
    ("B200", "14-multicta", "test_two_cta_tcgen05", ()),
    ("B200", "14-multicta", "test_tma_tcgen05", ()),
    ("B200", "14-multicta", "test_matmul_multicta", ()),
)
# a load overwrites what the product before it may still read, which this tutorial waits for one line too late
RACES = {"test_conv2d_tma_im2col"}


@pytest.fixture
def tutorials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(nvidia.cublas, "CublasLt", lambda _workspace: None)  # for benchmarks alone
    monkeypatch.syspath_prepend(str(Path(FOLDER, "gluon")))
    yield
    for name in [name for name in sys.modules if name[:2].isdigit()]:  # they ask for the GPU when they are imported
        del sys.modules[name]


@pytest.mark.usefixtures("tutorials")
@pytest.mark.filterwarnings("ignore:aten")  # torch's products, with which results are compared
@pytest.mark.parametrize(("gpu", "module", "name", "arguments"), TESTS, ids=[f"{row[1]}-{row[2]}" for row in TESTS])
def test_tutorial(gpu: str, module: str, name: str, arguments: tuple[Any, ...]) -> None:
    with fastmma.torch.emulate(gpu, as_cuda=True), interpret(gpu, races="note") as report:
        test = getattr(importlib.import_module(module), name)
        test(*(one() if one is scheduler else one for one in arguments))
    report.assert_all_emulated()
    assert any("a race" in note for note in report.notes) == (name in RACES)
