"""Five whole models: the first of ten recorded steps has every bit of an H200's, and the report says how that is known."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference import five_models  # noqa: E402
from reference.cases import cases  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402

pytestmark = pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")


@cases("case", list(five_models.CASES))
def test_a_step_has_an_h200s_bits(case: five_models.Case) -> None:
    recording = five_models.recording(case)
    found = ft.assert_same_step(recording, **five_models.built(case), steps=1, unknown="one")
    assert recording.gpu == "NVIDIA H200"
    assert (recording.steps, recording.unrepeated) == (10, ())
    assert 10 * found.compared == len(recording.tensors)
    operators = {line.operator.split(".")[1] for line, _ in found.report.lines("assumed", "passed", "unseen")}
    assert operators <= {"addmm", "convolution", "convolution_backward", "mm", "sum"}  # of matrices of few rows, of patches, of nothing
    if case.fmt != "float32" and case.kind in ("Llama", "GPT-2", "BERT"):
        found.report.assert_all_emulated()


def test_the_tensor_that_differs_is_named() -> None:
    case = five_models.CASES[0]
    with pytest.raises(ft.StepDiffersError, match=r"passed    aten\.rsqrt\.default") as error:
        ft.assert_same_step(five_models.recording(case), **five_models.built(case), steps=1, unknown="one", functions="torch")
    assert error.value.name.startswith("step 1: ")
