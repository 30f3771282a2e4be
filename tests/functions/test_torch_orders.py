"""Reductions and all that is made of them, with the bits that PyTorch 2.11 has on an H200."""

from __future__ import annotations

import numpy as np
import pytest
from reference import torch_orders
from reference.cases import cases

from fastmma.functions import libdevice, losses, norms, reduce_plan, scans
from fastmma.functions.embedding import embedding_backward
from fastmma.functions.group_norm import group_norm
from fastmma.functions.reduce import reduce_max, reduce_mean, reduce_sum, reduce_variance
from fastmma.functions.softmax import softmax, softmax_backward
from fastmma.host.errors import NotEmulatedError, OperandError

CALLS = torch_orders.recorded()
PLAIN = ("scan", "embedding", "clip")  # which call no function of libdevice
needs_libdevice = pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")


def _compare(calls: list[torch_orders.Call]) -> None:
    assert calls
    for call in calls:
        for place, (result, sums) in enumerate(zip(torch_orders.run(call), call.checksums, strict=True)):
            np.testing.assert_array_equal(torch_orders.checksums(result), sums, err_msg=f"{call.kind} {call.given} {place}")


@cases("name", [name for name in torch_orders.REDUCTIONS if name != "logsumexp"])
def test_reductions_have_an_h200s_bits(name: str) -> None:
    _compare([call for call in CALLS if call.kind == "reduce" and call.given["name"] == name])


@cases("kind", PLAIN)
def test_what_calls_no_function_has_an_h200s_bits(kind: str) -> None:
    _compare([call for call in CALLS if call.kind == kind])


@needs_libdevice
@cases("kind", [kind for kind in torch_orders.KINDS if kind not in ("reduce", *PLAIN)])
def test_kernels_have_an_h200s_bits(kind: str) -> None:
    _compare([call for call in CALLS if call.kind == kind])


@needs_libdevice
def test_logsumexp_has_an_h200s_bits() -> None:
    _compare([call for call in CALLS if call.kind == "reduce" and call.given["name"] == "logsumexp"])


@cases(
    "shape, axes", [((3000001,), (0,)), ((2048, 64), (0,)), ((8, 512, 256), (1, 2)), ((16, 33, 65), (0, 2)), ((300, 1), (1,)), ((7,), ())]
)
def test_a_plan_takes_every_element_once(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    view = reduce_plan.merge_dimensions(shape, axes)
    plan = reduce_plan.plan_reduction(view, 4)
    assert view.outputs * view.inputs == np.prod(shape)
    assert plan.width * plan.height <= 512
    ones = np.ones(shape, np.float32)
    np.testing.assert_array_equal(reduce_sum(ones, axes), np.full(ones.sum(axes).shape, view.inputs, np.float32))


@cases("axes, keepdims", [(None, False), (1, True), ((0, -1), False), ((), False)])
def test_shapes_are_numpys(axes: object, keepdims: bool) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    found = reduce_sum(x, axes, keepdims=keepdims)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, x.sum(axes, keepdims=keepdims))  # type: ignore[call-overload]


def test_numbers_without_a_dimension_are_reduced() -> None:
    x = np.array(3, np.float32)
    assert [float(each) for each in (reduce_sum(x), reduce_mean(x), reduce_max(x))] == [3, 3, 3]


def test_nan_is_a_gpus() -> None:
    x = np.array([1, np.nan], np.float16)
    assert [each.view(np.uint16) for each in (reduce_sum(x), reduce_max(x), reduce_variance(x[:1]))] == [0x7FFF] * 3


def test_a_sum_follows_strides() -> None:
    x = np.random.default_rng(0).standard_normal((300, 40)).astype(np.float32)
    np.testing.assert_array_equal(reduce_sum(x.T, 1), reduce_sum(x, 0))


@needs_libdevice
@cases("shape", [(0, 3), (3, 0), ()])
def test_softmax_takes_empty_arrays_and_numbers(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    y = softmax(x, -1)
    assert y.shape == shape
    np.testing.assert_array_equal(y, np.ones(shape, np.float32))
    assert softmax_backward(x, y, -1).shape == shape


@needs_libdevice
def test_a_row_of_minus_infinity_is_nan() -> None:
    codes = softmax(np.full((2, 5), -np.inf, np.float32), 1).view(np.uint32)
    np.testing.assert_array_equal(codes, np.full((2, 5), 0x7FFFFFFF, np.uint32))


X = np.ones((2, 4), np.float32)
HALF = np.ones(4, np.float16)


@cases(
    "call",
    [
        lambda: norms.layer_norm(X, [4], HALF, HALF, 1e-5),
        lambda: norms.layer_norm(X, [4], None, X[0], 1e-5),
        lambda: norms.layer_norm_backward(np.ones((65537, 1), np.float32), np.ones((65537, 1), np.float32), [1], X[0], X[0], X[0, :1]),
        lambda: group_norm(X, None, None, 1, 1e-5),
        lambda: group_norm(X, X[0], X[0], 1, 1e-5),
        lambda: losses.nll_loss(X[0], np.array(0), "mean"),
        lambda: scans.cumulate_sum(np.ones(5761, np.float32), 0),
        lambda: embedding_backward(X, np.array([0, 1]), 2, padding_idx=0),
    ],
)
def test_what_was_not_recorded_is_refused(call: object) -> None:
    with pytest.raises(NotEmulatedError):
        call()  # type: ignore[operator]


def test_a_shape_that_does_not_end_an_array_is_refused() -> None:
    with pytest.raises(OperandError):
        norms.rms_norm(X, [3], None, None)
