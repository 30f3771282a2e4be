"""Training steps as they run: forward, loss, backward and new weights, after which everything is as it was before."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from fastmma.host.errors import OperandError
from fastmma.torch.report import Report
from fastmma.torch.watch import Watch

Loss = Callable[[Any], torch.Tensor]


class Step(NamedTuple):
    """What runs: steps of a model on one batch."""

    model: torch.nn.Module
    inputs: Any
    loss: Loss | None
    optimizer: torch.optim.Optimizer | None
    steps: int
    seed: int
    autocast: torch.dtype | None


def run_step(step: Step, keep: int, report: Report | None = None) -> Watch:
    """Run the steps, and leave everything as it was."""
    watch, model, optimizer = Watch(keep, report), step.model, step.optimizer
    with _kept(model, optimizer), watch.watching(model):
        torch.manual_seed(step.seed)
        for number in range(1, step.steps + 1):
            watch.prefix = f"step {number}: "
            with nullcontext() if step.autocast is None else torch.autocast("cuda", step.autocast):
                results = _called(model, step.inputs)
                found = _loss_of(results, step.loss)
            if found is None:
                wanted = [each for each in tree_leaves(results) if isinstance(each, torch.Tensor) and each.requires_grad]
                torch.autograd.backward(wanted, [torch.ones_like(each) for each in wanted])
            else:
                watch.see("the loss", found)
                found.backward()
            if optimizer is not None:
                optimizer.step()
                for name, weight in model.named_parameters():
                    watch.see(f"the weight {name} after it", weight)
                optimizer.zero_grad()
    return watch


def _called(model: torch.nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple | list) else model(inputs)


def _loss_of(results: Any, loss: Loss | None) -> torch.Tensor | None:
    """Find the loss; None where there is none."""
    held = results.get("loss") if isinstance(results, Mapping) else getattr(results, "loss", None)
    found = held if loss is None else loss(results)
    if found is not None and (not isinstance(found, torch.Tensor) or found.numel() != 1):
        raise OperandError("the loss must be one number, a tensor of one element")
    return found


@contextmanager
def _kept(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> Iterator[None]:
    """Put weights, buffers, gradients, the optimizer's state and the random numbers back at the end of a ``with``."""
    tensors = [*model.parameters(), *model.buffers()]
    values, gradients = [each.detach().clone() for each in tensors], [each.grad for each in tensors]
    state = None if optimizer is None else copy.deepcopy(optimizer.state_dict())
    for each in tensors:
        each.grad = None
    try:
        with torch.random.fork_rng():
            yield
    finally:
        with torch.no_grad():
            for each, value, gradient in zip(tensors, values, gradients, strict=True):
                each.copy_(value)
                each.grad = gradient
        if optimizer is not None:
            optimizer.load_state_dict(state)
