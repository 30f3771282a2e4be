"""Trials of tcgen05.mma: what is put into memory is what the matrices give, and recordings of them replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmma
from fastmma import FORMATS, Instruction, tcgen05
from fastmma.backends.gpu import device, raw
from fastmma.backends.gpu.tensor_memory_ptx import PARAMETERS
from fastmma.execution.tcgen05 import multiply
from fastmma.verification import record, replay, tensor_trials, trials
from fastmma.verification.recordings import Recorded, checksums, load, save
from fastmma.verification.stream import Stream

FORMS = [
    tcgen05.instruction("f16", "f32", "bf16", "bf16", m=64, n=16),
    tcgen05.instruction("tf32", "f32", "tf32", "tf32", m=128, n=16, sparse=True),
    tcgen05.instruction("f8f6f4", "f32", "e2m1", "e3m2", m=128, n=16),
    tcgen05.instruction("i8", "s32", "u8", "s8", m=64, n=16, sparse=True),
    tcgen05.instruction("mxf8f6f4", "f32", "e4m3", "e2m3", n=16),
    tcgen05.instruction("mxf4nvf4", "f32", "e2m1", "e2m1", n=16),
]


@pytest.mark.parametrize("ins", FORMS, ids=str)
def test_images_hold_the_matrices(ins: Instruction) -> None:
    label = trials.labels_of(ins)[0]
    trial = trials.draw(ins, (label,), 2, 1)
    assert trials.takes(trial)
    after = trial.run("sm_100a", "numba")
    found = trials._matrices(ins, label, 2, Stream(1, str(ins), ",".join(f"{k}={v}" for k, v in sorted(trial.arguments.items())), label))
    extra: dict[str, Any] = {}
    tmem = trial.operands["tmem"]
    if ins.sparse:
        words = tensor_trials.places.matrix_cells(multiply.metadata_layout(ins), ins, trial.arguments["metadata"], "")
        extra["metadata"] = tensor_trials.places.metadata_words(tmem, words, ins, "")
    if ins.stype:
        for name in "ab":
            cells = tensor_trials.places.scale_cells(ins, name, trial.arguments[f"scale_{name}"], 0, "")
            codes = tensor_trials.places.scale_codes(tmem, cells, 0, ins, "")
            extra[f"scale_{name}"] = (codes if name == "a" else codes.swapaxes(-1, -2)).copy().view(FORMATS[ins.stype].dtype)
    formats = ins.formats
    operands = [found[name].astype(fmt.code_dtype).view(fmt.dtype) for name, fmt in (("a", formats.a), ("b", formats.b), ("c", formats.c))]
    d = fastmma.mma(ins, *operands, target="sm_100a", **extra).view(formats.d.code_dtype)
    layout = ins.operands["d"].layout
    for r, j in ((0, 0), (ins.m - 1, 15), (37, 8)):
        place = layout.find(r, j)
        assert (after[:, place.lane, place.register] == d[:, r, j]).all()


def test_every_kind_is_tried_and_recorded() -> None:
    asked = [each for each in record.requests("sm_103a", 0) if each.file == "tcgen05.npz"]
    assert {each.trial.instruction.kind for each in asked} == {"f16", "tf32", "f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4"}
    assert len(asked) == len(tensor_trials.tried("sm_103a"))
    assert not [each for each in record.requests("sm_90a", 0) if each.file == "tcgen05.npz"][:1]


def test_recordings_replay(tmp_path: Path) -> None:
    trial = trials.draw(FORMS[0], trials.labels_of(FORMS[0])[:2], 1, 0)
    result = trial.run("sm_100a", "numba")
    about = {"gpu": "none", "driver": "none", "target": "sm_100a", "seed": 0}
    save(tmp_path / "sm_100a", {"tcgen05.npz": [Recorded(trial, None, checksums(result), drawn=True)]}, about)
    assert next(iter(load("sm_100a", tmp_path))).trial.opcode == str(FORMS[0])
    assert replay.replay("sm_100a", folder=tmp_path).wrong == 0
    wrong = checksums(result ^ np.uint32(1))
    save(tmp_path / "sm_100a", {"tcgen05.npz": [Recorded(trial, None, wrong, drawn=True)]}, about)
    assert replay.replay("sm_100a", folder=tmp_path).wrong > 0


def test_what_the_gpu_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's parameters, in their order, without a GPU."""
    seen: dict[str, Any] = {}

    def launch(text: str, grid: tuple[int, int], threads: int, arguments: tuple[Any, ...], shared_bytes: int = 0) -> None:
        seen.update(dict(zip(PARAMETERS, arguments, strict=True)), grid=grid, threads=threads, bytes=shared_bytes, text=text)
        arguments[2][...] = arguments[1]

    for name, stand_in in (
        ("check_target", lambda _target: None),
        ("to_device", np.ascontiguousarray),
        ("to_host", np.asarray),
        ("empty", np.zeros),
        ("launch", launch),
    ):
        monkeypatch.setattr(device, name, stand_in)
    ins = FORMS[4]
    trial = trials.draw(ins, trials.labels_of(ins)[:1], 3, 0)
    given = {key: int(value) for key, value in trial.arguments.items()}
    images = trial.operands["memory"][:, None], trial.operands["tmem"][:, None]
    after = raw.multiply_tensor(ins, "sm_100a", *images, {**given, "idesc": ins.idesc, "enable": 1}, a_in_tensor_memory=False)
    np.testing.assert_array_equal(after, images[1])
    assert (seen["grid"], seen["threads"], seen["idesc"], seen["enable"]) == ((3, 1), 128, ins.idesc, 1)
    assert (seen["a"], seen["scale_b"], seen["metadata"]) == (given["a"], given["scale_b"], 0)
    assert seen["bytes"] > seen["shared"].shape[-1]
