"""Prune trees, judge their leaves by answers that they were not grown from, and pack them into the file that ships with fastmma."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.products.cublas.trees import Trees, trees
from tools.choice_trees.grow import TREES, answers, held
from tools.choice_trees.leaves import CHOICES, LEAF, numbers_of, walk
from tools.choice_trees.orders import orders

# leaves by the share of their class, and how many products they have: none, and then at least so much
_SURE = ((0.9, 4), (0.99, 50), (0.9995, 400))
NOT_PREDICTED = {66: (1, 4, 5, 8)} | dict.fromkeys((20, 21, 23, 24, 55, 63), (1, 4))  # attributes of a choice that no tree tells


def prune(nodes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Make leaves of nodes below which each further leaf wins no more than one product."""
    right, leaves, pruned = nodes[:, 5].astype(np.int64), np.ones(len(nodes), np.int64), nodes.copy()
    for node in range(len(nodes) - 1, -1, -1):
        if nodes[node, 0] < 0:
            continue
        children = nodes[node, 2], nodes[node, 2] + 1
        below, count = right[children[0]] + right[children[1]], leaves[children[0]] + leaves[children[1]]
        if below - right[node] <= count - 1:
            pruned[node, 0] = -1
        else:
            right[node], leaves[node] = below, count
    return pruned


def by_levels(nodes: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the nodes level by level, those of pruned branches left out."""
    levels, level = [], np.array([0])
    while len(level):
        levels.append(level)
        children = nodes[level[nodes[level, 0] >= 0], 2]
        level = np.stack([children, children + 1], 1).reshape(-1)
    return np.concatenate(levels)


def pack(name: str, folder: Path, tree: Any, table: dict[tuple[int, ...], int], before: Trees | None) -> dict[str, NDArray[Any]]:
    """Return the arrays of a tree; `table` numbers choices."""
    nodes, thresholds, choices = prune(tree["nodes"]), tree["thresholds"], tree["choices"].copy()
    for algo, attributes in NOT_PREDICTED.items():
        choices[np.ix_(choices[:, 0] == algo, attributes)] = 0
    numbers = np.array([table.setdefault(tuple(row), len(table)) for row in choices[:, :9].tolist()])
    order = by_levels(nodes)
    inner = nodes[order, 0] >= 0
    share = nodes[:, 5] / np.maximum(nodes[:, 4], 1)
    sure = np.select([(share < least) | (nodes[:, 4] < count) for least, count in _SURE], range(len(_SURE)), len(_SURE))
    found: dict[str, NDArray[Any]] = {
        "split": np.where(inner, nodes[order, 0], LEAF).astype(np.uint8),
        "threshold": np.ascontiguousarray(thresholds[order[inner]].astype("<f4").view(np.uint8).reshape(-1, 4).T),
        "leaf": (numbers[nodes[order[~inner], 3]] + sure[order[~inner]] * CHOICES).astype(np.uint16),
    }
    packed: dict[str, NDArray[Any]] = {}
    for kind in TREES[name]:
        products, chosen = (each[-held(len(each)) :] for each in answers(folder, kind))
        leaves = walk(nodes, thresholds, numbers_of(kind, products, before))
        same = (orders(kind, products, choices[nodes[leaves, 3]]) == orders(kind, products, chosen)).all(1)
        rates = [(np.count_nonzero(same[sure[leaves] == level]), np.count_nonzero(sure[leaves] == level)) for level in range(4)]
        print(f"{kind}: {np.count_nonzero(~inner):,} leaves; {same.sum():,} of {len(same):,} predicted; {rates}", flush=True)
        packed |= {f"{kind}_{part}": array for part, array in (*found.items(), ("rates", np.array(rates)))}
    return packed


def main() -> None:
    """Pack all trees of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=Path, help="the folder of the answers")
    parser.add_argument("trees", type=Path, help="the folder of the trees")
    parser.add_argument("file", type=Path, help="where they are packed")
    parser.add_argument("--before", help="the file that ships with fastmma after whose trees these were grown")
    options = parser.parse_args()
    before = trees(options.before) if options.before else None
    table: dict[tuple[int, ...], int] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for path in sorted(options.trees.glob("*.npz")):
        arrays |= pack(path.stem, options.answers, np.load(path), table, before)
    arrays |= {"before": np.array(options.before)} if options.before else {}
    np.savez_compressed(options.file, allow_pickle=False, choices=np.array(list(table), np.int32), **arrays)


if __name__ == "__main__":
    main()
