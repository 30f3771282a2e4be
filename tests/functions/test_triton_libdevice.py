"""Functions of Triton's libdevice against what an H200 computed."""

from __future__ import annotations

import numpy as np
import pytest

from fastmma.functions import libdevice
from fastmma.kernels.functions import contraction
from tests.reference import triton_functions

needs_triton = pytest.mark.skipif(libdevice.tritons_release() is None, reason="no release of Triton's libdevice that is known")


@needs_triton
def test_functions_have_an_h200s_bits() -> None:
    release = libdevice.tritons_release()
    assert release is not None
    judged = 0
    for call in triton_functions.recorded():
        for seed, checksum in zip(triton_functions.SEEDS, call.checksums, strict=True):
            drawn = triton_functions.operands(seed, call.label, call.fmt)
            found = libdevice.call_tritons(call.symbol, *(drawn[index] for index in call.operands))
            assert found is not None, call.symbol
            same = triton_functions.checksum(found) == checksum
            judged += same
            assert same or call.symbol in release[1], call
    assert judged >= 330


@needs_triton
def test_what_is_made_of_unknown_instructions_is_none() -> None:
    assert libdevice.call_tritons("__nv_fma_rd", *[np.ones(1)] * 3) is None
    assert libdevice.call_tritons("__nv_nothing", np.ones(1)) is None


def test_the_product_that_is_used_less_is_fused() -> None:
    text = " %1 = fmul float %a, %b\n %2 = fmul float %c, %d\n %3 = fadd float %1, %2\n %4 = fadd float %1, %c"
    assert contraction.contract(text).splitlines()[2:] == [
        " %3 = call float @llvm.fma.f32(float %c, float %d, float %1)",
        " %4 = call float @llvm.fma.f32(float %a, float %b, float %c)",
    ]
