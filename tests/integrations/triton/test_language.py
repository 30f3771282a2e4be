"""What a kernel's statements and arguments mean when it is compiled, they mean when it is interpreted."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fastmma

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from fastmma.functions.special import divided  # noqa: E402
from fastmma.triton import interpret  # noqa: E402


@triton.jit
def scaled(x, y, s, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, tl.load(x + i) * s)


@triton.jit
def described(f, n, one, big, flag, none, z: tl.float64, out):
    tl.static_assert(none is None)
    tl.store(out + 0, (f.to(tl.float64) * 3).to(tl.float64))
    tl.store(out + 1, n.to(tl.int64) // 2)
    tl.store(out + 2, one)
    tl.store(out + 3, big + 1)
    tl.store(out + 4, flag.to(tl.int32) + 1)
    tl.store(out + 5, z)


def test_numbers_of_a_launch_have_the_types_of_its_signature() -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(3)).bfloat16()
    y = torch.empty(4096)
    with interpret("H100", lowering="rules"):
        scaled[(1,)](x, y, 0.1, 4096)
    np.testing.assert_array_equal(y.numpy(), x.float().numpy() * np.float32(0.1))  # bf16 times f32 is f32
    out = torch.empty(6, dtype=torch.float64)
    with interpret("H100", lowering="rules"):
        described[(1,)](0.1, -3, 1, 2**31 + 1, True, None, 0.1, out)
    assert out.tolist() == [float(np.float32(0.1)) * 3, -1, 1, 2**31 + 2, 2, 0.1]


@triton.jit
def counted(out, whole, START, END, STEP: tl.constexpr, SIZE: tl.constexpr):
    k = 0
    for i in range(START, END, STEP):
        tl.store(out + k, 0.1 * i + i / 3)
        tl.store(whole + k, i.to(tl.int64) // 2 * 10 + i % 3)
        k += 1
    for i in tl.range(0, SIZE):
        tl.store(whole + k + i, (i + 2147483647).to(tl.int64))
    for i in tl.static_range(SIZE):
        tl.store(out + k + i, i * 0.1)


def test_loops_count_by_integers_of_32_bits() -> None:
    out, whole = torch.empty(12), torch.empty(12, dtype=torch.int64)
    with interpret("H100") as report:
        counted[(1,)](out, whole, -5, 5, 1, 2)
    i = np.arange(-5, 5, dtype=np.float32)
    products = np.float32(0.1) * i.astype(np.float64) + divided(i, np.full_like(i, 3)).astype(np.float64)
    np.testing.assert_array_equal(out.numpy()[:10], products.astype(np.float32))
    # both are cut toward zero, as in C
    assert whole.tolist() == [*(int(v / 2) * 10 + int(np.fmod(v, 3)) for v in range(-5, 5)), 2**31 - 1, -(2**31)]
    assert out[10:].tolist() == [0, np.float32(0.1)]
    report.assert_all_emulated()


@triton.jit
def joined(x, y, out, BOTH: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a, b = tl.load(x + i), tl.load(y + i)
    r = a > 0 or b > 0
    if BOTH:
        r = a > 0 and b > 0
    tl.store(out + i, r.to(tl.int32) + (not r).to(tl.int32) * 10)
    none = None
    if none is not None and tl.load(none) > 0:
        tl.store(out, 99)


@triton.jit
def nothing_of(x):
    return x


@triton.jit
def twice_of(x):
    return x * 2


@triton.jit
def applied(x, y, FUNCTION: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, FUNCTION(tl.load(x + i)))


@pytest.mark.parametrize("both", [True, False])
def test_truth_values_of_tensors_are_joined_element_by_element(both: bool) -> None:
    x, y = torch.tensor([1.0, 1, -1, -1]), torch.tensor([1.0, -1, 1, -1])
    out = torch.empty(4, dtype=torch.int32)
    with interpret("H100", lowering="rules") as report:
        joined[(1,)](x, y, out, both, 4)
    assert out.tolist() == ([1, 10, 10, 10] if both else [1, 1, 1, 10])
    report.assert_all_emulated()


def test_a_function_may_be_an_argument() -> None:
    x, y = torch.arange(16.0), torch.empty(16)
    for function, factor in ((nothing_of, 1), (twice_of, 2)):
        with interpret("H100") as report:
            applied[(1,)](x, y, function, 16)
        assert torch.equal(y, x * factor)
        report.assert_all_emulated()


@triton.jit
def truths(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, (tl.load(x + i) > 0).to(tl.int32) * 3)


def test_comparisons_are_truth_values() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        y = torch.empty(4, dtype=torch.int32)
        with interpret("H100", lowering="rules") as report:
            truths[(1,)](torch.tensor([-1, 0, 1, 2]).to(dtype), y, 4)
        assert y.tolist() == [0, 0, 3, 3]
        report.assert_all_emulated()


TUNED = [triton.Config({"SIZE": size}, num_warps=warps) for size, warps in ((16, 2), (32, 4), (64, 4))]


@triton.autotune(TUNED, key=[])
@triton.jit
def tuned(x, SIZE: tl.constexpr):
    tl.store(x, SIZE)


def test_the_configuration_of_an_autotuner_is_told_and_can_be_named() -> None:
    x = torch.zeros(1)
    with interpret("H100", lowering="rules") as report:
        tuned[(1,)](x)
    assert x.item() == 16
    assert list(report.notes) == [
        "tuned takes SIZE: 16, num_warps: 2, num_ctas: 1, num_stages: 3, maxnreg: None, ir_override: None, the first that is left of 3; "
        "configs={'tuned': ...} names another"
    ]
    for wanted, size in (({"SIZE": 32}, 32), ({"num_warps": 4}, 32), (TUNED[2], 64), (2, 64)):
        with interpret("H100", lowering="rules", configs={"tuned": wanted}) as report:
            tuned[(1,)](x)
        assert x.item() == size
        assert [note.rpartition(", ")[2] for note in report.notes] == ["as asked"]
        assert "note" in str(report)
    with (
        pytest.raises(fastmma.OperandError, match=r"tuned has no such configuration; it has\n  0: SIZE: 16"),
        interpret("H100", lowering="rules", configs={"tuned": {"SIZE": 7}}),
    ):
        tuned[(1,)](x)


@triton.jit
def wrong(x, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    y = tl.load(x + i)
    total = tl.sum(y, 0)
    if total > 0:
        y = y.to(tl.float16)
    tl.store(x + i, y)


def test_a_kernel_that_the_compiler_refuses_says_why() -> None:
    with (
        pytest.raises(fastmma.NotEmulatedError, match=r"but the then block redefines it as .*test_language\.py:\d+: if total > 0:"),
        interpret("H100"),
    ):
        wrong[(1,)](torch.zeros(16), 16)


def test_bf16_of_an_integer_argument() -> None:
    x = torch.arange(16).to(torch.bfloat16)
    y = torch.empty(16)
    with interpret("H100", lowering="rules"):
        scaled[(1,)](x, y, 3, 16)
    expected = (np.arange(16) * np.float32(3)).astype(ml_dtypes.bfloat16).astype("f4")
    np.testing.assert_array_equal(y.numpy(), expected)


@triton.jit
def join_in_memory(source, to):
    values = source.load([0, 0])
    to.atomic_max([0, 8], values)
    to.atomic_xor([0, 8], values)
    to.atomic_add([0, 0], values)


def test_descriptors_join_integers_in_memory() -> None:
    """What lies beyond the tensor is left out."""
    a = torch.from_numpy(np.random.default_rng(4).integers(-9, 9, (16, 16), np.int32))
    b, expected = torch.ones(16, 20, dtype=torch.int32), torch.ones(16, 20, dtype=torch.int32)
    expected[:, 8:] = torch.maximum(expected[:, 8:], a[:, :12]) ^ a[:, :12]
    expected[:, :16] += a
    with interpret("H100") as report:
        join_in_memory[(1,)](*(TensorDescriptor.from_tensor(one, [16, 16]) for one in (a, b)))
    report.assert_all_emulated()
    assert torch.equal(b, expected)
