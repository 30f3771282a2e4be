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
