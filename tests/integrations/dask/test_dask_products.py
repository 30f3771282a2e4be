"""Products of Dask arrays have the bits of one call, however they are chunked, wherever they are computed."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest

dask = pytest.importorskip("dask")
import dask.array as da  # noqa: E402

import fastmma  # noqa: E402
import fastmma.dask  # noqa: E402
from fastmma import study  # noqa: E402
from fastmma.testing import adversarial, assert_bits_equal  # noqa: E402

M, N, K = 70, 50, 600
# chunks of a and of b: some divide the extents, some do not, K is in one piece or in many
CHUNKS = {"one": ((70, 600), (600, 50)), "uneven": ((32, 100), (64, 17)), "many of k": ((70, 50), (200, 50)), "rows": ((7, 600), (600, 10))}
# dtype, and what both calls take
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "bf16": ("bf16", {"target": "H100", "out_dtype": "bf16"}),
    "fp8 promoted": ("e4m3", {"target": "H100", "promote_every": 128}),
    "int8": ("s8", {"target": "A100"}),
    "parts": ("f16", {"target": "A100", "split_k": 3}),
    "parts, promoted": ("e4m3", {"target": "H100", "split_k": 2, "promote_every": 64}),
    "parts with an epilogue": (
        "f16",
        {"target": "H100", "split_k": [(0, 128), (128, 600)], "alpha": 0.3, "activation": "relu", "out_dtype": "f16"},
    ),
    "parts in pairs": ("f16", {"target": "H100", "split_k": 5, "join": "pairwise", "join_dtype": "bf16"}),
    "f16 sums in parts": ("f16", {"target": "H100", "accumulator": "f16", "split_k": 4}),
}


def operands(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    return adversarial((M, K), dtype), adversarial((K, N), dtype, seed=1)


@pytest.fixture(autouse=True)
def scheduler():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.mark.parametrize("name", CALLS)
def test_the_bits_of_one_call(name: str) -> None:
    dtype, options = CALLS[name]
    a, b = operands(dtype)
    expected = fastmma.gemm(a, b, **options)
    for left, right in CHUNKS.values():
        d = fastmma.dask.gemm(da.from_array(a, chunks=left), da.from_array(b, chunks=right), **options)
        assert d.dtype == expected.dtype
        assert d.shape == expected.shape
        assert_bits_equal(d.compute(), expected)


@pytest.mark.parametrize("options", [{}, {"split_k": 3}, {"split_k": 3, "beta": 0.5, "alpha": 2.0, "out_dtype": "bf16"}])
def test_c_and_a_bias(options: dict[str, Any]) -> None:
    a, b = operands("f16")
    c, bias = np.random.default_rng(0).standard_normal((M, N)).astype(np.float32), np.linspace(-1, 1, N, dtype=np.float32)
    whole = {"target": "A100", "out_dtype": "f16", "bias": bias} | options
    expected = fastmma.gemm(a, b, c, **whole)
    left, right = da.from_array(a, chunks=(32, 100)), da.from_array(b, chunks=(64, 17))
    assert_bits_equal(fastmma.dask.gemm(left, right, c, **whole).compute(), expected)
    own = whole | {"bias": da.from_array(bias, chunks=7)}
    assert_bits_equal(fastmma.dask.gemm(left, right, da.from_array(c, chunks=(9, 50)), **own).compute(), expected)


def test_specials_in_parts() -> None:
    """NaNs and signed zeros of joined parts, and of the epilogue that follows, to the bit."""
    a, b = (np.array([[0.0, -0.0, np.inf, 1.0]], np.float16).repeat(side, 0).repeat(32, 1) for side in (40, 24))
    b = -b.T
    for options in ({}, {"out_dtype": "f16", "alpha": -1.0}):
        expected = fastmma.gemm(a, b, target="H100", split_k=4, **options)
        d = fastmma.dask.gemm(da.from_array(a, chunks=(16, 30)), da.from_array(b, chunks=(30, 16)), target="H100", split_k=4, **options)
        assert_bits_equal(d.compute(), expected, nan="bits")


def test_a_preset_sees_the_whole_product() -> None:
    """The plan book knows 16 x 4096 x 4096 as three parts of k; a block of it is another product."""
    a, b = adversarial((16, 4096), "f16"), adversarial((4096, 64), "f16", seed=1)
    b = np.tile(b, (1, 64))
    plan = fastmma.gemm_plan(a, b, target="H200", preset="cublas", out_dtype="f16")
    assert plan.split_k == 3
    d = fastmma.dask.gemm(
        da.from_array(a, chunks=(16, 1000)), da.from_array(b, chunks=(1000, 2048)), target="H200", preset="cublas", out_dtype="f16"
    )
    assert_bits_equal(d.compute(), fastmma.gemm(a, b, plan=plan))
    assert_bits_equal(fastmma.dask.gemm(a, b, plan=plan, chunks=(16, 1024)).compute(), fastmma.gemm(a, b, plan=plan))


def test_a_sparse_operand() -> None:
    a, b = operands("f16")
    stored, metadata = fastmma.sparse.compress(np.where(np.arange(512) % 4 < 2, a[:, :512], 0))
    options = {"instruction": "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "target": "sm_80"}
    expected = fastmma.gemm(stored, b[:512], metadata=metadata, **options)
    d = fastmma.dask.gemm(da.from_array(stored, chunks=(32, 100)), da.from_array(b[:512], chunks=(64, 17)), metadata=metadata, **options)
    assert_bits_equal(d.compute(), expected)


def test_chunks_of_the_result() -> None:
    a, b = operands("bf16")
    d = fastmma.dask.gemm(a, b, target="A100", chunks=(40, 20))
    assert d.chunks == ((40, 30), (20, 20, 10))
    assert_bits_equal(d.compute(), fastmma.gemm(a, b, target="A100"))


def test_tasks_of_parts() -> None:
    """Parts of k are tasks of their own, so that no task needs whole rows of a."""
    a, b = operands("f16")
    seen = []

    def spy(block: np.ndarray) -> np.ndarray:
        seen.append(block.shape)
        return block

    left = da.from_array(a, chunks=(35, 150)).map_blocks(spy, meta=np.empty((0, 0), a.dtype))
    d = fastmma.dask.gemm(left, da.from_array(b, chunks=(150, 50)), target="A100", split_k=4)
    assert_bits_equal(d.compute(), fastmma.gemm(a, b, target="A100", split_k=4))
    assert set(seen) == {(35, 150)}


def test_schedulers() -> None:
    a, b = operands("e4m3")
    d = fastmma.dask.gemm(da.from_array(a, chunks=(20, 100)), da.from_array(b, chunks=(64, 17)), target="H100", promote_every=128)
    expected = fastmma.gemm(a, b, target="H100", promote_every=128)
    with dask.config.set(scheduler="threads"):
        assert_bits_equal(d.compute(), expected)


def test_a_cluster_and_a_study_on_it() -> None:
    distributed = pytest.importorskip("distributed")
    a, b = (each.astype(ml_dtypes.bfloat16) for each in operands("f16"))
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "processes": True}
    grid = study.Grid(("e4m3", "mxfp8"), ("sm_120a",), ((8, 8, 64),))
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        d = fastmma.dask.gemm(da.from_array(a, chunks=(40, 100)), da.from_array(b, chunks=(64, 25)), target="H100")
        assert_bits_equal(d.compute(scheduler="distributed"), fastmma.gemm(a, b, target="H100"))
        assert study.run(grid, executor=client.get_executor()) == study.run(grid)
    loky = pytest.importorskip("loky")
    with loky.ProcessPoolExecutor(1) as processes:
        assert study.run(grid, executor=processes) == study.run(grid)


def test_what_is_refused() -> None:
    a, b = (da.from_array(each, chunks=32) for each in operands("f16"))
    gemm, plan = fastmma.dask.gemm, fastmma.gemm_plan(*operands("f16"), target="A100")
    tiles = fastmma.StreamK(tile=(32, 32, 32), ctas=3)
    for call, error, message in (
        (lambda: gemm(a, a), fastmma.OperandError, r"a \(70, 600\) and b \(600, 70\)|do not multiply"),
        (lambda: gemm(a, b[:, 0]), fastmma.OperandError, "two dimensions"),
        (lambda: gemm(a[a[:, 0] > 0], b), fastmma.OperandError, "unknown sizes"),
        (lambda: gemm(a, b, target="A100", split_k=tiles), fastmma.OperandError, "StreamK cuts k by the place of a tile"),
        (lambda: gemm(a, b, bias=np.ones(3, np.float32)), fastmma.OperandError, "bias has shape"),
        (lambda: gemm(a, b, out=np.empty((70, 50), np.float32)), fastmma.OperandError, "out cannot be given"),
        (lambda: gemm(a, b, chunks=(1, 2, 3)), fastmma.OperandError, "chunks must be those of the result"),
        (lambda: gemm(a, b, target="H1000"), fastmma.TargetError, "H1000"),
        (lambda: gemm(a, b, "H100"), fastmma.OperandTypeError, "target is a keyword"),
        (lambda: gemm(a, b, plan=plan, target="A100"), fastmma.OperandError, "with a plan, target is left out"),
        (lambda: gemm(a, b, targets="H100"), fastmma.OperandTypeError, r"takes no keyword 'targets'; the nearest is 'target'$"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_the_signature_spells_the_keywords() -> None:
    given, plain = (inspect.signature(each).parameters for each in (fastmma.dask.gemm, fastmma.gemm))
    assert given.keys() - plain.keys() == {"chunks"}
    assert plain.keys() <= given.keys()
