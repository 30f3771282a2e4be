"""Ask the cuBLASLt of the GPU in this machine about the layers of usual models, those of an H200's maps, and write maps of its own."""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.products.choice_map import ASKED, NOT_ASKED, OTHER
from fastmma.products.cublas.tables import TABLES
from tools.choice_trees.ask import ATTRIBUTES, Asker, library_path
from tools.choice_trees.draw import KINDS

BOOKS = Path(__file__).parents[2] / "fastmma" / "products" / "books"
NVJET = 66
ROWS = np.unique(np.concatenate([np.arange(step, most + 1, step) for most, step in ASKED]))
_TABLE = TABLES["H200", "13.1"]


class Layer(NamedTuple):
    """A layer: the name of its type, layout and bias in a map, N and K."""

    name: str
    n: int
    k: int


def layers_of(file: str) -> Iterator[Layer]:
    """Yield the layers of a map that ships."""
    with np.load(BOOKS / file) as archive:
        for name in archive.files:
            if name.endswith("_nk"):
                yield from (Layer(name.removesuffix("_nk"), n, k) for n, k in archive[name].tolist())


@cache
def _asker(path: str, kind: str) -> Asker:
    return Asker(path, KINDS[kind])


def ask(path: str, layer: Layer) -> NDArray[np.int32]:
    """Return the choices for all numbers of rows, as `Asker.ask` does."""
    fmt, layout, *biased = layer.name.split("_")
    kind = _asker(path, "_".join([{"e4m3fast": "e4m3_fast"}.get(fmt, fmt), *biased]))
    code = 2 * (layout[0] == "t") + (layout[1] == "t")
    return np.array([kind.ask(code, m, layer.n, layer.k, 1) for m in ROWS.tolist()], np.int32)


def pack(answers: dict[Layer, NDArray[np.int32]], field: str, table: dict[tuple[int, ...], int]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a map, whose runs have the parts of k (the field ``parts``), or numbers of choices in a table (``id``)."""
    found: dict[str, list[Any]] = {}
    for layer, choices in answers.items():
        if field == "parts":
            values = np.where(choices[:, 0] == NVJET, np.maximum(choices[:, 2], 1), OTHER)
            values = np.where(choices[:, 0] < 0, NOT_ASKED, values).astype(np.uint8)
        else:
            rows = np.where(
                choices[:, :1] == NVJET, [NVJET] + [0] * (ATTRIBUTES - 1), choices[:, :ATTRIBUTES]
            )  # those are in the other map
            values = np.array([table.setdefault(tuple(row), len(table)) for row in rows.tolist()], np.uint16)
        starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        first = found.setdefault(f"{layer.name}_first", [0])
        first.append(first[-1] + len(starts))
        found.setdefault(f"{layer.name}_nk", []).append(layer[1:])
        found.setdefault(f"{layer.name}_row", []).append(ROWS[starts].astype(np.uint16))
        found.setdefault(f"{layer.name}_{field}", []).append(values[starts])
    joined = (f"_{field}", "_row")
    return {name: np.concatenate(each) if name.endswith(joined) else np.array(each, np.int32) for name, each in found.items()}


def main() -> None:
    """Ask in as many processes as there are processors, and write both maps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", type=Path, help="where the map of parts is written")
    parser.add_argument("algorithms", type=Path, help="where the map of other algorithms is written")
    options = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool() as pool:
        path = pool.apply(library_path)
        for shipped, field, written in ((_TABLE.parts, "parts", options.parts), (_TABLE.answers, "id", options.algorithms)):
            layers, table = list(layers_of(shipped)), dict[tuple[int, ...], int]()
            answers = dict(zip(layers, pool.starmap(ask, [(path, layer) for layer in layers], chunksize=1), strict=True))
            arrays = pack(answers, field, table)
            arrays |= {"choices": np.array(list(table), np.int16)} if table else {}
            np.savez_compressed(written, allow_pickle=False, **arrays)
            print(f"{len(layers):,} layers of {len(ROWS):,} numbers of rows: {written}", flush=True)


if __name__ == "__main__":
    main()
