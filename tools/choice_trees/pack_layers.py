"""Pack what a GPU's library chose for layers, by their numbers of rows, into the file that ships with fastmma."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.products.cublas.layers import NO_ANSWER
from tools.choice_trees.ask_layers import answered, rows_of
from tools.choice_trees.pack import NOT_PREDICTED

_UNSAID, _WORKSPACE, _SPLIT = 43, 9, 2  # the algorithm that does not say its parts; places in a row of an answer
_PARTS = ("model", "grid", "rest", "turned")  # the best asked first
_NAMES = {"e4m3_fast": "e4m3fast_nt", "bf16_bias": "bf16_nt_bias", "bf16_nn": "bf16_nn", "f16_nn": "f16_nn"}


def plain(choices: NDArray[np.int32]) -> NDArray[np.int32]:
    """Leave out what does not decide the order of additions; a workspace is 0 or -1, and -1 where parts are said."""
    found = choices.copy()
    for algo, attributes in NOT_PREDICTED.items():
        found[np.ix_(found[:, 0] == algo, attributes)] = 0
    unsaid = (found[:, 0] == _UNSAID) & (found[:, _SPLIT] < 1) & (found[:, _WORKSPACE] == 0)
    found[:, _WORKSPACE] = np.where(unsaid, 0, -1)
    return found


def runs(rows: NDArray[Any], ids: NDArray[Any], asked: NDArray[np.int32]) -> tuple[list[int], list[int]]:
    """Join neighbouring runs of one answer; rows that were not asked before and after all others are runs of their own."""
    kept = np.concatenate([[True], ids[1:] != ids[:-1]])
    first, found = rows[kept].tolist(), ids[kept].tolist()
    if asked[0] > 1:
        first, found = [1, *first], [NO_ANSWER, *found]
    return [*first, int(asked[-1]) + 1], [*found, NO_ANSWER]


def main() -> None:
    """Pack the answers of files that `ask_layers` wrote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="where they are packed")
    parser.add_argument("answers", type=Path, nargs="+", help="what ask_layers wrote")
    parser.add_argument("--keep", type=Path, help="what was packed before, of other types and layouts")
    options = parser.parse_args()
    archives = [np.load(path) for path in options.answers]
    lengths = np.cumsum([0, *(len(each["choices"]) for each in archives)])
    before = {} if options.keep is None else dict(np.load(options.keep))
    kept = before.pop("choices", np.zeros((0, _WORKSPACE + 1), np.int32)).astype(np.int32)
    rows = np.concatenate([*(plain(each["choices"]) for each in archives), kept])
    choices, number = np.unique(rows, axis=0, return_inverse=True)
    arrays: dict[str, NDArray[Any]] = {"choices": choices.astype(np.int16)}
    places = np.append(number.reshape(-1)[lengths[-1] :], np.full(NO_ANSWER + 1 - len(kept), NO_ANSWER)).astype(np.uint16)
    arrays |= {name: places[each] if name.endswith("_id") else each for name, each in before.items()}
    found: dict[str, dict[tuple[int, int], tuple[list[int], list[int]]]] = {}
    for archive, start in zip(archives, lengths, strict=False):
        for kind, part in sorted({(kind, part) for kind, _, _, part in answered(archive)}, key=lambda each: _PARTS.index(each[1])):
            nk, first, row, answer = (archive[f"{kind}.{part}_{each}"] for each in ("nk", "first", "row", "id"))
            for index, (n, k) in enumerate(nk.tolist()):
                own = slice(first[index], first[index + 1])
                layer = runs(row[own], number.reshape(-1)[start + answer[own]], rows_of(part, n))
                found.setdefault(kind, {}).setdefault((n, k), layer)
    for kind, layers in found.items():
        packed, order = _NAMES.get(kind, f"{kind}_nt"), sorted(layers)
        arrays |= {
            f"{packed}_nk": np.array(order, np.int32),
            f"{packed}_first": np.cumsum([0, *(len(layers[layer][0]) for layer in order)]).astype(np.int32),
            f"{packed}_row": np.concatenate([layers[layer][0] for layer in order]).astype(np.uint16),
            f"{packed}_id": np.concatenate([layers[layer][1] for layer in order]).astype(np.uint16),
        }
    np.savez_compressed(options.file, **arrays)


if __name__ == "__main__":
    main()
