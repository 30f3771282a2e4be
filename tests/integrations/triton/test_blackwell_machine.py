"""tcgen05 in executed PTX: products on tensor memory have the interpreter's bits, and what follows a product is executed, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

import fastmma  # noqa: E402
from fastmma.triton import interpret  # noqa: E402


@triton.jit
def multiply(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STEPS: tl.constexpr, PRECISION: tl.constexpr):
    rm, rn, rk = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), c.dtype.element_ty)
    for step in range(STEPS):
        x = tl.load(a + rm[:, None] * K * STEPS + (step * K + rk)[None, :])
        y = tl.load(b + (step * K + rk)[:, None] * N + rn[None, :])
        total = tl.dot(x, y, total, input_precision=PRECISION)
    tl.store(c + rm[:, None] * N + rn[None, :], total)


@triton.jit
def multiply_by_descriptors(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STEPS: tl.constexpr, _: tl.constexpr):
    total = tl.zeros((M, N), tl.float32)
    for step in range(STEPS):
        total += tl.dot(a.load([0, step * K]), b.load([step * K, 0]))
    tl.store(c + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], total)


@triton.jit
def multiply_transposed(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rm, rn, rk = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + rk[:, None] * M + rm[None, :])
    y = tl.load(b + rn[:, None] * K + rk[None, :])
    tl.store(c + rm[:, None] * N + rn[None, :], tl.dot(tl.trans(x), tl.trans(y)))


@triton.jit
def multiply_scaled(
    a, a_scales, b, b_scales, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr
):
    rm, rn, blocks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // BLOCK)
    k_of_a: tl.constexpr = K // 2 if A == "e2m1" else K
    k_of_b: tl.constexpr = K // 2 if B == "e2m1" else K
    x = tl.load(a + rm[:, None] * k_of_a + tl.arange(0, k_of_a)[None, :])
    y = tl.load(b + rn[None, :] * k_of_b + tl.arange(0, k_of_b)[:, None])
    x_scales = tl.load(a_scales + rm[:, None] * (K // BLOCK) + blocks[None, :])
    y_scales = tl.load(b_scales + rn[:, None] * (K // BLOCK) + blocks[None, :])
    tl.store(c + rm[:, None] * N + rn[None, :], tl.dot_scaled(x, x_scales, A, y, y_scales, B))


@triton.jit
def attend(q, k, v, out, M: tl.constexpr, D: tl.constexpr, N: tl.constexpr, STEPS: tl.constexpr):
    rm, rd, rn = tl.arange(0, M), tl.arange(0, D), tl.arange(0, N)
    rows = tl.load(q + rm[:, None] * D + rd[None, :])
    largest, below = tl.full((M,), float("-inf"), tl.float32), tl.zeros((M,), tl.float32)
    total = tl.zeros((M, D), tl.float32)
    for step in range(STEPS):
        keys = tl.load(k + (step * N + rn)[:, None] * D + rd[None, :])
        values = tl.load(v + (step * N + rn)[:, None] * D + rd[None, :])
        scores = tl.dot(rows, tl.trans(keys)) * 0.125
        now = tl.maximum(largest, tl.max(scores, 1))
        powers, factor = tl.exp2(scores - now[:, None]), tl.exp2(largest - now)
        below = below * factor + tl.sum(powers, 1)
        total = tl.dot(powers.to(values.dtype), values, total * factor[:, None])
        largest = now
    tl.store(out + rm[:, None] * D + rd[None, :], total / below[:, None])


@triton.jit
def largest_of(x, y):
    return tl.maximum(x, y)


@triton.jit
def after(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, WHAT: tl.constexpr):
    rm, rn, rk = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    product = tl.dot(tl.load(a + rm[:, None] * K + rk[None, :]), tl.load(b + rk[:, None] * N + rn[None, :]))
    if WHAT == "cumsum":
        product = tl.cumsum(product, 1)
    elif WHAT == "from the end":
        product = tl.cumsum(product, 1, reverse=True)
    else:
        product = tl.associative_scan(product, 0, largest_of)
    tl.store(c + rm[:, None] * N + rn[None, :], product)


FP8 = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def drawn(dtype: str, *shape: int, seed: int = 1) -> Any:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    if dtype == "e2m1":
        return torch.randint(0, 256, (shape[0], shape[1] // 2), generator=generator).to(torch.uint8)
    if dtype == "int8":
        return torch.randint(-128, 128, shape, generator=generator).to(torch.int8)
    return torch.randn(shape, generator=generator).to(getattr(torch, FP8.get(dtype, dtype)))


def launched(kernel: Any, given: tuple[Any, ...], out: Any, constants: tuple[Any, ...], lowering: str, **options: Any) -> tuple[Any, Any]:
    result = torch.zeros_like(out)
    with interpret("B200", lowering=lowering) as report:
        kernel[(1,)](*given, result, *constants, **options)
    return result.view(torch.int32), report


def check(kernel: Any, given: tuple[Any, ...], out: Any, constants: tuple[Any, ...], **options: Any) -> None:
    """Compare what executing the PTX computes with what the interpreter does."""
    executed, report = launched(kernel, given, out, constants, "ptx", **options)
    interpreted, _ = launched(kernel, given, out, constants, "compile", **options)
    assert any("tcgen05.mma" in str(line) for line in report.lines("emulated"))
    assert not report.lines("passed", "unseen")
    assert torch.equal(executed, interpreted)
    assert executed.count_nonzero() > executed.numel() // 2


# types, M, N, K of a step, steps, warps
PRODUCTS = [
    *((dtype, 128, 64, 64, 3, 4) for dtype in ("bfloat16", "float16", "float32", "e4m3", "e5m2", "int8")),
    *((dtype, 64, 64, 64, 2, 4) for dtype in ("bfloat16", "float32")),
    ("float16", 128, 128, 32, 2, 8),
    ("float16", 256, 64, 64, 1, 8),
    ("e4m3", 128, 256, 64, 1, 4),
]


@pytest.mark.parametrize(("dtype", "m", "n", "k", "steps", "warps"), PRODUCTS)
def test_products(dtype: str, m: int, n: int, k: int, steps: int, warps: int) -> None:
    out = torch.zeros(m, n, dtype=torch.int32 if dtype == "int8" else torch.float32)
    check(multiply, (drawn(dtype, m, k * steps), drawn(dtype, k * steps, n)), out, (m, n, k, steps, "tf32"), num_warps=warps)


@pytest.mark.parametrize("dtype", ["bfloat16", "e5m2", "float32"])
def test_products_of_transposed_operands(dtype: str) -> None:
    check(multiply_transposed, (drawn(dtype, 64, 128), drawn(dtype, 64, 64)), torch.zeros(128, 64), (128, 64, 64))


def test_products_of_what_the_tma_loads() -> None:
    a, b = drawn("float16", 128, 192), drawn("float16", 192, 64)
    given = tuple(TensorDescriptor(one, one.shape, one.stride(), list(box)) for one, box in ((a, (128, 64)), (b, (64, 64))))
    check(multiply_by_descriptors, given, torch.zeros(128, 64), (128, 64, 64, 3, ""))


@pytest.mark.parametrize(
    ("left", "right", "block", "scales"),
    [("e4m3", "e4m3", 32, ""), ("e5m2", "e2m1", 32, ""), ("e2m1", "e2m1", 32, ""), ("e2m1", "e2m1", 16, "e4m3")],
)
def test_scaled_products(left: str, right: str, block: int, scales: str) -> None:
    generator = torch.Generator().manual_seed(7)
    drawn_scales = [
        drawn("e4m3", rows, 128 // block).abs()
        if scales
        else torch.randint(120, 134, (rows, 128 // block), generator=generator).to(torch.uint8)
        for rows in (128, 64)
    ]
    given = (drawn(left, 128, 128), drawn_scales[0], drawn(right, 64, 128), drawn_scales[1])
    check(multiply_scaled, given, torch.zeros(128, 64), (128, 64, 128, left, right, block))


@pytest.mark.parametrize(("dtype", "n", "warps"), [("float16", 64, 4), ("bfloat16", 128, 8)])
def test_attention(dtype: str, n: int, warps: int) -> None:
    given = drawn(dtype, 128, 64), *(drawn(dtype, 2 * n, 64, seed=seed) for seed in (2, 3))
    check(attend, given, torch.zeros(128, 64), (128, 64, n, 2), num_warps=warps)


@pytest.mark.parametrize("what", ["cumsum", "from the end", "scan"])
def test_what_follows_a_product_is_executed(what: str) -> None:
    generator = torch.Generator().manual_seed(9)
    a, b = (torch.randint(-5, 6, shape, generator=generator).to(torch.float16) for shape in ((128, 64), (64, 32)))
    with interpret("B200") as report:
        after[(1,)](a, b, out := torch.zeros(128, 32), 128, 32, 64, what)
    report.assert_all_emulated()
    product = fastmma.gemm(a.numpy(), b.numpy(), target="B200")
    expected = {
        "cumsum": lambda: np.cumsum(product, 1),
        "from the end": lambda: np.cumsum(product[:, ::-1], 1)[:, ::-1],
        "scan": lambda: np.maximum.accumulate(product),
    }
    assert np.array_equal(out.numpy(), expected[what]())
    assert any("PTX is executed" in note for note in report.notes)
