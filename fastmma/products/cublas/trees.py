"""Predict what a library chooses for a product that nobody asked about, by decision trees grown from answers."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.features import measure, numbers
from fastmma.products.cublas.rows import HALF_SUMS, Product

_FOLDER = Path(__file__).parents[1] / "books"
_LEAF = 255  # in place of a number of `measure`
# algorithms whose products have the same bits where nothing is added, so that trees do not tell them from one another
ALIKE = {"f16": (23, 24, 66), "bf16": (23, 24, 66), "tf32": (21, 23)}
_CHOICES = 1 << 14  # a leaf is the number of a choice, and times this how sure it is
_TOLD = (0, 1, 2, 3, 5, 6, 8)  # attributes of the choice of the trees before that a tree may compare


class Asked(NamedTuple):
    """The products that a GPU was asked about, from which a tree was grown.

    Attributes
    ----------
    outs : tuple of str
        Formats of the result.
    layouts : tuple of str
    multiple : int
        Of which N and K are multiples.
    most : (int, int, int)
        The largest M, N and K.
    most_stack : int
    """

    outs: tuple[str, ...]
    layouts: tuple[str, ...] = ("nn", "nt", "tn", "tt")
    multiple: int = 1
    most: tuple[int, int, int] = (65536, 262144, 262144)
    most_stack: int = 1

    def holds(self, product: Product, stack: int) -> bool:
        """Tell whether a product is one of them."""
        sizes = product.m, product.n, product.k
        inside = all(1 <= size <= most for size, most in zip(sizes, self.most, strict=True)) and stack <= self.most_stack
        whole = not (product.n % self.multiple or product.k % self.multiple)
        return inside and whole and product.out in self.outs and product.layout in self.layouts


_PLAIN = {"bf16": "bf16", "f16": "f16", "tf32": "f32", "f32": "f32"}  # formats of results by those of operands
ASKED = {name: Asked((out,)) for name, out in _PLAIN.items()}
ASKED |= {f"{name}_bias": asked for name, asked in ASKED.items()}
ASKED |= {f"{name}_stack": Asked((out,), most=(4096, 4096, 16384), most_stack=512) for name, out in _PLAIN.items()}
ASKED |= dict.fromkeys(("e4m3", "e4m3_bias"), Asked(("bf16",), ("nt",), 16))
ASKED["bf16"] = Asked(("bf16", "f32"))
ASKED |= {name.replace("f16", HALF_SUMS, 1): ASKED[name] for name in ("f16", "f16_bias", "f16_stack")}
_WIDE = "_wide"  # in names of products whose parts are joined in float32 alone
ASKED |= {f"{fmt}{_WIDE}{end}": ASKED[fmt + end]._replace(outs=(fmt,)) for fmt in ("bf16", "f16") for end in ("", "_bias", "_stack")}


class Prediction(NamedTuple):
    """A choice, and how many of fresh products at leaves as sure as its own were predicted, of how many."""

    choice: Choice
    rate: tuple[int, int]


class Tree(NamedTuple):
    """A decision tree, level by level: the children of the inner node i are the nodes 2 i + 1 and 2 i + 2.

    Attributes
    ----------
    split : array (nodes,) of uint8
        The number that a node compares, of `measure` and, after those, of `tell`; 255 at a leaf.
    inner : array (nodes,) of int32
        How many inner nodes are before a node.
    threshold : array (inner nodes,) of float32
        Numbers up to it go to the first child.
    leaf : array (leaves,) of uint16
    rates : array (4, 2) of int64
        Of fresh products at leaves that are so sure: how many were predicted, of how many.
    """

    split: NDArray[np.uint8]
    inner: NDArray[np.int32]
    threshold: NDArray[np.float32]
    leaf: NDArray[np.uint16]
    rates: NDArray[np.int64]

    def find(self, values: NDArray[np.float32]) -> int:
        """Find the leaf of a product's numbers."""
        node = 0
        while (number := int(self.split[node])) != _LEAF:
            inner = int(self.inner[node])
            node = 2 * inner + (1 if values[number] <= self.threshold[inner] else 2)
        return int(self.leaf[node - int(self.inner[node])])


def name_before(name: str) -> str:
    """Name the tree, of those before, whose prediction is among the numbers of a tree: that of products with all reductions.

    Examples
    --------
    >>> name_before("bf16_wide_bias")
    'bf16_bias'
    """
    return name.replace(_WIDE, "")


def tell(choices: NDArray[np.int32], sure: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    """Return the numbers of trees before: of rows of choices, and how sure the leaves are that have them.

    Examples
    --------
    >>> tell(np.array([[66, 0, 3, 2, 0, 0, 35, 0, 0]], np.int32), np.array([3]))
    array([[66.,  0.,  3.,  2.,  0., 35.,  0.,  3.]], dtype=float32)
    """
    return np.concatenate([choices[:, _TOLD], sure[:, None]], 1).astype(np.float32)


class Trees:
    """The trees of a file, each read when it is first asked.

    They may have been grown after those of another GPU: then what those predict is among the numbers that they compare.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _archive(self) -> Any:
        return np.load(self._path, allow_pickle=False)

    @cached_property
    def before(self) -> Trees | None:
        """The trees after which these were grown, if there are any."""
        return trees(str(self._archive["before"])) if "before" in self._archive else None

    @cached_property
    def choices(self) -> NDArray[np.int32]:
        """All choices, a row each, as `Choice.of_row` takes them."""
        choices: NDArray[np.int32] = self._archive["choices"]
        return choices

    @lru_cache(32)  # noqa: B019 - there is one object a file
    def tree(self, name: str) -> Tree | None:
        """Return the tree of a kind of products; None where there is none."""
        if f"{name}_split" not in self._archive:
            return None
        split, planes, leaf, rates = (self._archive[f"{name}_{part}"] for part in ("split", "threshold", "leaf", "rates"))
        inner = np.cumsum(split != _LEAF, dtype=np.int32) - (split != _LEAF)
        return Tree(split, inner, np.ascontiguousarray(planes.T).view("<f4")[:, 0], leaf, rates)

    @lru_cache(1024)  # noqa: B019
    def predict(self, product: Product, stack: int = 1, *, biased: bool = False, wide: bool = False) -> Prediction | None:
        """Predict the choice for a product; None where no GPU was asked about such products.

        Parameters
        ----------
        product : Product
        stack : int
            How many such products are computed at once.
        biased : bool
            Whether a bias is added, for which PyTorch lends a smaller workspace.
        wide : bool
            Whether parts of k are joined in float32 alone.

        Examples
        --------
        >>> found = trees("cublas_trees_h200_13_1.npz").predict(Product("bf16", "nn", 300, 5003, 4096, "bf16"))
        >>> found.choice.algo, found.choice.parts
        (24, 2)
        """
        name = product.fmt + (_WIDE if wide else "") + ("_bias" if biased else "_stack" if stack > 1 else "")
        asked = ASKED.get(name)
        tree = self.tree(name) if asked is not None and asked.holds(product, stack) else None
        if tree is None:
            return None
        values = measure(numbers(product, stack))[0]
        if self.before is not None and (other := self.before.tree(name_before(name))) is not None:
            leaf = other.find(values)
            told = tell(self.before.choices[[leaf % _CHOICES]], np.array([leaf // _CHOICES]))
            values = np.concatenate([values, told[0]])
        leaf = tree.find(values)
        right, of = tree.rates[leaf // _CHOICES].tolist()
        return Prediction(Choice.of_row(tuple(self.choices[leaf % _CHOICES].tolist())), (right, of)) if of else None


@lru_cache(8)
def trees(file: str) -> Trees:
    """Return the trees of a file that ships with fastmma."""
    return Trees(_FOLDER / file)
