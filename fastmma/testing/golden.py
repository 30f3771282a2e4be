"""Golden bits: digests of results, kept in a file beside the test that computes them."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.host.files import write_text
from fastmma.testing.arrays import host_array
from fastmma.testing.bits import codes_of

Records = dict[str, dict[str, Any]]
_SHOWN = 16  # elements that are kept beside a digest


def file_of(test: Path) -> Path:
    """Return where the golden bits of a file of tests are kept."""
    return test.with_suffix(".bits.json")


def record(value: Any, what: str) -> dict[str, Any]:
    """Return what is kept of an array: its dtype, its shape, the digest of its bits, and some of its elements, evenly spread."""
    array = host_array(value, what)
    codes = codes_of(array)
    digest = hashlib.sha256(codes.astype(f"<u{array.itemsize}").tobytes()).hexdigest()
    some = [f"{code:#x}" for code in codes.reshape(-1)[_places(array.size)].tolist()]
    return {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": digest, "elements": some}


def _places(size: int) -> NDArray[np.intp]:
    """The elements that are kept of so many."""
    return np.unique(np.linspace(0, size - 1, min(size, _SHOWN)).astype(np.intp))


def difference(found: dict[str, Any], kept: dict[str, Any] | None, what: str) -> str:
    """Return how a record differs from the one that was kept; empty if it does not."""
    if kept is None:
        return f"no golden bits of {what} are kept: write them with --golden-bits=write"
    if found == kept:
        return ""
    for name in ("dtype", "shape"):
        if found[name] != kept.get(name):
            return f"golden bits of {what}: the {name} is {found[name]}, and was {kept.get(name)}"
    places = _places(math.prod(found["shape"])).tolist()
    lines = [f"golden bits of {what} changed: sha256 {found['sha256'][:16]}..., and was {kept['sha256'][:16]}..."]
    for place, code, was in zip(places, found["elements"], kept["elements"], strict=True):
        if code != was:
            at = [int(index) for index in np.unravel_index(place, found["shape"])]
            lines.append(f"  {at}  actual {code}; kept {was}")
    return "\n".join(lines if len(lines) > 1 else [*lines, "  the elements that are kept are the same; others differ"])


def read(path: Path) -> Records:
    """Return what a file keeps.

    Raises
    ------
    OperandError
        If it is damaged.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise OperandError(f"{path} holds no golden bits: {error}") from None
    if not isinstance(found, dict):
        raise OperandError(f"{path} holds no golden bits")
    return found


def write(path: Path, records: Records) -> None:
    """Put records into a file, in place of those of the same names."""
    write_text(path, json.dumps(read(path) | records, indent=1, sort_keys=True) + "\n")
