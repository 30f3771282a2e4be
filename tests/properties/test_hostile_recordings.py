"""Damaged and lying recordings: replayed as what they hold, or refused in one line with exit status 2."""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.hostile import JUNK, mutated, retyped, seeds, truncations

import fastmma
from fastmma.cli import main
from fastmma.host.errors import FastmmaError
from fastmma.isa.instruction import Instruction
from fastmma.verification import recordings, replay
from fastmma.verification.recordings import Recorded
from fastmma.verification.trials import Trial, draw, labels_of, variants

SEEDS, MUTATIONS = 4, 150  # mutations a seed
TARGET = "sm_90a"
NAMES = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16",
    "movmatrix.sync.aligned.m8n8.trans.b16",
    "wmma.load.a.sync.aligned.row.m16n16k16.f16",
)
DTYPES = ("u1", "u4", "i4", "u8", "f4", "c8", "?", "S3", ">u4", "V4", "O")


def trials() -> list[Trial]:
    """One of each kind of call, of a few executions."""
    found = []
    for name in NAMES:
        ins = fastmma.instruction(name)
        found.append(draw(ins, labels_of(ins)[:2], 1, 3, **variants(ins)[-1]))
    return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings made with the emulator in the GPU's place: some with their operands, one drawn again."""
    folder = tmp_path_factory.mktemp("recordings")
    kept = [Recorded(trial, trial.run(TARGET, "numba")) for trial in trials()]
    drawn = draw(fastmma.instruction(NAMES[2]), ("mid/mid",), 1, 3)
    again = Recorded(drawn, None, recordings.checksums(drawn.run(TARGET, "numba")), drawn=True)
    about = {"gpu": "none", "driver": "none", "target": TARGET, "seed": 3}
    recordings.save(folder / TARGET, {"kept.npz": kept, "drawn.npz": [again]}, about)
    return folder


def outcome(folder: Path) -> int:
    """The exit status that ``fastmma verify`` would have."""
    recordings._archive.cache_clear()
    try:
        report = replay.replay(TARGET, folder=folder)
    except FastmmaError:
        return 2
    assert report.reference.isprintable()
    return int(report.wrong > 0)


def said(folder: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """The exit status of ``fastmma verify``, which says one line where it is 2."""
    recordings._archive.cache_clear()
    status = main(["verify", "--folder", str(folder)])
    printed = capsys.readouterr()
    assert status in (0, 1, 2)
    assert printed.err.count("\n") == (status == 2), printed.err
    assert printed.err.startswith("fastmma: ") == (status == 2)
    assert (printed.out == "") == (status == 2)
    return status


@pytest.fixture
def copied(recorded: Path, tmp_path: Path) -> Path:
    """Recordings that a test may change."""
    shutil.copytree(recorded / TARGET, tmp_path / TARGET)
    return tmp_path


def change_manifest(folder: Path, content: bytes) -> None:
    (folder / TARGET / "manifest.json").write_bytes(content)


def change_archive(folder: Path, content: bytes) -> None:
    """Write a file of recordings, and its checksum into the manifest."""
    manifest = folder / TARGET / "manifest.json"
    (folder / TARGET / "kept.npz").write_bytes(content)
    about = json.loads(manifest.read_bytes())
    about["files"]["kept.npz"]["sha256"] = hashlib.sha256(content).hexdigest()
    manifest.write_text(json.dumps(about))


def test_what_the_command_says(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, arrays = (copied / TARGET / "manifest.json").read_bytes(), (copied / TARGET / "kept.npz").read_bytes()
    assert said(copied, capsys) == 0
    rng = random.Random(0)
    for _ in range(40):
        change_manifest(copied, retyped(whole, rng))
        assert said(copied, capsys) == outcome(copied)
    for _ in range(40):
        change_manifest(copied, whole)
        change_archive(copied, mutated(arrays, rng))
        assert said(copied, capsys) == outcome(copied)


def test_manifests_that_are_cut_off(copied: Path) -> None:
    whole = (copied / TARGET / "manifest.json").read_bytes().rstrip()
    for cut in truncations(whole, 5):
        change_manifest(copied, cut)
        assert outcome(copied) == 2


@pytest.mark.parametrize("change", [mutated, retyped])
def test_changed_manifests(change: Any, copied: Path) -> None:
    whole, seen = (copied / TARGET / "manifest.json").read_bytes(), set()
    for seed in seeds(SEEDS):
        rng = random.Random(f"{change.__name__} {seed}")
        for _ in range(MUTATIONS):
            change_manifest(copied, change(whole, rng))
            seen.add(outcome(copied))
    assert {0, 2} <= seen


def test_every_part_of_a_manifest_with_every_junk(copied: Path) -> None:
    """Top, file and the first two trials, whatever their place holds."""
    whole = (copied / TARGET / "manifest.json").read_bytes()

    def holders(about: Any) -> list[dict[str, Any]]:
        kept = about["files"]["kept.npz"]
        return [about, about["files"], kept, kept["trials"], *(kept["trials"][key] for key in "012"), kept["trials"]["1"]["arguments"]]

    for place, holder in enumerate(holders(json.loads(whole))):
        for name in holder:
            for junk in JUNK:
                about = json.loads(whole)
                holders(about)[place][name] = junk
                change_manifest(copied, json.dumps(about).encode())
                outcome(copied)


def test_mutated_archives(copied: Path) -> None:
    whole, seen = (copied / TARGET / "kept.npz").read_bytes(), set()
    for seed in seeds(SEEDS):
        rng = random.Random(seed)
        for _ in range(MUTATIONS):
            change_archive(copied, mutated(whole, rng))
            seen.add(outcome(copied))
    assert 2 in seen


def reshaped(array: NDArray[Any], rng: random.Random) -> NDArray[Any]:
    """An array of another shape, type or content."""
    change = rng.randrange(10)
    if change == 0:
        return array[: rng.randrange(len(array) + 1)]
    if change == 1:
        return np.concatenate([array, array])
    if change == 2:
        return array[..., : rng.randrange(array.shape[-1] + 1)]
    if change == 3:
        return array[None] if rng.randrange(2) else array[..., None]
    if change == 4:
        return array.reshape(-1)
    if change == 5:
        return array.astype(rng.choice(DTYPES[:-2]))
    if change == 6:
        return np.zeros(array.shape, rng.choice(DTYPES))
    if change == 7:
        return np.array(7)
    if change == 8:
        return np.full_like(array, rng.choice([0, 1, np.iinfo(array.dtype).max, np.iinfo(array.dtype).min]))
    return np.frombuffer(rng.randbytes(array.nbytes), array.dtype).reshape(array.shape)


def test_archives_of_other_arrays(copied: Path) -> None:
    with np.load(copied / TARGET / "kept.npz") as loaded:
        whole = dict(loaded)
    seen = set()
    for seed in seeds(SEEDS):
        rng = random.Random(seed)
        for _ in range(MUTATIONS // 3):  # what still replays takes its time
            arrays = dict(whole)
            for _ in range(rng.choice((1, 1, 2))):
                name, other = rng.choice(sorted(arrays)), rng.choice(sorted(arrays))
                kind = rng.randrange(8)
                if kind == 0:
                    del arrays[name]
                elif kind == 1:
                    arrays[name] = arrays[other]
                elif kind == 2:
                    key = name.partition("|")[0]
                    arrays[f"{key}|{rng.choice(('ins', 'target', 'threads', 'labels', 'selector', 'a', 'x', 'result'))}"] = arrays[other]
                else:
                    arrays[name] = reshaped(arrays[name], rng)
            file = io.BytesIO()
            np.savez(file, **arrays)  # type: ignore[arg-type]
            change_archive(copied, file.getvalue())
            seen.add(outcome(copied))
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("trial", trials(), ids=lambda trial: trial.opcode)
def test_arguments_that_lie(trial: Trial, tmp_path: Path) -> None:
    """Every argument of every call, huge, negative, and where an operand is meant; of what is kept and of what is drawn."""
    about = {"gpu": "none", "driver": "none", "target": TARGET, "seed": 3}
    names = {
        *trial.arguments,
        *trial.operands,
        "selector",
        "byte_id_a",
        "stride",
        "imm_scale_a",
        "imm_trans_b",
        "a",
        "ins",
        "labels",
        "backend",
    }
    result = trial.run(TARGET, "numba")
    for name in sorted(names):
        for value in (0, -1, 3, 1 << 20, 1 << 62, (1 << 64) - 1, 1 << 200):
            lied = Trial(trial.opcode, trial.operands, trial.arguments | {name: value}, trial.labels)
            sums = np.zeros((len(trial.labels), result.shape[-1]), np.uint32)
            recordings.save(tmp_path / TARGET, {"a.npz": [Recorded(lied, result)], "b.npz": [Recorded(lied, None, sums, True)]}, about)
            assert outcome(tmp_path) in (1, 2)


def test_differences_are_explained_wherever_they_are(tmp_path: Path) -> None:
    """A recording may differ in any bit: what is said of it never fails."""
    rng = random.Random(0)
    for trial in trials():
        result = trial.run(TARGET, "numba")
        for _ in range(20):
            wrong = np.array(result)
            where = tuple(rng.randrange(size) for size in wrong.shape)
            wrong[where] ^= wrong.dtype.type(1 << rng.randrange(8 * wrong.dtype.itemsize))
            about = {"gpu": "none", "driver": "none", "target": TARGET, "seed": 3}
            recordings.save(tmp_path / TARGET, {"a.npz": [Recorded(trial, wrong)]}, about)
            found = replay.replay(TARGET, folder=tmp_path)
            assert found.wrong == 1
            assert found.outcomes[0].worst.startswith(trial.opcode)
            assert isinstance(trial.instruction, Instruction) == (len(found.outcomes[0].worst.splitlines()) > 1)


def test_a_manifest_of_another_target(copied: Path) -> None:
    shutil.move(copied / TARGET, copied / "sm_80")
    with pytest.raises(FastmmaError, match="describes recordings of sm_90a, not of sm_80"):
        replay.replay("sm_80", folder=copied)


@pytest.mark.parametrize("target", ["", "x", "..", "a\0b", "\udcff", chr(0xD800), "x" * 5000, "/etc"])
def test_targets_that_are_none(target: str, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--folder", str(copied), "--target", target]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_arrays_in_the_place_of_integers(copied: Path) -> None:
    with np.load(copied / TARGET / "kept.npz") as loaded:
        whole = dict(loaded)
    for key in range(len(NAMES)):
        for name in ("selector", "byte_id_a", "stride", "imm_scale_a", "scale_d", "b", "threads", "target"):
            file = io.BytesIO()
            np.savez(file, **whole, **({f"{key}|{name}": np.ones((2, 1), np.int64)} if f"{key}|{name}" not in whole else {"x": np.ones(1)}))  # type: ignore[arg-type]
            change_archive(copied, file.getvalue())
            assert outcome(copied) == (0 if f"{key}|{name}" in whole else 2)
