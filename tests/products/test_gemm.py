"""gemm is, bit for bit, the instruction looped over k; tests of kernels and of drawn calls have its operands, memory and threads."""

from __future__ import annotations

import numpy as np
import pytest
from reference.cases import cases
from reference.methods import METHODS, MMA, mixed, product
from reference.products import bits, looped

from fastmma import gemm, instruction


@cases("distributions", [("finite", "near", "tiny"), ("special", "zero", "near"), ("bits", "cancel", "special")])
@pytest.mark.parametrize(("opcode", "target"), METHODS)
def test_gemm_is_the_instruction_looped_over_k(opcode: str, target: str, distributions: tuple[str, str, str]) -> None:
    ins = instruction(opcode)
    a, b, c = mixed(opcode, (17, 9, min(2 * ins.k + 3, 70)), *distributions)
    for start in (c, None):
        np.testing.assert_array_equal(product(opcode, target, a, b, start), looped(ins, target, a, b, start))


def test_a_sum_that_rounded_to_zero_from_below_does_not_raise_the_next_steps_exponent() -> None:
    opcode = MMA + "m16n8k16.row.col.f16.f16.f16.f16"
    a, b = np.zeros((3, 32), np.float16), np.zeros((32, 40), np.float16)
    a[:, 0], b[0] = -(2.0**-14), 2.0**-14
    a[:, 16], b[16] = 2.0**-12, 2.0**-13  # a tie in the second instruction ...
    a[:, 17], b[17] = 2.0**-23, 2.0**-23  # ... and what breaks it
    assert (gemm(a, b, instruction=opcode) == 2.0**-24).all()
    assert (bits(gemm(a[:, :16], b[:16], instruction=opcode)) == 0).all()
