"""Attention against an H200: outputs and gradients of flash and memory-efficient attention, to the last bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference import attention

import fastmma
from fastmma.functions.attention import (
    Dropout,
    efficient,
    efficient_backward,
    efficient_repeats,
    flash,
    flash_backward,
    flash_repeats,
    math_attention,
    math_backward,
)
from fastmma.functions.attention.blocks import count_key_splits, count_parts, efficient_sizes
from fastmma.functions.attention.dropout import keep_by_places, keep_by_warps
from fastmma.host.errors import NotEmulatedError, OperandError, OperandTypeError
from fastmma.kernels.functions.bitcode import find_bitcode

CALLS = list(attention.recorded())
NAMES = "output", "dq", "dk", "dv"
needs_libdevice = pytest.mark.skipif(find_bitcode() is None, reason="libdevice is not on this machine")


def name_of(call: attention.Call) -> str:
    sizes = f"{call['batch']}x{call['heads']}/{call['key_heads']} {call['queries']}x{call['keys']} {call['dimension']} {call['dtype']}"
    return f"{call['kernel']} {sizes} causal={call['causal']} dropout={call['dropout']} bias={call['bias']}"


def one_chain(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """What cuBLAS computed in all recorded calls, of one head and of few queries, too."""
    return fastmma.matmul(a, b, target="sm_90a", instruction="fma.rn.f32")


def computed(call: attention.Call) -> tuple[list[NDArray[Any]], bool]:
    """Output and gradients of a call, and whether the gradient of the queries is fixed."""
    q, k, v, bias, grad_out = attention.inputs(call)
    dropout = Dropout(call["dropout"], call["dropout_seed"]) if call["dropout"] else None
    if call["kernel"] == "flash":
        settings: dict[str, Any] = {"causal": call["causal"], "dropout": dropout}
        out, logs = flash(q, k, v, **settings)
        return [out, *flash_backward(grad_out, q, k, v, out, logs, **settings)], flash_repeats(q.shape, k.shape)
    if call["kernel"] == "math":
        settings = {"causal": call["causal"], "bias": bias, "wide": call["wide"], "product": one_chain}
        return [math_attention(q, k, v, **settings), *math_backward(grad_out, q, k, v, **settings)], True
    settings = {"causal": call["causal"], "dropout": dropout, "bias": bias}
    out, logs = efficient(q, k, v, **settings)
    fixed = efficient_repeats(q.shape, k.shape, 8 * q.itemsize, causal=call["causal"])
    return [out, *efficient_backward(grad_out, q, k, v, out, logs, **settings)], fixed


@needs_libdevice
@pytest.mark.parametrize(("call", "expected"), [pytest.param(*each, id=name_of(each[0])) for each in CALLS])
def test_bits_are_those_of_an_h200(call: attention.Call, expected: list[NDArray[np.uint32]]) -> None:
    results, fixed = computed(call)
    assert call["repeats"] or not fixed
    for name, result, codes, digest in zip(NAMES, results, expected, call["digests"], strict=True):
        if name != "dq" or fixed:
            np.testing.assert_array_equal(attention.codes_of(result)[: len(codes)], codes, err_msg=name)
            assert attention.digest(result) == digest, name


def test_the_recording_has_every_kind() -> None:
    kinds = {(call["kernel"], call["dtype"]) for call, _ in CALLS}
    assert kinds == {(kernel, dtype) for kernel in ("flash", "efficient", "math") for dtype in ("bf16", "f16", "f32")} - {("flash", "f32")}
    assert {call["dimension"] for call, _ in CALLS} >= {16, 32, 40, 64, 80, 96, 128, 160, 192, 256}
    for setting in ("causal", "dropout", "bias"):
        assert {bool(call[setting]) for call, _ in CALLS} == {True, False}


def halves(*shape: int) -> NDArray[Any]:
    return np.random.default_rng(shape).standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)


def test_queries_that_see_no_key() -> None:
    q, k = halves(1, 1, 40, 32), halves(1, 1, 24, 32)
    out, logs = flash(q, k, k, causal=True)
    assert np.all(out[:, :, :16] == 0)
    assert np.all(np.isposinf(logs[:, :, :16]))
    assert np.all(np.isfinite(logs[:, :, 16:]))
    dq, dk, dv = flash_backward(out, q, k, k, out, logs, causal=True)
    assert np.all(dq[:, :, :16] == 0)
    for gradient in (dk, dv):
        assert np.all(np.isfinite(gradient.astype(np.float32)))


def test_one_query_of_heads_that_share_keys() -> None:
    """Heads become queries, which changes the number of parts, but no bit where one part is enough."""
    q, k, v = halves(2, 8, 1, 64), halves(2, 2, 100, 64), halves(2, 2, 100, 64)
    shared, logs = flash(q, k, v)
    apart, same = flash(q, np.repeat(k, 4, 1), np.repeat(v, 4, 1))
    np.testing.assert_array_equal(shared.view(np.uint16), apart.view(np.uint16))
    np.testing.assert_array_equal(logs, same)


@needs_libdevice
def test_results_do_not_depend_on_threads() -> None:
    q = halves(2, 3, 70, 64)
    for function in (flash, efficient):
        (one, logs), (two, others) = (function(q, q, q, causal=True, threads=threads) for threads in (1, 2))
        np.testing.assert_array_equal(one.view(np.uint16), two.view(np.uint16))
        np.testing.assert_array_equal(logs, others)


@needs_libdevice
def test_deterministic_gradients_are_close_to_others() -> None:
    q, grad_out = halves(1, 2, 400, 64), halves(1, 2, 400, 64)
    for forward, backward in ((flash, flash_backward), (efficient, efficient_backward)):
        out, logs = forward(q, q, q)
        usual = backward(grad_out, q, q, q, out, logs)
        fixed = backward(grad_out, q, q, q, out, logs, deterministic=True)
        np.testing.assert_allclose(usual[0].astype(np.float32), fixed[0].astype(np.float32), atol=0.02)


def test_numbers_of_parts() -> None:
    assert [count_parts(1, 4096, 128, heads) for heads in (1, 8, 64, 212)] == [32, 32, 4, 1]
    assert count_key_splits(1000, 128, efficient_sizes(16, 256)) == 1
    assert count_key_splits(1000, 128, efficient_sizes(32, 256)) == 16


def test_dropout_keeps_as_many_as_it_should() -> None:
    for draw in (keep_by_warps, keep_by_places):
        kept = draw(Dropout(0.25, 7), 4, 100, 120)
        assert kept.shape == (4, 100, 120)
        assert abs(kept.mean() - 0.75) < 0.01
        assert np.array_equal(kept, draw(Dropout(0.25, 7), 4, 100, 120))
        assert not np.array_equal(kept, draw(Dropout(0.25, 8), 4, 100, 120))


@pytest.mark.parametrize(
    ("shapes", "error"),
    [
        (((1, 3, 8, 64), (1, 2, 8, 64), (1, 2, 8, 64)), "do not go together"),
        (((1, 2, 8, 64), (1, 2, 8, 32), (1, 2, 8, 32)), "do not go together"),
        (((1, 2, 8, 64), (1, 2, 9, 64), (1, 2, 8, 64)), "do not go together"),
        (((1, 2, 8, 60), (1, 2, 8, 60), (1, 2, 8, 60)), "multiples of 8"),
        (((1, 2, 0, 64), (1, 2, 8, 64), (1, 2, 8, 64)), "nothing is empty"),
        (((1, 2, 8, 264), (1, 2, 8, 264), (1, 2, 8, 264)), "up to 256"),
    ],
)
def test_refused_shapes(shapes: tuple[tuple[int, ...], ...], error: str) -> None:
    with pytest.raises(OperandError, match=error):
        flash(*(halves(*shape) for shape in shapes))


def test_products_of_math_attention_that_are_not_known() -> None:
    q = halves(1, 2, 8, 32)
    with pytest.raises(NotEmulatedError, match="for a `product` to say"):
        math_attention(q, q, q, wide=False)
    for few in (q[:, :, :1], q, q[:, :1]):
        with pytest.raises(NotEmulatedError, match="for a `product` to say"):
            math_attention(few, q[:, : few.shape[1]], q[:, : few.shape[1]])
    with pytest.raises(OperandError, match="not negative"):
        math_attention(q, q, q, scale=-1.0)


def test_what_is_no_number_has_a_gpus_bits() -> None:
    q = halves(1, 1, 20, 32)
    q[0, 0, 3, 5] = np.nan
    out, logs = flash(q, q, q)
    assert set(out[np.isnan(out.astype(np.float32))].view(np.uint16).tolist()) == {0x7FFF}
    dq, _, _ = flash_backward(q, q, q, q, out, logs)
    assert set(dq[np.isnan(dq.astype(np.float32))].view(np.uint16).tolist()) == {0x7FFF}


def test_refused_types() -> None:
    q = halves(1, 1, 8, 64)
    with pytest.raises(OperandTypeError, match="float32"):
        flash(*[q.astype(np.float32)] * 3)
    with pytest.raises(OperandTypeError, match="float64"):
        efficient(*[q.astype(np.float64)] * 3)
    with pytest.raises(OperandError, match="1 heads"):
        efficient(np.repeat(q, 2, 1), q, q)
    with pytest.raises(OperandError, match="bias"):
        efficient(q, q, q, bias=q[0, 0].astype(np.float32))
    with pytest.raises(OperandError, match="do not fit"):
        flash_backward(q[:, :, :4], q, q, q, q, np.zeros((1, 1, 8), np.float32))
    with pytest.raises(OperandError, match="do not fit"):
        efficient_backward(q, q, q, q, q, np.zeros((1, 1, 4), np.float32))
