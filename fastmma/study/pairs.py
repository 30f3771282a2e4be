"""Pairs of weights and activations in a study: files, folders and matrices as a caller names them."""

from __future__ import annotations

from collections.abc import Iterable
from glob import has_magic
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastmma.host.errors import OperandError
from fastmma.study.checkpoints import is_of_experts
from fastmma.study.tensors import SEPARATOR, Tensor, meant, read
from fastmma.study.weights import Layer, activations, contents, is_folder, is_pattern, is_there, layers, transposed_there

Source = Tensor | Layer
_ENDINGS = (".input", ".inputs", ".activations", ".weight")


class Pair(NamedTuple):
    """The operands of a layer that are not drawn.

    Attributes
    ----------
    weights, activations : Tensor, Layer or None
    """

    weights: Source | None
    activations: Source | None

    @property
    def name(self) -> str:
        """Of the layer; empty where its weights are drawn."""
        return module_name(self.weights) if self.weights else ""


def module_name(source: Source) -> str:
    """Return what a layer is called, without its file and without what its tensor is called besides.

    Examples
    --------
    >>> module_name(Tensor("model.npz::layer.0.dense.weight", "0", np.ones((2, 2))))
    'layer.0.dense'
    """
    name = source.name if isinstance(source, Layer) else source.source.rpartition(SEPARATOR)[2]
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name


def _is_one(source: str) -> bool:
    """Tell whether a source names one tensor, and no pattern or folder."""
    place, _, name = source.partition(SEPARATOR)
    path = Path(place)
    if is_folder(place) or is_pattern(place):
        return False
    if not name:
        return path.suffix == ".npy" or not is_there(place) or len(contents(path)) < 2
    return not (has_magic(name) or "," in name) or any(each.name == name for each in contents(path))


def _several(given: Any) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, Tensor | Layer | str | Path | np.ndarray)


def _weights(given: Any, transposed: bool | None) -> list[Source]:
    if isinstance(given, Tensor | Layer):
        return [given]
    if not isinstance(given, str | Path):
        return [read(given)]  # which says what is taken
    if not _is_one(str(given)) or is_of_experts(str(given).partition(SEPARATOR)[2]):
        return [*layers(given, transposed=transposed)]
    return [read(given, transposed=transposed_there(given) if transposed is None else transposed)]


def _activations(given: Any) -> list[Source]:
    if isinstance(given, Tensor | Layer):
        return [given]
    return [read(given)] if not isinstance(given, str | Path) or _is_one(str(given)) else [*activations(given)]


def pairs_of(tensors: Any, transposed: bool | None = None) -> list[Pair]:
    """The pairs that a caller's weights, or weights and activations, make.

    Raises
    ------
    OperandError, OperandTypeError
        If nothing is meant, or a layer has no activations, or they do not multiply.
    """
    given = list(tensors) if _several(tensors) else [tensors]
    if len(given) > 2:
        raise OperandError(
            f"a study takes at most two tensors, weights (N, K) and activations (M, K), not {len(given)}; lists of them are one"
        )
    if not given:
        return [Pair(None, None)]
    weights = [found for each in (given[0] if _several(given[0]) else [given[0]]) for found in _weights(each, transposed)]
    if not weights:
        raise OperandError("a study of layers needs at least one")
    if len(given) == 1:
        return [Pair(each, None) for each in weights]
    found = [found for each in (given[1] if _several(given[1]) else [given[1]]) for found in _activations(each)]
    pairs = [Pair(each, found[0] if len(found) == 1 else _name(each, found)) for each in weights]
    for pair in pairs:
        _check_depths(pair)
    return pairs


def _name(weights: Source, found: list[Source]) -> Source:
    """The activations that are named like a layer."""
    name = module_name(weights)
    by_name = {module_name(each): each for each in found}
    if name not in by_name:
        where = found[0].source.partition(SEPARATOR)[0] if found else "the list"
        raise OperandError(f"{where}: has no activations for layer {name!r}; {meant(name, list(by_name))}")
    return by_name[name]


def _check_depths(pair: Pair) -> None:
    """Raise OperandError unless the operands multiply."""
    given = [each for each in pair if each is not None]
    if len({each.shape[1] for each in given}) > 1:
        shapes = " and ".join(f"{each.source} {each.shape}" for each in given)
        raise OperandError(f"{shapes} have different K, their last dimension")
