"""Recorded training steps: a file has what it says, the same step is the same, and a step that differs is told where and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference.cases import cases  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.host.errors import OperandError  # noqa: E402

BF16 = torch.bfloat16
X = torch.randn(8, 32, generator=torch.Generator().manual_seed(1)).to(BF16)


class Block(torch.nn.Module):
    """Two layers, the second of which may be changed."""

    def __init__(self, activation: Any = torch.tanh) -> None:
        super().__init__()
        self.up, self.down, self.activation = torch.nn.Linear(32, 64), torch.nn.Linear(64, 8), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.down(self.activation(self.up(x)))
        return found


def made(activation: Any = torch.tanh) -> Any:
    torch.manual_seed(0)
    model = Block(activation).to(BF16)
    return model, torch.optim.SGD(model.parameters(), lr=0.5, foreach=False)


def squared(y: torch.Tensor) -> torch.Tensor:
    return y.float().square().mean()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of two steps."""
    model, optimizer = made()
    found = tmp_path_factory.mktemp("steps") / "step.npz"
    ft.record(model, X, loss=squared, optimizer=optimizer, steps=2, path=found)
    return found


def test_the_same_step_is_the_same(path: Path) -> None:
    (model, optimizer), (fresh, _) = made(), made()
    found = ft.assert_same_step(path, model, X, loss=squared, optimizer=optimizer)
    names = [each.name for each in ft.Recording.load(path).tensors]
    assert (found.compared, found.unrepeated, found.report.passed) == (len(names), (), 0)
    order = ["up", "down", "the model", "the loss", "gradient of the model", "gradient of the weight up.weight"]
    order += ["the weight up.weight after it"]
    places = [names.index(f"step {step}: {name}") for step in (1, 2) for name in order]
    assert places == sorted(places)
    for mine, untouched in zip(model.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(mine, untouched)
        assert mine.grad is None


def test_the_first_steps_are_compared_alone(path: Path) -> None:
    model, optimizer = made()
    found = ft.assert_same_step(path, model, X, loss=squared, optimizer=optimizer, steps=1)
    assert 2 * found.compared == len(ft.Recording.load(path).tensors)
    with pytest.raises(OperandError, match="from 1 to 2"):
        ft.assert_same_step(path, model, X, loss=squared, optimizer=optimizer, steps=3)


def test_a_recording_is_read_as_it_was_written(path: Path) -> None:
    recording = ft.Recording.load(path)
    again = path.with_name("again.npz")
    recording.save(again)
    other = ft.Recording.load(again)
    assert str(recording) == str(other)
    assert "tensors of 2 steps emulated on H200, torch " in str(other)
    for one, two in zip((*recording.given, *recording.tensors), (*other.given, *other.tensors), strict=True):
        assert one[:4] == two[:4]
        np.testing.assert_array_equal(one.codes, two.codes)
    (weight,) = [each for each in recording.given if each.name == "the weight down.bias"]
    np.testing.assert_array_equal(weight.codes, made()[0].down.bias.detach().view(torch.int16).numpy().view(np.uint16))


def test_a_difference_is_told_with_what_computed_it(path: Path) -> None:
    model, optimizer = made(torch.digamma)
    with pytest.raises(ft.StepDiffersError) as error:
        ft.assert_same_step(path, model, X, loss=squared, optimizer=optimizer)
    assert error.value.name == "step 1: down"
    assert [line.operator for line in error.value.lines] == ["aten.digamma.default", "aten.addmm.default"]
    text = str(error.value)
    assert "bfloat16 (8, 8): 64 of 64 kept numbers differ" in text
    assert f"({Path(__file__).name}" not in text  # the whole path
    assert f"{Path(__file__)}:" in text
    assert text.count("passed    aten.digamma.default") == 2  # it computed the tensor, and is not emulated
    assert " tensors 1 before it have the recorded bits, and " in text


def test_one_bit_is_a_difference(path: Path) -> None:
    def changed(y: torch.Tensor) -> torch.Tensor:
        return squared(y).view(torch.int32).add(1).view(torch.float32) + 0 * squared(y)

    model, optimizer = made()
    with pytest.raises(ft.StepDiffersError, match="by at most 1 ulp") as error:
        ft.assert_same_step(path, model, X, loss=changed, optimizer=optimizer)
    assert (error.value.name, error.value.ulp) == ("step 1: the loss", 1)


def other_weights() -> Any:
    model, optimizer = made()
    with torch.no_grad():
        model.up.bias[3] += 1
    return model, optimizer


@cases(
    ("change", "error", "text"),
    [
        ({"model": other_weights()[0], "optimizer": None}, OperandError, "the weight up.bias is not what it was"),
        ({"inputs": X + 1}, OperandError, "the input 0 is not what it was when the step was recorded, bfloat16 .* of other numbers"),
        ({"inputs": X.float()}, OperandError, "bfloat16 .8, 32., not float32"),
        ({"loss": None}, ft.StepDiffersError, "the loss is recorded, but not computed"),
        ({"loss": lambda y: y}, OperandError, "must be one number"),
        ({"model": None}, OperandError, "needs the model"),
    ],
)
def test_another_step_is_refused(path: Path, change: dict[str, Any], error: type[Exception], text: str) -> None:
    model, optimizer = made()
    given = {"model": model, "inputs": X, "loss": squared, "optimizer": optimizer, **change}
    with pytest.raises(error, match=text):
        ft.assert_same_step(path, **given)


def test_settings_are_those_of_the_recording(path: Path) -> None:
    model, optimizer = made()
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = not before
    try:
        ft.assert_same_step(path, model, X, loss=squared, optimizer=optimizer)
        assert torch.backends.cudnn.deterministic is not before
    finally:
        torch.backends.cudnn.deterministic = before


@cases("change", [{"format": 0}, {"settings": {"unheard of": 1}}, {"tensors": [["a", "float32", [2], ""]]}, {"keep": "x"}])
def test_a_file_that_is_none_is_refused(path: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    with np.load(path) as file:
        meta, codes = json.loads(file["meta"].tobytes()), file["codes"]
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, meta=np.frombuffer(json.dumps(meta | change).encode(), np.uint8), codes=codes)
    model, optimizer = made()
    with pytest.raises(OperandError, match=r"recording"):
        ft.assert_same_step(wrong, model, X, loss=squared, optimizer=optimizer)


def test_all_shapes_and_dtypes_are_kept() -> None:
    class Sorted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x[:0], x.to(torch.complex128), x > 0, x.sum(), x.argmax(), x.float() / 0

    recording = ft.record(Sorted(), X, loss=lambda _: torch.ones(1, requires_grad=True))
    shown = {each.dtype: each.shape for each in recording.tensors}
    assert shown == {"bfloat16": (), "complex128": (8, 32), "bool": (8, 32), "int64": (), "float32": (1,)}
    assert ft.assert_same_step(recording).compared == 7
