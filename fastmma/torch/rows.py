"""Which numbers of rows of a model's products share their bits: the products are found by running the model once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch

from fastmma.agreement.gpus import Agreement, compare_gpus
from fastmma.agreement.invariance import Invariance
from fastmma.agreement.invariance import invariance as of_layer
from fastmma.agreement.layer import LEAST_RATE
from fastmma.agreement.ranks import RING
from fastmma.host.calls import named_keywords
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.gpus import TargetName
from fastmma.torch.attention_rows import AttentionInvariance, attention_invariance, same_attention
from fastmma.torch.row_products import Product, Recorder

# modules whose inputs ranks share, by the names that models give them; of all others they share the outputs
ROW_PARALLEL = ("*o_proj", "*out_proj", "*down_proj", "*c_proj", "*fc2", "*wo", "*w2", "*dense_4h_to_h")
_SHOWN = 3
_SAID = {True: "the same bits", False: "other bits", None: "not known"}
Layers = tuple[tuple[tuple[str, ...], Invariance], ...]


@dataclass(frozen=True)
class ModelInvariance:
    """The numbers of rows of a model's products that share their bits.

    Attributes
    ----------
    layers : tuple of (tuple of str, Invariance)
        Names of the modules with one kind of product, and what is known of it; the worst first: most groups, then most unknown rows.
    others : tuple of str
        Operations that add up products in other ways and are not examined: convolutions, and products that ranks cannot share.
    attention : tuple of (tuple of str, AttentionInvariance)
        Names of the modules with one kind of attention, and what is known of it.
    """

    layers: Layers
    others: tuple[str, ...] = ()
    attention: tuple[tuple[tuple[str, ...], AttentionInvariance], ...] = ()

    @property
    def is_invariant(self) -> bool | None:
        """Tell whether all products have the same bits for all numbers of rows; None where something is not known."""
        return _all(self._each(lambda found: found.is_invariant), self.others)

    def same(self, first: int, second: int) -> bool | None:
        """Tell whether a row has the same bits in all products for two numbers of rows: decode against prefill.

        None where something is not known.
        """
        return _all(self._each(lambda found: found.same(first, second)), self.others)

    def _each(self, ask: Callable[[Any], bool | None]) -> set[bool | None]:
        return {ask(found) for _, found in (*self.layers, *self.attention)}

    def __str__(self) -> str:
        lines = []
        for names, found in (*self.layers, *self.attention):
            lines += [_named(names), *(f"  {line}" for line in str(found).splitlines())]
        return "\n".join([*lines, *([f"not looked into: {', '.join(self.others)}"] if self.others else [])])


@dataclass(frozen=True)
class ModelAgreement:
    """The numbers of rows for which the products of two models have the same bits: on two GPUs, on two numbers of ranks, or in two formats.

    Attributes
    ----------
    layers : tuple of (tuple of str, Agreement)
        Names of the modules with one kind of product in both; the worst first.
    others : tuple of str
        Modules without a counterpart, and operations that are not compared.
    attention : tuple of (tuple of str, bool or None)
        Names of the modules with one kind of attention, and whether it has the same bits; None where that is not known.
    """

    layers: tuple[tuple[tuple[str, ...], Agreement], ...]
    others: tuple[str, ...] = ()
    attention: tuple[tuple[tuple[str, ...], bool | None], ...] = ()

    @property
    def equal(self) -> bool | None:
        """Tell whether all products have the same bits for all numbers of rows; None where something is not known."""
        return _all({found.equal for _, found in self.layers} | {same for _, same in self.attention}, self.others)

    def __str__(self) -> str:
        lines = []
        for names, found in self.layers:
            lines += [_named(names), *(f"  {line}" for line in str(found).splitlines())]
        lines += [f"{_named(names)}\n  attention: {_SAID[same]}" for names, same in self.attention]
        return "\n".join([*lines, *([f"not compared: {', '.join(self.others)}"] if self.others else [])])


def _all(found: set[bool | None], others: Collection[str]) -> bool | None:
    return False if False in found else None if None in found or others or not found else True


def _named(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(name or 'the model' for name in names[:_SHOWN])}{more}"


@named_keywords
def invariance(
    model: torch.nn.Module,
    inputs: Any,
    *,
    target: TargetName,
    rows: Collection[int] = range(1, 4097),
    least_rate: float = LEAST_RATE,
    ranks: int = 1,
    all_reduce: str = RING,
    row_parallel: Collection[str] = ROW_PARALLEL,
) -> ModelInvariance:
    """Find the numbers of rows for which a model's products have the same bits, whatever its inputs and weights.

    Parameters
    ----------
    model : torch.nn.Module
        It runs once, on its own device, without gradients.
    inputs : tensor, sequence or mapping
        The model's inputs, by position or by name.
    target : str
        The GPU, for example ``"H200"``.
    rows : range, or other collection of int
        Numbers of rows of the products' first operands, which are tokens. For attention, numbers of sequences.
    least_rate : float
        As in `fastmma.invariance`.
    ranks : int
        How many GPUs share the model: tensor parallel.
    all_reduce : {"ring", "tree"}
        The order in which they add their results.
    row_parallel : collection of str
        Patterns of module names. Ranks divide the inputs of these modules, and the outputs of all others.

    Returns
    -------
    ModelInvariance
        It prints the products, the worst first.

    Raises
    ------
    OperandError, OperandTypeError, TargetError

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Linear(4096, 4096, bias=False, dtype=torch.bfloat16))
    >>> print(invariance(model, torch.zeros(2, 4096, dtype=torch.bfloat16), target="H200", rows=range(1, 33)))
    0
      bf16 on H200, N = 4096, K = 4096: 32 numbers of rows, 2 groups, each with bits of its own
        rows 1 to 24 and 32: k in 2 parts, rounded up to 64 k, added in ascending order, f32
        rows 25 to 31: k in one part
    """
    recorder = Recorder()
    with torch.no_grad(), recorder.recording(model):
        model(**inputs) if isinstance(inputs, Mapping) else model(*(inputs if isinstance(inputs, list | tuple) else (inputs,)))
    options: dict[str, Any] = {"target": target, "rows": rows, "least_rate": least_rate, "ranks": ranks, "all_reduce": all_reduce}
    kinds: dict[tuple[Product, str], list[str]] = {}
    for product, names in recorder.products.items():
        for name in names:
            kinds.setdefault((product, _cut(product, name, row_parallel)), []).append(name)
    layers, others = list[tuple[tuple[str, ...], Invariance]](), set(recorder.others)
    for (product, cut), names in kinds.items():
        shared = {"ranks": 1} if product.stack > 1 else {"cut": cut}  # ranks share the heads, or the experts
        try:
            layers.append((tuple(names), of_layer(**product._asdict(), **options | shared)))
        except OperandError as error:
            if ranks == 1:
                raise
            others |= {f"{_named(tuple(names))}: {error}"}
    attention = tuple((tuple(names), attention_invariance(call, target, rows, ranks)) for call, names in recorder.attention.items())
    return ModelInvariance(tuple(sorted(layers, key=_badness)), tuple(sorted(others)), attention)


def _cut(product: Product, name: str, patterns: Collection[str]) -> str:
    return "k" if any(fnmatchcase(name, pattern) for pattern in patterns) and product.stack == 1 else "n"


def _badness(layer: tuple[tuple[str, ...], Invariance]) -> tuple[int, int]:
    found = layer[1]
    return -len(found.groups), -sum(len(each) for each in found.unknown)


@named_keywords
def compare_models(first: ModelInvariance, second: ModelInvariance) -> ModelAgreement:
    """Compare two models, product by product, at each number of rows: training against rollout, or two GPUs or numbers of ranks.

    Parameters
    ----------
    first, second : ModelInvariance
        The results of `fastmma.torch.invariance` for the two. Products are paired by the names of their modules.

    Returns
    -------
    ModelAgreement
        It prints the products. First come those that differ at most numbers of rows, then those with most unknown numbers of rows.

    Raises
    ------
    OperandTypeError

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Linear(4096, 4096, bias=False, dtype=torch.bfloat16))
    >>> x = torch.zeros(2, 4096, dtype=torch.bfloat16)
    >>> print(compare_models(*(invariance(model, x, target=gpu, rows=(1, 24)) for gpu in ("H100", "H200"))))
    0
      bf16 on H100 and H200, N = 4096, K = 4096
        row 1: the same bits
        row 24: other bits
    """
    for each in (first, second):
        if not isinstance(each, ModelInvariance):
            raise OperandTypeError(
                f"compare_models: first and second must be what fastmma.torch.invariance returns, not {type(each).__name__}"
            )
    sides = [{name: found for names, found in each.layers for name in names} for each in (first, second)]
    pairs: dict[tuple[int, int], list[str]] = {}
    for name in sides[0]:
        if name in sides[1] and _problem(sides[0][name]) == _problem(sides[1][name]):
            pairs.setdefault((id(sides[0][name]), id(sides[1][name])), []).append(name)
    paired = {name for names in pairs.values() for name in names}
    compared = [(tuple(names), compare_gpus(sides[0][names[0]], sides[1][names[0]])) for names in pairs.values()]
    others = {_named((name,)) for side in sides for name in side.keys() - paired} | {*first.others, *second.others}
    attention, apart = _attention(first, second)
    others |= apart
    worst = sorted(compared, key=lambda layer: (-_count(layer[1].differ), -_count(layer[1].unknown)))
    return ModelAgreement(tuple(worst), tuple(sorted(others)), attention)


def _attention(first: ModelInvariance, second: ModelInvariance) -> tuple[tuple[tuple[tuple[str, ...], bool | None], ...], set[str]]:
    """Compare attention of the same modules and shapes; also name the modules of which one has other."""
    sides = [{(name, found.call): found for names, found in each.attention for name in names} for each in (first, second)]
    kinds: dict[int, tuple[list[str], bool | None]] = {}
    for at in sides[0]:
        if at in sides[1]:
            found = sides[0][at]
            if id(found) not in kinds:
                kinds[id(found)] = [], same_attention(found, sides[1][at])
            kinds[id(found)][0].append(at[0])
    return tuple((tuple(names), same) for names, same in kinds.values()), {_named((at[0],)) for at in sides[0].keys() ^ sides[1].keys()}


def _problem(found: Invariance) -> tuple[int, int, str]:
    return found.n, found.k, found.dtype


def _count(rows: tuple[range, ...]) -> int:
    return sum(len(each) for each in rows)
