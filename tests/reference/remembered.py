"""Results of products by their operands: what one process computed with some kernels, another looks up instead of compiling them."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

Arrays = tuple[NDArray[Any] | None, ...]


def _keys(kind: object, operands: Arrays, count: int) -> list[bytes]:
    """Of each product of a batch."""
    keys = []
    for index in range(count):
        found = hashlib.sha256(repr(kind).encode())
        for each in operands:
            found.update(b"none" if each is None else f"{each.dtype} {each.shape[1:]}".encode() + each[index].tobytes())
        keys.append(found.digest())
    return keys


class Remembered:
    """Results that are kept, and found again in another process."""

    def __init__(self, path: Path | None = None) -> None:
        self._results: dict[bytes, NDArray[Any]] = {} if path is None else pickle.loads(path.read_bytes())

    def save(self, path: Path) -> None:
        path.write_bytes(pickle.dumps(self._results))

    def keep(self, kind: object, operands: Arrays, out: NDArray[Any]) -> None:
        """Keep the products of a batch."""
        self._results.update(zip(_keys(kind, operands, len(out)), out.copy(), strict=True))

    def find(self, kind: object, operands: Arrays, out: NDArray[Any]) -> None:
        """Write the products of a batch, which were kept."""
        for index, key in enumerate(_keys(kind, operands, len(out))):
            out[index] = self._results[key]
