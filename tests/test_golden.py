"""The recordings that ship with the package: what an H200 computed, for every opcode that is legal on it."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import fastmma
from fastmma import recordings, scenes, verify
from fastmma.errors import FastmmaError
from fastmma.formats import decode
from fastmma.isa.descriptor import Descriptor
from fastmma.isa.model import Instruction
from fastmma.isa.movement import Movement
from fastmma.isa.sparsity import selectors
from fastmma.recordings import GOLDEN, Recorded
from fastmma.stream import Stream
from fastmma.trials import Trial, draw, labels_of, variants

TARGET = "sm_90a"
FILES = tuple(recordings.manifest(TARGET)["files"])
RECORDED = [recorded for file in FILES for recorded in recordings.load(TARGET, files=(file,))]
ALL = fastmma.instructions(TARGET)
WGMMA = [ins for ins in ALL if isinstance(ins, Instruction) and ins.op == "wgmma"]
F16 = fastmma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


def difference(recorded: Recorded, backend: str) -> str:
    outcome = verify.Outcome(recorded.trial.opcode, recorded.trial.arguments)
    verify.check(recorded, outcome, TARGET, backend)
    assert outcome.elements
    return outcome.worst


@pytest.mark.parametrize("file", FILES)
def test_replay(file: str) -> None:
    wrong = [difference(recorded, "numba") for recorded in recordings.load(TARGET, files=(file,))]
    assert [each for each in wrong if each] == []


def one_execution(recorded: Recorded, index: int) -> Recorded:
    trial, at = recorded.trial, index % len(recorded.trial.labels)
    operands = {name: array[at : at + 1] for name, array in trial.operands.items()}
    one = Trial(trial.opcode, operands, trial.arguments, trial.labels[at : at + 1])
    kept = {
        name: None if array is None else array[at : at + 1] for name, array in vars(recorded).items() if name in ("result", "checksums")
    }
    return Recorded(one, **kept)


# the reference takes its time: an execution of each opcode with a warp's registers, and of each arithmetic of wgmma
SLOW = [recorded for recorded in RECORDED if not isinstance(recorded.trial.instruction, Movement) and not recorded.drawn]


@pytest.mark.parametrize("part", range(16))
def test_replay_by_the_reference(part: int) -> None:
    wrong = [difference(one_execution(recorded, index), "reference") for index, recorded in list(enumerate(SLOW))[part::16]]
    assert [each for each in wrong if each] == []


def test_every_legal_opcode_is_recorded_with_every_selector() -> None:
    expected = {(str(ins), chosen.get("selector", 0)) for ins in ALL for chosen in variants(ins)}
    assert {(recorded.trial.opcode, recorded.trial.arguments.get("selector", 0)) for recorded in RECORDED} == expected
    sparse = [ins for ins in ALL if isinstance(ins, Instruction) and ins.sparse]
    assert {(ins.opcode, each) for ins in sparse for each in selectors(ins)} <= expected


def test_dense_opcodes_meet_every_distribution() -> None:
    for recorded in RECORDED:
        ins = recorded.trial.instruction
        if isinstance(ins, Instruction) and ins.op == "mma" and not ins.sparse:
            assert set(recorded.trial.labels) == set(labels_of(ins))


def test_memory_operands_meet_every_swizzle_and_transposition() -> None:
    described = set()
    for trial in (recorded.trial for recorded in RECORDED if "a" in recorded.trial.arguments):
        for operand in "ab":
            swizzle = Descriptor.decode(trial.arguments[operand]).swizzle
            described.add((operand, swizzle, trial.arguments.get(f"imm_trans_{operand}", 0), trial.opcode.count(".sp")))
    assert described == set(itertools.product("ab", (0, 32, 64, 128), (0, 1), (0, 1))) - {("b", 32, 0, 1)}
    # 64 bytes of k do not fit into the rows of a swizzle of 32; where B is transposed, A may
    arithmetics = {(ins.types, ins.k, bool(ins.sparse)) for ins in WGMMA}
    in_memory = [recorded.trial.instruction for recorded in RECORDED if "a" in recorded.trial.arguments]
    assert {(ins.types, ins.k, bool(ins.sparse)) for ins in in_memory if isinstance(ins, Instruction)} == arithmetics


def test_recordings_are_small() -> None:
    assert sum(path.stat().st_size for path in (GOLDEN / TARGET).iterdir()) <= 8 << 20
    about = recordings.manifest(TARGET)
    assert about["target"] == TARGET
    assert set(about) == {"gpu", "driver", "target", "seed", "files"}


def test_damaged_files_are_noticed(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / TARGET, tmp_path / TARGET)
    path = tmp_path / TARGET / FILES[0]
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(FastmmaError, match="is not the file that"):
        list(recordings.load(TARGET, tmp_path))
    path.unlink()
    with pytest.raises(FastmmaError, match="record again"):
        verify.replay(TARGET, folder=tmp_path)
    with pytest.raises(FastmmaError, match="there are no recordings of sm_80"):
        verify.replay("sm_80", folder=tmp_path)


def saved(folder: Path, change: int) -> Path:
    """Recordings made with the emulator in the GPU's place; `change` is added to a register."""
    kept, drawn = draw(F16, ("mid/mid", "tie"), 1, 3), draw(F16, ("wide/wide",), 1, 3)
    result = kept.run(TARGET, "numba")
    result[1, 5, 2] += change
    sums = recordings.checksums(drawn.run(TARGET, "numba"))
    sums[0, 3] += change
    rows = {"kept.npz": [Recorded(kept, result)], "drawn.npz": [Recorded(drawn, None, sums, drawn=True)]}
    return recordings.save(folder / TARGET, rows, {"gpu": "none", "driver": "none", "target": TARGET, "seed": 3})


def test_recordings_come_back_as_they_were_saved(tmp_path: Path) -> None:
    path = saved(tmp_path, 0)
    assert json.loads(path.read_text())["files"]["kept.npz"]["trials"]["0"]["labels"] == ["mid/mid", "tie"]
    report = verify.replay(TARGET, folder=tmp_path)
    assert (report.wrong, report.elements) == (0, 3 * 128)


def test_a_difference_is_shown_in_full(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    report = verify.replay(TARGET, folder=tmp_path)
    assert [outcome.wrong for outcome in report.outcomes] == [2]
    lines = report.outcomes[0].worst.splitlines()
    assert "execution 1 (tie), lane 5, register 2" in lines[0]
    # lane 5 holds rows 1 and 9, columns 2 and 3; register 2 is row 9, column 2
    assert lines[1].startswith("d[9][2] of mma.sync.aligned.m16n8k16")
    assert sum(" term " in line or "accumulator" in line for line in lines) == 17
    emulated = lines[0].split("emulated ")[1].split(",")[0]
    assert lines[-1] == f"d (f32): {emulated}"


@pytest.mark.parametrize(
    "ins",
    [
        next(ins for ins in ALL if str(ins).startswith(start))
        for start in ("mma.sp.", "wmma.mma", "mma.sync.aligned.m8n8k4", "wgmma.mma_async.sp")
    ],
    ids=str,
)
def test_explanations_end_in_the_bits_of_the_emulator(ins: Instruction) -> None:
    trial = draw(ins, ("mid/mid" if ins.dtype != "s32" else "bits/bits",), 2, 1, **variants(ins)[-1])
    got = trial.run(TARGET, "numba")
    real = got.copy()
    real[1, 7, 0] ^= 1
    text = verify.describe(trial, got, real, TARGET)
    shown = int(text.splitlines()[-1].split("0x")[1], 16)
    element = ins.operands["d"]
    bits = element.format.bits
    assert shown == int(got[1, 7, 0]) & ((1 << bits) - 1)


def test_streams_are_splitmix64() -> None:
    stream = Stream()
    stream.state = np.uint64(0)
    assert [hex(each) for each in stream.bits(3).tolist()] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]
    again = Stream()
    again.state = np.uint64(0)
    assert again.bits(1).tolist() + again.bits(2).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    drawn = Stream("a", 1).integers(-3, 4, 1000)
    assert set(drawn.tolist()) == set(range(-3, 4))
    assert Stream("a", 1).bits(4).tolist() != Stream("a", 2).bits(4).tolist()


def terms(name: str, count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes of the products and of c of every element of d."""
    drawn = scenes.matrices(F16, name, count, Stream("scene", name))
    a, b, c = (np.abs(np.asarray(decode(drawn[x], fmt), np.float64)) for x, fmt in (("a", "f16"), ("b", "f16"), ("c", "f32")))
    return a[:, :, None, :] * b.swapaxes(1, 2)[:, None], c


def test_ladders_meet_every_alignment() -> None:
    products, _ = terms("ladder of powers")
    largest = products.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        apart = np.log2(largest) - np.log2(products)
    assert set(range(1, 30)) <= set(np.unique(apart[np.isfinite(apart)]).astype(int).tolist())


def test_ties_are_half_a_unit_in_the_last_place() -> None:
    products, c = terms("tie")
    exponent = np.floor(np.log2(c))
    half = 2.0 ** (exponent - 24)
    assert (products == half[..., None]).any(axis=-1).mean() > 0.5
    assert (c.astype(np.float32).view(np.uint32) & 1 == 1).all()


def test_carries_and_overflow_start_at_the_top() -> None:
    _, ones = terms("carry")
    assert (ones.astype(np.float32).view(np.uint32) & 0x7FFFFF == 0x7FFFFF).all()
    _, largest = terms("overflow edge")
    assert (largest >= float(np.finfo(np.float32).max) * (1 - 2.0**-21)).all()
