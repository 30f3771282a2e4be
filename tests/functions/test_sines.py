"""The sine, the cosine and the hyperbolic tangent of the special function unit: all results of an H200 in pieces of 2^24, by checksums."""

from __future__ import annotations

import numpy as np
from reference.cases import cases

from fastmma.kernels.functions.apply import apply

# by the first byte of the arguments' codes: sums of the codes of sines, cosines and tangents, each with a weight of its own, modulo 2^64
SUMS = [
    (0x33, 0, 7578432272957702144, 6153967143789527040),
    (0x3E, -6671099186659892590, 8774554759745805422, -6792731298592456704),
    (0x3F, -6065467703852852712, -2434632904655668777, 4243865632335382656),
    (0x40, 879139957235770605, 5886764889596626436, -4503299706957129552),
    (0x4B, -6399680739548284530, -7348029356967575890, 7578432272957702144),
    (0x7F, 5323254757068898304, -8190358874809696256, 8649655663493906433),
    (0xC0, 6499632292194149613, 5886764889596626436, -1332765569288300368),
]


@cases("first, sine, cosine, tangent", SUMS)
def test_all_results_are_the_h200s(first: int, sine: int, cosine: int, tangent: int) -> None:
    x = (np.arange(1 << 24, dtype=np.uint32) + np.uint32(first << 24)).view(np.float32)
    weights = (np.arange(1 << 24, dtype=np.int64) * 2654435761 % (1 << 31)) | 1
    for name, wanted in (("sin", sine), ("cos", cosine), ("tanh", tangent)):
        found = apply(f"{name}.approx.f32", x)
        codes = np.where(np.isnan(found), np.int64(0x7FFFFFFF), found.view(np.int32).astype(np.int64))
        assert np.add.reduce(codes * weights, dtype=np.int64) == wanted, name
