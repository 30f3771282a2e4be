"""Formulas over arrays of any shapes, functions in any floating-point mode of the caller, and the special function unit."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference.cases import cases
from reference.float_modes import kept, modes

from fastmma import kernels
from fastmma.functions import embedding, group_norm, libdevice, losses, norms, optimizers, reduce, scans, softmax, special
from fastmma.functions.arithmetic import fuse, round_to

RNG = np.random.Generator(np.random.PCG64(3))
needs_libdevice = pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")


def draw(*shape: int) -> Any:
    """Numbers of all magnitudes, some of them subnormal."""
    return np.ldexp(RNG.standard_normal(shape), RNG.integers(-150, 20, shape)).astype(np.float32)


X, Y, W, MEAN = draw(6, 64), draw(6, 64), draw(64), draw(6, 1)
TARGETS = np.arange(6)
FUNCTIONS: dict[str, Callable[[], Any]] = {
    "softmax": lambda: softmax.softmax(X, 1),
    "softmax_backward": lambda: softmax.softmax_backward(X, Y, 1, log=True),
    "layer_norm": lambda: norms.layer_norm(X, [64], W, W, 1e-42),
    "layer_norm_backward": lambda: norms.layer_norm_backward(X, Y, [64], MEAN, MEAN, W),
    "rms_norm": lambda: norms.rms_norm(X, [64], W, 1e-42),
    "rms_norm_backward": lambda: norms.rms_norm_backward(X, Y, [64], MEAN, W),
    "group_norm": lambda: group_norm.group_norm(X.reshape(2, 12, 16), W[:12], W[:12], 3, 1e-42),
    "nll_loss": lambda: losses.nll_loss(X, TARGETS, "mean"),
    "nll_loss_backward": lambda: losses.nll_loss_backward(W[0], X, TARGETS, "mean", W[1]),
    "cross entropy": lambda: losses.binary_cross_entropy_with_logits(X, Y, "mean"),
    "its gradient": lambda: losses.binary_cross_entropy_with_logits_backward(W[0], X, Y, "mean"),
    "embedding": lambda: embedding.embedding_backward(X, TARGETS % 3, 4),
    "norm of a list": lambda: optimizers.foreach_norm([X, Y]),
    "sum": lambda: reduce.reduce_sum(X, 0),
    "mean": lambda: reduce.reduce_mean(X),
    "variance": lambda: reduce.reduce_variance(X, 1),
    "norm": lambda: reduce.reduce_norm(X, 2, 1),
    "logsumexp": lambda: reduce.reduce_logsumexp(X, 1),
    "cumsum": lambda: scans.cumulate_sum(X, 1),
    "quotient": lambda: special.divided(X, Y),
    "ex2": lambda: special.ex2(X, flush=False),
    "expf": lambda: libdevice.call("expf", X),
    "fma": lambda: fuse(X, Y, MEAN),
    "f16": lambda: round_to(X, np.float16),
}


# CRC-32 of the results of all codes with a first byte, from tables of every mantissa that an H100 (of lg2 an H200) had filled
UNIT = {
    "ex2.approx.ftz.f32": {0x3F: 0xC255475E, 0x40: 0x60A6B55D, 0xC1: 0x589416BC},
    "lg2.approx.ftz.f32": {0x3F: 0x05E6CF6B, 0x40: 0xC75D5C7F, 0xC1: 0x10D6FBF8},
    "rcp.approx.ftz.f32": {0x3F: 0xA3946A2D, 0x40: 0x138CDA20, 0xC1: 0xFB861868},
    "rsqrt.approx.ftz.f32": {0x3F: 0x293E6ABB, 0x40: 0xD9B54EAD, 0xC1: 0x10D6FBF8},
    "sqrt.approx.ftz.f32": {0x3F: 0x3D7C8BBC, 0x40: 0xD614FB4D, 0xC1: 0x10D6FBF8},
}


def codes(found: Any) -> list[bytes]:
    return [np.asarray(each).tobytes() for each in (found if isinstance(found, tuple | list) else (found,))]


@needs_libdevice
@cases("name", FUNCTIONS)
def test_functions_have_the_same_bits_in_every_mode(name: str) -> None:
    wanted = codes(FUNCTIONS[name]())
    for mode in modes():
        with kept(mode):
            found = FUNCTIONS[name]()
        assert codes(found) == wanted, mode


@cases("name", UNIT)
def test_the_special_function_unit_has_the_recorded_bits(name: str) -> None:
    for first, wanted in UNIT[name].items():
        x = (np.arange(1 << 24, dtype=np.uint32) + np.uint32(first << 24)).view(np.float32)
        assert zlib.crc32(kernels.functions.apply.apply(name, x).view(np.uint8)) == wanted, first


@cases(
    "shapes",
    [
        ((5, 70), (5, 1), (70,)),
        ((4, 5, 70), (4, 1, 1), (5, 70)),
        ((2, 3, 4, 50), (3, 1, 50), (2, 1, 4, 1)),
        ((300, 3), (300, 1), (3,)),
        ((1, 40), (90, 1), ()),
        ((0, 40), (0, 1), (40,)),
        ((40, 1, 33), (1, 1, 33), (9, 1)),
    ],
)
@cases("dtype", [np.float32, np.float16])
def test_operands_of_any_shapes_are_repeated(shapes: tuple[tuple[int, ...], ...], dtype: Any) -> None:
    a, b, c = (RNG.integers(-9, 9, shape).astype(dtype) for shape in shapes)
    for threads in (1, 3):
        found = kernels.functions.apply.apply("fused", a, b, c[..., ::-1] if c.ndim else c, threads=threads)
        np.testing.assert_array_equal(found, a * b + (c[..., ::-1] if c.ndim else c))


@pytest.mark.parametrize(
    ("function", "fmt", "recorded"),
    [
        (special.ex2_of_halves, np.float16, 3577024059),
        (special.ex2_of_halves, ml_dtypes.bfloat16, 3937412453),
        (special.tanh_of_halves, np.float16, 1339812855),
        (special.tanh_of_halves, ml_dtypes.bfloat16, 2704748612),
    ],
    ids=["ex2 f16", "ex2 bf16", "tanh f16", "tanh bf16"],
)
def test_approximations_of_16_bits_have_an_h100s_and_an_h200s_bits_for_all_codes(function: Any, fmt: Any, recorded: int) -> None:
    found = function(np.arange(65536, dtype=np.uint16).view(fmt))
    assert zlib.crc32(found.tobytes()) == recorded
