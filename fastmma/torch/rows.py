"""Which numbers of rows of a model's products share their bits: the products are found by running the model once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fastmma.agreement.invariance import LEAST_RATE, Invariance
from fastmma.agreement.invariance import invariance as of_layer
from fastmma.isa.gpus import TargetName

_ATEN = torch.ops.aten
# where the first matrix of a product is among the arguments
_PRODUCTS = {_ATEN.mm.default: 0, _ATEN.addmm.default: 1}
_OTHERS = ("bmm", "baddbmm", "convolution", "_scaled_dot_product", "_scaled_mm", "_int_mm", "_grouped_mm")
_SHOWN = 3


class Product(NamedTuple):
    """A product of a model with weights: what its bits depend on beside the number of rows."""

    n: int
    k: int
    dtype: str
    layout: str
    bias: bool


@dataclass(frozen=True)
class ModelInvariance:
    """The numbers of rows of a model's products that share their bits.

    Attributes
    ----------
    layers : tuple of (tuple of str, Invariance)
        Names of the modules with one kind of product, and what is known of it; the worst first: most groups, then most unknown rows.
    others : tuple of str
        Operators that add up products otherwise, of which nothing is said: attention, convolutions, stacks of products.
    """

    layers: tuple[tuple[tuple[str, ...], Invariance], ...]
    others: tuple[str, ...] = ()

    @property
    def is_invariant(self) -> bool | None:
        """Tell whether all products have the same bits for all numbers of rows; None where something is not known."""
        found = {each.is_invariant for _, each in self.layers}
        return False if False in found else None if None in found or self.others or not found else True

    def __str__(self) -> str:
        lines = []
        for names, found in self.layers:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            lines += [f"{', '.join(names[:_SHOWN])}{more}", *(f"  {line}" for line in str(found).splitlines())]
        return "\n".join([*lines, *([f"not looked into: {', '.join(self.others)}"] if self.others else [])])


def invariance(
    model: torch.nn.Module,
    inputs: Any,
    *,
    target: TargetName,
    rows: Collection[int] = range(1, 4097),
    least_rate: float = LEAST_RATE,
) -> ModelInvariance:
    """Tell for which numbers of rows the products of a model have the same bits, whatever its inputs and its weights.

    Parameters
    ----------
    model : torch.nn.Module
        It is run once, on the device where it is, without gradients.
    inputs : tensor, sequence or mapping
        What the model takes: by position, or by name.
    target : str
        The GPU, for example ``"H200"``.
    rows : range, or other collection of int
        Numbers of rows of the products' first operands: tokens.
    least_rate : float
        As of `fastmma.invariance`.

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
    recorder = _Recorder()
    with torch.no_grad(), recorder.named(model), recorder:
        model(**inputs) if isinstance(inputs, Mapping) else model(*(inputs if isinstance(inputs, list | tuple) else (inputs,)))
    options: dict[str, Any] = {"target": target, "rows": rows, "least_rate": least_rate}
    layers = [
        (tuple(names), of_layer(each.n, each.k, dtype=each.dtype, layout=each.layout, bias=each.bias, **options))
        for each, names in recorder.products.items()
    ]
    worst = sorted(layers, key=lambda layer: (-len(layer[1].groups), -sum(len(each) for each in layer[1].unknown)))
    return ModelInvariance(tuple(worst), tuple(sorted(recorder.others)))


class _Recorder(TorchDispatchMode):
    """Notes the products that run inside, with the module that they belong to."""

    def __init__(self) -> None:
        super().__init__()
        self.products: dict[Product, list[str]] = {}
        self.others: set[str] = set()
        self._inside: list[str] = []

    @contextmanager
    def named(self, model: torch.nn.Module) -> Iterator[None]:
        """Know which module runs."""
        hooks = []
        for name, module in model.named_modules():
            hooks.append(module.register_forward_pre_hook(partial(self._enter, name)))
            hooks.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, name: str, *_: Any) -> None:
        self._inside.append(name)

    def _leave(self, *_: Any) -> None:
        self._inside.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note an operator, and run it."""
        place = _PRODUCTS.get(func)
        if place is not None:
            self._note(args[place], args[place + 1], args[0] if place else None)
        elif func.overloadpacket.__name__.startswith(_OTHERS):
            self.others.add(str(func))
        return func(*args, **(kwargs or {}))

    def _note(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None) -> None:
        """Note a product by its weights."""
        layout = _layout(a) + _layout(b)
        product = Product(b.shape[1], b.shape[0], str(a.dtype).removeprefix("torch."), layout, c is not None and c.ndim == 1)
        names = self.products.setdefault(product, [])
        inside = self._inside[-1] if self._inside else ""
        if inside not in names:
            names.append(inside)


def _layout(matrix: torch.Tensor) -> str:
    """Name the layout of a matrix: n where its rows are contiguous."""
    return "n" if matrix.stride(1) == 1 or matrix.stride(0) != 1 else "t"
