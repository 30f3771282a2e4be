"""`with fastmma.triton.interpret("H100")`: kernels run on a CPU with the bits of a GPU's tensor cores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from fastmma.functions.pretended import pretended
from fastmma.host import forks
from fastmma.host.calls import named_keywords
from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName, target_named
from fastmma.triton.addresses import of_launch
from fastmma.triton.autotuning import make_run
from fastmma.triton.driver import Driver
from fastmma.triton.emulation import Emulation, Races, Source
from fastmma.triton.execution import describe_memory, run_launch
from fastmma.triton.gluon.launch import launch
from fastmma.triton.launches import bind_arguments, check_options, count_grid
from fastmma.triton.patches import check_triton, patched, warmed_up
from fastmma.triton.reasons import locate
from fastmma.triton.report import Other, Report
from fastmma.triton.scalars import convert_arguments
from fastmma.triton.twins import all_of_kind, list_functions

_LOCK = forks.shared_lock(outermost=True)  # the interpreter has one grid position for all threads: one kernel runs at a time
_OPEN: list[Emulation] = []
_OWN: ContextVar[tuple[Emulation, ...]] = ContextVar("fastmma.triton", default=())
_INTERPRET = InterpretedFunction.run
_STACK = ExitStack()  # what is put back when the last one ends


def _current() -> Emulation:
    own = _OWN.get()
    return own[-1] if own else _OPEN[-1]


def _run_gluon(run: Emulation, kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any], grid: Any) -> None:
    given, rest = bind_arguments(kernel, arguments, options)
    check_options(kernel, rest, run.capability)
    run.enter(kernel, arguments, options)
    with of_launch(describe_memory(run, given, makes_pointers=run.launch.names_pointers)):
        launch(run, kernel, (), given | rest, count_grid(kernel, grid, given), given)


def _run(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
    if warmup:
        return warmed_up(kernel)
    with _LOCK, np.errstate(all="ignore"), torch._C.DisableTorchFunction():
        run = _current()
        if isinstance(kernel, JITFunction) and kernel.is_gluon():
            return _run_gluon(run, kernel, arguments, options, grid)
        given, rest = bind_arguments(kernel, arguments, options)
        check_options(kernel, rest, run.capability)
        size = count_grid(kernel, grid, given)
        run.begin(kernel, arguments, options)

        def interpreted() -> Any:
            with all_of_kind(kernel, InterpretedFunction, *list_functions(given.values())) as function, patched(run):
                return _INTERPRET(function, grid=size, warmup=False, **convert_arguments(function, given), **rest)

        try:
            return run_launch(run, size, given, interpreted)
        except Exception as error:
            located = locate(error, kernel.__name__, run.launch.refusal)
            if located is None:
                raise
            raise located from None


def _enter(run: Emulation) -> None:
    with _LOCK:
        if not _OPEN:
            check_triton()
            put = _STACK.enter_context
            put(patch.object(InterpretedFunction, "run", _run))
            put(patch.object(JITFunction, "run", _run))
            put(patch.object(Autotuner, "run", make_run(_current)))
            put(patch.object(triton.runtime.driver, "_active", Driver(_current)))
        _OPEN.append(run)


def _leave(run: Emulation) -> None:
    with _LOCK:
        del _OPEN[next(index for index, one in enumerate(_OPEN) if one is run)]
        if not _OPEN:
            _STACK.close()


@named_keywords
@contextmanager
def interpret(
    target: TargetName = "sm_90a",
    *,
    lowering: Source = "compile",
    num_warps: int | None = None,
    fp_fusion: bool | None = None,
    other: Other = "pass",
    configs: Mapping[str, Any] | None = None,
    as_cuda: bool = False,
    races: Races = "error",
) -> Iterator[Report]:
    """Run Triton kernels on this CPU, with the bits that they have on a GPU.

    Inside the ``with``, or the function that it decorates, ``kernel[grid](...)`` takes CPU tensors. ``TRITON_INTERPRET`` need not be set.

    Parameters
    ----------
    target : str
        The GPU: ``"H100"``, ``"sm_80"``, ``(8, 9)``.
    lowering : {"compile", "ptx", "rules"}
        How to find the instructions of an operation. ``"compile"`` asks Triton's compiler, which needs no GPU; ``"rules"`` follows
        fastmma's rules, which take no time. A kernel that the compiler refuses is an error; if the compiler fails otherwise, the rules
        decide, and the report says so. If the compiler's answer does not tell the interpreter which bits an operation has, the kernel's
        PTX is executed, and the report says so. ``"ptx"`` executes the PTX of all kernels, which is also faster.
    num_warps : int, optional
        Warps of a program if the launch does not set them; 4 by default, as in Triton.
    fp_fusion : bool, optional
        Whether products and sums are contracted to fused multiply-adds; by default as the launch or Triton says.
    other : {"pass", "warn", "error"}
        What to do with an operation whose bits are not known, such as the approximation of ``tl.sin``. ``"pass"``: NumPy computes it and
        the report counts it. ``"warn"``: a warning says so, too. ``"error"``: raise a `NotEmulatedError`.
    configs : mapping, optional
        The configurations of kernels with `triton.autotune`, by the kernel's name: a `triton.Config`, some of its values as a mapping, or
        its place in the list. Other kernels take the first of their configurations that is left, and the report says which.
    as_cuda : bool
        Pretend to be the GPU, so that code that asks torch or Triton for one finds it: ``torch.cuda`` answers for it, and tensors of
        ``device="cuda"`` live on the CPU. `fastmma.torch.emulate` does the same, and the two nest.
    races : {"error", "note"}
        What to do if nothing orders two accesses of a Gluon kernel: raise a `RaceError`, or put a note into the report and go on as if the
        first access had come first.

    Yields
    ------
    Report
        Counts of all operations: those that were emulated, those that are neutral, and those that were passed to NumPy, with the reason.

    Raises
    ------
    TargetError
        If there is no such GPU, or its arithmetic in an instruction of a kernel is not known.
    NotEmulatedError
        With ``other="error"``, at operations that cannot run here, such as inline assembly, and where Triton's compiler refuses a kernel.
    BackendError
        If this version of Triton was not tested, or something else has changed its interpreter.
    OperandError
        If an option has a wrong value, or `configs` names a configuration that a kernel does not have.

    Notes
    -----
    Interpreters nest, and the innermost one is in effect. A thread without an interpreter of its own uses the one that was entered last.

    Examples
    --------
    >>> with interpret("H100") as report:
    ...     pass
    >>> report.target
    'sm_90a'
    """
    for name, value, values in (
        ("lowering", lowering, ("compile", "ptx", "rules")),
        ("other", other, ("pass", "warn", "error")),
        ("races", races, ("error", "note")),
    ):
        if value not in values:
            raise OperandError(f"{name} must be one of {', '.join(values)}, not {value!r}")
    named = target_named(target)
    run = Emulation(named, lowering, num_warps, fp_fusion, Report(named, other), configs or {}, races)
    _enter(run)
    token = _OWN.set((*_OWN.get(), run))
    try:
        with pretended(named) if as_cuda else nullcontext():
            yield run.report
    finally:
        _OWN.reset(token)
        _leave(run)


@contextmanager
def from_environment(*, as_cuda: bool = False) -> Iterator[Report | None]:
    """Run Triton kernels with the bits of the GPU that ``FASTMMA_TRITON`` names; the pytest plug-in enters it around a session.

    Parameters
    ----------
    as_cuda : bool
        Pretend to be the GPU, as `interpret` does; the plug-in's ``--tensor-core-cuda``.

    Yields
    ------
    Report or None
        None if the variable is not set.

    Raises
    ------
    TargetError, BackendError
        As `interpret` does.
    """
    target = os.environ.get("FASTMMA_TRITON")
    if not target:
        yield None
        return
    with interpret(target, as_cuda=as_cuda) as report:
        yield report
