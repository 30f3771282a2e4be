"""Prune trees, judge their leaves by answers that they were not grown from, and pack them into the file that ships with fastmma."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.products.cublas.features import measure
from tools.choice_trees.grow import TREES, answers, held
from tools.choice_trees.orders import orders

_LEAF, _CHOICES = 255, 1 << 14  # as `fastmma.products.cublas.trees` reads them
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


def walk(nodes: NDArray[np.int32], thresholds: NDArray[np.float32], products: NDArray[Any]) -> NDArray[np.int64]:
    """Find the leaves of products."""
    values, place = measure(products), np.zeros(len(products), np.int64)
    while (inner := np.flatnonzero(nodes[place, 0] >= 0)).size:
        node = place[inner]
        place[inner] = nodes[node, 2] + (values[inner, nodes[node, 0]] > thresholds[node])
    return place


def pack(name: str, folder: Path, tree: Any, table: dict[tuple[int, ...], int]) -> dict[str, NDArray[Any]]:
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
        "split": np.where(inner, nodes[order, 0], _LEAF).astype(np.uint8),
        "threshold": np.ascontiguousarray(thresholds[order[inner]].astype("<f4").view(np.uint8).reshape(-1, 4).T),
        "leaf": (numbers[nodes[order[~inner], 3]] + sure[order[~inner]] * _CHOICES).astype(np.uint16),
    }
    packed = {}
    for kind in TREES[name]:
        products, chosen = (each[-held(len(each)) :] for each in answers(folder, kind))
        leaves = walk(nodes, thresholds, products)
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
    options = parser.parse_args()
    table: dict[tuple[int, ...], int] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for path in sorted(options.trees.glob("*.npz")):
        arrays |= pack(path.stem, options.answers, np.load(path), table)
    np.savez_compressed(options.file, choices=np.array(list(table), np.int32), **arrays)


if __name__ == "__main__":
    main()
