"""Quantisation against numbers worked out by hand and against those that libraries gave."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import quantisation as exact
from reference.schemes import EXPECTED, MX

from fastmma.scaling import pack_e2m1, quantize


def test_mx_scales_worked_out_by_hand() -> None:
    """amax against the scale's exponent; e4m3: emax 8, max 448 = 1.75 * 2**8; e2m1: emax 2, max 6 = 1.5 * 2**2."""
    cases = {
        # amax: floor, ceil, rceil, even of e4m3; of e2m1
        1.0: ((-8, -8, -8, -8), (-2, -2, -2, -2)),
        1.5: ((-8, -7, -8, -8), (-2, -1, -2, -2)),
        1.5 + 2**-23: ((-8, -7, -8, -8), (-2, -1, -1, -2)),
        1.75 - 2**-23: ((-8, -7, -8, -8), (-2, -1, -1, -2)),
        1.75: ((-8, -7, -8, -8), (-2, -1, -1, -1)),  # 1.75 rounds to 2 in one mantissa bit
        1.75 + 2**-23: ((-8, -7, -7, -8), (-2, -1, -1, -1)),
        1.9375: ((-8, -7, -7, -7), (-2, -1, -1, -1)),  # 1.9375 rounds to 2 in three mantissa bits
        448.0: ((0, 1, 0, 0), (6, 7, 7, 7)),
        6.0: ((-6, -5, -6, -6), (0, 1, 0, 0)),
        2.0**-119: ((-127, -127, -127, -127), (-121, -121, -121, -121)),
        2.0**-149: ((-127,) * 4, (-127,) * 4),
        3.4028234663852886e38: ((119, 120, 120, 120), (125, 126, 126, 126)),
    }
    for amax, pairs in cases.items():
        for scheme, exponents in zip(("mxfp8_e4m3", "mxfp4"), pairs, strict=True):
            x = np.zeros(32, np.float32)
            x[7] = -amax
            found = tuple(int(quantize(x, scheme, rule=rule).scales.view(np.uint8)[0]) - 127 for rule in MX)
            assert found == exponents, (scheme, amax)


def test_mx_elements_worked_out_by_hand() -> None:
    """MXFP4, scale 2**-2: 1, 0.75, -0.3, 0.0625 (a tie of 0.25), 0.1875 (a tie of 0.75), 1.9 saturates at 6."""
    x = np.array([1, 0.75, -0.3, 0.0625, 0.1875, 1.9, -0.0, 1e-30], np.float32)
    q = quantize(x, "mxfp4")
    assert q.scales.astype(np.float32).tolist() == [0.25]
    assert q.elements.astype(np.float32).tolist() == [4, 3, -1, 0, 1, 6, 0, 0]
    assert q.elements.view(np.uint8).tolist() == [6, 5, 10, 0, 2, 7, 8, 0]
    assert quantize(x, "mxfp4", rounding="zero").elements.astype(np.float32).tolist() == [4, 3, -1, 0, 0.5, 6, 0, 0]
    assert quantize(x, "mxfp4", rule="rceil").elements.astype(np.float32).tolist() == [2, 1.5, -0.5, 0, 0.5, 4, 0, 0]


def test_nvfp4_worked_out_by_hand() -> None:
    """amax 2688 makes the global scale 1: blocks of 2688 and of 6 * 1.0625 (a tie of e4m3 between 1 and 1.125) have scales 448 and 1."""
    x = np.zeros((1, 48), np.float32)
    x[0, 0], x[0, 16], x[0, 17], x[0, 18] = 2688, 6.375, -2.5, 5.0
    for rule in EXPECTED["nvfp4"][2]:
        q = quantize(x, "nvfp4", rule=rule)
        assert q.global_scale == 1
        assert q.scales.astype(np.float32).tolist() == [[448, 1, 2**-6 if rule == "torchao" else 0]]
        assert q.elements[0, [0, 16, 17, 18]].astype(np.float32).tolist() == [6, 6, -2, 4]
    assert quantize(np.zeros((2, 16), np.float32), "nvfp4").global_scale == 1
    assert quantize(np.float32([[3]]), "nvfp4").global_scale == np.float32(3) / np.float32(2688)


# scales, and the start of the sha256 of the elements' codes (e2m1 packed, low nibble first), by libraries on torch 2.13.0 (CPU).
# torchao 0.18.0: to_mx(x, element, 32, rule), and nvfp4_quantize(x, 16, amax / (448 * 6)). "te": the steps of TransformerEngine's
# quantization_nvfp4.py (1a4d3b0). "deepgemm": those of DeepGEMM's per_token_cast_to_fp8 and per_block_cast_to_fp8 (38939a4)
RECORDED = {
    ("mxfp8_e4m3", "floor"): ("7d7d7d7e7e7e7d7e", "5e1615076beb0114"),
    ("mxfp8_e4m3", "ceil"): ("7e7e7e7f7f7f7e7f", "db2ea0895fc358bc"),
    ("mxfp8_e4m3", "rceil"): ("7e7d7e7e7f7e7e7e", "4abaf3e56d3e1284"),
    ("mxfp8_e4m3", "even"): ("7d7d7d7e7f7e7d7e", "111a9d792c3f8f32"),
    ("mxfp8_e5m2", "floor"): ("7676767777777677", "752b2d0e3474c6ef"),
    ("mxfp8_e5m2", "ceil"): ("7777777878787778", "a9dff1a501d567d2"),
    ("mxfp8_e5m2", "rceil"): ("7776777778777777", "3a82ce11767d98b2"),
    ("mxfp8_e5m2", "even"): ("7776777778777777", "3a82ce11767d98b2"),
    ("mxfp6_e3m2", "floor"): ("8181818282828182", "7a960c49b8788aa8"),
    ("mxfp6_e3m2", "ceil"): ("8282828383838283", "8233491b9ac7fdcb"),
    ("mxfp6_e3m2", "rceil"): ("8281828283828282", "4269923d5ccbc9ed"),
    ("mxfp6_e3m2", "even"): ("8281828283828282", "4269923d5ccbc9ed"),
    ("mxfp6_e2m3", "floor"): ("8383838484848384", "d9ad2ae30eedc72d"),
    ("mxfp6_e2m3", "ceil"): ("8484848585858485", "04d529a7932df450"),
    ("mxfp6_e2m3", "rceil"): ("8483848485848484", "28d4f545a69e5c67"),
    ("mxfp6_e2m3", "even"): ("8383838485848384", "03f6f9129cbf6248"),
    ("mxfp4", "floor"): ("8383838484848384", "c422ec2b7204dd32"),
    ("mxfp4", "ceil"): ("8484848585858485", "753b64a187d10f4c"),
    ("mxfp4", "rceil"): ("8484848585848484", "e76ea3cfecc82fdf"),
    ("mxfp4", "even"): ("8483848485848484", "a21e9d79378be03f"),
    ("nvfp4", "torchao"): ("757571737670757c7e7679707476747a", "33151bfbab70dd1c"),
    ("nvfp4", "te"): ("757571737670757c7e7679707476747a", "33151bfbab70dd1c"),
    ("nvfp4_16x16", "te"): ("7e", "b5d5992d414211f1"),
    ("fp8_1x128", "deepgemm"): ("6239f83ebedd0e3f", "a6e76de04d6dfdf6"),
    ("fp8_128x128", "deepgemm"): ("bedd0e3f", "a18cbb0acafc4fd2"),
}


def of_splitmix() -> NDArray[np.float32]:
    """24 bits times 2**-30 to 2**-15, of the outputs of SplitMix64 with the seed 2026."""
    words = [exact.splitmix64(2026, index) for index in range(256)]
    return np.array([((word >> 40) - (1 << 23)) * 2.0 ** ((word & 15) - 30) for word in words], np.float32).reshape(4, 64)


# the start of the sha256 of the values, zeros without sign, by the steps of microxcaling's _quantize_mx (3b429a8), round="even"
MICROXCALING = {
    "mxfp8_e4m3": "0870aa4ad3768f00",
    "mxfp8_e5m2": "9b0841439603fc7c",
    "mxfp6_e3m2": "c8b5873d71f6e56b",
    "mxfp6_e2m3": "8a3e6f546bff7532",
    "mxfp4": "8d4dd787e6b51807",
}
COLUMNS = {"nvfp4_16x16": 16, "fp8_1x128": 128, "fp8_128x128": 128}


@pytest.mark.parametrize(("scheme", "rule"), RECORDED)
def test_what_libraries_gave(scheme: str, rule: str) -> None:
    q = quantize(of_splitmix().reshape(-1, COLUMNS.get(scheme, 64)), scheme, rule=rule)
    elements = pack_e2m1(q.elements) if EXPECTED[scheme][0] == "e2m1" else q.elements.view(np.uint8)
    digest = hashlib.sha256(elements.tobytes()).hexdigest()[:16]
    assert (q.scales.tobytes().hex(), digest) == RECORDED[scheme, rule]


@pytest.mark.parametrize("scheme", MICROXCALING)
def test_what_microxcaling_gave(scheme: str) -> None:
    values = quantize(of_splitmix(), scheme).dequantize() + np.float32(0)
    assert hashlib.sha256(values.tobytes()).hexdigest()[:16] == MICROXCALING[scheme]


def test_float_scales_worked_out_by_hand() -> None:
    x = np.float32([[448, 1, -17], [0, 0, 0], [896, 1, -300]])
    q = quantize(x, "fp8_row")
    assert q.scales.tolist() == [[1], [1], [2]]
    # 17 lies between 16 and 18: the tie goes to 16; 0.5 and 150 of the last row: 150 lies between 144 and 160
    assert q.elements.astype(np.float32).tolist() == [[448, 1, -16], [0, 0, 0], [448, 0.5, -144]]
    assert quantize(x, "fp8_tensor").scales.tolist() == [[2]]
    assert quantize(x, "fp8_row", rule="deepgemm").scales.tolist()[1] == [np.float32(1e-4) / np.float32(448)]
    q = quantize(np.float32([[254, 1, 3, -254]]), "int8_row")
    assert (q.scales.tolist(), q.elements.tolist()) == ([[2]], [[127, 0, 2, -127]])
