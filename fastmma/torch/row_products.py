"""The products and the attention of a model, as one run of it shows them, with the modules that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fastmma.torch.attention_rows import AttentionCall

_ATEN = torch.ops.aten
# where the first matrix of a product is among the arguments
_PRODUCTS = {_ATEN.mm.default: 0, _ATEN.addmm.default: 1, _ATEN.bmm.default: 0, _ATEN.baddbmm.default: 1}
_OTHERS = ("convolution", "_scaled_dot_product", "_scaled_mm", "_int_mm", "_grouped_mm")


class Product(NamedTuple):
    """A product of a model: what its bits depend on beside the number of rows."""

    n: int
    k: int
    dtype: str
    layout: str
    bias: bool
    stack: int = 1


class Recorder(TorchDispatchMode):
    """Notes the products that run inside, with the module that they belong to."""

    def __init__(self) -> None:
        super().__init__()
        self.products: dict[Product, list[str]] = {}
        self.attention: dict[AttentionCall, list[str]] = {}
        self.others: set[str] = set()
        self.is_attending = False
        self._inside: list[str] = []

    @contextmanager
    def recording(self, model: torch.nn.Module) -> Iterator[None]:
        """Note what a model does, and know which of its modules runs."""
        hooks = []
        for name, module in model.named_modules():
            hooks.append(module.register_forward_pre_hook(partial(self._enter, name)))
            hooks.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            with self, _Attention(self):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, name: str, *_: Any) -> None:
        self._inside.append(name)

    def _leave(self, *_: Any) -> None:
        self._inside.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note an operator, and run it; what attention consists of on a CPU is none."""
        place = _PRODUCTS.get(func)
        if self.is_attending:
            pass
        elif place is not None:
            a, b, c = args[place], args[place + 1], args[0] if place else None
            stack = a.shape[0] if a.ndim == len("bmk") else 1
            layout = _layout(a) + _layout(b)
            product = Product(b.shape[-1], b.shape[-2], str(a.dtype).removeprefix("torch."), layout, c is not None and c.ndim == 1, stack)
            self._note(self.products, product)
        elif func.overloadpacket.__name__.startswith(_OTHERS):
            self.others.add(str(func))
        return func(*args, **(kwargs or {}))

    def note_attention(self, call: AttentionCall) -> None:
        """Note a call of attention."""
        self._note(self.attention, call)

    def _note(self, found: dict[Any, list[str]], what: Any) -> None:
        names, inside = found.setdefault(what, []), self._inside[-1] if self._inside else ""
        if inside not in names:
            names.append(inside)


class _Attention(TorchFunctionMode):
    """Notes calls of ``scaled_dot_product_attention``, which a CPU takes apart."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note a call, and run it."""
        given = kwargs or {}
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **given)
        self._recorder.note_attention(AttentionCall.of(*args, **given))
        self._recorder.is_attending = True
        try:
            return func(*args, **given)
        finally:
            self._recorder.is_attending = False


def _layout(matrix: torch.Tensor) -> str:
    """Name the layout of a matrix: n where its rows are contiguous."""
    return "n" if matrix.stride(-1) == 1 or matrix.stride(-2) != 1 else "t"
