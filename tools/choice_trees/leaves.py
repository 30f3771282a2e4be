"""The numbers of products by which trees tell them from one another, and their leaves: for many products at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.products.cublas.features import measure
from fastmma.products.cublas.trees import Tree, Trees, name_before, tell

LEAF, CHOICES = 255, 1 << 14  # as `fastmma.products.cublas.trees` reads them
_SAME = {"e4m3_fast": "e4m3"}  # kinds that have the tree of another


def find_leaves(tree: Tree, values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Find the leaves of products by their numbers, level by level."""
    node = np.zeros(len(values), np.int64)
    while (inner := np.flatnonzero(tree.split[node] != LEAF)).size:
        number = tree.inner[node[inner]].astype(np.int64)
        above = values[inner, tree.split[node[inner]]] > tree.threshold[number]
        node[inner] = 2 * number + 1 + above
    leaves: NDArray[np.int64] = tree.leaf[node - tree.inner[node]].astype(np.int64)
    return leaves


def numbers_of(name: str, products: NDArray[Any], earlier: Trees | None) -> NDArray[np.float32]:
    """Return all numbers of products of a kind, those of trees before among them."""
    values = measure(products)
    tree = None if earlier is None else earlier.tree(_SAME.get(name, name_before(name)))
    if earlier is None or tree is None:
        return values
    leaves = find_leaves(tree, values)
    return np.concatenate([values, tell(earlier.choices[leaves % CHOICES], leaves // CHOICES)], 1)


def walk(nodes: NDArray[np.integer[Any]], thresholds: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Find the leaves of products by their numbers."""
    place = np.zeros(len(values), np.int64)
    while (inner := np.flatnonzero(nodes[place, 0] >= 0)).size:
        node = place[inner]
        place[inner] = nodes[node, 2] + (values[inner, nodes[node, 0]] > thresholds[node])
    return place
