"""What is called neutral has the bits of an H200 (PyTorch 2.11), on hostile numbers of every dtype."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reference.scripts import loaded

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma.torch as ft  # noqa: E402
from fastmma.torch import neutral  # noqa: E402
from fastmma.torch.report import NEUTRAL  # noqa: E402

HERE = Path(__file__).parent
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, of numbers and tensors


@pytest.fixture(scope="module")
def compared() -> dict[str, tuple[bool, bool, set[str]]]:
    """Each call: is it neutral, has it the H200's bits, and of which operators it was made."""
    neutral_calls = loaded(HERE / "neutral_calls.py")
    recorded = json.loads((HERE / "h200_neutral.json").read_text())
    found = {}
    with ft.emulate("H100", functions="torch") as gpu:
        for name, call in neutral_calls.calls("cpu"):
            gpu.report.clear()
            result = call()
            lines = [line for line, _ in gpu.report.lines()]
            gpu.report.clear()
            operators = {line.operator.split(".")[1] for line in lines}
            found[name] = all(line.status == NEUTRAL for line in lines), neutral_calls.digest(result) == recorded[name], operators
    assert set(found) == set(recorded)
    return found


def test_neutral_calls_have_an_h200s_bits(compared: dict[str, Any]) -> None:
    assert [name for name, (is_neutral, equal, _) in compared.items() if is_neutral and not equal] == []
    assert sum(is_neutral for is_neutral, _, _ in compared.values()) == 1175


def test_what_differs_is_not_called_neutral(compared: dict[str, Any]) -> None:
    different = {name for name, (_, equal, _) in compared.items() if not equal}
    traps = ("add 0.1 float16", "zero dim f32 mul bfloat16", "div 3 float32", "sqrt float32", "add alpha 0.1 float16", "maximum float32")
    assert set(traps) < different
    assert {"to int32 beyond float32", "to float8_e4m3fn float32", "hardtanh_backward float32", "pow 3 float16"} < different


def test_every_operator_that_computes_is_recorded(compared: dict[str, Any]) -> None:
    shown = set().union(*(operators for is_neutral, _, operators in compared.values() if is_neutral))
    shown |= {name.removesuffix("_") for name in shown}
    others = {"_cummax_helper", "_cummin_helper", "_chunk_cat"}  # what cummax and cummin are on a GPU, and cat with zeros
    others |= {"_amp_update_scale_"}  # of a GradScaler, recorded with optimizers
    others |= {"_neg_view"}  # which is told
    others |= {"topk"}  # which routes the tokens of the recorded mixtures of experts
    # samples of torch's own list of operators, which an H200 computed on two seeds
    others |= {"fmax", "fmin", "scatter_add", "put", "unfold_backward", "masked_scatter_backward"}
    others |= {f"_upsample_nearest_exact{dims}d" for dims in (1, 2, 3)}
    assert (neutral.MOVES | set(neutral.UNLESS)) - shown == others


def test_zeros_below_a_bound_are_a_gpus() -> None:
    zeros = torch.tensor([-0.0, 0.0, -1.0])
    with ft.emulate("H100", functions="torch"):
        for found in (torch.relu(zeros), zeros.clamp(min=0), zeros.clone().relu_(), torch.nn.functional.relu6(zeros)):
            assert torch.signbit(found).tolist() == [False, False, False]
        assert torch.signbit(zeros.clamp(-2, 2)).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("name", "call", "why"),
    [
        ("places of index_put", lambda x, i: x.clone().index_put_((i,), x), "one place"),
        ("places of index_copy", lambda x, i: x.index_copy(0, i, x), "one place"),
        ("places of scatter", lambda x, i: x.scatter(0, i, x), "one place"),
        ("places that are negative", lambda x, i: x.clone().index_put_((torch.tensor([-1, 3, 1, 2]),), x), "one place"),
        ("numbers of 16 bits", lambda x, i: x.bfloat16() + 0.1, "16 bits"),
        ("tensors without dimensions", lambda x, i: x.bfloat16() * torch.tensor(0.1), "16 bits"),
        ("factors", lambda x, i: torch.add(x, x, alpha=0.1), "fma"),
        ("quotients", lambda x, i: x / 3, "reciprocal"),
        ("zeros", lambda x, i: torch.maximum(x * 0, -(x * 0)), "0 and -0"),
        ("casts", lambda x, i: (x * 1e30).int(), "integers"),
        ("elements in order", lambda x, i: x.sort(), "equal elements"),
        ("rows of numbers", lambda x, i: torch.arange(0, 1, 0.1), "fma"),
        ("roots", lambda x, i: x.sqrt(), "square root"),
        ("complex numbers", lambda x, i: torch.complex(x, x) * 2, "complex"),
        ("gradients of nextafter", lambda x, i: torch.nextafter(x.requires_grad_(), x), "no gradient"),
        ("gradients of aminmax", lambda x, i: x.requires_grad_().aminmax(dim=0), "no gradient"),
        ("views of negatives", lambda x, i: torch._neg_view(x), "below autograd"),
        ("random integers", lambda x, i: torch.randint(9, (4,)), "draws"),
    ],
)
def test_hostile_operands_of_neutral_operators_are_told(name: str, call: Any, why: str) -> None:
    with ft.emulate("H100", functions="torch") as gpu:
        call(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0, 1, 1, 2]))
    told = [line for line, _ in gpu.report.lines("passed")]
    assert len(told) == 1, (name, told)
    assert why in told[0].how


def test_kind_operands_of_neutral_operators_are_neutral() -> None:
    x, places = torch.tensor([1.0, -2.0, 3.0, 4.0]), torch.tensor([0, 1, -1, 2])
    with ft.emulate("H100", functions="torch") as gpu:
        x.clone().index_put_((places,), x)
        x.clone()[x > 0] = 5.0
        x.index_copy(0, places % 4, x)
        x.scatter(0, places % 4, x)
        (x.bfloat16() + 0.5) * 0.1 / 8
        x.bfloat16() * torch.tensor(0.5)
        torch.add(x, x, alpha=-1)
        torch.add(x.int(), x.int(), alpha=3)
        x.int().sum(), x.int().cumsum(0), x.bool().sum()
        (x**2).int()
        torch.maximum(x, x.flip(0)), x.amax(), torch.amax(torch.tensor([-0.0, 0.0, 1.0]))
        torch.arange(9), torch.arange(0, 9, 2, dtype=torch.float32)
        x.bfloat16().abs().sqrt()
    assert gpu.report.lines("passed", "assumed", "unseen", "emulated") == []
    assert gpu.report.neutral > 20
