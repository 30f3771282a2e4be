"""Judge the trees that ship with fastmma by answers of a GPU that they were not grown from."""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastmma.products.cublas.tables import TABLES, VERSION
from fastmma.products.cublas.trees import Trees, trees
from tools.choice_trees.ask import ATTRIBUTES
from tools.choice_trees.draw import KINDS, draw
from tools.choice_trees.leaves import CHOICES, find_leaves, numbers_of
from tools.choice_trees.orders import orders

_LEVELS = 4  # of how sure a leaf is


def judge(file: Path, shipped: Trees) -> NDArray[np.int64]:
    """Count the products of a file of answers that a tree predicts, and all of them, by how sure the leaf is."""
    name, seed = file.name.split(".")[:2]
    tree = shipped.tree(name)
    if tree is None:
        raise ValueError(f"there is no tree of {name}")
    with np.load(file) as archive:
        chosen = archive["choices"][archive["which"]]
    there = chosen[:, 0] >= 0
    products, chosen = draw(name, int(seed), len(chosen))[there], chosen[there]
    leaves = find_leaves(tree, numbers_of(name, products, shipped.before))
    # a packed choice does not say whether it takes a workspace
    predicted = np.concatenate([shipped.choices[leaves % CHOICES], chosen[:, ATTRIBUTES:]], 1)
    same = (orders(name, products, predicted) == orders(name, products, chosen)).all(1)
    levels = leaves // CHOICES
    return np.array([[np.count_nonzero(same[levels == level]), np.count_nonzero(levels == level)] for level in range(_LEVELS)])


def main() -> None:
    """Print for each kind how many products its tree predicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=Path, help="the folder of the answers, of seeds that no tree was grown from")
    parser.add_argument("--gpu", default="H200", help="whose trees are judged")
    options = parser.parse_args()
    table = TABLES[options.gpu, VERSION]
    files = (trees(name) for name in (table.trees, table.other_trees) if name)
    for shipped, name in product(files, KINDS):
        found = sorted(options.answers.glob(f"{name}.*.npz"))
        if shipped.tree(name) is None or not found:
            continue
        counts = sum((judge(file, shipped) for file in found), np.zeros((_LEVELS, 2), np.int64))
        right, of = counts.sum(0)
        rates = ", ".join(f"{found:,} of {count:,}" for found, count in counts)
        print(f"{name}: {right:,} of {of:,} ({right / of:.2%}); by how sure the leaf is: {rates}", flush=True)


if __name__ == "__main__":
    main()
