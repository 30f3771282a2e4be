"""Tensors on a GPU within `emulate`: the bits of the CPU emulation, of any GPU, on the device and on torch's stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import fastmma.torch  # noqa: E402
from fastmma.torch.emulation import Emulation  # noqa: E402
from fastmma.torch.settings import Settings  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::fastmma.torch.AssumedWarning")]

Product = tuple[str, tuple[Any, ...], dict[str, Any], Any]


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Product]]:
    """What products were given and what they returned, in main memory."""
    seen: list[Product] = []
    inner = Emulation.product

    def product(self: Emulation, operator: str, *args: Any, **kwargs: Any) -> Any:
        result = inner(self, operator, *args, **kwargs)
        if not args[0].is_cuda:
            return result
        assert result.is_cuda
        host = {name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in kwargs.items()}
        seen.append((operator, tuple(each.cpu() for each in args), host, result.cpu()))
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Emulation, "product", product)
        yield seen


def same_on_cpu(target: str, seen: list[Product], **options: Any) -> int:
    """How many products the CPU emulation computes with the same bits; all have to be."""
    run = Emulation(Settings(target, **options))
    for operator, args, kwargs, result in seen:
        bits = run.product(operator, *args, **kwargs)
        assert bits.dtype is result.dtype
        assert torch.equal(bits.view(torch.uint8), result.contiguous().view(torch.uint8)), operator
    return len(seen)


def drawn(*shape: int, dtype: Any, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


CALLS: dict[str, Callable[..., Any]] = {
    "mm": lambda a, b: a @ b,
    "mm, transposed": lambda a, b: b.t().contiguous().t().t() @ a.t(),
    "rows that are not whole": lambda a, b: a[:, ::2] @ b[::2],
    "linear with a bias": lambda a, b: torch.nn.functional.linear(a, b.t(), b[0]),
    "addmm": lambda a, b: torch.addmm((a @ b) * 0.5, a, b, alpha=0.75, beta=0.5),
    "bmm": lambda a, b: torch.bmm(torch.stack([a, a * 0.5]), torch.stack([b, b])),
    "baddbmm": lambda a, b: torch.baddbmm(b.new_ones(2, 1, 24), torch.stack([a, a]), torch.stack([b, b])),
    "mv": lambda a, b: a @ b[:, 0],
}


@pytest.mark.parametrize("target", ["H100", "B200", "sm_80"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CALLS)
def test_calls_have_the_bits_of_the_cpu_emulation(products: list[Product], name: str, dtype: Any, target: str) -> None:
    a, b = drawn(40, 96, dtype=dtype), drawn(96, 24, dtype=dtype, seed=1)
    a[0, 0], b[3, 5] = float("inf"), float("nan")
    with fastmma.torch.emulate(target) as gpu:
        CALLS[name](a.cuda(), b.cuda())
    assert gpu.report.passed == 0
    assert same_on_cpu(target, products) > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_tf32_and_bytes(products: list[Product], dtype: Any) -> None:
    a, b = (drawn(32, 64, dtype=torch.float32, seed=seed) * 20 for seed in (0, 1))
    given = a.to(dtype).cuda(), b.to(dtype).cuda().t()
    with fastmma.torch.emulate("B200", fp32="tf32"):
        torch._int_mm(*given) if dtype is torch.int8 else given[0] @ given[1]
    assert same_on_cpu("B200", products, fp32="tf32") == 1


def test_a_model_forward_has_the_bits_of_the_cpu() -> None:
    torch.manual_seed(0)
    sizes = 128, 256, 512, 64
    layers = [layer for m, n in pairwise(sizes) for layer in (torch.nn.Linear(m, n), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(torch.bfloat16)
    x = drawn(100, 128, dtype=torch.bfloat16)
    with fastmma.torch.emulate("B200"), torch.no_grad():
        expected = model(x)
        with torch.cuda.stream(torch.cuda.Stream()):
            got = model.cuda()(x.cuda())
            stream = torch.cuda.current_stream()
    stream.synchronize()
    assert got.is_cuda
    assert torch.equal(got.cpu(), expected)


def test_a_llama_forward_and_backward(products: list[Product]) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=128, **sizes)).to(torch.bfloat16).cuda()
    tokens = torch.arange(64).reshape(2, 32).cuda()
    with fastmma.torch.emulate("B200") as gpu:
        model(tokens, labels=tokens).loss.backward()
    assert not any("attention" in line.operator for line, _ in gpu.report.lines("passed"))
    assert same_on_cpu("B200", products) > 40


def test_scaled_products_and_functions() -> None:
    from torch.nn.functional import ScalingType

    a = drawn(32, 64, dtype=torch.float32).to(torch.float8_e4m3fn)
    b = drawn(16, 64, dtype=torch.float32, seed=1).to(torch.float8_e4m3fn)
    scale, one = torch.tensor(0.37), ScalingType.TensorWise
    given = (a, b.t(), scale, one, scale, one)
    expected = fastmma.torch.scaled_mm(*given, target="B200")
    got = fastmma.torch.scaled_mm(*(each.cuda() if isinstance(each, torch.Tensor) else each for each in given), target="B200")
    assert got.is_cuda
    assert torch.equal(got.cpu(), expected)
    x, y = drawn(8, 64, dtype=torch.float16), drawn(64, 8, dtype=torch.float16)
    assert torch.equal(fastmma.torch.mm(x.cuda(), y.cuda(), target="sm_80").cpu(), fastmma.torch.mm(x, y, target="sm_80"))


def test_what_no_tensor_core_does_is_torchs() -> None:
    a = drawn(8, 8, dtype=torch.float64).cuda()
    with fastmma.torch.emulate("B200") as gpu:
        assert torch.equal(a @ a, a.mm(a))
    assert gpu.report.passed == 2
