"""Judge the trees that ship with fastmma by answers of a GPU that they were not grown from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.products.cublas.features import measure
from fastmma.products.cublas.trees import Tree, trees
from tools.choice_trees.ask import ATTRIBUTES
from tools.choice_trees.draw import KINDS, draw
from tools.choice_trees.orders import orders

FILE = "cublas_trees_h200_13_1.npz"
_LEAF, _CHOICES, _LEVELS = 255, 1 << 14, 4  # as `fastmma.products.cublas.trees` reads leaves


def find_leaves(tree: Tree, products: NDArray[Any]) -> NDArray[np.int64]:
    """Find the leaves of products, all level by level."""
    values, node = measure(products), np.zeros(len(products), np.int64)
    while (inner := np.flatnonzero(tree.split[node] != _LEAF)).size:
        number = tree.inner[node[inner]].astype(np.int64)
        above = values[inner, tree.split[node[inner]]] > tree.threshold[number]
        node[inner] = 2 * number + 1 + above
    return tree.leaf[node - tree.inner[node]].astype(np.int64)


def judge(file: Path, tree: Tree, choices: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count the products of a file of answers that a tree predicts, and all of them, by how sure the leaf is."""
    name, seed = file.name.split(".")[:2]
    with np.load(file) as archive:
        chosen = archive["choices"][archive["which"]]
    there = chosen[:, 0] >= 0
    products, chosen = draw(name, int(seed), len(chosen))[there], chosen[there]
    leaves = find_leaves(tree, products)
    # a packed choice does not say whether it takes a workspace
    predicted = np.concatenate([choices[leaves % _CHOICES], chosen[:, ATTRIBUTES:]], 1)
    same = (orders(name, products, predicted) == orders(name, products, chosen)).all(1)
    levels = leaves // _CHOICES
    return np.array([[np.count_nonzero(same[levels == level]), np.count_nonzero(levels == level)] for level in range(_LEVELS)])


def main() -> None:
    """Print for each kind how many products its tree predicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=Path, help="the folder of the answers, of seeds that no tree was grown from")
    options = parser.parse_args()
    shipped = trees(FILE)
    for name in KINDS:
        tree, files = shipped.tree(name), sorted(options.answers.glob(f"{name}.*.npz"))
        if tree is None or not files:
            continue
        counts = sum((judge(file, tree, shipped.choices) for file in files), np.zeros((_LEVELS, 2), np.int64))
        right, of = counts.sum(0)
        rates = ", ".join(f"{found:,} of {count:,}" for found, count in counts)
        print(f"{name}: {right:,} of {of:,} ({right / of:.2%}); by how sure the leaf is: {rates}", flush=True)


if __name__ == "__main__":
    main()
