"""The manifest of a GPU's recordings: what they are of, checked word by word before anything is made of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from fastmma.host.errors import FastmmaError, OperandError
from fastmma.host.files import content, named
from fastmma.host.strict_json import parsed
from fastmma.isa.table import instruction
from fastmma.verification.trials import argument_names, labels_of

GOLDEN = Path(__file__).parent / "golden"
MANIFEST = "manifest.json"

_LARGEST = 1 << 24  # bytes; that of an H200 has 400,000
_LONGEST = 200  # characters of a name
_MOST_EXECUTIONS = 1 << 16
_FILE_NAME = re.compile(r"\w[\w.-]*\.npz", re.ASCII)
# what the manifest says of the whole, of each file and of each trial
_TOP = {"gpu": str, "driver": str, "target": str, "seed": int, "files": dict}
_FILE = {"sha256": str, "trials": dict}
_TRIAL = {"opcode": str, "arguments": dict, "labels": list}


def refuse(path: Path, problem: str) -> FastmmaError:
    """The error for a damaged file of recordings."""
    return FastmmaError(f"{path}: {problem}; install fastmma again, or record again")


def _check(path: Path, where: str, row: Any, types: Mapping[str, type]) -> dict[str, Any]:
    """The row of a manifest, which must have entries of these types."""
    if not isinstance(row, dict):
        raise refuse(path, f"{where} must be an object, not {row!r:.40}")
    for name, kind in types.items():
        if name not in row:
            raise refuse(path, f"{where} has no {name!r}")
        if type(row[name]) is not kind:
            raise refuse(path, f"{name!r} of {where} must be of type {kind.__name__}, not {row[name]!r:.40}")
        if kind is str and not (len(row[name]) <= _LONGEST and row[name].isprintable()):
            raise refuse(path, f"{name!r} of {where} must be at most {_LONGEST} printable characters, not {row[name]!r:.40}")
    return row


def _check_trial(path: Path, where: str, row: Any) -> None:
    _check(path, where, row, _TRIAL)
    try:
        ins = instruction(row["opcode"])
    except FastmmaError as error:
        raise refuse(path, f"{where}: {error}") from None
    known, labels = labels_of(ins), row["labels"]
    unknown = [label for label in labels if label not in known]
    if unknown or not 0 < len(labels) <= _MOST_EXECUTIONS:
        raise refuse(path, f"labels of {where} must be 1 to {_MOST_EXECUTIONS:,} of {', '.join(known)}, not {unknown!r:.60}")
    wrong = {name: value for name, value in row["arguments"].items() if type(value) is not int}
    if wrong:
        raise refuse(path, f"arguments of {where} must be integers, not {wrong!r:.60}")
    if not row["arguments"].keys() <= argument_names(ins):
        raise refuse(path, f"{where}: {row['opcode']} is not called with {', '.join(row['arguments']):.200}")


def manifest(target: str, folder: Path = GOLDEN) -> dict[str, Any]:
    """The manifest of the recordings of a target.

    Raises
    ------
    FastmmaError
        If there is none, or it is damaged.
    """
    path = named(folder / str(target)) / MANIFEST
    if not os.path.exists(path):
        known = sorted(each.parent.name for each in islice(folder.glob(f"*/{MANIFEST}"), _LONGEST))
        raise FastmmaError(
            f"there are no recordings of {target} in {folder}; there are some of {', '.join(known) or 'no GPU'}. "
            "Name the folder that `fastmma record` was given, in which each target has a folder"
        )
    try:
        found = _check(path, "the manifest", parsed(content(path, _LARGEST)), _TOP)
    except OperandError as error:
        raise FastmmaError(f"{error}; name the folder that `fastmma record` was given") from None
    except ValueError as error:
        raise refuse(path, f"no manifest can be read from it ({error})") from None
    if found["target"] != str(target):
        raise refuse(path, f"it describes recordings of {found['target']}, not of {target}")
    for name, entry in found["files"].items():
        if not _FILE_NAME.fullmatch(name):
            raise refuse(path, f"{name!r:.60} is no name of a file beside it")
        for key, row in _check(path, name, entry, _FILE)["trials"].items():
            _check_trial(path, f"trial {key:.40} of {name}", row)
    return found
