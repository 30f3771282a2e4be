"""torch's scaled products, against fastmma's own calls, and the calls that a GPU rejects."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.plain_machine import COMPILER, PlainMachine

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from torch.nn import functional  # noqa: E402
from torch.nn.functional import ScalingType, SwizzleType  # noqa: E402

import fastmma  # noqa: E402
import fastmma.torch as ft  # noqa: E402
from fastmma.backends.gpu.resident import Resident  # noqa: E402
from fastmma.scaling import ScaledArray, quantize  # noqa: E402
from fastmma.torch import on_gpu, recipes, scaled  # noqa: E402
from fastmma.torch.plans import InvalidError, UnknownError  # noqa: E402
from fastmma.torch.scaled_on_gpu import placed_operand  # noqa: E402

E4, E5, BF16, F32 = torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float32
M, N, K = 48, 256, 512
RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal(shape) * np.exp2(RNG.integers(-3, 3, shape)) for shape in ((M, K), (N, K)))
BIAS = torch.from_numpy(RNG.standard_normal(N).astype(np.float32)).to(BF16)


CASES = [
    ("H100", "fp8_tensor", "fp8_tensor", {}),
    ("H100", "fp8_tensor", "fp8_tensor", {"bias": BIAS, "use_fast_accum": True}),
    ("H100", "fp8_tensor", "fp8_tensor", {"output_dtype": F32}),
    ("H100", "fp8_row", "fp8_row", {"bias": BIAS}),
    ("H100", "fp8_row", "fp8_row", {"use_fast_accum": True}),
    ("H100", "fp8_1x128", "fp8_1x128", {}),
    ("H100", "fp8_1x128", "fp8_128x128", {}),
    ("B200", "mxfp8_e4m3", "mxfp8_e4m3", {}),
    ("B200", "nvfp4", "nvfp4", {"output_dtype": torch.float16}),
    ("RTX 5090", "mxfp4", "mxfp4", {}),
    ("RTX 5090", "nvfp4", "nvfp4", {}),
]


@pytest.mark.parametrize(("target", "first", "second", "options"), CASES, ids=str)
def test_every_recipe_is_a_scaled_product(target: str, first: str, second: str, options: dict[str, Any]) -> None:
    a, b = quantize(X, first), quantize(W, second)
    left, right = ft.from_scaled(a), ft.from_scaled(b)
    recipes = [[ScalingType(number) for number in each.recipes] for each in (left, right)]
    args = (left.elements, right.elements.t(), left.scales, recipes[0], right.scales, recipes[1])
    swizzles = {f"swizzle_{name}": [SwizzleType(number) for number in each.swizzles] for name, each in (("a", left), ("b", right))}
    found = ft.scaled_mm(*args, **swizzles, target=target, unknown="one", **options)
    out = options.get("output_dtype", BF16)
    given: dict[str, Any] = {"target": target, "out_dtype": ft.to_numpy(torch.empty(0, dtype=out)).dtype}
    if target != "RTX 5090":
        given["preset"] = "cublas-fast-accum" if options.get("use_fast_accum") else "cublas"
    if "bias" in options:
        given["bias"] = ft.to_numpy(BIAS)
    wanted = fastmma.scaled_matmul(a, b.T, **given)
    assert ft.to_numpy(found).tobytes() == wanted.tobytes()
    with ft.emulate(target, unknown="one") as gpu:
        again = functional.scaled_mm(*args, **swizzles, **options)
    assert torch.equal(again, found)
    gpu.report.assert_all_emulated(assumed=True)


def test_the_old_signature_tells_the_recipe_from_the_scales() -> None:
    for scheme in ("fp8_tensor", "fp8_row", "fp8_1x128"):
        a, b = quantize(X, scheme), quantize(W, scheme)
        left, right = ft.from_scaled(a), ft.from_scaled(b)
        scales = left.scales[0], right.scales[0].t()
        with ft.emulate("H100", unknown="one") as gpu:
            found = torch._scaled_mm(left.elements, right.elements.t(), *scales, out_dtype=BF16)
        assert ft.to_numpy(found).tobytes() == fastmma.scaled_matmul(a, b.T, preset="cublas", out_dtype="bf16").tobytes(), scheme
        gpu.report.assert_all_emulated(assumed=True)


def same(a: ScaledArray, b: ScaledArray) -> bool:
    parts = zip((a.elements, a.scales), (b.elements, b.scales), strict=True)
    return (a.scheme, a.global_scale) == (b.scheme, b.global_scale) and all(x.tobytes() == y.tobytes() for x, y in parts)


@pytest.mark.parametrize("scheme", ["fp8_tensor", "fp8_row_e5m2", "fp8_1x128", "mxfp8_e5m2", "mxfp4", "nvfp4"])
def test_scaled_arrays_go_to_torch_and_back(scheme: str) -> None:
    array = quantize(X, scheme)
    operand = ft.from_scaled(array)
    assert same(ft.to_scaled(operand.elements, operand.scales, operand.recipes, operand.swizzles or None), array)


def test_torchaos_tensors_are_scaled_arrays() -> None:
    formats = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor", reason="torchao is not installed")
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor

    x = torch.from_numpy(X[:32]).to(BF16)
    tensors = [formats.MXTensor.to_mx(x, dtype, 32) for dtype in (E4, E5, torch.float4_e2m1fn_x2)]
    tensors += [NVFP4Tensor.to_nvfp4(x, per_tensor_scale=torch.tensor(0.5)), NVFP4Tensor.to_nvfp4(x)]
    for tensor, scheme in zip(tensors, ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4", "nvfp4"), strict=True):
        array = ft.to_scaled(tensor)
        assert array.scheme == scheme
        assert (array.dequantize("bf16").astype(np.float32) == tensor.dequantize(torch.bfloat16).float().numpy()).all()


def test_scaled_arrays_that_torch_has_not_are_errors() -> None:
    with pytest.raises(fastmma.OperandError):
        ft.from_scaled(quantize(X, "fp8_row").T)
    with pytest.raises(fastmma.OperandTypeError):
        ft.to_scaled(torch.ones(4, 4).to(E4))


def test_groups_of_rows() -> None:
    a, b = quantize(X, "fp8_row"), [quantize(W[start : start + 64], "fp8_row") for start in (0, 64, 128)]
    offs = torch.tensor([16, 16, 48], dtype=torch.int32)
    weights = torch.stack([ft.to_torch(each.elements).view(torch.uint8) for each in b]).view(E4).transpose(1, 2)
    scales = torch.stack([ft.to_torch(each.scales)[:, 0] for each in b])
    with ft.emulate("H100", unknown="one") as gpu:
        found = torch._scaled_grouped_mm(
            ft.to_torch(a.elements), weights, ft.to_torch(a.scales)[:, 0].contiguous(), scales, offs=offs, out_dtype=BF16
        )
    for group, (start, stop) in enumerate(((0, 16), (16, 16), (16, 48))):
        wanted = fastmma.scaled_matmul(a[start:stop], b[group].T, preset="cublas", out_dtype="bf16")
        assert ft.to_numpy(found[start:stop]).tobytes() == wanted.tobytes()
    gpu.report.assert_all_emulated(assumed=True)


LOGIC = [CASES[1], CASES[6], CASES[7], CASES[10]]


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tensors are taken for those of a GPU, whose kernels are plain C++; whoever reads one as an array of main memory fails."""

    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("a tensor on a GPU went through main memory")

    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    backend = Resident(PlainMachine(tmp_path))
    monkeypatch.setattr(on_gpu, "resides", lambda _tensor: True)
    monkeypatch.setattr(on_gpu, "available", lambda: True)
    monkeypatch.setattr(on_gpu, "backend", lambda: backend)
    monkeypatch.setattr(on_gpu, "on_stream", lambda _where: nullcontext())
    monkeypatch.setattr(on_gpu, "array_of", lambda tensor: tensor.detach().numpy())
    for module, name in ((recipes, "to_numpy"), (scaled, "to_numpy"), (scaled, "as_numpy"), (scaled, "scaled_matmul")):
        monkeypatch.setattr(module, name, refused)


@pytest.mark.parametrize(("target", "first", "second", "options"), LOGIC, ids=str)
def test_tensors_on_a_pretended_gpu_stay_there(
    request: pytest.FixtureRequest, target: str, first: str, second: str, options: dict[str, Any]
) -> None:
    left, right = ft.from_scaled(quantize(X[:20, :256], first)), ft.from_scaled(quantize(W[:, :256], second))
    scales = [(each.scales, list(map(ScalingType, each.recipes)), list(map(SwizzleType, each.swizzles))) for each in (left, right)]
    swizzles = {"swizzle_a": scales[0][2], "swizzle_b": scales[1][2]}
    args = (left.elements, right.elements.t(), *scales[0][:2], *scales[1][:2])
    wanted = ft.scaled_mm(*args, **swizzles, target=target, unknown="one", **options)
    request.getfixturevalue("pretended_gpu")
    assert torch.equal(ft.scaled_mm(*args, **swizzles, target=target, unknown="one", **options), wanted)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("scheme", ["fp8_tensor", "fp8_row_e5m2", "fp8_1x128", "fp8_128x128", "mxfp8_e5m2", "mxfp4", "nvfp4"])
def test_operands_on_a_gpu_are_those_in_main_memory(monkeypatch: pytest.MonkeyPatch, scheme: str, turned: bool) -> None:
    monkeypatch.setattr(on_gpu, "available", lambda: True)
    operand = ft.from_scaled(quantize(W[:200, :352], scheme))
    scales = [operand.scales[0].t(), *operand.scales[1:]] if scheme == "fp8_128x128" else operand.scales
    elements = operand.elements
    if turned and elements.dtype is not torch.float4_e2m1fn_x2:
        elements = elements.t().contiguous().t()
    given = elements, scales, operand.recipes[0], True
    wanted, found = recipes.scaled_operand(*given), placed_operand(*given)
    described = found.described
    assert (described.scheme, described.block, described.shape) == (wanted.scheme, wanted.block, wanted.shape)
    assert found.codes.numpy().tobytes() == wanted.elements.tobytes()
    assert found.scales.numpy().tobytes() == wanted.scales.tobytes()
    assert (None if found.overall is None else found.overall.item()) == wanted.global_scale


def test_operands_on_a_gpu_that_do_not_go_together_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    scales = torch.ones(32, 4)
    with pytest.raises(UnknownError, match="CuPy"):
        placed_operand(eights(32, 64), [scales], recipes.B16, False)
    monkeypatch.setattr(on_gpu, "available", lambda: True)
    pairs = torch.zeros(32, 32, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    wrong = [
        (pairs, [scales], recipes.B16, fastmma.OperandTypeError, "must have dtype float8_e4m3fn"),
        (pairs, [(-scales).to(E4)], recipes.B16, fastmma.OperandError, "must not be negative"),
        (pairs, [scales.to(E4), torch.tensor(-1.0)], recipes.B16, fastmma.OperandError, "must not be negative"),
        (eights(32, 64), [torch.ones(31)], recipes.ROW, fastmma.OperandError, "must be 32 for 32 x 1 blocks, not 31"),
        (eights(32, 64), [scales.to("meta")], recipes.ROW, InvalidError, "scales on meta"),
    ]
    for elements, given, recipe, error, message in wrong:
        with pytest.raises(error, match=message):
            placed_operand(elements, given, recipe, False)


def eights(*shape: int, dtype: torch.dtype = E4) -> torch.Tensor:
    return torch.ones(shape).to(dtype)


ONE = torch.tensor(1.0)
SCALES = torch.full((512,), 127, dtype=torch.uint8).view(torch.float8_e8m0fnu)
# the errors of an H100 with PyTorch 2.11, or those of torch's own checks, which come first
REJECTED = {
    "two e5m2": (ValueError, "two Float8_e5m2", lambda: torch._scaled_mm(eights(32, 64, dtype=E5), eights(48, 64, dtype=E5).t(), ONE, ONE)),
    "rows of b": (RuntimeError, "col_major", lambda: torch._scaled_mm(eights(32, 64), eights(64, 48), ONE, ONE)),
    "k of 24": (RuntimeError, "divisible by 16", lambda: torch._scaled_mm(eights(32, 24), eights(48, 24).t(), ONE, ONE)),
    "mx": (RuntimeError, "NOT_SUPPORTED", lambda: torch._scaled_mm(eights(32, 64), eights(48, 64).t(), SCALES, SCALES, out_dtype=BF16)),
    "bias": (
        RuntimeError,
        "Bias must be BFloat16 or Half",
        lambda: torch._scaled_mm(eights(32, 64), eights(48, 64).t(), ONE, ONE, bias=torch.ones(48), out_dtype=BF16),
    ),
    "bias of f32": (
        RuntimeError,
        "Bias is not supported",
        lambda: torch._scaled_mm(eights(32, 64), eights(48, 64).t(), ONE, ONE, bias=torch.ones(48, dtype=BF16), out_dtype=F32),
    ),
    "plain": (NotImplementedError, "addmm_cuda", lambda: eights(32, 64) @ eights(64, 32)),
    "out_dtype": (RuntimeError, "out_dtype", lambda: torch.mm(eights(8, 8).to(BF16), eights(8, 8).to(BF16), out_dtype=torch.float64)),
}


@pytest.mark.parametrize(("error", "message", "call"), REJECTED.values(), ids=REJECTED)
def test_what_a_gpu_rejects_is_torchs_error(error: type[Exception], message: str, call: Any) -> None:
    with ft.emulate("H100"), pytest.raises(error, match=message):
        call()


def test_a_gpu_without_scaled_products_rejects_them_all() -> None:
    with ft.emulate("A100"), pytest.raises(RuntimeError, match="compute capability"):
        torch._scaled_mm(eights(32, 64), eights(48, 64).t(), ONE, ONE)
    with ft.emulate("H100", check=None, unknown="one") as gpu:
        assert torch._scaled_mm(eights(32, 24), eights(48, 24).t(), ONE, ONE, out_dtype=F32).unique().tolist() == [24.0]
    gpu.report.assert_all_emulated(assumed=True)
