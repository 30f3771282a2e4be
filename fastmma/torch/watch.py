"""What a training step computes, tensor by tensor: results of modules, their gradients, the loss, gradients of weights, new weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from fastmma.products.report import Mark
from fastmma.torch.recordings import Kept, keep_of
from fastmma.torch.report import Report


class Watch:
    """The tensors of a step, in the order of computation.

    Attributes
    ----------
    tensors : list of Kept
    marks : list of Mark
        What the report had counted when each tensor was there.
    prefix : str
        Of names.
    """

    def __init__(self, keep: int, report: Report | None = None) -> None:
        self.tensors: list[Kept] = []
        self.marks: list[Mark] = []
        self.prefix = ""
        self._keep, self._report = keep, report
        self._met: Counter[str] = Counter()

    def see(self, what: str, tensor: torch.Tensor) -> None:
        """Keep a tensor that is there now; a further one of the same name has a number."""
        if tensor.layout is not torch.strided or tensor.is_nested:
            return
        name = f"{self.prefix}{what}"
        self._met[name] += 1
        number = self._met[name]
        with _disable_current_modes():
            self.tensors.append(keep_of(name if number == 1 else f"{name} ({number})", tensor, self._keep))
        if self._report is not None:
            self.marks.append(self._report.mark())

    @contextmanager
    def watching(self, model: torch.nn.Module) -> Iterator[None]:
        """See what the modules of a model compute within the ``with``."""
        handles = [module.register_forward_hook(self._of_module(name or "the model")) for name, module in model.named_modules()]
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                handles.append(weight.register_post_accumulate_grad_hook(self._of_weight(name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _of_module(self, name: str) -> Callable[..., None]:
        def see(module: torch.nn.Module, args: Any, results: Any) -> None:
            tensors = [each for each in tree_leaves(results) if isinstance(each, torch.Tensor)]
            for index, tensor in enumerate(tensors):
                label = name if len(tensors) == 1 else f"{name}[{index}]"
                self.see(label, tensor)
                if tensor.requires_grad:
                    tensor.register_hook(self._of_gradient(f"gradient of {label}"))

        return see

    def _of_gradient(self, name: str) -> Callable[[torch.Tensor], None]:
        def see(gradient: torch.Tensor) -> None:
            self.see(name, gradient)

        return see

    def _of_weight(self, name: str) -> Callable[[torch.Tensor], None]:
        def see(weight: torch.Tensor) -> None:
            if weight.grad is not None:
                self.see(f"gradient of the weight {name}", weight.grad)

        return see
