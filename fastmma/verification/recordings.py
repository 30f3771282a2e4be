"""Recordings of real GPUs: trials and what the silicon made of them, as files with a manifest."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import FastmmaError
from fastmma.isa.table import instruction
from fastmma.verification.trials import Trial, draw, labels_of, takes

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


def _refuse(path: Path, problem: str) -> FastmmaError:
    return FastmmaError(f"{path}: {problem}; install fastmma again, or record again")


# what the manifest says of the whole, of each file and of each trial
_TOP = {"gpu": str, "driver": str, "target": str, "seed": int, "files": dict}
_FILE = {"sha256": str, "trials": dict}
_TRIAL = {"opcode": str, "arguments": dict, "labels": list}


def _checked(path: Path, where: str, row: Any, types: Mapping[str, type]) -> dict[str, Any]:
    """The row of a manifest, which must have entries of these types."""
    if not isinstance(row, dict):
        raise _refuse(path, f"{where} must be an object, not {row!r:.40}")
    for name, kind in types.items():
        if name not in row:
            raise _refuse(path, f"{where} has no {name!r}")
        if type(row[name]) is not kind:
            raise _refuse(path, f"{name!r} of {where} must be of type {kind.__name__}, not {row[name]!r:.40}")
    return row


def _checked_trial(path: Path, where: str, row: Any) -> None:
    _checked(path, where, row, _TRIAL)
    try:
        known = labels_of(instruction(row["opcode"]))
    except FastmmaError as error:
        raise _refuse(path, f"{where}: {error}") from None
    unknown = [label for label in row["labels"] if label not in known]
    if unknown or not row["labels"]:
        raise _refuse(path, f"labels of {where} must be of {', '.join(known)}, not {unknown!r}")
    wrong = {name: value for name, value in row["arguments"].items() if type(value) is not int}
    if wrong:
        raise _refuse(path, f"arguments of {where} must be integers, not {wrong!r}")


def manifest(target: str, folder: Path = GOLDEN) -> dict[str, Any]:
    """The manifest of the recordings of a target.

    Raises
    ------
    FastmmaError
        If there is none, or it is damaged.
    """
    path = folder / str(target) / MANIFEST
    if not path.is_file():
        known = sorted(each.parent.name for each in folder.glob(f"*/{MANIFEST}"))
        raise FastmmaError(
            f"there are no recordings of {target} in {folder}; there are some of {', '.join(known) or 'no GPU'}. "
            "Name the folder that `fastmma record` was given, in which each target has a folder"
        )
    try:
        found = _checked(path, "the manifest", json.loads(path.read_bytes()), _TOP)
    except (OSError, ValueError, RecursionError) as error:
        raise _refuse(path, f"no manifest can be read from it ({error})") from None
    for name, entry in found["files"].items():
        if Path(name).name != name:
            raise _refuse(path, f"{name!r} is no name of a file beside it")
        for key, row in _checked(path, name, entry, _FILE)["trials"].items():
            _checked_trial(path, f"trial {key} of {name}", row)
    return found


@cache
def _archive(path: Path, sha256: str) -> dict[str, dict[str, NDArray[Any]]]:
    """The arrays of a file with this checksum, by trial and name."""
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _refuse(path, f"this is not the file that {MANIFEST} describes")
    found: dict[str, dict[str, NDArray[Any]]] = {}
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            for name, array in archive.items():
                key, _, part = name.rpartition("|")
                found.setdefault(key, {})[part] = array
    except (ValueError, OSError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise _refuse(path, f"no arrays can be read from it ({error})") from None
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
        recorded = _archive(path, entry["sha256"])
        for key, row in entry["trials"].items():
            arrays = dict(recorded.get(key, {}))
            result, sums = arrays.pop("result", None), arrays.pop("checksums", None)
            if (result is None) == (sums is None):
                raise _refuse(path, f"trial {key} must have either a result or checksums")
            if arrays:
                trial = Trial(row["opcode"], arrays, row["arguments"], tuple(row["labels"]))
            else:
                trial = draw(instruction(row["opcode"]), row["labels"], 1, about["seed"], **row["arguments"])
            if not takes(trial):
                given = ", ".join([*trial.operands, *trial.arguments])
                raise _refuse(path, f"trial {key}: {trial.opcode} is not called with {given}")
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
