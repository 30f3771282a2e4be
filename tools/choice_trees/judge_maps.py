"""Judge the maps that ship with fastmma: ask the GPU in this machine about products that are drawn from them, once more."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.products.choice_map import ASKED, NOT_ASKED, OTHER, Runs, choice_map, read_runs
from fastmma.products.cublas.layers import FILES, NO_ANSWER, ROWS
from fastmma.products.cublas.tables import TABLES, VERSION
from tools.choice_trees.ask import ATTRIBUTES, Asker, library_path
from tools.choice_trees.draw import KINDS
from tools.choice_trees.pack_layers import plain

BOOKS = Path(__file__).parents[2] / "fastmma" / "products" / "books"
_BLOCK = 2000  # products that a process draws at once
_OF_PARTS = 66  # the algorithm of which the map of parts says how many there are
OF_ORDER = (0, 2, 3, 5, 6)  # attributes of a choice that the map of other algorithms has
_GRID = "grid_"


class Map(NamedTuple):
    """The products of a type, layout and bias in a file that ships; of a grid where its name begins so."""

    file: str
    name: str

    def draw(self, rng: np.random.Generator) -> Iterator[tuple[int, int, int, Any]]:
        """Draw M, N and K, and yield them with what the map says: parts of k, or attributes of a choice."""
        if self.name.startswith(_GRID):
            found = choice_map(self.file)
            fmt = self.name.removeprefix(_GRID)
            for m, n, k in zip(rng.integers(1, 129, _BLOCK), *(64 * rng.integers(1, 257, _BLOCK) for _ in "nk"), strict=True):
                yield int(m), int(n), int(k), found.find(fmt, "nt", int(m), int(n), int(k))
            return
        with np.load(BOOKS / self.file) as archive:
            choices = archive.get("choices")
            asked = ROWS if choices is not None and choices.shape[1] > ATTRIBUTES else ASKED
            runs = read_runs(archive, self.name, "parts" if choices is None else "id", asked)
        assert runs is not None
        yield from self._drawn(rng, runs, choices)

    def _drawn(self, rng: np.random.Generator, runs: Runs, choices: NDArray[Any] | None) -> Iterator[tuple[int, int, int, Any]]:
        layers = runs.sizes.tolist()
        rows = np.unique(np.concatenate([np.arange(step, most + 1, step) for most, step in runs.asked]))
        for number, m in zip(rng.integers(len(layers), size=_BLOCK).tolist(), rng.choice(rows, _BLOCK).tolist(), strict=True):
            said = runs.find(m, *layers[number])
            if choices is None:
                yield m, *layers[number], None if said == NOT_ASKED else said
            else:
                yield m, *layers[number], None if said in (None, NO_ANSWER) else choices[said].tolist()


def _as_said(chosen: list[int], said: Any) -> Any:
    """Put the choice of a GPU as a map says it."""
    if isinstance(said, int):
        return max(chosen[2], 1) if chosen[0] == _OF_PARTS else OTHER
    if len(said) > ATTRIBUTES:
        return plain(np.array([chosen], np.int32))[0].tolist()
    if chosen[0] == said[0] == _OF_PARTS:
        return said
    return [chosen[place] if place in OF_ORDER else said[place] for place in range(ATTRIBUTES)]


def maps(gpu: str) -> list[Map]:
    """List the maps of a GPU."""
    table, found = TABLES[gpu, VERSION], []
    for file in (table.parts, table.answers, FILES.get((gpu, VERSION))):
        if file is not None:
            with np.load(BOOKS / file) as archive:
                found += [Map(file, name.removesuffix("_nk")) for name in archive.files if name.endswith("_nk")]
                found += [Map(file, name.removesuffix("_ids")) for name in archive.files if name.endswith("_ids")]
    return found


def _work(path: str, drawn: list[Map], seed: int, deadline: float, counter: Any, found: Any) -> None:
    """Ask about one block of products after another until the time is over."""
    askers: dict[str, Asker] = {}
    counts: Counter[tuple[Map, bool]] = Counter()
    while time.time() < deadline:
        with counter.get_lock():
            block = counter.value
            counter.value += 1
        one = drawn[block % len(drawn)]
        fmt, layout, *biased = (*one.name.removeprefix(_GRID).split("_"), "nt")[: 2 + one.name.endswith("_bias")]
        kind = "_".join([{"e4m3fast": "e4m3_fast"}.get(fmt, fmt), *biased])
        asker = askers.setdefault(kind, Asker(path, KINDS[kind]))
        for m, n, k, said in one.draw(np.random.default_rng([seed, block])):
            if said is None:
                continue
            chosen = asker.ask(2 * (layout[0] == "t") + (layout[1] == "t"), m, n, k, 1)
            counts[one, _as_said(chosen, said) == said] += 1
            if _as_said(chosen, said) != said:
                print(f"{one.name} of M = {m}, N = {n}, K = {k}: {chosen}, not {said}", flush=True)
    found.put(counts)


def main() -> None:
    """Ask in as many processes as there are processors, and print how many products of each map are as it says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="H200", help="whose maps are judged")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        path = pool.apply(library_path)
    counter, queue, deadline = context.Value("i", 0), context.Queue(), time.time() + options.seconds
    work = partial(_work, path, maps(options.gpu), options.seed, deadline, counter, queue)
    workers = [context.Process(target=work) for _ in range(os.cpu_count() or 1)]
    for worker in workers:
        worker.start()
    counts = sum((queue.get() for _ in workers), Counter[tuple[Map, bool]]())
    for one in maps(options.gpu):
        right, wrong = counts[one, True], counts[one, False]
        print(f"{one.file} {one.name}: {right:,} of {right + wrong:,}")


if __name__ == "__main__":
    main()
