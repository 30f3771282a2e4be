"""Convolutions on arrays: exact sums in every order, and the orders that differ where sums are rounded."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from reference.cases import cases

from fastmma.functions.convolution import Order, convolve, convolve_backward_input, convolve_backward_weight, multiply
from fastmma.host.errors import OperandError

ORDERS = [Order("crs", False), Order("rsc", False), Order("rsc", True), Order("rsc", True, padded=True), Order("rsc", True, True, True)]
CHUNKS = [Order("rsc", True, padded=True, chunk=chunk, turned=turned) for chunk in (16, 32) for turned in (False, True)]
STEPS = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}


def whole(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-8, 9, shape).astype(np.float64)


def taken(x: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The numbers that each result is a sum over, by loops: (images, height, width, channels, rows, columns)."""
    filled = np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)))
    height, width = (filled.shape[2] - rows) // 2 + 1, filled.shape[3] - 2 * (columns - 1)
    parts = [[filled[:, :, 2 * i : 2 * i + rows, j : j + 2 * columns - 1 : 2] for j in range(width)] for i in range(height)]
    return np.stack([np.stack(line, 1) for line in parts], 1)


@cases(("order", "dtype"), [(order, dtype) for order in ORDERS for dtype in (np.float32, np.float16, ml_dtypes.bfloat16)])
def test_exact_sums_are_the_same_in_every_order(order: Order, dtype: type) -> None:
    rng = np.random.default_rng(1)
    x, weight = whole(rng, 2, 3, 7, 6), whole(rng, 5, 3, 3, 2)
    patches = taken(x, 3, 2)
    found = convolve(x.astype(dtype), weight.astype(dtype), order, **STEPS)
    wanted = np.einsum("nhwcrs,kcrs->nkhw", patches, weight).astype(dtype)
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))
    grad = whole(rng, *found.shape)
    found = convolve_backward_weight(grad.astype(dtype), x.astype(dtype), weight.shape, order, **STEPS)
    wanted = np.einsum("nhwcrs,nkhw->kcrs", patches, grad).astype(dtype)
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


@cases(("order", "dtype"), [(order, dtype) for order in (*ORDERS, *CHUNKS) for dtype in (np.float32, ml_dtypes.bfloat16)])
def test_exact_gradients_of_inputs_are_the_same_in_every_order(order: Order, dtype: type) -> None:
    """The gradient of the input is what a convolution's transposed map makes of the gradient: their products with any input agree."""
    rng = np.random.default_rng(3)
    x, weight = whole(rng, 2, 3, 7, 6), whole(rng, 5, 3, 3, 2)
    result = convolve(x.astype(dtype), weight.astype(dtype), order, **STEPS)
    grad = whole(rng, *result.shape)
    found = convolve_backward_input(grad.astype(dtype), weight.astype(dtype), x.shape[2:], order, **STEPS)
    wanted = np.zeros_like(x)
    for place in np.ndindex(*x.shape[1:]):
        one = np.zeros_like(x)
        one[(slice(None), *place)] = 1
        wanted[(slice(None), *place)] = (convolve(one.astype(np.float32), weight.astype(np.float32), ORDERS[0], **STEPS) * grad).sum(
            (1, 2, 3)
        )
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(dtype).astype(np.float64))


def test_a_chunk_of_channels_takes_all_places_of_a_filter_first() -> None:
    rng = np.random.default_rng(4)
    x, weight = (rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16) for shape in ((1, 64, 6, 6), (8, 64, 3, 3)))
    steps = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    found = convolve(x.astype(np.float32), weight.astype(np.float32), Order("rsc", False, chunk=32), **steps)
    halves = [np.ascontiguousarray(each[:, part]).astype(np.float32) for part in (slice(32), slice(32, 64)) for each in (x, weight)]
    both = np.concatenate([_patches(halves[0]), _patches(halves[2])], 1), np.concatenate([_lines(halves[1]), _lines(halves[3])], 1)
    wanted = multiply(*both, Order("rsc", False)).T.reshape(found.shape)
    np.testing.assert_array_equal(found, wanted)
    assert (found != convolve(x.astype(np.float32), weight.astype(np.float32), Order("rsc", False), **steps)).any()


def _patches(x: np.ndarray) -> np.ndarray:
    """Lay the 3 x 3 places of an image's channels out, channels last."""
    return np.stack([x[0, :, i : i + 3, j : j + 3].transpose(1, 2, 0).ravel() for i in range(4) for j in range(4)])


def _lines(weight: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(weight.transpose(0, 2, 3, 1)).reshape(len(weight), -1)


def test_orders_differ_where_sums_are_rounded() -> None:
    x, weight = (np.random.default_rng(2).standard_normal(shape, np.float32) for shape in ((2, 3, 48, 48), (16, 3, 16, 16)))
    steps = {"stride": (16, 16), "padding": (0, 0), "dilation": (1, 1)}
    found = [convolve(x, weight, order, **steps).tobytes() for order in ORDERS]
    assert len(set(found)) == len(ORDERS)


@cases("shape", [(5, 2, 3, 3), (5, 3, 9, 3), (5, 3, 3)])
def test_weights_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(OperandError, match="weight"):
        convolve(
            np.ones((1, 3, 4, 4), np.float32),
            np.ones(shape, np.float32),
            ORDERS[0],
            stride=(1, 1),
            padding=(0, 0),
            dilation=(1, 1),
        )
