"""Quantisation of every form of input: threads, memory, the spelling of names, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference.schemes import EXPECTED, adversarial

import fastmma
from fastmma.scaling import RULES, SCHEMES, ScaledArray, quantize
from fastmma.scaling.rounding import ROUNDINGS


def identical(a: ScaledArray, b: ScaledArray) -> bool:
    same = np.array_equal(a.elements.view(np.uint8), b.elements.view(np.uint8))
    return same and np.array_equal(a.scales.view(np.uint8), b.scales.view(np.uint8)) and a.global_scale == b.global_scale


OPTIONS = ({}, {"rounding": "stochastic", "seed": 3})


@pytest.mark.parametrize("scheme", EXPECTED)
def test_threads_do_not_matter(scheme: str) -> None:
    x = adversarial((300, 2000), np.float32, "spread")
    for axis, options in itertools.product((0, 1), OPTIONS):
        one, *rest = (quantize(x, scheme, axis=axis, threads=threads, **options) for threads in (1, 2, 5))
        assert all(identical(one, q) for q in rest)


def test_long_blocks_are_cut_for_threads() -> None:
    x = adversarial((3, 200_001), np.float32, "normal")
    x[1, 199_999] = 77
    for scheme in ("fp8_tensor", "fp8_row", "int8_row"):
        assert quantize(x, scheme).scales.max() == np.float32(77) / np.float32(127 if scheme == "int8_row" else 448)
    x[2, 3] = np.nan
    assert np.isnan(quantize(x, "fp8_row").scales).reshape(-1).tolist() == [False, False, True]


def test_lists_are_arrays() -> None:
    x = adversarial((5, 33), np.float64, "normal")
    assert identical(quantize(x.tolist(), "mxfp4"), quantize(x, "mxfp4"))


SPELLINGS = [
    ({"scheme": "mxfp8"}, {"scheme": "mxfp8_e4m3"}),
    ({"scheme": "MXFP8-E5M2"}, {"scheme": "mxfp8_e5m2"}),
    ({"scheme": "mxfp6"}, {"scheme": "mxfp6_e3m2"}),
    ({"scheme": "mxfp4_e2m1"}, {"scheme": "mxfp4"}),
    ({"scheme": "NVFP4"}, {"scheme": "nvfp4"}),
    ({"scheme": "fp8_per_tensor"}, {"scheme": "fp8_tensor"}),
    ({"scheme": "fp8-rowwise"}, {"scheme": "fp8_row"}),
    ({"scheme": "fp8_blockwise_1x128"}, {"scheme": "fp8_1x128"}),
    ({"scheme": "int8"}, {"scheme": "int8_row"}),
    ({"scheme": SCHEMES["mxfp4"]}, {"scheme": "mxfp4"}),
    ({"scheme": "mxfp4", "rule": "RCEIL"}, {"scheme": "mxfp4", "rule": "rceil"}),
    ({"scheme": "mxfp4", "rule": "ocp"}, {"scheme": "mxfp4", "rule": "floor"}),
    ({"scheme": "nvfp4", "rule": "transformer-engine"}, {"scheme": "nvfp4", "rule": "te"}),
    ({"scheme": "fp8_row", "rule": "transformer_engine"}, {"scheme": "fp8_row", "rule": "te"}),
    ({"scheme": "mxfp4", "rounding": "nearest-even"}, {"scheme": "mxfp4", "rounding": "nearest"}),
    ({"scheme": "mxfp4", "rounding": "toward zero"}, {"scheme": "mxfp4", "rounding": "zero"}),
    ({"scheme": "mxfp4", "rounding": "RZ", "seed": 5}, {"scheme": "mxfp4", "rounding": "zero"}),
    ({"scheme": "mxfp4", "rounding": "Stochastic", "seed": 5}, {"scheme": "mxfp4", "rounding": "stochastic", "seed": 5}),
]


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS)
def test_spellings(spelling: dict[str, Any], name: dict[str, Any]) -> None:
    x = adversarial((5, 64), np.float32, "normal")
    found, wanted = quantize(x, **spelling), quantize(x, **name)
    assert found.scheme == wanted.scheme == name["scheme"]
    assert np.array_equal(found.elements.view(np.uint8), wanted.elements.view(np.uint8))
    assert np.array_equal(found.scales.view(np.uint8), wanted.scales.view(np.uint8))


def test_no_name_means_two_things() -> None:
    rules = [[RULES[scheme.scale, name] for name in scheme.rules] for scheme in SCHEMES.values()]
    for rows in (SCHEMES.values(), ROUNDINGS.values(), *rules):
        names = [text for row in rows for text in (row.name, *row.aliases)]
        assert len(set(names)) == len(names)


GOOD = np.ones((4, 64), np.float32)
BAD = [
    ({"scheme": "mxfp5"}, fastmma.OperandError, "scheme must be one of mxfp8_e4m3, .*, int8_row, not 'mxfp5'"),
    ({"scheme": None}, fastmma.OperandError, "scheme must be one of"),
    ({"scheme": ["mxfp4"]}, fastmma.OperandError, "scheme must be one of"),
    ({"rule": "round"}, fastmma.OperandError, "rule of mxfp4 must be one of floor, ceil, rceil, even, not 'round'"),
    ({"rule": "amax"}, fastmma.OperandError, "rule of mxfp4 must be one of"),
    ({"rule": ["floor"]}, fastmma.OperandError, "rule of mxfp4 must be one of"),
    ({"rule": GOOD}, fastmma.OperandError, "rule of mxfp4 must be one of"),
    ({"rounding": GOOD}, fastmma.OperandError, "rounding must be one of"),
    ({"rounding": "up"}, fastmma.OperandError, "rounding must be one of nearest, zero, stochastic, not 'up'"),
    ({"rounding": "stochastic"}, fastmma.OperandError, "needs seed=, an integer"),
    ({"rounding": "stochastic", "seed": -1}, fastmma.OperandError, "needs seed=, an integer"),
    ({"rounding": "stochastic", "seed": 2**64}, fastmma.OperandError, "needs seed=, an integer"),
    ({"rounding": "stochastic", "seed": 1.5}, fastmma.OperandError, "needs seed=, an integer"),
    ({"seed": "1"}, fastmma.OperandError, "seed must be an integer"),
    ({"axis": 2}, fastmma.OperandError, r"axis must be an integer from -2 to 1 .* not 2"),
    ({"axis": -3}, fastmma.OperandError, "axis must be"),
    ({"axis": None}, fastmma.OperandError, "axis must be"),
    ({"axis": 1.0}, fastmma.OperandError, "axis must be"),
    ({"threads": 0}, fastmma.OperandError, "threads must be"),
    ({"x": GOOD[:, :40], "pad": False}, fastmma.OperandError, r"\(4, 40\) does not divide into blocks \(1, 32\) of mxfp4: pass pad=True"),
    ({"x": GOOD, "pad": False, "axis": 0}, fastmma.OperandError, "pass pad=True"),
    ({"x": np.float32(1)}, fastmma.OperandError, "at least 1 dimension"),
    ({"x": GOOD[0], "scheme": "fp8_128x128"}, fastmma.OperandError, "at least 2 dimension"),
    ({"x": GOOD.astype(np.int32)}, fastmma.OperandTypeError, "x must have dtype float16, bfloat16, float32, float64, not int32"),
    ({"x": GOOD.astype(np.complex64)}, fastmma.OperandTypeError, "not complex64"),
    ({"x": GOOD.astype(object)}, fastmma.OperandTypeError, "not of Python objects"),
    ({"x": GOOD.astype(ml_dtypes.float8_e4m3fn)}, fastmma.OperandTypeError, "not float8_e4m3fn"),
    ({"x": GOOD.astype(np.longdouble)}, fastmma.OperandTypeError, "x must have dtype"),
    ({"x": np.ma.masked_array(GOOD)}, fastmma.OperandTypeError, "mask"),
    ({"x": [[1.0], [1.0, 2.0]]}, fastmma.OperandTypeError, "x must be an array"),
    ({"x": "text"}, fastmma.OperandTypeError, "x must have dtype"),
]


@pytest.mark.parametrize(("change", "error", "says"), BAD)
def test_bad_input(change: dict[str, object], error: type[Exception], says: str) -> None:
    call: dict[str, object] = {"x": GOOD, "scheme": "mxfp4"} | change
    with pytest.raises(error, match=says):
        quantize(call.pop("x"), call.pop("scheme"), **call)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ">f4", ">f8"])
def test_conversion_in_pieces(dtype: Any) -> None:
    """Half precision and foreign byte orders are converted first, by threads: whatever lies in memory how."""
    x = adversarial((3, 700, 130), np.float32, "normal").astype(dtype)
    wanted = quantize(x.astype(np.float64 if dtype == ">f8" else np.float32), "mxfp4")
    gaps = np.zeros((3, 700, 260), dtype)[..., ::2]
    gaps[...] = x
    turned = np.ascontiguousarray(x.transpose(1, 2, 0)).transpose(2, 0, 1)
    for form in (x, np.asfortranarray(x), gaps, turned, x[::-1].copy()[::-1]):
        for threads in (1, 3):
            assert identical(quantize(form, "mxfp4", threads=threads), wanted)
