"""m8n8k4 of Volta and Turing with c in f16 and sums in f32: a subnormal c is aligned by the exponent field of its format."""

from __future__ import annotations

import numpy as np
import pytest

import fastmma

OPCODE = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16"


@pytest.mark.parametrize("target", ["sm_70", "sm_75"])
@pytest.mark.parametrize("backend", ["numba", "reference"])
def test_a_subnormal_c_raises_emax(target: str, backend: str) -> None:
    a, b, c = np.zeros((8, 4), np.float16), np.zeros((4, 8), np.float16), np.zeros((8, 8), np.float16)
    a[:, 0], b[0] = 2.0**-24, 2.0**-23
    c[0], c[1], c[2] = 2.0**-24, 2.0**-14, 0
    d = fastmma.mma(OPCODE, a, b, c, target=target, backend=backend)
    # the last bit that is kept is 2 ** (-14 - 23) for both numbers, and without c far below the product
    assert (d[0] == 2.0**-24).all()
    assert (d[1] == 2.0**-14).all()
    assert (d[2] == 2.0**-47).all()


@pytest.mark.parametrize("target", ["sm_70", "sm_75"])
def test_compiled_as_the_reference(target: str) -> None:
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, 1 << 16, shape).astype(np.uint16) for shape in ((200, 8, 4), (200, 4, 8), (200, 8, 8))]
    codes = [each & np.where(rng.random(each.shape) < 0.7, 0x8FFF, 0xFFFF).astype(np.uint16) for each in codes]
    codes[2] &= np.where(rng.random(codes[2].shape) < 0.5, 0x83FF, 0xFFFF).astype(np.uint16)
    a, b, c = (each.view(np.float16) for each in codes)
    found = [fastmma.mma(OPCODE, a, b, c, target=target, backend=backend).view(np.uint32) for backend in ("numba", "reference")]
    np.testing.assert_array_equal(*found)
