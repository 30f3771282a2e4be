"""A training step of a Llama and of a GPT: every hidden state, logit and gradient has the bits that PyTorch 2.11 has on an H200."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from reference import torch_models  # noqa: E402
from reference.cases import cases  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402

MODELS = torch_models.recorded()
pytestmark = pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")


@pytest.fixture(autouse=True)
def _narrow_products_of_math_attention() -> Iterator[None]:
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    yield
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


@cases("model", [model for model, _ in MODELS])
def test_a_step_has_an_h200s_bits(model: torch_models.Model) -> None:
    built, sums = torch_models.build(model), dict(MODELS)[model]
    with ft.emulate("H200", unknown="one") as gpu:
        found = torch_models.step(model, built)
    assert torch_models.checksums(found) == sums
    assert len(found) == len(sums)
    if model.fmt != "f32":
        assert {line.operator for line, _ in gpu.report.lines("passed", "unseen")} <= {"aten.bmm.default"}


def test_torch_alone_has_other_bits() -> None:
    model, sums = MODELS[0]
    assert torch_models.checksums(torch_models.step(model, torch_models.build(model))) != sums
