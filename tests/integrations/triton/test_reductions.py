"""Sums in the order of a GPU's threads: as an H100 added them, and as PTX says for the Triton that is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.scripts import loaded

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402

from fastmma.triton import interpret, reductions  # noqa: E402
from fastmma.triton.twins import all_of_kind  # noqa: E402

HERE = Path(__file__).parent


@triton.jit
def row_sum(a, d, N: tl.constexpr):
    tl.store(d, tl.sum(tl.load(a + tl.arange(0, N)), 0))


@triton.jit
def square_sum(a, d, N: tl.constexpr):
    x = tl.load(a + tl.arange(0, N))
    tl.store(d, tl.sum(x * x, 0))


@triton.jit
def other_reductions(a, d, N: tl.constexpr):
    x = tl.load(a + tl.arange(0, N))
    tl.store(d + tl.arange(0, N), tl.cumsum(x, 0) + tl.max(x, 0) + tl.sum(tl.arange(0, N), 0))


def test_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "IN_REGISTERS", "ascending")  # as the Triton 3.6 that was recorded
    module = loaded(HERE / "recorded_kernels.py")
    with np.load(HERE / "recordings" / "sums_h100.npz") as file:
        recorded = dict(file)
    different = []

    def compare(name: str, call: Any) -> None:
        if name in recorded and not np.array_equal(call().numpy(), recorded.pop(name)):
            different.append(name)

    with interpret("H100") as report:
        module.run("cpu", compare)
    assert not recorded
    assert not different
    report.assert_all_emulated()


def expression(kernel: Any, size: int) -> str:
    """What a thread adds before it exchanges anything, of values numbered as loaded."""
    source = {"a": "*fp32", "d": "*fp32", "N": "constexpr"}
    with all_of_kind(kernel, triton.runtime.jit.JITFunction) as function:
        compiled = triton.compile(
            triton.compiler.ASTSource(fn=function, signature=source, constexprs={"N": size}),
            target=GPUTarget("cuda", 90, 32),
            options={"num_warps": 4, "enable_fp_fusion": True},
        )
    values: dict[str, str] = {}
    for line in compiled.asm["ptx"].splitlines():
        for register in re.findall(r"%r\d+", line) if "ld.global.b32" in line else ():
            values[register] = str(len(values))
        found = re.match(r"\s*(add|mul|fma\.rn)\.f32\s+(%r\d+), (.*);", line)
        if found:
            values[found[2]] = f"{found[1][:3]}({','.join(values[register] for register in found[3].split(', '))})"
        if "shfl" in line:
            return values[re.findall(r"%r\d+", line)[1]]
    raise AssertionError("nothing is exchanged")


def test_pairs_are_what_ptx_says() -> None:
    assert expression(row_sum, 1024) == "add(add(add(0,1),add(2,3)),add(add(4,5),add(6,7)))"
    assert expression(square_sum, 512) == "add(fma(0,0,mul(1,1)),fma(2,2,mul(3,3)))"
    ones = [np.array([1 << 24 if index == 0 else 1], "f4") for index in range(4)]
    owners = ["register", "register"]
    values = np.concatenate(ones)
    assert reductions.summed(values, 0, owners) == np.float32(1 << 24) + np.float32(2)
    assert reductions.summed(values, 0, owners, order="ascending") == np.float32(1 << 24)


def exchanged(sums: np.ndarray) -> np.float32:
    """Across lanes, then warps, the highest bit first."""
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    return sums[0]


def test_products_enter_sums_in_one_rounding() -> None:
    x = np.random.default_rng(5).standard_normal(512).astype("f4")
    d = torch.empty(1)
    with interpret("H100") as report:
        square_sum[(1,)](torch.from_numpy(x.copy()), d, 512)
    held = x.reshape(4, 32, 4).astype("f8")  # four neighbours a thread
    square = (held * held).astype("f4")
    pairs = [(held[..., i] * held[..., i] + square[..., i + 1]).astype("f4") for i in (0, 2)]
    lanes = np.stack([exchanged(one) for one in pairs[0] + pairs[1]])
    assert d.numpy()[0] == exchanged(lanes)
    assert report.emulated["sum", "registers, lanes, warps, products fused"] == 1


def test_what_is_not_known() -> None:
    x, d = torch.ones(64), torch.empty(64)
    with interpret("H100", lowering="rules") as report:
        other_reductions[(1,)](x, d, 64)
    assert [operation for operation, _ in report.passed] == ["reduction"]
    with interpret("H100", lowering="rules") as report:
        row_sum[(1,)](x, d, 64)
    assert [operation for operation, _ in report.passed] == ["sum"]
    assert d[0] == 64
