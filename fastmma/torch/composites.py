"""Composites whose steps on a GPU are others: they are recognised above autograd, where torch takes them apart, and in the backward pass.

What is set here concerns the whole process while a thread of it emulates: kernels that ask whether their thread does, and compiled
functions, which run uncompiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from typing import Any

import torch
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.map import map_impl
from torch.utils._pytree import tree_leaves

from fastmma.host import forks
from fastmma.torch.choices import chosen_as_on_gpu
from fastmma.torch.generators import checkpointed
from fastmma.torch.initial_weights import filled_as_recorded
from fastmma.torch.unfixed import FUSED, MATH_ATTENTION, RECURRENT

Answer = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
Asks = Callable[[tuple[Any, ...], dict[str, Any]], Any]
_KEYS = ("AutogradCPU", "AutogradCUDA") if torch.backends.cuda.is_built() else ("AutogradCPU",)
_lock = forks.shared_lock(outermost=True)
_inside = 0
_set: ExitStack


@contextmanager
def recognised(answer: Answer, emulates: Asks) -> Iterator[None]:
    """Let `answer` compute these composites, on all threads, within the ``with``; the first to enter says how.

    Parameters
    ----------
    answer : callable
        Takes the operator and its arguments, and asks whether its thread emulates.
    emulates : callable
        Says whether the thread emulates a call with some arguments.
    """
    global _inside, _set
    with _lock:
        if not _inside:
            _set = _entered(answer, emulates)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _set.close()


def _entered(answer: Answer, emulates: Asks) -> ExitStack:
    stack = ExitStack()
    try:
        _leave_uncompiled(stack)
        stack.enter_context(checkpointed())
        stack.enter_context(chosen_as_on_gpu(lambda: _computes_functions(emulates((), {}))))
        stack.enter_context(filled_as_recorded(lambda: _computes_functions(emulates((), {}))))
        stack.callback(_forget)
        for flow, run in _FLOWS:
            stack.callback(flow.py_kernels.__setitem__, _AUTOGRAD, flow.py_kernels[_AUTOGRAD])
            _set_kernel(flow, _either(run, flow.py_kernels[_AUTOGRAD], emulates))
        library: Any = torch.library.Library("aten", "IMPL")
        stack.callback(library._destroy)
        for func in _composites():
            for key in _KEYS:
                library.impl(func, _kernel(func, answer), key)
    except BaseException:
        stack.close()
        raise
    return stack


def _computes_functions(mode: Any) -> bool:
    return mode is not None and mode.run.settings.computes_functions


@cache
def _composites() -> tuple[Any, ...]:
    packets = (getattr(torch.ops.aten, name) for name in (*RECURRENT, MATH_ATTENTION))
    whole = (getattr(packet, overload) for packet in packets for overload in packet.overloads())
    return (*whole, *(getattr(getattr(torch.ops.aten, name), overload) for name, overload in FUSED.items()))


def _leave_uncompiled(stack: ExitStack) -> None:
    """Have compiled functions run uncompiled until a stack is closed, and import the compiler, which takes seconds, only if need be."""
    if "torch._dynamo" in sys.modules:
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        return
    plain = torch.compile

    @wraps(plain)
    def compile_nothing(*args: Any, **kwargs: Any) -> Any:
        with _lock:
            if torch.compile is compile_nothing:
                torch.compile = plain
                stack.enter_context(torch.compiler.set_stance("force_eager"))
        return plain(*args, **kwargs)

    def put_back() -> None:
        if torch.compile is compile_nothing:
            torch.compile = plain

    torch.compile = compile_nothing
    stack.callback(put_back)


def _kernel(func: Any, answer: Answer) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return answer(func, args, kwargs)

    return kernel


def _chosen(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any) -> Any:
    return (true_fn if pred else false_fn)(*operands)


# control flows whose gradients torch finds in compiled functions alone: uncompiled, autograd sees their operators
_AUTOGRAD = torch._C.DispatchKey.Autograd
_FLOWS: tuple[tuple[Any, Callable[..., Any]], ...] = (
    (cond_op, _chosen),
    (map_impl, map_impl.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]),
)


def _set_kernel(flow: Any, kernel: Callable[..., Any]) -> None:
    flow.py_kernels[_AUTOGRAD] = kernel
    flow._dispatch_cache.clear()


def _forget() -> None:
    """Have torch look for the kernels of control flows again."""
    for flow, _ in _FLOWS:
        flow._dispatch_cache.clear()


def _either(run: Callable[..., Any], plain: Callable[..., Any], emulates: Asks) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs) if emulates(args, kwargs) else plain(*args, **kwargs)

    return kernel


def decompose(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a composite by the operators that torch's own kernel is made of; `func.decompose` would take others for some."""
    return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


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
