"""Compiled functions: products in the graphs of torch.compile, forward and backward, become operators with a GPU's bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName
from fastmma.torch.attention import APART, answered
from fastmma.torch.emulation import Emulation
from fastmma.torch.operators import NEW, OPERATORS, UNKNOWN, form_of
from fastmma.torch.report import Report
from fastmma.torch.settings import settings_of

_INNER = ("inductor", "eager")
_CONCERNED = frozenset(func for func in (*OPERATORS, *APART, *UNKNOWN) if form_of(func) == NEW)
_numbers = itertools.count()
_emulations: dict[int, Emulation] = {}  # by the numbers that graphs hold


class Backend:
    """What ``torch.compile(backend=...)`` takes.

    Attributes
    ----------
    report : Report
    """

    def __init__(self, run: Emulation, inner: str) -> None:
        self._run, self._inner = run, inner
        self._number = next(_numbers)
        _emulations[self._number] = run

    @property
    def report(self) -> Report:
        """What calls of compiled functions became of."""
        return self._run.report

    def __call__(self, graph: Any, inputs: Any) -> Any:
        """Compile a graph that torch has captured."""
        if self._inner == "inductor":
            from torch._functorch import config
            from torch._inductor.compile_fx import compile_fx, compile_fx_inner

            with config.patch(enable_autograd_cache=False):  # it would return graphs that hold the number of another emulation
                return compile_fx(
                    graph, inputs, inner_compile=lambda made, given, **how: compile_fx_inner(self._changed(made), given, **how)
                )
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch.aot_autograd import make_boxed_func

        return aot_autograd(fw_compiler=lambda made, _: make_boxed_func(self._changed(made).forward))(graph, inputs)

    def _changed(self, graph: Any) -> Any:
        """The graph with its products, and what the report names, replaced."""
        for node in list(graph.graph.nodes):
            if node.op == "call_function" and node.target in _CONCERNED:
                node.target = _operator(node.target)
                node.args = (self._number, *node.args)
        graph.recompile()
        return graph


@cache
def _operator(func: Any) -> Any:
    """An operator of our own that computes what one of torch's does; its first argument says by which emulation."""
    schema = func._schema
    name = f"{schema.name.partition('::')[2]}_{schema.overload_name or 'default'}"
    written = str(schema).partition("(")[2]
    torch.library.define(f"fastmma::{name}", f"(int emulation, {written}")

    def compute(emulation: int, *args: Any, **kwargs: Any) -> Any:
        return answered(_emulations[emulation], func, args, kwargs)

    def shapes(emulation: int, *args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    torch.library.impl(f"fastmma::{name}", "CPU", compute)
    torch.library.register_fake(f"fastmma::{name}", shapes)
    return getattr(torch.ops.fastmma, name).default


def backend(target: TargetName = "sm_90a", *, inner: str = "inductor", **options: Any) -> Callable[..., Any]:
    """A backend of ``torch.compile`` whose products have the bits of a GPU, in the forward and in the backward graph.

    Parameters
    ----------
    target : str
        The GPU.
    inner : {"inductor", "eager"}
        Who compiles the rest; inductor needs a C++ compiler.
    **options
        Those of `emulate`, except for `as_cuda`.

    Returns
    -------
    Backend
        Callable, with a `report`.

    Raises
    ------
    OperandError, TargetError
        If an option is wrong.

    Examples
    --------
    >>> gpu = backend("H100", inner="eager")
    >>> product = torch.compile(lambda a: torch.relu(a @ a.T), backend=gpu)
    >>> product(torch.ones(16, 32, dtype=torch.bfloat16))[0, 0].item(), gpu.report.emulated
    (32.0, 1)
    """
    if inner not in _INNER:
        raise OperandError(f"inner must be one of {', '.join(map(repr, _INNER))}, not {inner!r}")
    return Backend(Emulation(settings_of(target, options)), inner)
