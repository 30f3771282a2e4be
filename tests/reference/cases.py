"""Recorded cases that are more than the registers of a, b, c and d: metadata and selectors, memory and descriptors, fragments."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference.recordings import GOLDEN, MANIFEST


class Case(NamedTuple):
    """One row of the manifest: an opcode, the operands that are no arrays, and one distribution of values for each recorded execution."""

    name: str
    file: str
    opcode: str
    distributions: tuple[str, ...]
    arguments: dict[str, Any]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What was recorded, by operand."""
        prefix = f"{self.name}|"
        return {key.removeprefix(prefix): array for key, array in contents(self.file).items() if key.startswith(prefix)}

    def sample(self, index: int) -> dict[str, NDArray[Any]]:
        """One of the executions."""
        at = index % len(self.distributions)
        return {name: array[at : at + 1] for name, array in self.arrays().items()}


@cache
def contents(file: str) -> dict[str, NDArray[Any]]:
    """The arrays of a golden file."""
    with np.load(GOLDEN / file) as archive:
        return dict(archive)


def cases(file: str) -> dict[str, Case]:
    """The cases of a golden file, by name."""
    found = {}
    for name, entry in MANIFEST["cases"][file]["cases"].items():
        arguments = {key: value for key, value in entry.items() if key not in ("opcode", "distributions")}
        found[name] = Case(name, file, entry["opcode"], tuple(entry["distributions"]), arguments)
    return found


def digests() -> dict[str, str]:
    """The sha256 of every file of cases, as the manifest has it."""
    return {file: entry["sha256"] for part in ("cases", "fragments") for file, entry in MANIFEST[part].items()}
