"""Small products of groups in one go: what is out of reach is left to other kernels."""

from __future__ import annotations

import numpy as np
import pytest

from fastmma.backends.parameters import scaled_parameters
from fastmma.backends.resolve import operation_of
from fastmma.isa.table import instruction
from fastmma.kernels.scaled import groups
from fastmma.kernels.scaled.lines import ScaledOperands
from fastmma.kernels.scaled.small_groups import multiply

OPCODE = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
NAN_SCALE = 0x7F


@pytest.fixture
def parameters():
    found = scaled_parameters(operation_of(instruction(OPCODE), "sm_120a"))
    if not groups.supported(found):
        pytest.skip("no fast path on this CPU")
    return found


def _operands(rows, columns, depth, turned, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 16, (rows, depth), np.uint8), rng.integers(0, 16, (depth, columns), np.uint8)
    scale_a, scale_b = (rng.integers(40, 80, shape).astype(np.uint8) for shape in ((rows, depth // 16), (depth // 16, columns)))
    a[1], scale_b[:, 2] = 0, 0
    if turned:
        b, scale_b = np.asfortranarray(b), np.asfortranarray(scale_b)
    return ScaledOperands(a, b, None, np.full((rows, columns), 0x55555555, np.uint32), scale_a, scale_b)


def test_out_of_reach(parameters):
    usual = _operands(16, 64, 128, turned=True)
    nan, wide, none = usual.scale_a.copy(), usual.scale_b.copy(order="F"), np.zeros_like(usual.a)
    nan[3, 1] = NAN_SCALE
    wide[0, 5], wide[1, 5] = 1, 0x7E  # 2**-9 and 448
    small = usual.scale_a.copy()
    small[0, 0] = 1
    assert not multiply(parameters, usual._replace(scale_a=nan))
    assert not multiply(parameters, usual._replace(scale_a=small, scale_b=wide))
    assert multiply(parameters, usual._replace(a=none))
    assert not usual.out.any()
    unseen = usual.a.copy()
    unseen[0, :16] = 0  # the scale of zeros does not count
    assert multiply(parameters, usual._replace(a=unseen, scale_a=small))
    assert multiply(parameters, usual)
