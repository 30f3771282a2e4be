"""Ask the cuBLASLt of the GPU in this machine what it would run for layers, for each number of rows: of models, and of a grid."""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.choice_trees.ask import ATTRIBUTES, Answer, Asker, library_path
from tools.choice_trees.draw import KINDS, Kind
from tools.choice_trees.models import layers

_RULE = 2048 * 2048  # elements of the result from which k is in one part
_COLUMNS = 3  # cublasLtMatrixLayoutAttribute_t
_NN = "_nn"  # ends kinds of which b has contiguous rows, as in gradients with respect to the input; of others its columns are
_KINDS = ("bf16", "f16", "tf32", "f32", "e4m3", "e4m3_fast", "bf16_bias", "bf16_nn", "f16_nn")
# k up to which a rule says so
_ONE_PART = {"e4m3": 5120, "e4m3_fast": 5120} | dict.fromkeys(("bf16", "f16", "bf16_bias", "bf16_nn", "f16_nn"), 2560)
_TOGETHER = 8  # layers that a process takes at once

_SIDES = 16384  # the largest N and K of grids

Task = tuple[str, int, int, str]  # kind, N, K, and which rows
Found = tuple[Task, list[int], list[tuple[int, ...]]]


def rows_of(part: str, n: int) -> NDArray[np.int32]:
    """Return which numbers of rows are asked of a layer: of a model's, of one of a grid, those that no map has, or of a turned one."""
    if part == "model":
        return np.array([*range(1, 641), *range(648, 1025, 8), *range(1088, 4097, 64)], np.int32)
    if part == "turned":
        rows = np.array([*range(1, 641), *range(648, 1025, 8)], np.int32)
        return rows[rows * n < _RULE]
    return np.arange(1 if part == "grid" else 129, (640 if part == "grid" else min(640, (_RULE - 1) // n)) + 1, dtype=np.int32)


class RowAsker(Asker):
    """What is asked about one layer after another."""

    def __init__(self, path: str, kind: Kind, layout: int) -> None:
        super().__init__(path, kind)
        self._layout = layout
        self._rows: dict[bytes, tuple[int, ...]] = {}

    def rows(self, n: int, k: int, rows: NDArray[np.int32]) -> list[tuple[int, ...]]:
        """Return an answer for each number of rows: attributes, and whether a workspace is needed."""
        self.ask(self._layout, int(rows[0]), n, k, 1)
        b, a, d = self._matrices
        answer, count, value = Answer(), ctypes.c_int(), ctypes.c_uint64()
        asked = (self._handle, self._products[self._layout], b, a, d, d, self._limits, 1, ctypes.byref(answer), ctypes.byref(count))
        found = []
        for m in rows.tolist():
            value.value = m
            for matrix in (a, d):
                self._set("MatrixLayout", matrix, _COLUMNS, value)
            if self._library.cublasLtMatmulAlgoGetHeuristic(*asked) or not count.value:
                found.append((-1,) + (0,) * ATTRIBUTES)
                continue
            key = bytes(answer.algo) + bytes([answer.workspace > 1023])
            if key not in self._rows:
                self._rows[key] = tuple(self.attributes(answer))
            found.append(self._rows[key])
        return found


def tasks(kinds: tuple[str, ...]) -> list[Task]:
    """List what is asked: layers of models, a grid of N and K in steps of 256 for types that no map has, and one in steps of 128."""
    found: list[Task] = []
    for n, k in layers():
        for kind in kinds:
            multiple = 16 if kind.startswith("e4m3") else 8
            whole = n % multiple == k % multiple == 0
            if (whole and k <= _ONE_PART.get(kind, 0)) or (multiple == 16 and not whole):
                continue
            found.append((kind, n, k, "model"))
    coarse, fine = (range(step, _SIDES + 1, step) for step in (256, 128))
    for kind in ("tf32", "e4m3"):
        found += [(kind, n, k, "grid") for k in coarse for n in coarse if kind in kinds and k > _ONE_PART.get(kind, 0)]
    steps = sorted(((n, k) for k in fine for n in fine if k > 2560), key=lambda size: bool(size[0] % 256 or size[1] % 256))
    found += [(kind, n, k, "rest") for n, k in steps for kind in ("bf16", "f16") if kind in kinds and len(rows_of("rest", n))]
    turned = sorted(steps, key=lambda size: (bool(size[0] % 256 or size[1] % 256), size[0]))  # few columns first, where k is cut most
    return found + [(kind, n, k, "turned") for n, k in turned for kind in ("bf16_nn", "f16_nn") if kind in kinds]


def _work(path: str, waiting: list[Task], counter: Any, deadline: float, found: Any) -> None:
    """Ask about some layers after others until the time is over."""
    askers: dict[str, RowAsker] = {}
    done: list[Found] = []
    while time.time() < deadline:
        with counter.get_lock():
            first = counter.value
            counter.value += _TOGETHER
        for task in waiting[first : first + _TOGETHER]:
            kind, n, k, part = task
            rows = rows_of(part, n)
            if kind not in askers:
                askers[kind] = RowAsker(path, KINDS[kind.removesuffix(_NN)], int(not kind.endswith(_NN)))
            answers = askers[kind].rows(n, k, rows)
            starts = [at for at in range(len(answers)) if not at or answers[at] != answers[at - 1]]
            done.append((task, rows[starts].tolist(), [answers[at] for at in starts]))
        if first >= len(waiting):
            break
    found.put(done)


def answered(archive: Any) -> Iterator[Task]:
    """Yield the tasks of a file of answers."""
    for name in archive.files:
        kind, _, part = name.removesuffix("_nk").partition(".")
        if name.endswith("_nk"):
            yield from ((kind, n, k, part) for n, k in archive[name].tolist())


def main() -> None:
    """Ask in as many processes as there are processors, and write one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="where the answers are written")
    parser.add_argument("--seconds", type=float, default=160)
    parser.add_argument("--kinds", default=",".join(_KINDS))
    parser.add_argument("--skip", type=Path, nargs="*", default=[], help="answers of before, which are not asked again")
    options = parser.parse_args()
    skipped = {task for path in options.skip for task in answered(np.load(path))}
    waiting = [task for task in tasks(tuple(options.kinds.split(","))) if task not in skipped]
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        path = pool.apply(library_path)
    counter, queue, deadline = context.Value("i", 0), context.Queue(), time.time() + options.seconds
    workers = [context.Process(target=_work, args=(path, waiting, counter, deadline, queue)) for _ in range(os.cpu_count() or 1)]
    for worker in workers:
        worker.start()
    found: list[Found] = sorted(each for _ in workers for each in queue.get())
    numbers: dict[tuple[int, ...], int] = {}
    groups: dict[str, list[tuple[int, int, list[int], list[int]]]] = {}
    for (kind, n, k, part), rows, answers in found:
        ids = [numbers.setdefault(answer, len(numbers)) for answer in answers]
        groups.setdefault(f"{kind}.{part}", []).append((n, k, rows, ids))
    arrays: dict[str, NDArray[Any]] = {}
    for name, group in groups.items():
        arrays[f"{name}_nk"] = np.array([(n, k) for n, k, _, _ in group], np.int32)
        arrays[f"{name}_first"] = np.cumsum([0, *(len(rows) for _, _, rows, _ in group)]).astype(np.int32)
        arrays[f"{name}_row"] = np.concatenate([rows for _, _, rows, _ in group]).astype(np.uint16)
        arrays[f"{name}_id"] = np.concatenate([ids for *_, ids in group]).astype(np.uint16)
    np.savez_compressed(options.file, choices=np.array(list(numbers), np.int32), **arrays)
    print(f"{len(found):,} of {len(waiting):,} layers were asked about")


if __name__ == "__main__":
    main()
