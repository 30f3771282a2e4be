"""Verification without a GPU: recordings made with the emulator in its place, damaged ones, differences in full, and the commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmma
from fastmma.backends.gpu import device
from fastmma.cli import main
from fastmma.host.errors import BackendError, FastmmaError, InstructionError, OperandError
from fastmma.isa.instruction import Instruction
from fastmma.verification import recordings, replay
from fastmma.verification.explain import explain
from fastmma.verification.manifest import GOLDEN
from fastmma.verification.recordings import Recorded
from fastmma.verification.trials import Trial, draw, labels_of, variants

TARGET = "sm_90a"
F16 = fastmma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
STORE = fastmma.instruction("stmatrix.sync.aligned.m8n8.x1.shared.b16")


def saved(folder: Path, change: int = 0) -> Path:
    """Recordings made with the emulator in the GPU's place; `change` is added to a register."""
    kept, drawn = draw(F16, ("mid/mid", "tie"), 1, 3), draw(F16, ("wide/wide",), 1, 3)
    result = kept.run(TARGET, "numba")
    result[1, 5, 2] += change
    sums = recordings.checksums(drawn.run(TARGET, "numba"))
    sums[0, 3] += change
    rows = {"kept.npz": [Recorded(kept, result)], "drawn.npz": [Recorded(drawn, None, sums, drawn=True)]}
    return recordings.save(folder / TARGET, rows, {"gpu": "none", "driver": "none", "target": TARGET, "seed": 3})


def test_recordings_come_back_as_they_were_saved(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert json.loads(path.read_text())["files"]["kept.npz"]["trials"]["0"]["labels"] == ["mid/mid", "tie"]
    report = replay.replay(TARGET, folder=tmp_path)
    assert (report.wrong, report.elements) == (0, 3 * 128)


def test_recordings_made_again_are_read_again(tmp_path: Path) -> None:
    for change, wrong in ((0, 0), (1, 2), (0, 0)):
        saved(tmp_path, change)
        assert replay.replay(TARGET, folder=tmp_path).wrong == wrong


def test_a_difference_is_shown_in_full(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    report = replay.replay(TARGET, folder=tmp_path)
    assert [outcome.wrong for outcome in report.outcomes] == [2]
    lines = report.outcomes[0].worst.splitlines()
    assert f"{F16}, execution 1 (tie), lane 5, register 2" in lines[0]
    # lane 5 holds rows 1 and 9, columns 2 and 3; register 2 is row 9, column 2
    emulated = lines[0].split("emulated ")[1].split(",")[0]
    assert lines[1].startswith(f"d[9, 2] = {emulated} = ")
    assert f"  instruction  {F16}" in lines
    terms = lines[lines.index(next(line for line in lines if line.startswith("  k "))) + 1 :]
    zeros = next((int(line.split()[0]) for line in terms if "of zero" in line), 0)
    assert sum(line.split()[0] in {*map(str, range(16)), "accumulator"} for line in terms) - (zeros > 0) + zeros == 17
    assert lines[-1].split("0x")[1].split()[0] == emulated[2:]


def multiplication(target: str, start: str) -> tuple[str, Instruction]:
    found = next(ins for ins in fastmma.instructions(target) if str(ins).startswith(start))
    assert isinstance(found, Instruction)
    return target, found


EXPLAINED = [
    multiplication(TARGET, "mma.sp."),
    multiplication(TARGET, "wmma.mma"),
    multiplication("sm_70", "mma.sync.aligned.m8n8k4"),
    multiplication(TARGET, "mma.sync.aligned.m16n8k8.row.col.f64"),
    multiplication(TARGET, "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8"),
    multiplication(TARGET, "mma.sync.aligned.m8n8k128"),
    multiplication(TARGET, "wgmma.mma_async.sync"),
    multiplication(TARGET, "wgmma.mma_async.sp"),
    multiplication("sm_120a", "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4"),
    multiplication("sm_120a", "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4"),
]


@pytest.mark.parametrize(("target", "ins"), EXPLAINED, ids=str)
def test_explanations_end_in_the_bits_of_the_emulator(target: str, ins: Instruction) -> None:
    labels = labels_of(ins)
    for label in (labels[0], labels[-1], labels[len(labels) // 2]):
        trial = draw(ins, (label,), 2, 1, **variants(ins)[-1])
        got = trial.run(target, "numba")
        real = got.copy()
        real[1, 7, 0] ^= 1
        text = replay.describe(trial, got, real, target)
        shown = int(text.splitlines()[-1].split("0x")[1].split()[0], 16)
        assert shown == int(got[1, 7, 0]) & ((1 << ins.operands["d"].format.bits) - 1)


def test_integers_are_explained_digit_by_digit() -> None:
    _, ins = multiplication(TARGET, "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32")
    a, b = np.zeros((1, 32, 1), np.uint32), np.zeros((1, 32, 1), np.uint32)
    c = np.full((1, 32, 2), 0x87654321, np.uint32)
    lines = explain(Trial(str(ins), {"a": a, "b": b, "c": c}), TARGET, 0, 0, 0).splitlines()
    assert [*map(str.split, lines[-4:])] == [
        ["accumulator", "0x87654321", "-2023406815"],
        ["16", "products", "of", "zero"],
        ["sum", "-2023406815"],
        ["0x87654321", "=", "-2023406815", "(s32)"],
    ]


UNFUSED = [
    multiplication(TARGET, "mma.sync.aligned.m16n8k4.row.col.f64"),
    multiplication(TARGET, "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64.rm"),
    multiplication(TARGET, "mma.sync.aligned.m16n8k32.row.col.s32.s4.u4"),
    multiplication(TARGET, "mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.u8"),
    multiplication(TARGET, "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.u8.s8"),
]


@pytest.mark.parametrize(("target", "ins"), UNFUSED, ids=str)
def test_what_is_not_fused_is_explained_term_by_term(target: str, ins: Instruction) -> None:
    trial = draw(ins, (labels_of(ins)[0],), 1, 2, **variants(ins)[-1])
    lines = explain(trial, target, 0, 3, 5).splitlines()
    code = int(lines[-1].split("0x")[1].split()[0], 16)
    assert code == int(lines[0].split("0x")[1].split()[0], 16)
    if ins.dtype == "f64":
        assert sum(", k " in line and "fma, product + accumulator" in line for line in lines) == ins.k
        return
    heading = next(place for place, line in enumerate(lines) if line.endswith(": exact sum of integers"))
    accumulator = next(place for place, line in enumerate(lines) if line.startswith("  accumulator "))
    total = sum(int(line.split()[-1]) for line in lines[heading + 2 : accumulator + 1])
    assert total & 0xFFFFFFFF == code
    assert lines[-2].split()[:2] == ["sum", str(total)]


def test_movements_are_shown_by_byte_and_lane() -> None:
    trial = draw(STORE, ("bits",), 2, 1)
    got = trial.run(TARGET, "numba")
    real = got.copy()
    real[1, 77] ^= 4
    assert ", byte 77: emulated 0x" in replay.describe(trial, got, real, TARGET)
    with pytest.raises(InstructionError, match="multiplies nothing"):
        explain(trial, TARGET, 0, 0, 0)
    move = draw(fastmma.instruction("movmatrix.sync.aligned.m8n8.trans.b16"), ("bits",), 1, 1)
    zeros = np.zeros((1, 32), np.uint32)
    assert ", lane 31: emulated 0x00000000, real 0x00000001" in replay.describe(move, zeros, zeros + (np.arange(32) == 31), TARGET)


def test_damaged_files_are_noticed(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / TARGET, tmp_path / TARGET)
    path = tmp_path / TARGET / "mma.npz"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(FastmmaError, match="is not the file that"):
        list(recordings.load(TARGET, tmp_path))
    path.unlink()
    with pytest.raises(FastmmaError, match="record again"):
        replay.replay(TARGET, folder=tmp_path)
    with pytest.raises(FastmmaError, match="there are no recordings of sm_80"):
        replay.replay("sm_80", folder=tmp_path)


Change = Callable[[dict[str, Any]], Any]


def trial_of(about: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = about["files"]["kept.npz"]["trials"]["0"]
    return found


DAMAGES: dict[str, tuple[Change, str]] = {
    "a list": (lambda about: [about], "the manifest must be an object"),
    "no files": (lambda about: about.pop("files") and about, "the manifest has no 'files'"),
    "text for a seed": (lambda about: about | {"seed": "3"}, "'seed' of the manifest must be of type int, not '3'"),
    "a file that is none": (lambda about: about | {"files": {"kept.npz": 3}}, "kept.npz must be an object, not 3"),
    "another folder": (lambda about: about | {"files": {"../kept.npz": about["files"]["kept.npz"]}}, "no name of a file beside it"),
    "no checksum": (lambda about: about["files"]["kept.npz"].pop("sha256") and about, "kept.npz has no 'sha256'"),
    "no opcode": (lambda about: trial_of(about).pop("opcode") and about, "trial 0 of kept.npz has no 'opcode'"),
    "wrong opcode": (lambda about: trial_of(about).update(opcode="mma.sync") or about, "mma.sync"),
    "wrong label": (lambda about: trial_of(about)["labels"].append("x") or about, r"labels of trial 0 of kept.npz .* not \['x'\]"),
    "wrong argument": (lambda about: trial_of(about).update(arguments={"selector": "x"}) or about, "must be integers"),
    "unknown argument": (lambda about: trial_of(about).update(arguments={"speed": 3}) or about, "is not called with .*speed"),
    "another opcode": (
        lambda about: trial_of(about).update(opcode="mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", labels=["bits/bits"]) or about,
        r"must .*shape",
    ),
    "a trial without arrays": (lambda about: about["files"]["kept.npz"]["trials"].update({"9": trial_of(about)}) or about, "trial 9 must"),
    "another file": (lambda about: about["files"]["kept.npz"].update(sha256="0") or about, "not the file that"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_manifests_say_what_is_wrong(damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, message = DAMAGES[damage]
    path = saved(tmp_path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(FastmmaError, match=message):
        replay.replay(TARGET, folder=tmp_path)
    assert main(["verify", "--folder", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("fastmma: ")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_manifest_says_so(content: bytes, tmp_path: Path) -> None:
    saved(tmp_path).write_bytes(content)
    with pytest.raises(FastmmaError, match="no manifest can be read"):
        replay.replay(TARGET, folder=tmp_path)


def test_results_of_other_shapes_are_damage(tmp_path: Path) -> None:
    trial = draw(F16, ("mid/mid",), 2, 3)
    result = trial.run(TARGET, "numba")
    for wrong in (Recorded(trial, result[:1]), Recorded(trial, result.view(np.int32)), Recorded(trial, None, np.zeros((2, 3), np.uint32))):
        recordings.save(tmp_path / TARGET, {"a.npz": [wrong]}, {"gpu": "", "driver": "", "target": TARGET, "seed": 3})
        with pytest.raises(FastmmaError, match="its recording holds"):
            replay.replay(TARGET, folder=tmp_path)


def test_the_exit_status_is_1_where_a_bit_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for change in (0, 1):
        saved(tmp_path, change)
        assert main(["verify", "--folder", str(tmp_path)]) == change
        printed = capsys.readouterr().out
        assert ("execution 1 (tie), lane 5, register 2" in printed) == bool(change)
        assert f"{2 * change} wrong" in printed
        assert main(["verify", "--folder", str(tmp_path), "--json"]) == change
        found = json.loads(capsys.readouterr().out)
        assert [found["target"], [outcome["wrong"] for outcome in found["outcomes"]]] == [TARGET, [2 * change]]
        assert main(["verify", "--folder", str(tmp_path), "--markdown"]) == change
        assert capsys.readouterr().out.splitlines()[-1] == f"| mma | f32 | 1 | 3 | 384 | {2 * change} |"


@pytest.fixture
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator in the GPU's place, which gets one bit of every stmatrix wrong; of each kind of instruction one."""
    run = Trial.run
    chosen = [F16, STORE, EXPLAINED[7][1]]

    def stand_in(trial: Trial, target: str, backend: str) -> Any:
        result = run(trial, TARGET, "numba").copy()
        if (target, backend) == ("native", "cupy") and trial.opcode == str(STORE):
            result[0, 0] ^= 1
        return result

    monkeypatch.setattr(Trial, "run", stand_in)
    monkeypatch.setattr(device, "native_target", lambda: TARGET)
    monkeypatch.setattr(device, "name", lambda: "a stand-in")
    monkeypatch.setattr(replay, "instructions", lambda _target: chosen)


@pytest.mark.usefixtures("_stand_in")
def test_a_sweep_compares_every_opcode_with_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    reported: list[int] = []
    report = replay.compare_with_gpu(0.0, warps=16, seed=5, progress=lambda _seconds, so_far: reported.append(so_far.elements))
    assert reported == sorted(reported)
    assert len(reported) == len(report.outcomes) == 2 + len(variants(EXPLAINED[7][1]))
    assert [outcome.wrong for outcome in report.outcomes] == [0, 1] + [0] * (len(report.outcomes) - 2)
    assert report.outcomes[0].elements == 16 * 128
    assert "byte 0: emulated 0x" in report.outcomes[1].worst
    assert main(["verify", "--gpu", "--minutes", "0", "--warps", "2"]) == 1
    assert "a stand-in in this machine" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{"minutes": float("nan")}, {"minutes": float("inf")}, {"minutes": -1.0}, {"warps": 0}])
def test_sweeps_without_an_end_or_a_warp_are_errors(options: dict[str, Any]) -> None:
    with pytest.raises(OperandError, match="minutes must be a finite number"):
        replay.compare_with_gpu(**options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "--target", "sm_80"], "with --gpu the target is that of the GPU"),
        (["--gpu", "--minutes", "-1"], "--minutes"),
        (["--gpu", "--minutes", "inf"], "finite"),
        (["--target", "sm_80"], "there are some of sm_90a"),
        (["--folder", "nowhere"], "nowhere: there is no such folder"),
    ],
)
def test_bad_options_are_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(device.available(), reason="there is an NVIDIA GPU with CuPy")
def test_without_a_gpu_nothing_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["record", str(tmp_path)], ["verify", "--gpu"]):
        assert main(arguments) == 2
        assert "need" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BackendError):
        replay.compare_with_gpu(0.0)
