"""What is read of Triton's compiler, and the rules that stand in for it, say the same of dots."""

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

from fastmma.triton import Report, interpret  # noqa: E402


@triton.jit
def tile(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    rm = tl.arange(0, M)
    rn = tl.arange(0, N)
    rk = tl.arange(0, BK)
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, K, BK):
        acc += tl.dot(tl.load(a + rm[:, None] * K + (k + rk)[None, :]), tl.load(b + (k + rk)[:, None] * N + rn[None, :]))
    tl.store(c + rm[:, None] * N + rn[None, :], acc)


def inner(x, y, z, last):
    return tl.where(last, tl.dot(x, y) + z, tl.dot(x, y, z))


inner = triton.jit(inner)


@triton.jit
def calling(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    x = tl.load(a + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :])
    y = tl.load(b + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(c + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], inner(x, y, tl.full((M, N), 1.5, tl.float32), True))


def drawn(dtype: Any, m: int, n: int, k: int) -> list[Any]:
    rng = np.random.default_rng(m + n + k)
    return [torch.from_numpy(rng.standard_normal(shape).astype("f4")).to(dtype) for shape in ((m, k), (k, n))]


def dots(report: Report, source: str) -> list[tuple[str, int]]:
    found = [(how, count) for (operation, how), count in report.emulated.items() if operation in ("tl.dot", "+")]
    assert all(how.endswith(f", {source}") for how, _ in found if "sync" in how or "tcgen05" in how), str(report)
    return sorted((re.sub(r", (compiled|rules)$", "", how), count) for how, count in found)


@pytest.mark.parametrize(
    ("gpu", "dtype", "m", "n", "warps"),
    [
        ("H100", torch.bfloat16, 128, 64, 4),
        ("H100", torch.float16, 64, 16, 2),
        ("H100", torch.float8_e4m3fn, 32, 64, 4),
        ("H100", torch.float8_e5m2, 64, 64, 4),
        ("A100", torch.float32, 64, 32, 4),
        ("RTX 4090", torch.float8_e4m3fn, 64, 32, 4),
        ("B200", torch.bfloat16, 128, 64, 4),
        ("B200", torch.float8_e4m3fn, 64, 64, 4),
        ("B200", torch.float16, 32, 64, 4),
        ("RTX 5090", torch.float16, 64, 32, 8),
    ],
)
def test_the_compiler_and_the_rules_agree(gpu: str, dtype: Any, m: int, n: int, warps: int) -> None:
    a, b = drawn(dtype, m, n, 128)
    results = []
    for source in ("compile", "rules"):
        c = torch.empty(m, n)
        with interpret(gpu, lowering=source) as report:
            tile[(1,)](a, b, c, 128, m, n, 64, num_warps=warps)
        assert not report.notes
        results.append((c.numpy().tobytes(), dots(report, "compiled" if source == "compile" else "rules")))
    assert results[0] == results[1]


def test_dots_in_functions_are_found() -> None:
    a, b = drawn(torch.float16, 32, 32, 32)
    c = torch.empty(32, 32)
    with interpret("H100") as report:
        calling[(1,)](a, b, c, 32, 32, 32)
    assert ("start of the dot that was added", 1) in dots(report, "compiled")
    assert not report.notes


TWICE = """
import triton
import triton.language as tl


@triton.jit
def twice(a, b, c, S: tl.constexpr):
    tile = tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
    p = tl.dot(tl.load(a + tile), tl.load(b + tile))
    tl.store(c + tile, (tl.full((S, S), 0.7, tl.float32) + p) - tl.abs(p))
"""


def test_a_kernel_that_moved_is_compiled_again(tmp_path: Path) -> None:
    """Triton keeps compiled kernels by their text; their places, which say what becomes of p, are those of the file that was compiled."""
    a, b = drawn(torch.float16, 16, 16, 16)
    results = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}_{tmp_path.name.replace('-', '_')}.py"
        path.write_text(TWICE)
        module = loaded(path)
        c = torch.empty(16, 16)
        with interpret("H100") as report:
            module.twice[(1,)](a, b, c, 16)
        assert ("start of the dot that was added", 1) not in dots(report, "compiled")
        report.assert_all_emulated()
        results.append(c.numpy().tobytes())
    assert results[0] == results[1]


def test_where_the_compiler_refuses_rules_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("no such compiler\nand more lines")

    monkeypatch.setattr("fastmma.triton.compilation._COMPILE", refuse)
    a, b = drawn(torch.float16, 16, 16, 64)
    c = torch.empty(16, 16)
    with interpret("H100") as report:
        tile[(1,)](a, b, c, 64, 16, 16, 64)
    assert dots(report, "rules")
    assert list(report.notes) == ["tile by rules, since the compiler does not take it: ValueError: no such compiler"]
