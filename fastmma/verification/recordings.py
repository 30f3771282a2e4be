"""Recordings of real GPUs: trials and what the silicon made of them, as files with a manifest."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.files import content, make_folder, write_text, written
from fastmma.host.npy import Arrays, arrays_in
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import instruction
from fastmma.verification.manifest import GOLDEN, MANIFEST, manifest, refuse
from fastmma.verification.trials import Trial, argument_names, draw, takes

_LARGEST_FILE, _LARGEST_ARRAY = 1 << 30, 1 << 28  # bytes; those of an H200 have 2 million and less
_OUTCOMES = ("result", "checksums")
_MOST_DRAWN = 64  # executions of a trial whose operands a seed gives again


@dataclass(frozen=True)
class Recorded:
    """A trial and its outcome on silicon: all of it, or a checksum of each register over its lanes.

    `drawn` says that the operands are not in the file: the seed gives them again.
    """

    trial: Trial
    result: NDArray[Any] | None
    checksums: NDArray[np.uint32] | None = None
    drawn: bool = False


def checksums(result: NDArray[Any]) -> NDArray[np.uint32]:
    """CRC-32 over the lanes of each register: (executions, lanes, registers) to (executions, registers)."""
    lines = np.ascontiguousarray(result.swapaxes(-1, -2))
    return np.array([[zlib.crc32(register.tobytes()) for register in execution] for execution in lines], np.uint32)


@lru_cache(64)
def _archive(path: Path, sha256: str) -> dict[str, Arrays]:
    """The arrays of a file with this checksum, by trial and name; each is read when it is called."""
    data = content(path, _LARGEST_FILE) if os.path.exists(path) else b""
    if hashlib.sha256(data).hexdigest() != sha256:
        raise refuse(path, f"this is not the file that {MANIFEST} describes")
    found: dict[str, Arrays] = {}
    for name, array in arrays_in(io.BytesIO(data), str(path), bound=_LARGEST_ARRAY).items():
        key, _, part = name.rpartition("|")
        found.setdefault(key, {})[part] = array
    return found


def _recorded(path: Path, key: str, row: dict[str, Any], seed: int, arrays: Arrays) -> Recorded:
    """A trial and its outcome, whose arrays have an execution a label."""
    ins, labels, arguments = instruction(row["opcode"]), tuple(row["labels"]), row["arguments"]
    others = arrays.keys() - argument_names(ins) - {*_OUTCOMES}
    if others:  # before anything is read
        raise refuse(path, f"trial {key:.40}: {row['opcode']} is not called with {', '.join(sorted(others)):.200}")
    if sum(part in arrays for part in _OUTCOMES) != 1:
        raise refuse(path, f"trial {key:.40} must have either a result or checksums")
    found = {part: array() for part, array in arrays.items()}
    result, sums = (found.pop(part, None) for part in _OUTCOMES)
    if not found:
        if not isinstance(ins, Instruction) or len(labels) > _MOST_DRAWN:
            raise refuse(path, f"trial {key:.40} has no operands; they are drawn for at most {_MOST_DRAWN} executions of a multiplication")
        trial = draw(ins, labels, 1, seed, **arguments)
    else:
        trial = Trial(row["opcode"], found, arguments, labels)
    if not takes(trial):
        given = ", ".join([*trial.operands, *trial.arguments])
        raise refuse(path, f"trial {key:.40}: {trial.opcode} is not called with {given:.200}")
    for part, array in trial.operands.items():
        if array.dtype.kind not in "ui" or array.ndim < 2 or len(array) != len(labels):
            held = f"integers for each of {len(labels)} executions"
            raise refuse(path, f"{part} of trial {key:.40} must hold {held}, and is {array.dtype} of shape {array.shape}")
    return Recorded(trial, result, sums, drawn=not found)


def load(target: str, folder: Path = GOLDEN, files: Sequence[str] | None = None) -> Iterator[Recorded]:
    """The recordings of a target, of all files or of those named.

    Raises
    ------
    FastmmaError
        If there are none, or a file is not the one that the manifest describes.
    """
    about = manifest(target, folder)
    for name, entry in about["files"].items():
        if files is not None and name not in files:
            continue
        path = folder / target / name
        recorded = _archive(path, entry["sha256"])
        for key, row in entry["trials"].items():
            yield _recorded(path, key, row, about["seed"], recorded.get(key, {}))


def save(folder: Path, files: dict[str, list[Recorded]], about: dict[str, Any]) -> Path:
    """Write files of recordings and their manifest to a folder, which is made.

    Parameters
    ----------
    files : dict of str to list of Recorded
        By file name.
    about : dict
        What the manifest says at its top: GPU, driver, target, seed.
    """
    make_folder(folder)
    rows: dict[str, Any] = {}
    for name, recordings in files.items():
        arrays: dict[str, NDArray[Any]] = {}
        trials = {}
        for index, recorded in enumerate(recordings):
            trial = recorded.trial
            kept = {} if recorded.drawn else dict(trial.operands)
            outcome = {"result": recorded.result, "checksums": recorded.checksums}
            kept |= {part: array for part, array in outcome.items() if array is not None}
            arrays |= {f"{index}|{part}": array for part, array in kept.items()}
            trials[str(index)] = {"opcode": trial.opcode, "arguments": trial.arguments, "labels": list(trial.labels)}
        archive = io.BytesIO()
        np.savez_compressed(archive, **arrays)  # type: ignore[arg-type]
        with written(folder / name) as file:
            file.write(archive.getbuffer())
        rows[name] = {"sha256": hashlib.sha256(archive.getbuffer()).hexdigest(), "trials": trials}
    path = folder / MANIFEST
    lines = json.dumps(about | {"files": {}}, indent=1)[: -len('"files": {}\n}')]
    write_text(path, lines + '"files": ' + _by_trial(rows) + "\n}\n")
    return path


def _by_trial(rows: dict[str, Any]) -> str:
    """JSON with a line for each trial."""
    parts = []
    for name, row in rows.items():
        trials = ",\n   ".join(f"{json.dumps(key)}: {json.dumps(trial)}" for key, trial in row["trials"].items())
        parts.append(f'  {json.dumps(name)}: {{"sha256": "{row["sha256"]}", "trials": {{\n   {trials}\n  }}}}')
    return "{\n" + ",\n".join(parts) + "\n }"
