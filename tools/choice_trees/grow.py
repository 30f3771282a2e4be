"""Grow a decision tree for each kind of products from the answers of a GPU."""

from __future__ import annotations

import argparse
import multiprocessing
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from fastmma.products.cublas.trees import Trees, trees
from tools.choice_trees.draw import KINDS, draw
from tools.choice_trees.leaves import numbers_of, walk
from tools.choice_trees.orders import classes

HELD = 100_000  # answers of a kind, at most a tenth of them, from which no tree is grown
_DISTINCT = 60_000  # values of a number that are told from one another
_RARE = 8  # a class of fewer products is left out
_NUMBERS = 50  # that are drawn for a node, of all that `measure` returns
_BRANCH, _TRUNK = 120_000, 40_000  # products of a branch, and those of which a trunk is grown
_SMALL = 512  # products of a node that are sorted by comparing
_SHARED = {"e4m3": ("e4m3", "e4m3_fast", "e4m3_bias")}  # kinds of which the library chooses alike
TREES = {name: _SHARED.get(name, (name,)) for name in KINDS if name not in ("e4m3_fast", "e4m3_bias")}


def answers(folder: Path, kind: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Read the products of a kind and the choices for them."""
    products, choices = [], []
    for path in sorted(folder.glob(f"{kind}.*.npz")):
        with np.load(path) as archive:
            found = archive["choices"][archive["which"]]
        products.append(draw(kind, int(path.name.split(".")[1]), len(found)))
        choices.append(found)
    whole, chosen = np.concatenate(products), np.concatenate(choices)
    there = chosen[:, 0] >= 0
    return whole[there], chosen[there]


def held(count: int) -> int:
    """Count the last answers of a kind that are kept to judge a tree."""
    return min(HELD, count // 10)


@numba.njit(cache=True)
def _sort(codes: Any, order: Any, counts: Any) -> None:
    """Sort products by their codes: write the places into `order`."""
    if len(codes) <= _SMALL:
        order[: len(codes)] = np.argsort(codes, kind="mergesort")
        return
    least = np.int64(codes.min())
    span = np.int64(codes.max()) - least + 2
    counts[:span] = 0
    for code in codes:
        counts[code - least + 1] += 1
    for place in range(1, span):
        counts[place] += counts[place - 1]
    for place in range(len(codes)):
        code = codes[place] - least
        order[counts[code]] = place
        counts[code] += 1


@numba.njit(cache=True)
def _best_cut(codes: Any, kinds: Any, order: Any, left: Any, right: Any, squares: int, gain: float) -> Any:
    """Find the cut of sorted products with the least Gini impurity; `right` holds the counts of all classes, and `left` zeros."""
    count, cut = len(codes), -1
    before, after = np.int64(0), np.int64(squares)
    for place in range(count - 1):
        kind = kinds[order[place]]
        before += 2 * left[kind] + 1
        after -= 2 * right[kind] - 1
        left[kind] += 1
        right[kind] -= 1
        if codes[order[place]] != codes[order[place + 1]]:
            purity = before / (place + 1) + after / (count - place - 1)
            if purity > gain:
                gain, cut = purity, np.int64(codes[order[place]])
    for place in range(count - 1):
        left[kinds[order[place]]] -= 1
        right[kinds[order[place]]] += 1
    return gain, cut


@numba.njit(cache=True)
def _grow(ranks: Any, kinds: Any, most: int, numbers: int) -> Any:
    """Grow a tree; ranks is (numbers of `measure`, products).

    Its nodes are rows of a number, a code, the first child, the class of most products, how many products there are, and of that class.
    """
    drawn = np.int64(1)
    total = ranks.shape[1]
    members, order, moved = np.arange(total), np.empty(total, np.int64), np.empty(total, np.int64)
    counts, left, right = np.zeros(1 << 16, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)
    nodes = np.zeros((2 * total + 1, 6), np.int64)
    bounds = np.zeros((2 * total + 1, 2), np.int64)
    bounds[0, 1], made, features = total, 1, np.arange(ranks.shape[0])
    waiting = [0]
    while len(waiting):
        node = waiting.pop()
        start, stop = bounds[node]
        inside = members[start:stop]
        own = kinds[inside]
        for kind in own:
            right[kind] += 1
        best, squares = 0, np.int64(0)
        for kind in own:
            squares += right[kind]  # each of n products of a class adds n
            best = kind if right[kind] > right[best] else best
        nodes[node] = -1, 0, 0, best, stop - start, right[best]
        gain, number, code, tried = squares / (stop - start) + 1e-9, -1, -1, 0
        for place in range(len(features) if right[best] < stop - start else 0):
            if tried >= numbers and number >= 0:
                break
            drawn = (drawn * 1103515245 + 12345) & 0x7FFFFFFF
            other = place + (drawn >> 16) % (len(features) - place)
            features[place], features[other] = features[other], features[place]
            codes = ranks[features[place]][inside]
            if codes.min() == codes.max():
                continue
            tried += 1
            _sort(codes, order, counts)
            found, cut = _best_cut(codes, own, order, left, right, squares, gain)
            if cut >= 0:
                gain, number, code = found, features[place], cut
        for kind in own:
            right[kind] = 0
        if number < 0:
            continue
        small = ranks[number][inside] <= code
        first = small.sum()
        moved[:first], moved[first : stop - start] = inside[small], inside[~small]
        members[start:stop] = moved[: stop - start]
        nodes[node, :3] = number, code, made
        bounds[made], bounds[made + 1] = (start, start + first), (start + first, stop)
        waiting.append(made)
        waiting.append(made + 1)
        made += 2
    return nodes[:made]


def _ranks(values: NDArray[np.float32]) -> tuple[NDArray[np.uint16], NDArray[np.float32]]:
    """Number the values of one of `measure`'s numbers; also return the largest value of each."""
    ordered = np.sort(values)
    cuts = np.unique(ordered[np.linspace(0, len(ordered) - 1, _DISTINCT).astype(np.int64)] if len(ordered) > _DISTINCT else ordered)
    return np.searchsorted(cuts, values).clip(0, len(cuts) - 1).astype(np.uint16), cuts


def _branch(values: NDArray[np.float32], kinds: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Grow a tree of products by their numbers; return its nodes, and what each compares with."""
    own, local = np.unique(kinds, return_inverse=True)
    ranks, cuts = np.empty(values.shape[::-1], np.uint16), []
    for number in range(values.shape[1]):
        ranks[number], found = _ranks(values[:, number])
        cuts.append(found)
    nodes = _grow(ranks, local.reshape(-1), len(own), _NUMBERS)
    thresholds = np.array([cuts[number][code] if number >= 0 else 0 for number, code, *_ in nodes.tolist()], np.float32)
    nodes[:, 3] = own[nodes[:, 3]]
    return nodes, thresholds


def _trunk(values: NDArray[np.float32], kinds: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Grow the first nodes, of some of the products: as many leaves as processes are to have branches."""
    wanted = max(len(values) // _BRANCH, 1)
    some = np.random.default_rng(1).choice(len(values), min(len(values), _TRUNK), replace=False)
    nodes, thresholds = _branch(values[some], kinds[some])
    order, leaves = [0], {0}
    found = np.zeros((2 * wanted - 1, 6), np.int64)
    while len(leaves) < wanted and (inner := [leaf for leaf in leaves if nodes[order[leaf], 0] >= 0]):
        widest = max(inner, key=lambda leaf: nodes[order[leaf], 4])
        found[widest] = nodes[order[widest]]
        found[widest, 2] = len(order)
        leaves = (leaves - {widest}) | {len(order), len(order) + 1}
        order += [nodes[order[widest], 2], nodes[order[widest], 2] + 1]
    found[list(leaves), 0] = -1
    return found[: len(order)], thresholds[order]


def _joined(trunk: NDArray[np.int64], planes: NDArray[np.float32], members: NDArray[np.int64], kinds: NDArray[np.int64], grown: Any) -> Any:
    """Put branches in place of a trunk's leaves, and count the products of its nodes."""
    nodes, thresholds, made = [trunk], [planes], len(trunk)
    counts = {
        leaf: np.bincount(kinds[members == leaf], minlength=int(kinds.max()) + 1) for leaf in np.flatnonzero(trunk[:, 0] < 0).tolist()
    }
    for node in range(len(trunk) - 1, -1, -1):
        if trunk[node, 0] >= 0:
            counts[node] = counts[trunk[node, 2]] + counts[trunk[node, 2] + 1]
            trunk[node, 3:] = counts[node].argmax(), counts[node].sum(), counts[node].max()
    for leaf, (branch, values) in grown:
        branch[:, 2] += np.where(branch[:, 0] >= 0, made - 1, 0)
        trunk[leaf], planes[leaf] = branch[0], values[0]
        nodes.append(branch[1:])
        thresholds.append(values[1:])
        made += len(branch) - 1
    return np.concatenate(nodes).astype(np.int32), np.concatenate(thresholds)


def _usual(which: NDArray[np.int64], choices: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return for each class the place of a product that has the most usual of its choices."""
    _, first, count = np.unique(np.concatenate([which[:, None], choices], 1), axis=0, return_index=True, return_counts=True)
    found = np.zeros(int(which.max()) + 1, np.int64)
    order = np.argsort(count, kind="stable")
    found[which[first[order]]] = first[order]
    return found


def grow(name: str, folder: Path, before: Trees | None, pool: Any) -> dict[str, NDArray[Any]]:
    """Grow the tree of a name; its classes have a choice each."""
    found = [(kind, *answers(folder, kind)) for kind in TREES[name]]
    products = np.concatenate([asked[: len(asked) - held(len(asked))] for _, asked, _ in found])
    choices = np.concatenate([chosen[: len(chosen) - held(len(chosen))] for *_, chosen in found])
    _, which, count = np.unique(classes(name, products, choices), axis=0, return_inverse=True, return_counts=True)
    which, common = which.reshape(-1), count >= _RARE
    shown = choices[_usual(which, choices)[common]]
    kept, renumbered = common[which], np.cumsum(common) - 1
    kinds = renumbered[which[kept]]
    parts = np.array_split(products[kept], len(products) // 200_000 + 1)
    values = np.concatenate(pool.starmap(numbers_of, [(name, part, before) for part in parts]))
    trunk, planes = _trunk(values, kinds)
    members = walk(trunk, planes, values)
    leaves = [leaf for leaf in np.flatnonzero(trunk[:, 0] < 0).tolist() if (members == leaf).any()]
    grown = pool.starmap(_branch, [(values[members == leaf], kinds[members == leaf]) for leaf in leaves])
    nodes, thresholds = _joined(trunk, planes, members, kinds, zip(leaves, grown, strict=True))
    return {"nodes": nodes, "thresholds": thresholds, "choices": shown}


def main() -> None:
    """Grow all trees of which there are answers, the branches of each in as many processes as there are processors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=Path, help="the folder of the answers")
    parser.add_argument("trees", type=Path, help="where the trees are written")
    parser.add_argument("--before", help="a file that ships with fastmma: what its trees predict is among the numbers of these")
    options = parser.parse_args()
    options.trees.mkdir(parents=True, exist_ok=True)
    before = trees(options.before) if options.before else None
    with multiprocessing.get_context("spawn").Pool() as pool:
        for name in TREES:
            if any(options.answers.glob(f"{name}.*.npz")):
                tree = grow(name, options.answers, before, pool)
                np.savez_compressed(options.trees / f"{name}.npz", allow_pickle=False, **tree)
                print(f"{name}: {(tree['nodes'][:, 0] < 0).sum():,} leaves", flush=True)


if __name__ == "__main__":
    main()
