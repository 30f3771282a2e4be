"""Assertions about plans, numbers of rows, and tests: each passes where it should, and says what is wrong where it should not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fastmma
from fastmma import GemmPlan
from fastmma.testing import adversarial, assert_invariant, assert_product, assert_same_bits, assert_sensitive
from fastmma.testing.sensitivity import FAULTS, unnoticed

K16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
HOPPER, AMPERE, CONSUMER = (GemmPlan(target, K16) for target in ("sm_90a", "sm_80", "sm_120a"))
A, B = adversarial((64, 512)), adversarial((512, 16), seed=1)


def test_plans() -> None:
    assert_same_bits(HOPPER, replace(HOPPER, instruction="wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"))
    assert_same_bits(HOPPER, CONSUMER, assumed=True)
    with pytest.raises(AssertionError, match="F = 25 against F = 24"):
        assert_same_bits(HOPPER, AMPERE)
    with pytest.raises(AssertionError, match="only reported"):
        assert_same_bits(HOPPER, CONSUMER)


def test_numbers_of_rows() -> None:
    def by_rows(count: int) -> NDArray[Any]:
        return fastmma.gemm(A[:count], B, target="sm_90a", split_k=2 if count < 32 else 1)

    assert_invariant(by_rows, (1, 2, 31))
    with pytest.raises(AssertionError, match=r"rows have other bits than among 64: row 0 of 1, row 0 of 2, row 1 of 2, row 0 of 31"):
        assert_invariant(by_rows, (1, 2, 31, 64))
    with pytest.raises(fastmma.OperandError, match="the result of 2 rows has the shape"):
        assert_invariant(lambda count: by_rows(count - 1), (2,))


@pytest.mark.parametrize(
    ("test", "missed"),
    [
        (lambda multiply: assert_product(multiply(A, B), A, B, target="H100"), ()),
        (lambda multiply: np.testing.assert_allclose(multiply(A, B), A.astype(float) @ B.astype(float), rtol=0.1, atol=5), None),
        (lambda multiply: None if multiply(A, B).shape == (64, 16) else pytest.fail("the shape"), tuple(FAULTS)),
    ],
    ids=["bits", "tolerance", "shape"],
)
def test_faults_that_a_test_notices(test: Callable[[Any], None], missed: tuple[str, ...] | None) -> None:
    found = unnoticed(test)
    if missed is None:
        assert "one bit less" in found
        assert "zeros" not in found
    else:
        assert found == missed
    if found:
        with pytest.raises(AssertionError, match=f"does not notice: {', '.join(found)}"):
            assert_sensitive(test)
    else:
        assert_sensitive(test)


def test_each_fault_is_one() -> None:
    right = fastmma.gemm(A, B, target="H100")
    for name, fault in FAULTS.items():
        found = fault(lambda a, b: fastmma.gemm(a, b, target="H100"), A, B, "H100")
        assert found.shape == right.shape, name
        assert (found != right).any(), name


def test_a_failure_says_what_is_assumed() -> None:
    with pytest.raises(AssertionError, match="assumed        what sm_120a computes for this product is only reported"):
        assert_product(fastmma.gemm(A, B, target="H100") + 1, A, B, target="RTX 5090")


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float8_e4m3fn, "e4m3"), (torch.float8_e5m2, "e5m2"), (torch.float16, "f16")):
        tensor, array = adversarial((8, 16), dtype, seed=3), adversarial((8, 16), name, seed=3)
        assert tensor.dtype is dtype
        assert tensor.view(torch.uint8).numpy().tobytes() == array.tobytes()


def test_faults_in_a_test_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.as_tensor(np.asarray(each, np.float32)).to(torch.bfloat16) for each in (A, B))

    def test(multiply: Callable[[Any, Any], Any]) -> None:
        torch.testing.assert_close(multiply(a, b), (a.double() @ b.double()).to(torch.bfloat16), rtol=0.02, atol=1)

    found = unnoticed(test)
    assert "one bit less" in found
    assert not {"zeros", "transposed operand"} & set(found)
