"""Recordings of real GPUs: trials and what the silicon made of them, as files with a manifest."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.errors import FastmmaError
from fastmma.isa.table import instruction
from fastmma.trials import Trial, draw

GOLDEN = Path(__file__).parent / "golden"
MANIFEST = "manifest.json"


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


def manifest(target: str, folder: Path = GOLDEN) -> dict[str, Any]:
    """The manifest of the recordings of a target.

    Raises
    ------
    FastmmaError
        If there are none.
    """
    path = folder / target / MANIFEST
    if not path.is_file():
        known = sorted(each.parent.name for each in folder.glob(f"*/{MANIFEST}"))
        raise FastmmaError(f"there are no recordings of {target} in {folder}; there are some of {', '.join(known) or 'no GPU'}")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@cache
def _archive(path: Path) -> dict[str, dict[str, NDArray[Any]]]:
    """The arrays of a file by trial and name."""
    found: dict[str, dict[str, NDArray[Any]]] = {}
    with np.load(path, allow_pickle=False) as archive:
        for name, array in archive.items():
            key, _, part = name.rpartition("|")
            found.setdefault(key, {})[part] = array
    return found


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
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
            raise FastmmaError(f"{path} is not the file that {MANIFEST} describes; install fastmma again, or record again")
        for key, row in entry["trials"].items():
            arrays = dict(_archive(path)[key])
            result, sums = arrays.pop("result", None), arrays.pop("checksums", None)
            if arrays:
                trial = Trial(row["opcode"], arrays, row["arguments"], tuple(row["labels"]))
            else:
                trial = draw(instruction(row["opcode"]), row["labels"], 1, about["seed"], **row["arguments"])
            yield Recorded(trial, result, sums, drawn=not arrays)


def save(folder: Path, files: dict[str, list[Recorded]], about: dict[str, Any]) -> Path:
    """Write files of recordings and their manifest to a folder, which is made.

    Parameters
    ----------
    files : dict of str to list of Recorded
        By file name.
    about : dict
        What the manifest says at its top: GPU, driver, target, seed.
    """
    folder.mkdir(parents=True, exist_ok=True)
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
        np.savez_compressed(folder / name, **arrays)  # type: ignore[arg-type]
        rows[name] = {"sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(), "trials": trials}
    path = folder / MANIFEST
    lines = json.dumps(about | {"files": {}}, indent=1)[: -len('"files": {}\n}')]
    path.write_text(lines + '"files": ' + _by_trial(rows) + "\n}\n")
    return path


def _by_trial(rows: dict[str, Any]) -> str:
    """JSON with a line for each trial."""
    parts = []
    for name, row in rows.items():
        trials = ",\n   ".join(f"{json.dumps(key)}: {json.dumps(trial)}" for key, trial in row["trials"].items())
        parts.append(f'  {json.dumps(name)}: {{"sha256": "{row["sha256"]}", "trials": {{\n   {trials}\n  }}}}')
    return "{\n" + ",\n".join(parts) + "\n }"
