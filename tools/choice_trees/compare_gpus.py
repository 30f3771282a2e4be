"""Print how often cuBLASLt chooses otherwise on an H100 than on an H200, by the maps of both that ship: layers of 58 models.

``python -m tools.choice_trees.compare_gpus`` needs no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastmma.products.choice_map import ASKED, NOT_ASKED, Runs, read_runs
from fastmma.products.cublas.tables import TABLES, VERSION
from tools.choice_trees.judge_maps import BOOKS, OF_ORDER

GPUS = ("H100", "H200")
IN_PARTS = (  # of the maps of parts: what is compared, and by what names of runs
    ("bf16, forward", ("bf16_nt",)),
    ("bf16, forward with a bias", ("bf16_nt_bias",)),
    ("bf16, backward", ("bf16_nn",)),
    ("f16, forward", ("f16_nt",)),
    ("f16, forward with a bias", ("f16_nt_bias",)),
    ("f16, backward", ("f16_nn",)),
    ("e4m3", ("e4m3_nt", "e4m3_nt_bias", "e4m3fast_nt")),
)
OTHERS = (  # of the maps of other algorithms
    ("tf32, forward and backward", ("tf32_nt", "tf32_nn")),
    ("float32", ("f32_nt",)),
    ("bf16 and f16 of odd sizes", ("bf16_nt", "bf16_nn", "f16_nt", "f16_nn")),
)
ROWS = np.unique(np.concatenate([np.arange(step, most + 1, step) for most, step in ASKED]))
FEW = 128
BANDED, LAST = 43, [1, 4, 8]  # the algorithm whose last tiles also depend on tile, bands and cluster


def _runs(file: str, name: str, answer: str) -> Runs:
    with np.load(BOOKS / file) as archive:
        runs = read_runs(archive, name, answer)
    if runs is None:
        raise ValueError(f"{file} has no {name}")
    return runs


def _spread(runs: Runs) -> dict[tuple[int, int], NDArray[np.integer]]:
    """Return the answers of each layer for all numbers of rows."""
    found = {}
    for layer, size in enumerate(runs.sizes.tolist()):
        begin, end = runs.first[layer], runs.first[layer + 1]
        found[tuple(size)] = runs.answer[begin:end][np.searchsorted(runs.row[begin:end], ROWS, "right") - 1]
    return found


def _pairs(files: tuple[str, ...], name: str, answer: str) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Return the answers of both GPUs for the layers that both were asked about: (layers, rows) each."""
    first, second = (_spread(_runs(file, name, answer)) for file in files)
    layers = sorted(first.keys() & second.keys())
    return np.array([first[layer] for layer in layers]), np.array([second[layer] for layer in layers])


def parts_that_differ() -> Iterator[tuple[str, float, float]]:
    """Compare the maps of parts: the share of all numbers of rows, and of up to 128."""
    files = tuple(TABLES[gpu, VERSION].parts for gpu in GPUS)
    for what, names in IN_PARTS:
        differ, asked = np.zeros(2, int), np.zeros(2, int)
        for name in names:
            one, other = _pairs(files, name, "parts")
            known = (one != NOT_ASKED) & (other != NOT_ASKED)
            for place, which in enumerate((ROWS > 0, ROWS <= FEW)):
                differ[place] += ((one != other) & known)[:, which].sum()
                asked[place] += known[:, which].sum()
        yield what, *(differ / asked)


def choices_that_differ() -> Iterator[tuple[str, int, int, int]]:
    """Compare the maps of other algorithms: how many add otherwise, how many cut other tiles in their last wave, and of how many."""
    files = tuple(TABLES[gpu, VERSION].answers for gpu in GPUS)
    choices = []
    for file in files:
        with np.load(BOOKS / file) as archive:
            choices.append(archive["choices"])
    for what, names in OTHERS:
        otherwise = banded = asked = 0
        for name in names:
            one, other = (table[which] for table, which in zip(choices, _pairs(files, name, "id"), strict=True))
            differ = (one[..., OF_ORDER] != other[..., OF_ORDER]).any(-1)
            last = (one[..., 0] == BANDED) & (one[..., 2] < 1) & ~differ & (one[..., LAST] != other[..., LAST]).any(-1)
            otherwise, banded, asked = otherwise + differ.sum(), banded + last.sum(), asked + differ.size
        yield what, int(otherwise), int(banded), asked


def main() -> None:
    for what, everywhere, few in parts_that_differ():
        print(f"| {what} | {everywhere:.1%} | {few:.1%} |")
    for what, otherwise, banded, asked in choices_that_differ():
        print(f"| {what} | {otherwise:,} add otherwise, {banded:,} may cut other last tiles, of {asked:,} | |")


if __name__ == "__main__":
    main()
