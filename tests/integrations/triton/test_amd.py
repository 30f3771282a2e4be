"""Triton kernels with the bits of AMD's matrix cores: Triton's own compiler says which v_mfma a dot becomes, and in what order of k."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference.cases import cases

torch = pytest.importorskip("torch", reason="torch is not installed")
triton = pytest.importorskip("triton", reason="triton is not installed")
import triton.language as tl  # noqa: E402

import fastmma  # noqa: E402
from fastmma.isa.targets import AMD  # noqa: E402
from fastmma.triton import interpret  # noqa: E402
from fastmma.triton.compilers import FIRST_OF_AMD, gpu_of, number_of  # noqa: E402
from fastmma.triton.lowering import Lowering  # noqa: E402


@triton.jit
def product(a, b, c, m: tl.constexpr, n: tl.constexpr, k: tl.constexpr):
    rows, columns, depth = tl.arange(0, m), tl.arange(0, n), tl.arange(0, k)
    x = tl.load(a + rows[:, None] * k + depth[None, :])
    y = tl.load(b + depth[:, None] * n + columns[None, :])
    tl.store(c + rows[:, None] * n + columns[None, :], tl.dot(x, y))


def run(target: str, dtype: Any, **options: Any) -> tuple[Any, Any, Any, str]:
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(64, 64, generator=generator).to(dtype) for _ in range(2))
    c = torch.empty(64, 64)
    with interpret(target) as report:
        product[(1,)](a, b, c, 64, 64, 64, **options)
    return a, b, c, str(report)


INSTRUCTIONS = [
    ("MI300X", "float16", "v_mfma_f32_32x32x8_f16"),
    ("MI300X", "float32", "v_mfma_f32_32x32x4_xf32"),
    ("MI250X", "float16", "v_mfma_f32_32x32x8_f16"),
    ("MI250X", "float32", "v_mfma_f32_32x32x2_f32"),
    ("MI100", "float16", "v_mfma_f32_32x32x8_f16"),
]


@cases(("target", "dtype", "opcode"), INSTRUCTIONS)
def test_a_dot_has_the_bits_of_the_instruction(target: str, dtype: str, opcode: str) -> None:
    a, b, c, report = run(target, getattr(torch, dtype))
    assert f"{opcode} (reported: " in report
    np.testing.assert_array_equal(c.numpy(), fastmma.gemm(a.numpy(), b.numpy(), instruction=opcode, target=target))


def test_lanes_that_hold_more_k_permute_it() -> None:
    a, b, c, report = run("MI300X", torch.float16, kpack=2)
    assert "kWidth 8" in report
    order = Lowering("v_mfma", "f16", "f16", 8, "v_mfma_f32_32x32x8_f16").order(64)
    assert order is not None
    assert order[:16].tolist() == [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]
    expected = fastmma.gemm(a.numpy()[:, order], b.numpy()[order], instruction="v_mfma_f32_32x32x8_f16", target="MI300X")
    np.testing.assert_array_equal(c.numpy(), expected)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(fastmma.TargetError, match="what gfx950 computes is not known"):
        run("MI355X", torch.float16)
    with interpret("MI300X", lowering="rules", other="error"), pytest.raises(fastmma.NotEmulatedError, match="its compiler does"):
        product[(1,)](torch.ones(16, 16).half(), torch.ones(16, 16).half(), torch.empty(16, 16), 16, 16, 16)


def test_numbers_of_gpus_are_apart() -> None:
    numbers = [number_of(fastmma.isa.targets.target_of(row.name)) for row in AMD]
    assert len(set(numbers)) == len(numbers)
    assert min(numbers) >= FIRST_OF_AMD
    assert [(gpu_of(number).backend, gpu_of(number).arch, gpu_of(number).warp_size) for number in numbers] == [
        ("hip", row.name, row.lanes) for row in AMD
    ]
