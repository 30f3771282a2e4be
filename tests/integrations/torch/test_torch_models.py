"""Whole models: torchao's quantised layers, and transformers built from their configurations."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma.torch as ft  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries, about themselves
BF16 = torch.bfloat16


# what torch computes of these models; their products are not among it
PASSED = {
    *("_log_softmax", "_log_softmax_backward_data", "_softmax", "_softmax_backward_data", "cos", "div", "embedding_dense_backward", "exp2"),
    *(
        "cumsum",
        "gelu",
        "gelu_backward",
        "histc",
        "index_put",
        "log2",
        "mean",
        "native_layer_norm",
        "native_layer_norm_backward",
        "nll_loss_backward",
    ),
    *("nll_loss_forward", "pow", "rsqrt", "sigmoid", "silu", "silu_backward", "sin", "sort", "sum", "tanh", "tanh_backward", "topk"),
}


def assert_products_are_emulated(report: ft.Report) -> None:
    """Everything that the report tells of beside products is a function, a sum or an order of equal elements."""
    assert {line.operator.split(".")[1] for line, _ in report.lines("passed")} <= PASSED
    assert report.unseen == 0


def layers(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128, bias=False)).to(BF16)


X = torch.randn(32, 128, generator=torch.Generator().manual_seed(1)).to(BF16)


def torchao_configurations() -> dict[str, tuple[str, Callable[[], Any], float]]:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    formats = pytest.importorskip("torchao.prototype.mx_formats", reason="torchao has no MX formats")
    dynamic, nvfp4 = quantization.Float8DynamicActivationFloat8WeightConfig, formats.NVFP4DynamicActivationNVFP4WeightConfig
    mx, e4m3, e2m1 = formats.MXDynamicActivationMXWeightConfig, torch.float8_e4m3fn, torch.float4_e2m1fn_x2
    return {
        "float8 tensors": ("H100", lambda: dynamic(granularity=quantization.PerTensor()), 0.1),
        "float8 rows": ("H100", lambda: dynamic(granularity=quantization.PerRow()), 0.1),
        "float8 weights": ("H100", lambda: quantization.Float8WeightOnlyConfig(), 0.1),
        "mxfp8": ("B200", lambda: mx(activation_dtype=e4m3, weight_dtype=e4m3), 0.1),
        "mxfp4": ("RTX 5090", lambda: mx(activation_dtype=e2m1, weight_dtype=e2m1), 0.3),
        "nvfp4 of two levels": ("B200", lambda: nvfp4(use_triton_kernel=False), 0.3),
        "nvfp4 of one level": ("RTX 5090", lambda: nvfp4(use_triton_kernel=False, use_dynamic_per_tensor_scale=False), 0.3),
    }


def test_torchao_quantises_and_multiplies() -> None:
    from torchao.quantization import quantize_

    for name, (target, configuration, tolerance) in torchao_configurations().items():
        model = layers()
        wanted = model(X).float()
        with ft.emulate(target, as_cuda=True, unknown="one", functions="torch") as gpu:
            quantize_(model, configuration())
            found = model(X).float()
        assert_products_are_emulated(gpu.report)
        assert gpu.report.emulated + gpu.report.assumed == 2, name
        error = ((found - wanted).norm() / wanted.norm()).item()
        assert 0.01 < error < tolerance, (name, error)  # of the formats: nothing was left out, and nothing is wrong


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
def test_torchao_trains_in_float8(recipe: str) -> None:
    float8 = pytest.importorskip("torchao.float8", reason="torchao is not installed")
    model = layers()
    with ft.emulate("H100", as_cuda=True, other="error", functions="torch") as gpu:
        trained = float8.convert_to_float8_training(copy.deepcopy(model), config=float8.Float8LinearConfig.from_recipe_name(recipe))
        trained(X.clone().requires_grad_()).float().square().mean().backward()
    model(X).float().square().mean().backward()
    assert_products_are_emulated(gpu.report)
    assert gpu.report.emulated + gpu.report.assumed == 6
    for mine, plain in zip(trained.parameters(), model.parameters(), strict=True):
        assert ((mine.grad - plain.grad).float().norm() / plain.grad.float().norm()).item() < 0.2


def transformer(name: str) -> torch.nn.Module:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    size = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "attn_implementation": "eager"}
    wide = size | {"intermediate_size": 128}
    made = {
        "Llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**wide, num_key_value_heads=2)),
        "Mixtral": lambda: transformers.MixtralForCausalLM(
            transformers.MixtralConfig(**wide, num_key_value_heads=2, num_local_experts=8, experts_implementation="grouped_mm")
        ),
        "BERT": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**wide)),
        "GPT-2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=128, n_embd=64, n_layer=2, n_head=4, attn_implementation="eager")
        ),
    }
    torch.manual_seed(0)
    model: torch.nn.Module = made[name]().to(BF16).eval()
    return model


@pytest.mark.parametrize("name", ["Llama", "Mixtral", "BERT", "GPT-2"])
def test_transformers_from_their_configurations(name: str) -> None:
    model = transformer(name)
    tokens = torch.arange(48).reshape(2, 24) % 128
    plain = model(tokens).logits.detach().float()
    with ft.emulate("H100", unknown="one", functions="torch") as gpu:
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.float().view(-1, 128), tokens.view(-1))
        loss.backward()
        with torch.inference_mode():
            assert torch.equal(model(tokens).logits, logits)
    assert_products_are_emulated(gpu.report)
    assert gpu.report.emulated > 40
    with pytest.raises(AssertionError, match="passed"):
        gpu.report.assert_all_emulated(assumed=True)
    assert ((logits.detach().float() - plain).norm() / plain.norm()).item() < 0.02
    assert all(torch.isfinite(each.grad).all() for each in model.parameters() if each.grad is not None)
