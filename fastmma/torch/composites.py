"""Composites whose steps on a GPU are others: they are recognised above autograd, where torch takes them apart, and in the backward pass.

What is set here concerns the whole process while a thread of it emulates: kernels that ask whether their thread does, and compiled
functions, which run uncompiled.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fastmma.torch.unfixed import MATH_ATTENTION, RECURRENT

Answer = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_KEYS = ("AutogradCPU", "AutogradCUDA")
_lock = threading.Lock()
_inside = 0
_set: ExitStack


@contextmanager
def recognised(answer: Answer) -> Iterator[None]:
    """Let `answer` compute these composites, on all threads, within the ``with``; the first to enter says how.

    Parameters
    ----------
    answer : callable
        Takes the operator and its arguments, and asks whether its thread emulates.
    """
    global _inside, _set
    with _lock:
        if not _inside:
            _set = _entered(answer)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _set.close()


def _entered(answer: Answer) -> ExitStack:
    stack = ExitStack()
    with stack:
        if "torch._dynamo" in sys.modules:  # it takes seconds to import
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        library: Any = torch.library.Library("aten", "IMPL")
        stack.callback(library._destroy)
        for name in (*RECURRENT, MATH_ATTENTION):
            packet = getattr(torch.ops.aten, name)
            for func in (getattr(packet, overload) for overload in packet.overloads()):
                for key in _KEYS:
                    library.impl(func, _kernel(func, answer), key)
        return stack.pop_all()
    raise AssertionError


def _kernel(func: Any, answer: Answer) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return answer(func, args, kwargs)

    return kernel


def mark(given: Any, results: Any, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Have functions called before and after each step of the backward pass from results to what was given."""
    last = {edge for tensor in tree_leaves(given) if isinstance(tensor, torch.Tensor) and (edge := tensor.grad_fn) is not None}
    waiting = [tensor.grad_fn for tensor in tree_leaves(results) if isinstance(tensor, torch.Tensor)]
    known: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in last or node in known or node.name() == "torch::autograd::AccumulateGrad":
            continue
        known.add(node)
        node.register_prehook(lambda _: before())
        node.register_hook(lambda *_: after())
        waiting += [each for each, _ in node.next_functions]
