"""Compiled functions: products in the graphs of torch.compile, forward and backward, become operators with a GPU's bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Interpreter

from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName
from fastmma.torch.compiled import Lines, lines_of, place_of, recurrent_lines
from fastmma.torch.dispatch import DispatchMode
from fastmma.torch.emulation import Emulation
from fastmma.torch.places import belong_to
from fastmma.torch.replacements import replacements
from fastmma.torch.report import UNSEEN, Line, Report
from fastmma.torch.settings import settings_of

_PARTLY = "not captured by torch.compile(fullgraph=True): what runs outside of the graph is not seen"
# inductor must not change graphs before their operations are counted
_UNCHANGED = {"pattern_matcher": False, "joint_graph_constant_folding": False, "freezing": False}


class Backend:
    """A backend for ``torch.compile(backend=...)``.

    Attributes
    ----------
    report : Report
    """

    def __init__(self, run: Emulation, inner: str) -> None:
        self._run, self._compile = run, _INNER[inner]

    @property
    def report(self) -> Report:
        """What calls of compiled functions became of."""
        return self._run.report

    def __call__(self, graph: Any, inputs: Any) -> Any:
        """Compile a graph that torch has captured."""
        return self._compile(self._run, _outside() + recurrent_lines(graph), graph, inputs)


def _outside() -> Lines:
    """Describe what may run outside of the graph that torch is capturing."""
    from torch._dynamo.symbolic_convert import tls

    captured = getattr(tls, "current_tx", None)
    if captured is not None and captured.one_graph:
        return Lines()
    code = captured and captured.f_code
    name, place = (code.co_name, f"{code.co_filename}:{code.co_firstlineno}") if code else ("", "")
    return Lines({(Line("torch.compile", UNSEEN, name, _PARTLY), place): 1})


def _eager(run: Emulation, outside: Lines, graph: Any, inputs: Any) -> Any:
    """Run graphs operator by operator, within the mode."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    def compile_graph(made: Any, _: Any) -> Any:
        places = {node: place_of(node) for node in made.graph.nodes}

        def run_graph(*args: Any) -> Any:
            _count(run, outside)
            mode = DispatchMode(run)
            try:
                with mode:
                    return _Placed(made, places).run(*args)
            finally:
                run.report.settle(mode.tally)

        return make_boxed_func(run_graph)

    return aot_autograd(fw_compiler=compile_graph)(graph, inputs)


class _Placed(Interpreter):
    """Runs a graph, each operation with the caller's line that it belongs to."""

    def __init__(self, graph: Any, places: dict[Any, str]) -> None:
        super().__init__(graph)
        self._places = places

    def run_node(self, node: Any) -> Any:
        """Run an operation."""
        with belong_to(self._places[node]):
            return super().run_node(node)


def _inductor(run: Emulation, outside: Lines, graph: Any, inputs: Any) -> Any:
    """Have inductor compile graphs, with products replaced before anything takes them apart."""
    from torch._functorch import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table

    def compile_graph(made: Any, given: Any, **how: Any) -> Any:
        return _Counted(run, outside + lines_of(made), compile_fx_inner(made, given, **how))

    table = {**select_decomp_table(), **replacements(run)}
    with config.patch(enable_autograd_cache=False):  # it would return graphs that hold the number of another emulation
        return compile_fx(graph, inputs, inner_compile=compile_graph, config_patches=_UNCHANGED, decompositions=table)


class _Counted:
    """A compiled graph whose lines are counted at every run."""

    def __init__(self, run: Emulation, lines: Lines, compiled: Any) -> None:
        self._run, self._lines, self._compiled = run, lines, compiled
        self._boxed_call = True  # torch asks the instance: it takes a list of its arguments

    def __call__(self, args: list[Any]) -> Any:
        _count(self._run, self._lines)
        return self._compiled(args)


def _count(run: Emulation, lines: Lines) -> None:
    """Count what ran beside the mode; what is unseen may be refused."""
    for (line, where), number in lines.items():
        if line.status != UNSEEN:
            run.report.count(line, where, number)
            continue
        with belong_to(where):
            for _ in range(number):
                run.passed(line.operator, line.how, line.operands, UNSEEN)


_INNER: dict[str, Callable[..., Any]] = {"inductor": _inductor, "eager": _eager}


def backend(target: TargetName = "sm_90a", *, inner: str = "inductor", **options: Any) -> Callable[..., Any]:
    """Return a backend of ``torch.compile`` whose products have the bits of a GPU, in the forward and in the backward graph.

    Its report lists every operation of each graph that ran. Operations that inductor compiles are passed, except for moves, integers, and
    casts to wider formats, because inductor skips roundings between the operations that it fuses; ``inner="eager"`` keeps them. Without
    ``fullgraph=True``, operations that torch does not capture are unseen.

    Parameters
    ----------
    target : str
        The GPU.
    inner : {"inductor", "eager"}
        Runs the other operations: inductor's C++, which needs a compiler, or torch, operator by operator within the mode.
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
    >>> import torch
    >>> gpu = backend("H100", inner="eager")
    >>> product = torch.compile(lambda a: torch.relu(a @ a.T), backend=gpu, fullgraph=True)
    >>> product(torch.ones(16, 32, dtype=torch.bfloat16))[0, 0].item(), gpu.report.emulated
    (32.0, 1)
    >>> gpu.report.assert_all_emulated()
    """
    if inner not in _INNER:
        raise OperandError(f"inner must be one of {', '.join(map(repr, _INNER))}, not {inner!r}")
    return Backend(Emulation(settings_of(target, options)), inner)
