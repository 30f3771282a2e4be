"""Kernels with tensor descriptors: their executed PTX, whose TMA copies boxes into swizzled memory, against the interpreter."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

import fastmma  # noqa: E402
from fastmma.triton import interpret  # noqa: E402
from fastmma.triton.machine.kernel import Machine  # noqa: E402


@triton.jit
def product(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, SUMS: tl.constexpr):
    m, n = tl.program_id(0) * M, tl.program_id(1) * N
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], tl.cumsum(acc, 1) if SUMS else acc)


@triton.jit
def doubled(a, c):
    values = a.load([tl.program_id(0), 0, 8])
    c.store([tl.program_id(0), 0, 8], values + values)


def drawn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def ran(kernel: Any, grid: tuple[int, ...], arrays: list[Any], boxes: list[Any], *rest: Any, lowering: Any, gpu: str = "H100") -> Any:
    out = torch.zeros_like(arrays[-1])
    descriptors = [TensorDescriptor.from_tensor(array, box) for array, box in zip([*arrays[:-1], out], boxes, strict=True)]
    with interpret(gpu, lowering=lowering) as report:
        kernel[grid](*descriptors, *rest)
    report.assert_all_emulated(assumed=gpu != "H100")
    return out


# the type, the sizes of the product, and its tiles: rows of 128, 64 and 32 bytes, of several boxes, and tiles that leave the tensors
PRODUCTS = (
    (torch.float16, (100, 72, 136), (64, 64, 64)),
    (torch.bfloat16, (160, 136, 96), (128, 128, 32)),
    (torch.float32, (64, 64, 64), (64, 32, 32)),
    (torch.float8_e4m3fn, (128, 64, 128), (64, 64, 64)),
)


@pytest.mark.parametrize(("dtype", "sizes", "tile"), PRODUCTS, ids=[f"{row[0]}-{row[2]}" for row in PRODUCTS])
def test_products(dtype: Any, sizes: tuple[int, int, int], tile: tuple[int, int, int]) -> None:
    (m, n, k), (rows, columns, depth) = sizes, tile
    arrays = [drawn(m, k, dtype=dtype), drawn(k, n, dtype=dtype), torch.zeros(m, n)]
    boxes, grid = [[rows, depth], [depth, columns], [rows, columns]], (-(-m // rows), -(-n // columns))
    interpreted, executed = (ran(product, grid, arrays, boxes, k, *tile, False, lowering=one) for one in ("compile", "ptx"))
    assert torch.equal(interpreted, executed)
    sums = ran(product, grid, arrays, boxes, k, *tile, True, lowering="compile")
    padded = torch.nn.functional.pad(interpreted.double(), (0, -n % columns))
    expected = padded.reshape(m, -1, columns).cumsum(-1).reshape(m, -1)[:, :n]
    torch.testing.assert_close(sums.double(), expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("gpu", ["H100", "A100"])  # whose compiler makes pointers of descriptors
def test_three_dimensions(gpu: str) -> None:
    x = drawn(3, 16, 40)
    found = ran(doubled, (3,), [x, torch.zeros_like(x)], [[1, 16, 16], [1, 16, 16]], lowering="ptx", gpu=gpu)
    expected = torch.zeros_like(x)
    expected[..., 8:24] = 2 * x[..., 8:24]
    assert torch.equal(found, expected)


def test_a_wait_without_a_copy_ends_in_an_error() -> None:
    ptx = """
.version 8.5
.target sm_90a
.visible .entry kernel()
.reqntid 32
{
 .reg .pred %p<2>;
 .reg .b32 %r<9>;
 mov.b32 %r1, global_smem;
 mbarrier.init.shared::cta.b64 [%r1], 1;
 { .reg .pred done;
 again:
 mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], 0;
 @!done bra.uni again;
 }
 ret;
}
"""
    with pytest.raises(fastmma.NotEmulatedError, match="a loop that does not end"):
        Machine(ptx, 64, "sm_90a").run((1, 1, 1), b"")


def test_what_a_map_does_beside_copying_is_refused() -> None:
    x = drawn(1, 16, 40)
    filled = TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 16, 16], padding="nan")
    with interpret("H100", lowering="ptx"), pytest.raises(fastmma.NotEmulatedError, match="padding='nan'"):
        doubled[(1,)](filled, TensorDescriptor.from_tensor(torch.zeros_like(x), [1, 16, 16]))
    with interpret("H100") as report:
        doubled[(1,)](filled, TensorDescriptor.from_tensor(torch.zeros_like(x), [1, 16, 16]))
    assert any("its PTX is not executed, since nothing here does a tensor descriptor with padding='nan'" in note for note in report.notes)
