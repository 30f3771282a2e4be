"""Another version of torch: its recording says which functions have the bits of the recorded one, and the report follows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402
from fastmma.host.errors import OperandError  # noqa: E402
from fastmma.torch import function_recordings  # noqa: E402

pytestmark = pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")
_KEPT = ("gelu", "tanh", "softmax (40, 300) 1", "layer_norm", "rms_norm", "attention flash_attention", "AdamW {'foreach': False}")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of some calls: one has other bits, one is not repeated, and one is left out."""
    path = tmp_path_factory.mktemp("versions") / "functions.json"
    every = function_recordings.CALLS
    with pytest.MonkeyPatch.context() as patch, ft.emulate("H100", as_cuda=True, unknown="one"):
        patch.setattr(function_recordings, "CALLS", tuple(each for each in every if each.name in _KEPT))
        made = ft.record_functions(path)
    made["versions"]["torch"] = "2.12.0+cu130"
    made["calls"]["gelu bfloat16"][1] = "another digest"
    made["calls"]["layer_norm float32"][0] = "another digest"
    made["unrepeated"].append("layer_norm float32")
    for name in [name for name in made["calls"] if name.startswith("tanh")]:
        del made["calls"][name]
    path.write_text(json.dumps(made))
    return path


def _statuses(agreement: ft.FunctionAgreement) -> dict[str, str]:
    x = torch.linspace(-2, 2, 64).reshape(2, 32)
    with ft.emulate("H100", functions=agreement, unknown="one") as gpu:
        torch.softmax(x, 1)
        torch.nn.functional.gelu(x)
        torch.tanh(x)
        torch.nn.functional.rms_norm(x, (32,))
        torch.nn.functional.scaled_dot_product_attention(*[x.bfloat16().expand(1, 1, 2, 32)] * 3)
    return {line.operator.split(".")[1]: line.status for line, _ in gpu.report.lines("emulated", "assumed")}


def test_what_differs_or_was_not_recorded_is_assumed(recording: Path) -> None:
    agreement = ft.compare_functions(recording)
    assert agreement.calls == ("gelu bfloat16",)
    assert agreement.differ == {"gelu", "gelu_backward"}
    assert {"_softmax", "native_layer_norm", "_scaled_dot_product_flash_attention_backward", "lerp"} <= agreement.equal
    assert str(agreement).startswith("torch 2.12.0+cu130, CUDA ")
    assert str(agreement).endswith("others have gelu, gelu_backward")
    told = _statuses(agreement)
    assert {name for name, status in told.items() if status == "emulated"} == {"_softmax", "_fused_rms_norm"}
    assert {name for name, status in told.items() if status == "assumed"} == {"gelu", "tanh", "_scaled_dot_product_cudnn_attention"}


def test_a_recording_is_of_its_gpu(recording: Path, tmp_path: Path) -> None:
    with pytest.raises(OperandError, match="the recording is of NVIDIA H100"):
        ft.emulate("H200", functions=ft.compare_functions(recording))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(OperandError, match="is no recording of functions"):
        ft.compare_functions(tmp_path / "other.json")
    for wrong in ("cuda", False):
        with pytest.raises(OperandError, match="the result of compare_functions"):
            ft.emulate("H100", functions=wrong)


def test_a_step_of_another_version_says_so() -> None:
    layer, x = torch.nn.Linear(8, 4), torch.ones(2, 8)
    found: Any = ft.record(layer, x, loss=torch.sum)
    object.__setattr__(found, "versions", {**found.versions, "torch": "2.12.0"})
    object.__setattr__(found, "emulated", False)
    assert ft.assert_same_step(found).compared
    with pytest.raises(ft.StepDiffersError, match=r"the GPU ran torch 2\.12\.0, and fastmma computes as PyTorch 2\.11 does"):
        ft.assert_same_step(found, layer, x, loss=lambda y: (2 * y).sum())
