"""Tensors on a GPU within `emulate`: the bits of the CPU emulation, of any GPU, on the device and on torch's stream."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import ScalingType, SwizzleType  # noqa: E402
from torch.utils._pytree import tree_map_only  # noqa: E402

import fastmma.torch  # noqa: E402
from fastmma.backends.gpu import device  # noqa: E402
from fastmma.scaling import quantize  # noqa: E402
from fastmma.torch import recipes, scaled  # noqa: E402
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


@contextmanager
def without_copies(waiting: bool) -> Iterator[None]:
    """Whoever brings a tensor or an array to main memory fails; and who waits for the GPU, unless that is allowed."""

    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("a tensor on a GPU went through main memory")

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for owner, names in ((torch.Tensor, ("cpu", "numpy")), (device, ("to_host", "copy_to_host")), (recipes, ("to_numpy",))):
            for name in names:
                patch.setattr(owner, name, refused)
        patch.setattr(scaled, "scaled_matmul", refused)
        torch.cuda.set_sync_debug_mode("default" if waiting else "error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


def on_device(given: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.cuda(), given)


SCALED = [
    ("H100", "fp8_tensor", "fp8_tensor", {"bias": True, "use_fast_accum": True}),
    ("B200", "fp8_tensor", "fp8_tensor_e5m2", {"output_dtype": torch.float32}),
    ("H100", "fp8_row", "fp8_row", {"bias": True}),
    ("B200", "fp8_row", "fp8_row", {"use_fast_accum": True}),
    ("H100", "fp8_1x128", "fp8_1x128", {}),
    ("H100", "fp8_1x128", "fp8_128x128", {"output_dtype": torch.float32}),
    ("B200", "mxfp8_e4m3", "mxfp8_e4m3", {}),
    ("B200", "nvfp4", "nvfp4", {"output_dtype": torch.float16}),
    ("RTX 5090", "mxfp4", "mxfp4", {}),
    ("RTX 5090", "nvfp4", "nvfp4", {}),
    ("H100", "mxfp8_e4m3", "mxfp8_e4m3", {"check": None}),
    ("H100", "nvfp4", "nvfp4", {"check": None}),
]


@pytest.mark.parametrize(("target", "first", "second", "options"), SCALED, ids=str)
def test_scaled_products_stay_on_the_gpu(target: str, first: str, second: str, options: dict[str, Any]) -> None:
    m, n, k = 208, 384, 1152
    x, w = (drawn(*shape, dtype=torch.float32, seed=seed).numpy() for seed, shape in enumerate(((m, k), (n, k))))
    left, right = (fastmma.torch.from_scaled(quantize(each, scheme)) for each, scheme in ((x, first), (w, second)))
    if left.elements.dtype is torch.float8_e4m3fn:
        left.elements.view(torch.uint8)[3, 5] = 0x7F  # NaN
    scales = [(each.scales, list(map(ScalingType, each.recipes)), list(map(SwizzleType, each.swizzles))) for each in (left, right)]
    swizzles = {"swizzle_a": scales[0][2], "swizzle_b": scales[1][2]}
    args = (left.elements, right.elements.t(), *scales[0][:2], *scales[1][:2])
    options = options | ({"bias": drawn(n, dtype=torch.bfloat16)} if "bias" in options else {})
    options["unknown"] = "one"
    expected = fastmma.torch.scaled_mm(*args, **swizzles, target=target, **options)
    given, more = on_device(args), on_device(options)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), without_copies(waiting=first == "nvfp4"):
        got = fastmma.torch.scaled_mm(*given, **swizzles, target=target, **more)
    stream.synchronize()
    assert got.is_cuda
    assert torch.equal(got.cpu().view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("scheme", ["fp8_row", "mxfp8_e4m3"])
def test_scaled_groups_stay_on_the_gpu(scheme: str) -> None:
    groups, m, n, k = 3, 96, 128, 256
    left = [fastmma.torch.from_scaled(quantize(drawn(rows, k, dtype=torch.float32, seed=rows).numpy(), scheme)) for rows in (32, 64)]
    right = [fastmma.torch.from_scaled(quantize(drawn(n, k, dtype=torch.float32, seed=seed).numpy(), scheme)) for seed in range(groups)]
    offs = torch.tensor([32, 32, m], dtype=torch.int32)

    def joined(parts: list[Any]) -> Any:
        return torch.cat([each.view(torch.uint8) for each in parts]).view(parts[0].dtype)

    a, b = joined([each.elements for each in left]), joined([each.elements for each in right]).reshape(groups, n, k)
    rows = scheme == "fp8_row"
    scale_a = joined([each.scales[0] for each in left])
    scale_b = torch.stack([each.scales[0].view(torch.uint8) for each in right]).view(scale_a.dtype)
    if rows:
        scale_a, scale_b = scale_a[:, 0].contiguous(), scale_b[..., 0].contiguous()
    recipe, swizzle = (ScalingType.RowWise, None) if rows else (ScalingType.BlockWise1x32, SwizzleType.SWIZZLE_32_4_4)
    given: dict[str, Any] = {"offs": offs, "swizzle_a": swizzle, "swizzle_b": swizzle, "target": "B200", "check": None, "unknown": "one"}
    args = (a, b.transpose(1, 2), scale_a, recipe, scale_b, recipe)
    expected = fastmma.torch.scaled_grouped_mm(*args, **given)
    there, more = on_device(args), on_device(given)
    with without_copies(waiting=True):
        got = fastmma.torch.scaled_grouped_mm(*there, **more)
    assert got.is_cuda
    assert torch.equal(got.cpu(), expected)


def test_scaled_products_within_a_mode() -> None:
    a, b = (drawn(32, 64, dtype=torch.float32, seed=seed).to(torch.float8_e4m3fn).cuda() for seed in (0, 1))
    scale = torch.tensor(0.37).cuda()
    with fastmma.torch.emulate("H200") as gpu, without_copies(waiting=False):
        got = torch._scaled_mm(a, b.t(), scale, scale, out_dtype=torch.bfloat16)
    gpu.report.assert_all_emulated()
    with fastmma.torch.emulate("H200"):
        assert torch.equal(got.cpu(), torch._scaled_mm(a.cpu(), b.cpu().t(), scale.cpu(), scale.cpu(), out_dtype=torch.bfloat16))


def test_functions() -> None:
    x, y = drawn(8, 64, dtype=torch.float16), drawn(64, 8, dtype=torch.float16)
    found, wanted = (fastmma.torch.mm(*each, target="sm_80", unknown="one") for each in ((x.cuda(), y.cuda()), (x, y)))
    assert torch.equal(found.cpu(), wanted)


def test_what_no_tensor_core_does_is_torchs() -> None:
    a = drawn(8, 8, dtype=torch.float64).cuda()
    with fastmma.torch.emulate("B200") as gpu:
        assert torch.equal(a @ a, a.mm(a))
    assert gpu.report.passed == 2
