"""Quantisation and block-scaled products of Dask arrays have the bits of one call."""

from __future__ import annotations

import numpy as np
import pytest

dask = pytest.importorskip("dask")
import dask.array as da  # noqa: E402

import fastmma  # noqa: E402
import fastmma.dask  # noqa: E402
from fastmma.scaling import SCHEMES  # noqa: E402
from fastmma.testing import assert_bits_equal  # noqa: E402

quantize = fastmma.scaling.quantize


@pytest.fixture(autouse=True)
def scheduler():
    with dask.config.set(scheduler="sync"):
        yield


def drawn(shape: tuple[int, ...], seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))).astype(dtype)


def same(found: fastmma.dask.ScaledDaskArray, expected: fastmma.ScaledArray) -> None:
    array = found.compute()
    assert (array.scheme, array.block, array.axis % array.ndim) == (expected.scheme, expected.block, expected.axis % expected.ndim)
    assert_bits_equal(array.elements, expected.elements)
    assert_bits_equal(array.scales, expected.scales)
    assert (array.global_scale is None) == (expected.global_scale is None)
    if expected.global_scale is not None:
        assert array.global_scale.tobytes() == np.float32(expected.global_scale).tobytes()


@pytest.mark.parametrize(("name", "rule"), [(name, rule) for name, row in SCHEMES.items() for rule in row.rules])
def test_quantize(name: str, rule: str) -> None:
    """Every scheme and rule, with chunks of whole blocks: whole dimensions where a scale is shared by them."""
    row = SCHEMES[name]
    for axis, shape in ((1, (300, 290)), (0, (290, 300))):
        x = drawn(shape)
        block = row.block(shape, axis)
        chunks = tuple(max(size, 130 // size * size) for size in block)
        found = fastmma.dask.quantize(da.from_array(x, chunks=chunks), name, axis=axis, rule=rule)
        same(found, quantize(x, name, axis=axis, rule=rule))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_quantize_other_inputs(dtype: type) -> None:
    x = drawn((3, 40, 64), dtype=dtype)
    x[1, 2, 3] = -np.inf
    x[2, 3, 4] = np.nan
    for one in (x[0], x, x[2, 3], np.zeros_like(x)):
        for scheme in ("nvfp4", "mxfp8"):
            same(fastmma.dask.quantize(da.from_array(one, chunks=32), scheme, rounding="zero"), quantize(one, scheme, rounding="zero"))


# schemes of a and b, target, options
PRODUCTS = [
    ("mxfp8_e4m3", "mxfp8_e4m3", {"target": "B200", "out_dtype": "bf16"}),
    ("nvfp4", "nvfp4", {"target": "RTX 5090"}),
    ("fp8_1x128", "fp8_128x128", {"target": "H100", "alpha": 0.5}),
    ("fp8_row", "fp8_row", {"target": "H100", "preset": "cublas", "out_dtype": "bf16"}),
    ("fp8_tensor", "fp8_tensor", {"target": "H100", "preset": "cublas"}),
]


@pytest.mark.parametrize(("first", "second", "options"), PRODUCTS)
def test_products(first: str, second: str, options: dict) -> None:
    x, w = drawn((256, 384)), drawn((128, 384), seed=1)
    bias = np.linspace(-1, 1, 128, dtype=np.float32)
    a, b = quantize(x, first), quantize(w, second)
    given = options if "cublas" in options.values() and first == "fp8_tensor" else options | {"bias": bias}
    expected = fastmma.scaled_matmul(a, b.T, **given)
    cut = lambda values, scheme: tuple(max(size, 128) for size in SCHEMES[scheme].block(values.shape, 1))  # noqa: E731
    left = fastmma.dask.quantize(da.from_array(x, chunks=cut(x, first)), first)
    right = fastmma.dask.quantize(da.from_array(w, chunks=cut(w, second)), second)
    assert_bits_equal(fastmma.dask.scaled_matmul(left, right.T, **given).compute(), expected)


def test_chunks_and_c() -> None:
    x, c = drawn((96, 128)), drawn((96, 96), seed=2)
    a, left = quantize(x, "mxfp4"), fastmma.dask.quantize(x, "mxfp4")
    expected = fastmma.scaled_matmul(a, a.T, target="RTX 5090", c=c, beta=0.5)
    d = fastmma.dask.scaled_matmul(left, left.T, target="RTX 5090", c=da.from_array(c, chunks=50), beta=0.5, chunks=(40, 32))
    assert d.chunks == ((40, 40, 16), (32, 32, 32))
    assert_bits_equal(d.compute(), expected)


def test_what_is_refused() -> None:
    x = da.from_array(drawn((64, 96)), chunks=(32, 40))
    with pytest.raises(
        fastmma.OperandError, match="chunk 0 along dimension 1 ends at 40, inside a block of 32 of mxfp4: rechunk to multiples of 32"
    ):
        fastmma.dask.quantize(x, "mxfp4")
    with pytest.raises(fastmma.OperandError, match="chunk 0 along dimension 0 ends at 32, inside a block of 64 of fp8_tensor"):
        fastmma.dask.quantize(x.rechunk((32, 96)), "fp8_tensor")
    with pytest.raises(fastmma.OperandError, match="stochastic rounding draws by the place"):
        fastmma.dask.quantize(x, "mxfp4", rounding="stochastic")
    with pytest.raises(fastmma.OperandTypeError, match="x must have dtype"):
        fastmma.dask.quantize(da.ones((64, 64), dtype=np.int32), "mxfp4")
    q = fastmma.dask.quantize(x.rechunk(32), "mxfp4")
    with pytest.raises(fastmma.OperandTypeError, match="a must be a ScaledDaskArray"):
        fastmma.dask.scaled_matmul(x, q.T)
    with pytest.raises(fastmma.OperandError, match=r"are not \(M, K\) and \(K, N\) along K"):
        fastmma.dask.scaled_matmul(q, q)
    blocks = fastmma.dask.quantize(x.rechunk(-1), "fp8_128x128")
    with pytest.raises(fastmma.OperandError, match="scales of its own"):
        fastmma.dask.scaled_matmul(blocks, blocks.T, target="H100", chunks=32)
